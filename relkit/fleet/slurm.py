"""Agents in one job step: one `srun`, its stdin broadcast to all tasks, their lines merged."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence

from relkit.errors import RelkitError, ToolMissing, UsageProblem
from relkit.fleet.bounded_run import output_of
from relkit.fleet.conversation import Conversation
from relkit.fleet.exit_reason import how_it_ended, last_line
from relkit.fleet.io_multiplexer import Event
from relkit.fleet.remote_command import MISSING, missing, remote_words
from relkit.fleet.stream import Stream
from relkit.fleet.wire import BadLine

# slurmstepd passes output on in messages of 1024 bytes; a longer line may be torn apart by others.
_PART_BYTES = 1000
_HELPER_LIMIT_S = 15.0
_KEY = "srun"
_TASK_ENDED = re.compile(r"srun: error: (\S+): tasks? [\d,\[\]-]+: (.*)")
_UNUSABLE = ("down", "drain", "fail", "unknown", "power", "reboot", "future", "inval")


class SlurmChannel(Conversation):
    """The Channel over srun; nodes are called as Slurm calls them.

    Args:
        relkit: the command there; "" for the path of the running one, else `relkit`.
        partition: where to get the nodes outside of a job; "" needs a job around it.
        slurm_args: options for srun, split like in a shell, e.g. "--account x --time 10".
        environ: the environment, for tests.

    Raises:
        UsageProblem: neither a job nor a partition, or an open quote.
    """

    name = "slurm"

    def __init__(
        self,
        relkit: str = "",
        *,
        partition: str = "",
        slurm_args: str = "",
        environ: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._relkit = relkit
        self._partition = partition
        environ = os.environ if environ is None else environ
        self._in_job = bool(environ.get("SLURM_JOB_ID"))
        self._job_nodes = environ.get("SLURM_JOB_NODELIST", "") if self._in_job else ""
        if not self._in_job and not partition:
            raise UsageProblem(
                "this is not a Slurm job",
                next_step="Start it inside salloc or sbatch, or name a --partition.",
            )
        try:
            self._options = shlex.split(slurm_args)
        except ValueError as error:
            raise UsageProblem(f"--slurm-args {slurm_args!r}: {error}") from error

    def argv(self, names: Sequence[str], deadline_s: float) -> list[str]:
        """The one srun, for these nodes."""
        where = ["--overlap"] if self._in_job else [f"--immediate={max(1, round(deadline_s))}"]
        if self._partition:
            where.append(f"--partition={self._partition}")
        return [
            "srun",
            f"--nodes={len(names)}",
            f"--ntasks={len(names)}",
            "--ntasks-per-node=1",
            f"--nodelist={','.join(names)}",
            "--job-name=relkit",
            # One agent's end must not take the others along.
            *("--kill-on-bad-exit=0", "--wait=0", "--no-kill"),
            *("--input=all", "--mpi=none", "--cpu-bind=none"),
            *where,
            *self._options,
            *remote_words(self._relkit, ["agent", f"--part-bytes={_PART_BYTES}"]),
        ]

    def _bring_up(self, end: float, deadline_s: float) -> None:
        try:
            self._leave_out_unusable(min(_HELPER_LIMIT_S, deadline_s))
            names = self._roster.silent
            if not names:
                return
            self._multiplexer.add(Stream(_KEY, self.argv(names, end - time.monotonic())))
        except ToolMissing:
            raise
        except RelkitError as error:
            self._fail_silent(str(error))
            return
        while self._roster.silent and (left := end - time.monotonic()) > 0:
            self._step(left)
        self._fail_silent(f"did not answer within {deadline_s:g} s")

    def _leave_out_unusable(self, limit_s: float) -> None:
        """srun waits for a node that is down until its deadline, and all others with it."""
        states = node_states(output_of(["sinfo", "-h", "-N", "-o", "%N %T"], limit_s))
        ours = set(_expanded(self._job_nodes))
        for name in self._roster.silent:
            state = states.get(name, "")
            if not state:
                self._roster.fail(name, "Slurm has no node of this name")
            elif ours and name not in ours:
                self._roster.fail(name, "is not part of this Slurm job")
            elif state.endswith("*"):
                why = f"Slurm reports that it does not respond ({state})"
                self._roster.fail(name, why, host_down=True)
            elif any(word in state for word in _UNUSABLE) and not self._in_job:
                why = f"Slurm reports it as {state}"
                self._roster.fail(name, why, host_down=state.startswith("down"))

    def _keys(self) -> Iterable[str]:
        return [_KEY]

    def _handle(self, event: Event) -> None:
        if event.kind == "line":
            try:
                self._roster.accept(event.data)
            except BadLine as error:
                # The stream is shared by all: only this node is dropped.
                self._roster.fail(error.node, f"sent {error}")
        elif event.kind == "complaint":
            ended = _TASK_ENDED.search(event.text)
            for name in _expanded(ended[1]) if ended else ():
                if ended and name in self._nodes:
                    code = 127 if "exit code 127" in ended[2] else 0
                    self._roster.fail(name, MISSING if missing("", code) else _task(ended[2]))
        else:
            why = event.text or self._explain(event.code, event.complaint)
            for name in self._nodes:
                self._roster.fail(name, why)

    def _explain(self, code: int, complaint: str) -> str:
        if missing(complaint, 0):
            return MISSING
        if "Unable to allocate resources" in complaint or "has been revoked" in complaint:
            return f"Slurm allocated no nodes: {last_line(complaint)}"
        return f"srun {how_it_ended(code, complaint)}"

    def _fail_silent(self, why: str) -> None:
        for name in self._roster.silent:
            self._roster.fail(name, why)

    def _fail_stuck(self, key: str, why: str) -> None:
        # srun is not killed for it: an srun that is killed leaves its job to Slurm's own timeouts.
        for name in self._nodes:
            self._roster.fail(name, f"srun {why}")


def node_states(text: str) -> dict[str, str]:
    """Node name -> state, from lines `NAME STATE`, one a node and partition."""
    states: dict[str, str] = {}
    for line in text.splitlines():
        name, _, state = line.strip().partition(" ")
        if name and state:
            states[name] = state.strip().lower()
    return states


def _task(complaint: str) -> str:
    return f"its agent ended: {last_line(complaint)}"


def _expanded(names: str) -> list[str]:
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return list(NodeSet(names))
    except NodeSetException:
        return []
