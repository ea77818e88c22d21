"""What the ranks on this node do, from recorder files and /proc: no attaching, no signals."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from relkit.errors import BadDump, RelkitError
from relkit.hang.live_sources.contradictions import contradictions, sees_communication
from relkit.hang.model import HOOK, CpuUse, RankView, Sources
from relkit.hang.words import of_ranks
from relkit.hook.held_files import HeldFiles
from relkit.hook.model import HookState, OpKind
from relkit.hook.owner import Owners
from relkit.hook.reader import name_of, read_state, state_files
from relkit.hook.refusals import Refusal, take_refusals
from relkit.launch.hang.state_source import Occasion, RankReport, StateSource
from relkit.launch.job.exit_status import peek_exit
from relkit.launch.job.settings import ExitStatus, LocalRank, Log
from relkit.process import procfs
from relkit.ranks import RankSet

# CPU use is judged over this long: short enough to see a spin at once, long enough that the
# kernel's 10 ms ticks do not matter.
CPU_WINDOW_S = 2.0
# Recorders with a rank or a world size above this are damaged, or RANK and WORLD_SIZE are wrong.
MAX_WORLD_SIZE = 1 << 20
_STOPPED = ("T", "t")
# A file is only reported as unreadable after this many looks: a new one is torn for a moment.
_TORN_LOOKS = 10
# What the contents of a damaged recorder may cause, beyond the errors that the reader declares.
_DAMAGED = (RelkitError, OSError, ValueError, ArithmeticError, LookupError, TypeError, MemoryError)


class Observer:
    """Makes a RankView of each local rank; cheap enough to call often: a few file reads a rank.

    Args:
        job_dir: folder of the recorder files; None where the job runs without the hook.
        host: name to report; this host's by default.
        clock: monotonic seconds.
        removes_ended: whether views() removes the files of processes that have ended and were no
            rank: for the one launcher that keeps the job's folder.
        sources: asked beside the hook, in this order; what the first of them knows of a rank counts
            where the hook sees nothing.
        log: writes one line to the terminal, of what a source has to say.
    """

    def __init__(
        self,
        job_dir: Path | None,
        *,
        host: str = "",
        clock: Callable[[], float] = time.monotonic,
        removes_ended: bool = False,
        sources: Sequence[StateSource] = (),
        log: Log = lambda _: None,
    ) -> None:
        self._job_dir = job_dir
        self._host = host or socket.gethostname()
        self._clock = clock
        self._removes_ended = removes_ended
        self._sources, self._log = tuple(sources), log
        # By source and rank.
        self._told: dict[str, Mapping[int, RankReport]] = {}
        self._occasion, self._said_unseen = Occasion.WATCH, False
        # Monotonic time, CPU time used, time waited for a CPU.
        self._cpu: dict[int, deque[tuple[float, float, float]]] = {}
        self._files: dict[int, Path] = {}
        self._unreadable: dict[Path, tuple[int, str]] = {}
        self._held = HeldFiles()
        # By rank: the process that the launcher has started, where it had a recorder.
        self._last_pids: dict[int, int] = {}
        self._owners = Owners(clock)

    def states(self, brief_up_to: int = 0) -> dict[int, tuple[Path, HookState]]:
        """All readable recorder files by pid; a torn or hostile one is left out.

        Args:
            brief_up_to: where there are no more files than this, finished operations are left out.
        """
        states: dict[int, tuple[Path, HookState]] = {}
        files = state_files(self._job_dir) if self._job_dir else []
        removed = self._held.removed({path.name for path in files})
        self._owners.look_again()
        files += removed.values()
        for path in files:
            try:
                state = read_state(path, recent=len(files) > brief_up_to, history=not brief_up_to)
                _check_plausible(state)
            except _DAMAGED as error:
                looks, _ = self._unreadable.get(path, (0, ""))
                self._unreadable[path] = (looks + 1, str(error) or type(error).__name__)
                continue
            self._unreadable.pop(path, None)
            here = self._owners.located(state)
            if here is not None:
                states[here.pid] = (path, here)
        if self._unreadable:
            present = set(files)
            self._unreadable = {p: e for p, e in self._unreadable.items() if p in present}
        return states

    @property
    def unreadable(self) -> dict[Path, str]:
        """Recorder files that stay unreadable, and why."""
        return {p: why for p, (looks, why) in self._unreadable.items() if looks >= _TORN_LOOKS}

    @property
    def removed(self) -> frozenset[int]:
        """Processes that live, and whose recorder files somebody has removed."""
        return frozenset(self._held.lost)

    @property
    def strange(self) -> frozenset[int]:
        """Ranks with a recorder of a process that cannot be told from others here."""
        return self._owners.strange

    @property
    def removed_folder(self) -> Path | None:
        """The folder of the recorders, where somebody has removed it."""
        folder = self._job_dir
        return None if folder is None or folder.is_dir() else folder

    def take_refusals(self) -> tuple[Refusal, ...]:
        """Processes that have given up recording since the last call."""
        return take_refusals(self._job_dir) if self._job_dir else ()

    def file_of(self, rank: int) -> Path | None:
        """The recorder file that the newest views() used for a rank."""
        return self._files.get(rank)

    def discover(self) -> tuple[LocalRank, ...]:
        """Ranks that the recorder files name, for jobs that somebody else started.

        A process without RANK in its environment is rank 0 of 1.
        """
        by_rank: dict[int, list[HookState]] = {}
        for _path, state in self.states().values():
            by_rank.setdefault(max(state.rank, 0), []).append(state)
        return tuple(
            LocalRank(rank, _best(candidates).pid) for rank, candidates in sorted(by_rank.items())
        )

    def living(self) -> tuple[int, ...]:
        """Processes with a recorder that still run: their start times say that it is them."""
        states = [state for _, state in self.states().values()]
        return tuple(s.pid for s in states if procfs.is_same_process(s.pid, s.start_ticks))

    def views(
        self,
        ranks: Sequence[LocalRank],
        exit_statuses: Mapping[int, ExitStatus] | None = None,
        *,
        recent: bool = True,
    ) -> tuple[RankView, ...]:
        """What is known about each of these ranks now.

        Args:
            ranks: those on this node.
            exit_statuses: by rank, how a process ended, where the launcher knows.
            recent: with the operations that each rank finished last; hang detection needs none.
        """
        # Where there are more processes than ranks, their last operations show which are the ranks.
        states = self.states(0 if recent else len(ranks))
        views = tuple(
            self._view(rank, states, (exit_statuses or {}).get(rank.rank)) for rank in ranks
        )
        views = self._with_sources(views, ranks)
        seen = {view.pid for view in views}
        if self._removes_ended:
            self._remove_ended(states, ranks, seen)
        self._cpu = {pid: samples for pid, samples in self._cpu.items() if pid in seen}
        self._held.keep_only(seen)
        return views

    def ended(self, views: Sequence[RankView]) -> frozenset[int]:
        """Those of these local ranks that were alive when they were looked at, and are not now."""
        return frozenset(
            view.rank
            for view in views
            if view.alive
            and procfs.is_own()
            and not procfs.is_same_process(view.pid, _start_ticks(view))
        )

    @property
    def has_source(self) -> bool:
        """Another source than the hook is asked as well."""
        return bool(self._sources)

    def look_closely(self, occasion: Occasion) -> None:
        """Have the next views() ask the other sources for everything, for a verdict."""
        self._occasion = occasion

    def _with_sources(
        self, views: Sequence[RankView], ranks: Sequence[LocalRank]
    ) -> tuple[RankView, ...]:
        """The same views, with what the other sources say."""
        occasion, self._occasion = self._occasion, Occasion.WATCH
        answering = {v.rank for v in views if v.alive and v.process_state[:1] not in _STOPPED}
        stopped = {v.rank for v in views if v.alive} - answering
        asked = [rank for rank in ranks if rank.rank in answering]
        joined = tuple(views)
        for source in self._sources:
            tells = source.look(asked, occasion)
            # A rank that is stopped says nothing: what it said before still holds.
            before = self._told.get(source.name, {})
            kept = {rank: told for rank, told in before.items() if rank in stopped}
            self._told[source.name] = {**kept, **tells.ranks}
            for line in tells.lines:
                self._log(line)
            joined = tuple(self._joined(view, source.name, occasion) for view in joined)
            unseen = RankSet.of(
                v.rank for v in joined if HOOK in v.sources.said and v.sources.state == source.name
            )
            if unseen and not self._said_unseen:
                self._said_unseen = True
                self._log(
                    f"{of_ranks(unseen)}: the hook sees no collective, the {source.name} does "
                    "and is used instead (NCCL may be part of torch, or LD_PRELOAD was taken away)"
                )
        return joined

    def _joined(self, view: RankView, name: str, occasion: Occasion) -> RankView:
        told = self._told.get(name, {}).get(view.rank)
        if told is None:
            return view
        hook, sources, said = view.hook, view.sources, {**view.sources.said, name: told.said}
        disputes = (*sources.disputes, *told.disputes)
        if sources.state not in ("", HOOK):
            return replace(view, sources=Sources(sources.state, said, disputes))
        if hook is not None and sees_communication(hook):
            if told.state is not None and occasion is not Occasion.WATCH and told.knows_ends:
                disputes = (*disputes, *contradictions(hook, told.state, name))
            return replace(view, sources=Sources(HOOK, said, disputes))
        if told.state is None:
            return replace(view, sources=Sources(sources.state, said, disputes))
        if self._job_dir is not None:
            said = {HOOK: "it has seen no collective", **said}
        return replace(view, hook=told.state, sources=Sources(name, said, disputes))

    def _view(
        self, local: LocalRank, states: Mapping[int, tuple[Path, HookState]], end: ExitStatus | None
    ) -> RankView:
        state: HookState | None = None
        if local.pid in states:
            candidates = [states[local.pid][1]]
        else:
            # A wrapper (numactl, a shell script) was started; the rank itself is below it.
            candidates = [s for _, s in states.values() if s.rank == local.rank]
        if candidates:
            state = _best(candidates)
            self._files[local.rank] = states[state.pid][0]
            self._last_pids[local.rank] = local.pid
            self._held.hold(state, self._files[local.rank])
        pid = state.pid if state else local.pid
        process = procfs.process(pid)
        alive = process.runs(state.start_ticks if state else 0)
        if not procfs.is_own():
            # Nothing of it can be seen but whether it has ended, as it is this process's child.
            alive = peek_exit(pid) is None
        if state is not None and not alive and state.in_flight:
            state = _final_state(self._files[local.rank], state)
        return RankView(
            rank=local.rank,
            host=self._host,
            pid=pid,
            alive=alive,
            process_state=process.state if alive else "",
            hook=state,
            cpu=self._cpu_use(pid, process.cpu_s) if alive else CpuUse(),
            exit_code=end.exit_code if end else None,
            failed_unix_s=end.failed_unix_s if end else 0.0,
            error=end.error if end else "",
            sources=self._sources_of(local, state),
        )

    def _sources_of(self, local: LocalRank, state: HookState | None) -> Sources:
        if state is not None:
            return Sources(HOOK)
        if local.rank in self.strange:
            return Sources("", {HOOK: "its process cannot be seen from its launcher's namespaces"})
        if self._last_pids.get(local.rank) == local.pid:
            # What is missing is no sign of anything: nothing is heard of this rank any more.
            return Sources("", {HOOK: "its recorder has been removed"})
        return Sources("")

    def _remove_ended(
        self,
        states: Mapping[int, tuple[Path, HookState]],
        ranks: Sequence[LocalRank],
        seen: Collection[int],
    ) -> None:
        """Remove the files of ended helpers: shared memory is memory, and nobody asks for them.

        Those of other launchers' ranks, which may share the folder, are left alone.
        """
        numbers, pids = {rank.rank for rank in ranks}, {rank.pid for rank in ranks}
        for pid, (path, state) in states.items():
            ours = state.rank in numbers or state.rank < 0
            is_rank = pid in pids or pid in seen
            if ours and not is_rank and not procfs.is_same_process(pid, state.start_ticks):
                path.unlink(missing_ok=True)
        for path in self.unreadable.keys() - set(self._held.lost.values()):
            # Killed while it made the file.
            pid, namespace = name_of(path) or (0, 0)
            if not namespace and pid not in pids and not procfs.is_same_process(pid, 0):
                path.unlink(missing_ok=True)

    def _cpu_use(self, pid: int, used_s: float) -> CpuUse:
        now_s, waited_s = self._clock(), procfs.cpu_wait_s(pid)
        samples = self._cpu.setdefault(pid, deque())
        samples.append((now_s, used_s, waited_s))
        # Keep one sample older than the window, so that the window is always covered.
        while len(samples) > 2 and now_s - samples[1][0] >= CPU_WINDOW_S:
            samples.popleft()
        first_s, used_before_s, waited_before_s = samples[0]
        return CpuUse(
            max(0.0, used_s - used_before_s),
            now_s - first_s,
            max(0.0, waited_s - waited_before_s),
        )


def _check_plausible(state: HookState) -> None:
    """Refuse numbers that no job has: what is made for each rank of them would fill the memory."""
    if state.rank >= MAX_WORLD_SIZE or state.world_size > MAX_WORLD_SIZE:
        raise BadDump(f"RANK={state.rank} WORLD_SIZE={state.world_size} cannot be true")


def _start_ticks(view: RankView) -> int:
    """When its process started; 0 where no recorder of its own says so."""
    return view.hook.start_ticks if view.hook is not None and view.hook.pid == view.pid else 0


def _final_state(path: Path, state: HookState) -> HookState:
    """What a process that has ended left last: an operation may have failed since the first look.

    Without it, a rank that raised because of its peer seems to have died in the operation.
    """
    try:
        final = read_state(path, recent=True, history=True)
        _check_plausible(final)
    except _DAMAGED:
        return state
    return final if final.start_ticks == state.start_ticks else state


def _best(candidates: Sequence[HookState]) -> HookState:
    """The rank's own process among its children that loaded the hook too (loader workers)."""

    def merit(state: HookState) -> tuple[bool, bool, int]:
        ops = state.in_flight + state.recent
        talks = bool(state.communicators) or any(op.kind is OpKind.COLLECTIVE for op in ops)
        return (procfs.is_same_process(state.pid, state.start_ticks), talks, state.started)

    return max(candidates, key=merit) if len(candidates) > 1 else candidates[0]
