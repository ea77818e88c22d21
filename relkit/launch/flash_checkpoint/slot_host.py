"""Owns the slots of this node's ranks, over all restarts, and has them persisted."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from relkit.errors import UnwritablePath
from relkit.flash_checkpoint import destination
from relkit.flash_checkpoint.slots import slot_folder
from relkit.flash_checkpoint.slots.slot_folder import LeftFolder
from relkit.launch.flash_checkpoint.node_slots import NodeSlots
from relkit.launch.flash_checkpoint.persist_plan import SavedStep
from relkit.launch.flash_checkpoint.persist_round import PersistSettings
from relkit.launch.flash_checkpoint.persister import Persister, Publish
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.settings import Log
from relkit.launch.replicas.replica_host import ReplicaHost
from relkit.log_lines import warning

# Before workers start again, the slots that are to be persisted must be locked.
_COLLECT_S = 5.0


class SlotHost:
    """The folder of slots of one launcher; it stays empty if the job saves nothing in memory.

    Args:
        log: writes one line to the terminal.
        settings: how slots are persisted.
        publish: see Publish.
        replicas: on other hosts; None: none.
    """

    def __init__(
        self,
        log: Log,
        settings: PersistSettings = PersistSettings(),  # noqa: B008  it is frozen
        publish: Publish = lambda _outcome, _job_id: None,
        replicas: ReplicaHost | None = None,
    ) -> None:
        self._log, self._settings, self._publish = log, settings, publish
        self._replicas = replicas
        self._folder: slot_folder.OwnFolder | None = None
        self._tried = False
        self._slots: NodeSlots | None = None
        self._persister: Persister | None = None
        self._earlier: list[Persister] = []
        self._one_at_a_time = threading.Lock()

    def begin(self, attempt: Attempt) -> Mapping[str, str]:
        """Begin an attempt of the job.

        Slots of ranks that this node does not have now are removed: if such a rank came back to
        this node later, it would find an outdated state.

        Returns:
            what to add to the workers' environment; nothing if shared memory cannot be written:
            workers then save to disk only.
        """
        self._end_attempt(is_restart=True)
        is_first, self._tried = not self._tried, True
        ranks = [each.rank for each in attempt.ranks]
        if is_first:
            try:
                self._folder = slot_folder.make(
                    attempt.job_id, lambda left: judge(left, ranks, attempt.world_size)
                )
            except UnwritablePath as error:
                self._log(warning(f"{error}"))
        replicas = self._replicas
        extra = {} if replicas is None else dict(replicas.environment)
        if self._folder is None:
            return extra
        folder = self._folder.path
        slot_folder.keep_only(folder, ranks)
        self._slots = NodeSlots(folder, sorted(ranks), attempt.world_size)
        if self._settings.keep:
            self._persister = Persister(
                attempt, attempt.mailbox("flash"), self._slots, self._settings,
                self._one_at_a_time, self._publish, self._log,
            )  # fmt: skip
        if is_first and self._folder.is_taken:
            self._log(
                f"flash checkpoint: step {self._slots.newest()} is still in memory, left by a"
                f" launcher of job {attempt.job_id} that was killed"
            )
        if replicas is not None and replicas.is_on:
            replicas.begin(attempt, folder)
        return {**extra, slot_folder.FOLDER_VARIABLE: str(folder)}

    def persist(self, trigger: str, by_ttp: SavedStep | None = None) -> None:
        """Have the newest step that all ranks have persisted. Returns at once.

        Args:
            trigger: what happened to the job.
            by_ttp: what try-to-persist has saved since.
        """
        if self._persister is not None and self._slots is not None and self._slots.has_any:
            self._persister.ask(trigger, by_ttp)

    def wait_collected(self) -> None:
        """Wait, not for long, until the slots that were asked for are locked."""
        if self._persister is not None:
            self._persister.wait_collected(_COLLECT_S)

    def newest(self) -> int:
        """The newest step that all ranks of this node have whole; -1 where there is none."""
        return -1 if self._slots is None else self._slots.newest()

    @property
    def slots(self) -> NodeSlots | None:
        """Those of this attempt; None where shared memory cannot be written. Any thread may look
        for what is in them.
        """
        return self._slots

    def close(self) -> None:
        """The job has ended: wait until its slots are persisted, where that was asked for, and
        remove them."""
        if self._replicas is not None:
            self._replicas.close()
        try:
            self._end_attempt(is_restart=False)
            for persister in self._earlier:
                persister.wait_end()
        finally:
            if self._folder is not None:
                self._folder.remove()
                self._folder = None

    def _end_attempt(self, *, is_restart: bool) -> None:
        if self._persister is not None:
            self.wait_collected()
            self._persister.close(is_restart=is_restart)
            self._earlier.append(self._persister)
            self._persister = None


def judge(folder: Path, ranks: Collection[int], world_size: int) -> LeftFolder:
    """What becomes of a folder that a launcher of the same job has left.

    It is taken over if all ranks of this node have a step in it, saved for a folder of checkpoints
    that is still there. A folder of other ranks is left: it may be that of another launcher of the
    job on this host, which comes back as well.

    Args:
        folder: of slots; ranks: of this node; world_size: ranks of the job.
    """
    has = {rank for rank in range(world_size) if slot_folder.slots_path(folder, rank).exists()}
    if has and has.isdisjoint(ranks):
        return LeftFolder.LEAVE
    if not has.issuperset(ranks) or not _is_root_there(folder, ranks):
        return LeftFolder.REMOVE
    newest = NodeSlots(folder, sorted(ranks), world_size).newest()
    return LeftFolder.TAKE if newest >= 0 else LeftFolder.REMOVE


def _is_root_there(folder: Path, ranks: Collection[int]) -> bool:
    """Whether the folder in which each of these ranks kept its checkpoints still has its mark."""
    notes = [destination.read(folder, rank) for rank in ranks]
    return all(note and note.mark and note.mark == destination.mark_of(note.root) for note in notes)
