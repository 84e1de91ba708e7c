#!/bin/sh
# A report when a job ends: Epilog=/etc/slurm/epilog.d/postrun.sh in slurm.conf. Jobs record with: postrun record --out RUN -- ...
#
# It runs as root on every node of the job, without a search path; the node is not free until it ends, is taken out when it fails, and
# everything that it leaves in its process group is killed. So the report is made as the user, in a unit of its own with systemd,
# else here within a time limit. The first node of the job that makes the folder reports.
runs=/shared/runs
postrun=/opt/postrun/bin/postrun
seconds=600

[ -n "$SLURM_JOB_USER" ] && [ -n "$SLURM_JOB_ID" ] || exit 0
# A job that is requeued keeps its number; where each start has a folder of its own (run-JOB-RESTARTS), it is the newest one.
run=
for folder in "$runs/$SLURM_JOB_USER/run-$SLURM_JOB_ID" "$runs/$SLURM_JOB_USER/run-$SLURM_JOB_ID"-*; do
    if [ -d "$folder" ] && { [ -z "$run" ] || [ "$folder" -nt "$run" ]; }; then
        run=$folder
    fi
done
[ -n "$run" ] || exit 0
attempt=${SLURM_RESTART_COUNT:-0}

# shellcheck disable=SC2016
set -- /bin/sh -c 'mkdir "$2" && exec "$0" report "$1" --output "$2" --quiet' "$postrun" "$run" "$run/report.$attempt"
if [ -d /run/systemd/system ] && [ -x /usr/bin/systemd-run ]; then
    /usr/bin/systemd-run --quiet --collect --no-block --unit="postrun-$SLURM_JOB_ID-$attempt" --uid="$SLURM_JOB_USER" \
        --property=RuntimeMaxSec="$seconds" --property=MemoryMax=4G --property=CPUWeight=20 -- "$@" > /dev/null 2>&1
else
    /usr/bin/timeout --kill-after=10 "$seconds" /usr/sbin/runuser -u "$SLURM_JOB_USER" -- "$@" > /dev/null 2>&1
fi
exit 0
