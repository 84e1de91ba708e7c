#!/bin/sh
# A night as an array of jobs, and the index when all of them are done. Call it from cron, or from a rule of EventBridge Scheduler.
#     aws batch register-job-definition --cli-input-json file://job-definition.json     (once, and after a change)
#     submit.sh QUEUE SHARDS s3://bucket/runs s3://reports/runs
set -eu
[ $# -eq 4 ] || { echo "usage: $0 QUEUE SHARDS SOURCE OUT" >&2; exit 2; }
queue=$1 shards=$2 source=$3 out=$4
definition=postrun-nightly

set -- --job-name postrun-nightly --job-queue "$queue" --job-definition "$definition" --parameters "source=$source,out=$out"
# An array has two jobs or more; one job is the whole night.
[ "$shards" -lt 2 ] || set -- "$@" --array-properties "size=$shards"
night=$(aws batch submit-job "$@" --query jobId --output text)
echo "night: $night"

# Each part also writes the index when it ends, so that a failed part, after which this job does not start, leaves no old index.
index=$(aws batch submit-job --job-name postrun-index --job-queue "$queue" --job-definition "$definition" --depends-on "jobId=$night" \
    --container-overrides "command=postrun,nightly,$source,--out,$out,--index-only" --query jobId --output text)
echo "index: $index"
