"""The traces of a job's ranks, as torch.profiler and its like write them -> measured steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from relkit.errors import BadInputFile, UsageProblem
from relkit.ranks import RankSet
from relkit.straggler.measured_steps import MeasuredSteps, RankSteps
from relkit.straggler.model import Floats, Ints
from relkit.straggler.traces.roles import groups_of, role_of
from relkit.straggler.traces.step_marks import PROFILER, labels_by_worth, windows_of
from relkit.straggler.traces.step_parts import (
    StepParts,
    has_kernels,
    lacks_kernels,
    step_parts,
)
from relkit.straggler.traces.trace_file import TraceFile, device_model, host_of, read_trace

_TELL = "Name each file with its rank, as in rank0.json, or tell it: --rank 0=FILE."
_RECORD = "Trace with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], and prof.step()."
_MARK = "Call prof.step() at the end of each step, or record_function('step 7') around it."

_NO_KERNELS = (
    "it ran on a device, whose kernels are not in the trace (ProfilerActivity.CUDA records them)"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The steps of one file; a rank may have several, one for each time it was traced."""

    path: Path
    rank: int
    label: str
    numbers: Ints
    steps: StepParts
    role: str
    host: str
    devices: bool


@dataclass(slots=True)
class _Said:
    """What is to be said of what was read."""

    notes: list[str] = field(default_factory=list)
    not_judged: dict[int, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    world_size: int = 0


class TraceFolder:
    """Traces of one job, a file or more for each rank.

    Args:
        name: what the report calls the job.
        paths: of the files.
        ranks: whose a file is, where the user has told.
    """

    def __init__(
        self, name: str, paths: Sequence[Path], ranks: Mapping[Path, int] | None = None
    ) -> None:
        self._name, self._paths, self._ranks = name, tuple(paths), dict(ranks or {})

    def read(self) -> MeasuredSteps:
        """All of them, one after the other: only the steps of each are kept.

        Raises:
            BadInputFile: none is a trace with steps.
            UsageProblem: whose a file is must be told, or which of two that claim a step.
        """
        said = _Said()
        parts = [part for path in self._paths if (part := self._part(path, said)) is not None]
        if not parts:
            raise BadInputFile(
                f"{self._name}: no trace with steps in it: {'; '.join(said.files.values())[:500]}",
                next_step=_RECORD if said.not_judged else _MARK,
            )
        label = Counter(part.label for part in parts).most_common(1)[0][0]
        usual = [part for part in parts if part.label == label]
        for part in parts:
            if part.label != label:
                said.not_judged[part.rank] = f"its steps are marked by {part.label}, not by {label}"
        if label != PROFILER:
            said.notes.append(f"the traces have no ProfilerStep: their steps are told by {label}")
        kernels = any(part.devices for part in usual)
        if kernels:
            for part in usual:
                if not part.devices:
                    said.not_judged[part.rank] = "its trace has no kernels, as the others have"
            usual = [part for part in usual if part.devices]
        ranks = tuple(_joined(usual))
        world = max(said.world_size, ranks[-1].rank + 1)
        _say_missing(ranks, world, said)
        return MeasuredSteps(
            name=self._name, ranks=ranks, world_size=world,
            how="kernels" if kernels else "operations",
            busy_host_shows=not kernels, devices=kernels,
            not_judged=said.not_judged, notes=tuple(said.notes), files=said.files,
        )  # fmt: skip

    def _part(self, path: Path, said: _Said) -> _Part | None:
        try:
            trace = read_trace(path, self._ranks.get(path))
        except BadInputFile as error:
            said.files[path.name] = f"not used: {error}"
            return None
        labels = labels_by_worth(trace.events.marks)
        if not labels:
            said.files[path.name] = "not used: nothing in it marks steps"
            if trace.rank is not None:
                said.not_judged[trace.rank] = "nothing in its trace marks steps"
            return None
        if trace.rank is None:
            raise UsageProblem(
                f"nothing says which rank {path} is of: no distributedInfo in it, no rank in its "
                "name",
                next_step=_TELL,
            )
        if lacks_kernels(trace.events):
            said.files[path.name] = f"not used: {_NO_KERNELS}"
            said.not_judged[trace.rank] = _NO_KERNELS
            return None
        said.files[path.name] = f"a trace of rank {trace.rank}, steps by {labels[0]}"
        said.world_size = max(said.world_size, trace.world_size or 0)
        return _measured(trace, trace.rank, labels[0], said)


def _measured(trace: TraceFile, rank: int, label: str, said: _Said) -> _Part:
    windows = windows_of(label, trace.events.marks[label])
    steps = step_parts(trace.events, windows)
    whole_until_us = trace.steps_are_whole_until_us
    whole = windows.end_us < whole_until_us
    if trace.cut or trace.events.left_out:
        why = trace.cut or "it has more events than are read"
        kept = f"{int(whole.sum())} of its {len(whole)} steps are whole"
        said.notes.append(
            f"{trace.path.name}, rank {rank}: {why}, behind {len(trace.events):,} events; {kept}"
        )
        if not whole.all():
            said.not_judged[rank] = "its trace is cut"
    if trace.damaged:
        said.notes.append(f"{trace.path.name}: {trace.damaged} damaged events were passed over")
        said.not_judged[rank] = "events of its trace are damaged"
    parts = np.where(whole, steps.parts, np.nan)
    known = np.isfinite(parts).any(axis=0)
    groups = groups_of(trace.properties, trace.events.groups)
    devices = has_kernels(trace.events)
    role = role_of(rank, groups, steps.transfers, device_model(trace.properties))
    return _Part(
        trace.path, rank, label, windows.numbers[known],
        replace(steps, parts=parts[:, known], operation_s=steps.operation_s[:, known]),
        role, host_of(trace), devices,
    )  # fmt: skip


def _joined(parts: Sequence[_Part]) -> Iterator[RankSteps]:
    """One for each rank, by rank; several traces of a rank one after the other."""
    by_rank: dict[int, list[_Part]] = {}
    for part in parts:
        by_rank.setdefault(part.rank, []).append(part)
    for rank, mine in sorted(by_rank.items()):
        _refuse_twice(mine)
        numbers = np.concatenate([part.numbers for part in mine])
        values: Floats = np.concatenate([part.steps.parts for part in mine], axis=1)
        order = np.argsort(numbers, kind="stable")
        operations, took_s = _operations([part.steps for part in mine])
        yield RankSteps(
            rank, numbers[order], values[:, order], mine[0].role, mine[0].host,
            operations, took_s[:, order],
            # Each time it was traced it did the same: the first one tells what is usual.
            mine[0].steps.longest,
        )  # fmt: skip


def _operations(parts: Sequence[StepParts]) -> tuple[tuple[tuple[str, int], ...], Floats]:
    """The operations of all steps, of the traces of a rank one after the other."""
    row: dict[tuple[str, int], int] = {}
    for part in parts:
        for operation in part.operations:
            row.setdefault(operation, len(row))
    steps = sum(part.operation_s.shape[1] for part in parts)
    took_s = np.full((len(row), steps), np.nan)
    first = 0
    for part in parts:
        last = first + part.operation_s.shape[1]
        took_s[[row[operation] for operation in part.operations], first:last] = part.operation_s
        first = last
    return tuple(row), took_s


def _refuse_twice(parts: Sequence[_Part]) -> None:
    """Two files that claim a step of a rank are of two runs, or one is of another rank."""
    seen: dict[int, Path] = {}
    for part in parts:
        for number in part.numbers.tolist():
            other = seen.setdefault(number, part.path)
            if other is not part.path:
                raise UsageProblem(
                    f"both {other.name} and {part.path.name} are of rank {part.rank} and have step "
                    f"{number}",
                    next_step="Name the files of one run. " + _TELL,
                )


def _say_missing(ranks: Sequence[RankSteps], world: int, said: _Said) -> None:
    there = {each.rank for each in ranks}
    missing = RankSet.of(rank for rank in range(world) if rank not in there)
    if missing:
        said.notes.append(f"no steps of {missing.in_words()} were read: nothing is known of them")
