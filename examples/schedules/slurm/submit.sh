#!/bin/sh
# A night: the array, and the index when all parts have ended, however they ended. Call it from cron or scrontab:
#     15 2 * * * /shared/postrun/submit.sh
set -eu
here=$(dirname "$0")
export SOURCE="${SOURCE:-/shared/runs}" OUT="${OUT:-/shared/reports}"

night=$(sbatch --parsable "$here/nightly.sbatch")
# Of several clusters, the name comes behind the number.
night=${night%%;*}
sbatch --dependency="afterany:$night" "$here/index.sbatch"
