#!/bin/bash
#SBATCH --job-name=dkl-fit
#SBATCH --ntasks=1
#SBATCH --mem=8G
#SBATCH --time=08:00:00
#SBATCH --signal=B:TERM@120
#SBATCH --requeue
# sbatch fit.sh RUN TASK OPTIONS...: fits, or resumes a run that is there, on workers of dask-jobqueue.
set -u
umask 077
python=${PYTHON:-python}
here=${SLURM_SUBMIT_DIR:-$(dirname "$0")}
workers=${WORKERS:-8}
run=$1
shift

# A run that is complete needs no workers to say how it ended.
if [ -e "$run/report.json" ]; then exec "$python" -m dkl.cli.main resume "$run"; fi

file=$run.scheduler.json
rm -f "$file"
"$python" "$here/workers.py" "$file" "$workers" &
cluster=$!
trap 'rm -f "$file"; kill -TERM "$cluster" 2>/dev/null; wait "$cluster"' EXIT
until [ -s "$file" ]; do
    kill -0 "$cluster" 2>/dev/null || exit 5
    sleep 1
done

# Certificates are those of Dask's configuration.
if [ -e "$run/config.json" ]; then
    "$python" -m dkl.cli.main resume "$run" --scheduler-file "$file" --wait-for "$workers" &
else
    "$python" -m dkl.cli.main fit "$@" --out "$run" --scheduler-file "$file" --wait-for "$workers" &
fi
client=$!
trap 'kill -TERM "$client"' TERM INT # commits and ends with 4
wait "$client"
code=$?
while kill -0 "$client" 2>/dev/null; do
    wait "$client"
    code=$?
done
exit "$code"
