#!/bin/bash
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:TERM@300
#SBATCH --requeue
#SBATCH --open-mode=append

say() { echo "relkit: $*" >&2; }
is_running() { [ "$(timeout 30 squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ]; }

# Evidence of hangs, and how each launcher has ended: a folder that all nodes see.
# One a job: how an earlier job has ended says nothing of this one.
folder=${RELKIT_SLURM_FOLDER:-$PWD}/relkit-$SLURM_JOB_ID
export RELKIT_ENDS=$folder/ends-${SLURM_RESTART_COUNT:-0}
mkdir -p "$RELKIT_ENDS" || exit 1
max_requeues=10

# Slurm tells this script alone (B:) that the time is nearly over. A job that is cancelled gets
# SIGTERM too, but its launchers have heard that themselves.
told='' sent='' step=''
forward() {
    if [ -z "$told" ] || [ -z "$step" ] || [ "$sent" ] || ! is_running; then return; fi
    sent=1
    for _ in $(seq 120); do  # a launcher that is not there yet would not hear it
        set -- "$RELKIT_ENDS"/*.up
        if [ -e "$1" ] && [ "$#" -ge "$SLURM_NNODES" ]; then break; fi
        kill -0 "$step" 2>/dev/null || return
        sleep 0.25
    done
    say "the time is nearly over: the launchers are told to save and to end"
    timeout 60 scancel --signal=URG "$SLURM_JOB_ID"
}
trap 'told=1 again=1; forward' TERM

# shellcheck disable=SC2016
on_node='
# SIGURG: the time is nearly over. The launcher is told once, by SIGTERM; a second one would cut
# its saving short. SIGTERM (scancel, preemption) has gone to the launcher as well.
tell() { if [ "$told" ] && [ "$!" ] && [ -z "$passed" ]; then passed=1; kill -TERM "$!"; fi; }
told="" passed=""
trap "told=1 again=1; tell" URG
trap "passed=1 again=1" TERM
: >"$RELKIT_ENDS/$SLURM_NODEID.up"
"$@" &
tell
again=1
while [ "$again" ]; do again=; wait "$!"; code=$?; done
echo "$code" >"$RELKIT_ENDS/$SLURM_NODEID.code"
exit "$code"
'
if [ "$told" ]; then exit 143; fi
srun --kill-on-bad-exit=0 --wait=0 bash -c "$on_node" relkit \
    relkit launch --nnodes=1 --nproc-per-node=1 --max-restarts=3 \
    --timeline-path="$folder" train.py &
step=$!
forward
again=1
while [ "$again" ]; do again=; wait "$step"; code=$?; done
trap '' TERM

# The job ends as its launchers did. A node that has left it (5) does not decide: either another
# took its place, or the others say why not. 75: the last step is saved. 143: ended by our word.
highest='' saved='' lost=''
for its in $(cat "$RELKIT_ENDS"/*.code 2>/dev/null || echo "$code"); do
    case $its in
        75) saved=75 ;;
        143) [ -z "$sent" ] || saved=${saved:-143} ;;
        77) lost=1 ;;
    esac
    if [ "$its" != 5 ] && [ "$its" -gt "${highest:--1}" ]; then highest=$its; fi
done
code=${highest:-$code}
if [ "$saved" ] && [ -z "$lost" ]; then
    code=$saved
    if [ "${SLURM_RESTART_COUNT:-0}" -ge "$max_requeues" ]; then
        say "not put back into the queue again: that was done $max_requeues times"
    elif is_running; then  # not where it was cancelled
        say "the job goes back into the queue, and resumes from what it has saved"
        timeout 60 scontrol requeue "$SLURM_JOB_ID" || say "Slurm has refused that (JobRequeue?)"
    fi
fi
exit "$code"
