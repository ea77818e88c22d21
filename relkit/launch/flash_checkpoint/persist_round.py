"""One round in which the launchers of a job agree on a step, and persist it.

    node 0: round/K ------------> every node locks its slots
            <------- offer/K/N -- and says which steps are whole
            plan/K/I -----------> every node writes the slots of its ranks
            <------ files/K/I/N - and says what it has written, or why not
            manifest, rename, tracker
            result/K -----------> every node unlocks its slots

Where a slot turns out to be damaged, there is another plan (I = 1, 2, ...). A node that does not
answer in time, that has left the round because node 0 did not (left/K/N), or that has given no sign
of life (alive/K/N) while it writes, ends it: nothing is published, and the earlier checkpoint stays
the newest.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.checkpoint import iteration_folder
from relkit.errors import BadInputFile, RelkitError
from relkit.flash_checkpoint import persist_slots
from relkit.flash_checkpoint.on_disk import persisted, saved_on_disk
from relkit.flash_checkpoint.on_disk.disk import LAUNCHERS_FOLDER
from relkit.flash_checkpoint.persist_slots import Written
from relkit.flash_checkpoint.sharded.seal import seal
from relkit.flash_checkpoint.slots.slot_format import MAX_SLOTS
from relkit.launch.flash_checkpoint.node_slots import NodeOffer, SlotSource
from relkit.launch.flash_checkpoint.persist_outcome import PersistOutcome
from relkit.launch.flash_checkpoint.persist_plan import PersistPlan, SavedStep, Verdict, plan
from relkit.launch.job.exchange import ExchangeBroken, Mailbox, wait_for_notes
from relkit.launch.job.silence import Silence
from relkit.ranks import RankSet
from relkit.text.foreign_json import parse_json

# A node is asked and answers within this time; it looks for the question once a second.
ANSWER_S = 10.0
# After so long without a sign of life a node that writes is given up: hosts that write are busy,
# and stores slow.
SILENT_S = 40.0
# As many signs fit into that time.
_SIGNS = 20
# A look at the signs of thousands of nodes takes seconds; node 0 was away if it took longer.
_AWAY_S = 20.0
_MB = 1e6
_POLL_S = 0.05
# How often node 0 looks whether a node that it waits for has left the round.
_LEFT_S = 1.0
NODE_0_SILENT = "flash checkpoint: node 0 does not answer; it is not known which step is kept"
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError)
_END_S = 5.0


@dataclass(frozen=True, slots=True)
class PersistSettings:
    """How launchers persist.

    Args:
        keep: how many steps stay on disk; 0: nothing is persisted.
        max_mb_per_s: limit on writing per node, MB/s; 0: none.
        timeout_s: the longest that writing may take, s.
        answer_s: the longest to wait for another node's answer, s.
        silent_s: a node that writes, and gives no sign of life for so long, is given up, s.
    """

    keep: int = 2
    max_mb_per_s: float = 0.0
    timeout_s: float = 600.0
    answer_s: float = ANSWER_S
    silent_s: float = SILENT_S


class RoundFailed(RelkitError):
    """Nothing is published in this round."""

    next_step = "See what the launchers of the other nodes say; the checkpoint on disk stays."


class PersistRound:
    """This node's part in one round.

    Args:
        number: of the round, 1, 2, ... in an attempt.
        mailbox: to the other nodes; world_size: ranks of the job.
        slots: of this node; settings: see there.
    """

    def __init__(
        self,
        number: int,
        mailbox: Mailbox,
        world_size: int,
        slots: SlotSource,
        settings: PersistSettings,
    ) -> None:
        self.number = number
        self._mailbox, self._world_size = mailbox, world_size
        self._slots, self._settings = slots, settings

    def lead(
        self, trigger: str, by_ttp: SavedStep | None, collected: Callable[[], None]
    ) -> PersistOutcome:
        """Node 0's part.

        Args:
            trigger: what happened to the job; by_ttp: what try-to-persist has saved since.
            collected: called when this node's slots are locked.
        """
        began_s = time.monotonic()
        before: SavedStep | None = None
        try:
            self._put("", {"trigger": trigger})
            own = self._slots.collect()
            collected()
            root = Path(own.root) if own.root else None
            before = _newest_on_disk(root) if root is not None else None
            offers = [own, *self._gather_offers()]
            chosen, size_bytes = self._persist(offers, root, before, by_ttp)
            advice = ""
        except RelkitError as error:
            chosen, size_bytes = PersistPlan(Verdict.NOTHING, -1, 0, "", str(error)), 0
            advice = error.next_step
        finally:
            self._slots.release()
        step, where = chosen.step, chosen.where
        if chosen.verdict is Verdict.NOTHING and before is not None:
            step, where = before.step, before.where
        outcome = PersistOutcome(
            chosen.verdict, step, where, chosen.reason, trigger, self._world_size, size_bytes,
            time.monotonic() - began_s, advice,
        )  # fmt: skip
        with suppress(ExchangeBroken):
            self._put("result", {"line": outcome.line})
        return outcome

    def follow(self, collected: Callable[[], None]) -> str:
        """Another node's part; what node 0 says about it, or why it is not known.

        Raises:
            ExchangeBroken: the store does not answer.
        """
        try:
            self._put(f"offer/{self._mailbox.node}", self._slots.collect().to_plain())
            collected()
            # Node 0 may wait for the offers of others before it plans.
            wait_s = 2 * self._settings.answer_s
            for attempt in range(MAX_SLOTS + 1):
                name = self._first_of((f"plan/{attempt}", "result"), wait_s)
                if name != f"plan/{attempt}":
                    break
                alive = self._key(f"alive/{self._mailbox.node}")
                with signs_of_life(self._mailbox, alive, self._settings.silent_s / _SIGNS):
                    written = self._write_own(int(self._get(name)["step"]))
                self._put(f"files/{attempt}/{self._mailbox.node}", persist_slots.to_plain(written))
                wait_s = self._settings.timeout_s + self._settings.answer_s
            if name == "result":
                self._put(f"seen/{self._mailbox.node}", {})
                return str(self._get("result")["line"])
        except _UNREADABLE:
            pass
        finally:
            self._slots.release()
        # Node 0 may only have been slow: it need not wait for what this node would write.
        self._put(f"left/{self._mailbox.node}", {})
        return NODE_0_SILENT

    def wait_until_seen(self, timeout_s: float) -> None:
        """Wait until all other nodes know the result; this one may host the store."""
        others = [n for n in range(1, self._mailbox.nodes) if n != self._mailbox.node]
        wait_for_notes(self._mailbox, [self._key(f"seen/{node}") for node in others], timeout_s)

    def _persist(
        self,
        offers: Sequence[NodeOffer],
        root: Path | None,
        before: SavedStep | None,
        by_ttp: SavedStep | None,
    ) -> tuple[PersistPlan, int]:
        """What was decided and done, and the bytes written."""
        damaged: dict[int, str] = {}
        while True:
            chosen = plan(offers, self._world_size, on_disk=before, by_ttp=by_ttp, damaged=damaged)
            if chosen.verdict is not Verdict.PERSIST:
                return chosen, 0
            if root is None:
                raise RoundFailed("no rank has said where its checkpoints are on disk")
            folder = iteration_folder.begin(root / LAUNCHERS_FOLDER, chosen.step)
            try:
                all_written = self._write(len(damaged), chosen.step)
                broken = next((written for written in all_written if written.problem), None)
                if broken is None:
                    return self._publish(chosen, folder, all_written)
            except RelkitError:
                _abandon(folder)
                raise
            _abandon(folder)
            if not broken.is_damaged:
                raise RoundFailed(
                    f"step {chosen.step} could not be written: {broken.problem}",
                    next_step=broken.next_step,
                )
            damaged[chosen.step] = broken.problem

    def _write(self, attempt: int, step: int) -> list[Written]:
        """Have all nodes write, this one included.

        Raises:
            RoundFailed: a node has not answered in time.
        """
        self._put(f"plan/{attempt}", {"step": step})
        end_s = time.monotonic() + self._settings.timeout_s + self._settings.answer_s
        own = self._write_own(step)
        others = self._gather(f"files/{attempt}", max(0.0, end_s - time.monotonic()))
        try:
            return [own, *map(persist_slots.from_plain, others)]
        except _UNREADABLE as error:
            raise RoundFailed(f"a node's answer cannot be read: {error}") from error

    def _write_own(self, step: int) -> Written:
        limit = self._settings.max_mb_per_s * _MB
        return self._slots.write(step, limit, self._settings.timeout_s)

    def _publish(
        self, chosen: PersistPlan, folder: Path, all_written: Sequence[Written]
    ) -> tuple[PersistPlan, int]:
        files = [file for written in all_written for file in written.files]
        names = [file.name for file in files]
        if not persisted.are_complete(names, self._world_size):
            raise RoundFailed(f"{len(files)} files were written for {self._world_size} ranks")
        if persisted.are_parts(names):
            files.append(seal(folder, self._world_size, self._settings.timeout_s))
        made = persisted.Persisted(chosen.step, folder, self._world_size, chosen.saved_unix_ns)
        final = iteration_folder.commit(folder, chosen.step, files, made.facts)
        with suppress(RelkitError):  # more is kept than was asked for; the next round tries again
            iteration_folder.prune(folder.parent, self._settings.keep, chosen.step)
        size_bytes = sum(file.size_bytes for file in files)
        reason, saved_unix_ns = chosen.reason, chosen.saved_unix_ns
        return (
            PersistPlan(Verdict.PERSIST, chosen.step, saved_unix_ns, str(final), reason),
            size_bytes,
        )

    def _gather_offers(self) -> list[NodeOffer]:
        plain = self._gather("offer", self._settings.answer_s)
        try:
            return [NodeOffer.from_plain(note) for note in plain]
        except _UNREADABLE as error:
            raise RoundFailed(f"a node's answer cannot be read: {error}") from error

    def _gather(self, name: str, timeout_s: float) -> list[Any]:
        """The notes of all other nodes.

        Raises:
            RoundFailed: one of them has not answered in time, has left the round, or is silent.
        """
        nodes = range(1, self._mailbox.nodes)
        keys = {node: self._key(f"{name}/{node}") for node in nodes}
        silence = Silence(self._settings.silent_s, _AWAY_S)
        end_s = time.monotonic() + timeout_s
        left_s = timeout_s
        while not wait_for_notes(self._mailbox, list(keys.values()), min(left_s, _LEFT_S)):
            left_s = max(0.0, end_s - time.monotonic())
            silent = [node for node, key in keys.items() if self._mailbox.get(key) is None]
            gone = [n for n in silent if self._mailbox.get(self._key(f"left/{n}")) is not None]
            alive = {str(n): self._mailbox.get(self._key(f"alive/{n}")) for n in silent}
            lost = [int(node) for node in silence.silent(list(alive), alive, time.monotonic())]
            if gone or lost or not left_s:
                how = "has not answered"
                if lost:
                    how = f"has given no sign of life for {self._settings.silent_s:g} s"
                if gone:
                    how = "has given up waiting for node 0"
                raise RoundFailed(
                    f"node {RankSet.of(gone or lost or silent).fold()} {how}",
                    next_step="Start the job again: it resumes from the step that stays.",
                )
        return [self._get(f"{name}/{node}") for node in nodes]

    def _first_of(self, names: Sequence[str], timeout_s: float) -> str:
        """Which of the notes is there first; "" where none is in time."""
        end_s = time.monotonic() + timeout_s
        while True:
            for name in names:
                if self._mailbox.get(self._key(name)) is not None:
                    return name
            if time.monotonic() >= end_s:
                return ""
            time.sleep(_POLL_S)

    def _get(self, name: str) -> Any:  # noqa: ANN401
        return parse_json(self._mailbox.get(self._key(name)) or b"null")

    def _put(self, name: str, plain: Mapping[str, Any]) -> None:
        self._mailbox.put(self._key(name), json.dumps(plain).encode())

    def _key(self, name: str) -> str:
        return round_key(self.number) + (f"/{name}" if name else "")


def round_key(number: int) -> str:
    """The note by which node 0 begins a round."""
    return f"round/{number}"


def _newest_on_disk(root: Path) -> SavedStep | None:
    try:
        saved = saved_on_disk.newest(root)
    except BadInputFile:
        return None  # what cannot be loaded is no reason to persist nothing
    if saved is None:
        return None
    return SavedStep(saved.step, str(saved_on_disk.place(saved)), saved.saved_unix_ns)


def _abandon(folder: Path) -> None:
    with suppress(OSError):
        iteration_folder.abandon(folder)


@contextmanager
def signs_of_life(mailbox: Mailbox, key: str, every_s: float) -> Iterator[None]:
    """Change a note again and again while something else is done, which does not use the mailbox.

    Args:
        mailbox: to the other nodes; key: of the note.
        every_s: how often, s.
    """
    done = threading.Event()

    def give() -> None:
        number = 0
        while not done.wait(every_s):
            number += 1
            try:
                mailbox.put(key, str(number).encode())
            except ExchangeBroken:
                return

    thread = threading.Thread(target=give, name="relkit-alive", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(_END_S)
