#!/usr/bin/env bash
#SBATCH --job-name=streampca
#SBATCH --time=04:00:00
#SBATCH --cpus-per-task=2
#SBATCH --mem=4G
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=streampca-%j.log
# Run a configuration as a job that may need more than one wall time.
#   sbatch submit.sh CONFIG.yaml [OPTIONS OF streampca run]
#   sbatch --time=12:00:00 --mem=16G submit.sh CONFIG.yaml       # sbatch's own options come first
#
# Two minutes before the wall time Slurm signals this shell, which passes it on; streampca saves what it has and exits
# with 75. The job is then put back into the queue, and the same command goes on from there. Any other exit code ends it,
# and so does scancel.
# streampca is taken from $STREAMPCA_VENV/bin if that is set, else from the PATH.
set -uo pipefail

unfinished=75
most_restarts=${STREAMPCA_MOST_RESTARTS:-100}
restarts=${SLURM_RESTART_COUNT:-0}

say() { echo "$(date '+%F %T') submit: $*"; }

if [ $# -eq 0 ]; then
    echo "usage: sbatch submit.sh CONFIG.yaml [OPTIONS]" >&2
    exit 2
fi
[ -z "${STREAMPCA_VENV:-}" ] || PATH=$STREAMPCA_VENV/bin:$PATH
if ! command -v streampca >/dev/null; then
    say "streampca is not on the PATH: activate its environment before sbatch, or set STREAMPCA_VENV" >&2
    exit 127
fi

child= told= trapped=
# Nothing may be lost between the start of the child and the moment its number is known.
pass_on() { told=$1 trapped=1; [ -z "$child" ] || kill -s "$1" "$child" 2>/dev/null; }
trap 'pass_on USR1' USR1
trap 'pass_on TERM' TERM

say "job ${SLURM_JOB_ID:-none}, restart $restarts: streampca run $*"
streampca run "$@" &
child=$!
[ -z "$told" ] || kill -s "$told" "$child" 2>/dev/null

# A trap ends wait with more than 128, whether the child still runs or not: only a wait without one has its exit code.
while :; do
    trapped=
    wait "$child"
    code=$?
    [ -n "$trapped" ] && [ "$code" -gt 128 ] || break
done

# Told to stop before it could hear: 128 and the number of USR1.
[ "$code" -ne 138 ] || code=$unfinished
if [ "$code" -ne "$unfinished" ]; then
    say "exit code $code"
    exit "$code"
fi
if [ -z "${SLURM_JOB_ID:-}" ]; then
    say "unfinished; run the same command again"
elif [ "$told" = TERM ] && [ "$(date +%s)" -lt $((${SLURM_JOB_END_TIME:-9999999999} - 5)) ]; then
    say "unfinished, and told to end: sbatch the same command again to go on"
elif [ "$restarts" -ge "$most_restarts" ]; then
    say "unfinished after $restarts restarts: sbatch the same command again to go on, or give it more time"
else
    say "unfinished: back into the queue"
    scontrol requeue "$SLURM_JOB_ID" || say "scontrol cannot requeue: sbatch the same command again to go on" >&2
fi
exit "$unfinished"
