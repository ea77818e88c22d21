"""The text of a script for sbatch: the same bytes for the same job."""

from __future__ import annotations

import re
import shlex

from relkit.slurm.job import SlurmJob, check

# Runs on each node, around the launcher. Slurm signals all processes of a step, ranks too, whose
# memory is what is to be saved: so the word comes as SIGURG, which nobody hears but this.
_ON_NODE = r"""
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
"""

_BEFORE = r"""
say() { echo "relkit: $*" >&2; }
is_running() { [ "$(timeout 30 squeue -h -j "$SLURM_JOB_ID" -o %T)" = RUNNING ]; }

# Evidence of hangs, and how each launcher has ended: a folder that all nodes see.
# One a job: how an earlier job has ended says nothing of this one.
folder=${RELKIT_SLURM_FOLDER:-$PWD}/relkit-$SLURM_JOB_ID
export RELKIT_ENDS=$folder/ends-${SLURM_RESTART_COUNT:-0}
mkdir -p "$RELKIT_ENDS" || exit 1
"""

_FORWARD = r"""
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
"""

_STARTED = r"""step=$!
forward
"""

# Where the first node has the rendezvous, the job ends with it. Elsewhere it may leave the job to a
# spare, and nothing that a node writes says that the others have to end.
_ELSEWHERE = re.compile(r"--(rdzv|master)[-_](endpoint|addr)\b")
_LOST_NODES = r"""
# srun waits for a lost node for ever: not longer than 30 s after the first one has ended.
(
    until [ -e "$RELKIT_ENDS/0.code" ]; do sleep 1; done
    sleep 30
    kill -KILL "$step"
) 2>/dev/null &
watch=$!
"""

_AFTER = r"""again=1
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
"""

_REQUEUE = r"""    if [ "${SLURM_RESTART_COUNT:-0}" -ge "$max_requeues" ]; then
        say "not put back into the queue again: that was done $max_requeues times"
    elif is_running; then  # not where it was cancelled
        say "the job goes back into the queue, and resumes from what it has saved"
        timeout 60 scontrol requeue "$SLURM_JOB_ID" || say "Slurm has refused that (JobRequeue?)"
    fi
"""


def render(job: SlurmJob) -> str:
    """The whole script.

    Raises:
        UsageProblem: the job cannot be, see check.
    """
    check(job)
    requeue = _REQUEUE if job.max_requeues else ""
    is_watched = bool(job.spares) and not any(map(_ELSEWHERE.match, job.launch))
    parts = [
        "#!/bin/bash",
        *(f"#SBATCH {line}" for line in _sbatch(job)),
        _BEFORE.rstrip(),
        *([f"max_requeues={job.max_requeues}"] if requeue else []),
        _FORWARD.rstrip(),
        "",
        "# shellcheck disable=SC2016",
        f"on_node={shlex.quote(_ON_NODE)}",
        # A word that came before the step is there is no reason to begin it.
        'if [ "$told" ]; then exit 143; fi',
        *_step(job),
        _STARTED.rstrip(),
        *([_LOST_NODES.rstrip()] if is_watched else []),
        _AFTER.rstrip(),
        *([requeue.rstrip()] if requeue else []),
        "fi",
        *(['kill "$watch" 2>/dev/null'] if is_watched else []),
        'exit "$code"',
    ]
    return "\n".join(parts) + "\n"


def _sbatch(job: SlurmJob) -> list[str]:
    lines = [f"--job-name={_value(job.name)}"] if job.name else []
    lines += [f"--nodes={job.nodes + job.spares}", "--ntasks-per-node=1"]
    if job.gpus:
        lines.append(f"--gpus-per-node={job.gpus}")
    if job.time:
        lines.append(f"--time={job.time}")
    lines += [
        f"--signal=B:TERM@{job.save_before_s}",
        "--requeue" if job.max_requeues else "--no-requeue",
        # What the start before has printed stays.
        "--open-mode=append",
    ]
    if job.spares:
        # A node that is lost is a spare's to replace, and not the end of the job.
        lines.append("--no-kill")
    return [*lines, *job.sbatch]


def _value(text: str) -> str:
    """A value as sbatch reads it: in double quotes where it has a blank."""
    return f'"{text}"' if " " in text else text


def _step(job: SlurmJob) -> list[str]:
    srun = ["srun", "--kill-on-bad-exit=0", "--wait=0"]
    if job.spares:
        srun.append("--no-kill")
    launch = [
        *job.relkit,
        "launch",
        f"--nnodes={job.nodes}",
        *([f"--spares={job.spares}"] if job.spares else []),
        f"--nproc-per-node={job.workers}",
        f"--max-restarts={job.max_restarts}",
    ]
    more = " ".join(shlex.quote(word) for word in (*job.launch, *job.command))
    return [
        f'{" ".join(srun)} bash -c "$on_node" relkit \\',
        f"    {shlex.join(launch)} \\",
        f'    --timeline-path="$folder" {more} &',
    ]
