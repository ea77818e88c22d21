"""Launchers that persist what their ranks have in memory: together, or not at all."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import pytest
import torch

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.limited_stream import LimitedStream
from relkit.checkpoint.manifest import FileRecord
from relkit.errors import BadInputFile
from relkit.flash_checkpoint import destination
from relkit.flash_checkpoint.ddp import DdpCheckpointer
from relkit.flash_checkpoint.memory_saver import MemorySaver
from relkit.flash_checkpoint.on_disk import disk, persisted
from relkit.flash_checkpoint.on_disk.disk import LAUNCHERS_FOLDER
from relkit.flash_checkpoint.persist_slots import Written
from relkit.flash_checkpoint.slots import slot_folder
from relkit.launch.flash_checkpoint.node_slots import NodeOffer, NodeSlots
from relkit.launch.flash_checkpoint.persist_outcome import PersistOutcome
from relkit.launch.flash_checkpoint.persist_plan import SavedStep, Verdict
from relkit.launch.flash_checkpoint.persist_round import (
    PersistRound,
    PersistSettings,
    signs_of_life,
)
from relkit.launch.flash_checkpoint.persister import Persister
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import MemoryMailbox
from tests.flash_checkpoint.jobs.states import rich_state, same
from tests.flash_checkpoint.test_slots import one_thread
from tests.patience import PATIENCE
from tests.waiting import eventually

__all__ = ["one_thread"]


@dataclass
class Ranks:
    """The slots of a node, without processes; a SlotSource.

    Args:
        root: of the checkpoints on disk; steps: by rank, those that are whole.
        broken: what writing a step comes to, instead of files.
    """

    root: Path
    steps: dict[int, list[int]]
    broken: dict[int, Written] = field(default_factory=dict)
    locked: int = 0
    may_write: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_write.set()

    def newest(self) -> int:
        return max(set.intersection(*(set(steps) for steps in self.steps.values())), default=-1)

    def collect(self) -> NodeOffer:
        self.locked += 1
        steps: Mapping[int, Mapping[int, int]] = {
            rank: {step: 100 * step for step in steps} for rank, steps in self.steps.items()
        }
        return NodeOffer(steps, str(self.root))

    def write(self, step: int, max_bytes_per_s: float, timeout_s: float) -> Written:
        assert (max_bytes_per_s, timeout_s) == (5e6, 60.0)
        assert self.may_write.wait(60 * PATIENCE)
        if step in self.broken:
            return self.broken[step]
        folder = persisted.temporary_folder(self.root, step)
        return Written(tuple(self._write_one(folder, rank, step) for rank in self.steps))

    def _write_one(self, folder: Path, rank: int, step: int) -> FileRecord:
        def save(out: BinaryIO) -> None:
            torch.save([rank, step], out)

        return iteration_folder.write_file(folder, persisted.file_name(rank), save)

    def release(self) -> None:
        self.locked -= 1


@dataclass
class Job:
    """Launchers in threads, with one store."""

    root: Path
    nodes: list[Persister] = field(default_factory=list)
    slots: list[Ranks] = field(default_factory=list)
    outcomes: list[PersistOutcome] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    def begin(self, *ranks: dict[int, list[int]], silent: int = 0) -> None:
        """Start the launchers, all but the last ones."""
        notes: dict[str, bytes] = {}
        world_size = sum(map(len, ranks))
        settings = PersistSettings(2, 5.0, 60.0, answer_s=0.3 if silent else 20.0 * PATIENCE)
        for node, steps in enumerate(ranks[: len(ranks) - silent]):
            self.slots.append(Ranks(self.root, steps))
            mailbox = MemoryMailbox(node, len(ranks), notes)
            attempt = Attempt("job", world_size)
            publish = lambda outcome, _job: self.outcomes.append(outcome)  # noqa: E731
            last = threading.Lock(), publish, self.lines.append
            self.nodes.append(Persister(attempt, mailbox, self.slots[-1], settings, *last))

    def end(self) -> None:
        for node in self.nodes:
            node.close()
        for node in self.nodes:
            node.wait_end()
        assert [ranks.locked for ranks in self.slots] == [0] * len(self.slots)

    def has_rounds(self, count: int) -> bool:
        """So many have ended, and the node that asked has said so too."""
        return len(self.outcomes) == len(self.lines) == count

    def outcome(self) -> PersistOutcome:
        """What the only round has come to; nobody works any more."""
        eventually(lambda: self.outcomes, lambda: str(self.lines), 60.0)
        self.end()
        (outcome,) = self.outcomes
        return outcome

    def steps(self) -> tuple[int, ...]:
        """All that is on disk under a final name."""
        assert iteration_folder.half_written(self.root / LAUNCHERS_FOLDER) == ()
        return iteration_folder.iterations(self.root / LAUNCHERS_FOLDER)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr("relkit.launch.flash_checkpoint.persister.LOOK_S", 0.05)
    job = Job(tmp_path / "ck")
    yield job
    job.end()


def test_all_nodes_write_and_one_publishes(job: Job) -> None:
    job.begin({0: [4, 5], 1: [5, 4]}, {2: [5, 6]})
    job.nodes[1].ask("rank 2 died")
    eventually(lambda: job.lines, lambda: str(job.outcomes))
    outcome = job.outcome()
    assert (outcome.verdict, outcome.step) == (Verdict.PERSIST, 5)
    assert "(rank 2 died)" in outcome.line
    assert job.lines == [outcome.line], "the node that asked says it too"
    found = persisted.latest(job.root)
    assert found is not None
    assert (found.step, found.world_size, found.saved_unix_ns) == (5, 3, 500)
    assert [persisted.read(found, rank, 3) for rank in range(3)] == [[r, 5] for r in range(3)]
    assert persisted.read(found, 3, 4) == [0, 5], "a job of another size has rank 0's"
    assert iteration_folder.problems(found.path) == ()


def test_a_node_that_does_not_answer_publishes_nothing(job: Job) -> None:
    disk.write({"step": 3}, job.root / "3.pt", 3, job.root, saved_unix_ns=300)
    job.begin({0: [5]}, {1: [5]}, silent=1)
    job.nodes[0].ask("rank 1 died")
    outcome = job.outcome()
    assert (outcome.verdict, outcome.step) == (Verdict.NOTHING, 3)
    assert "node 1 has not answered; step 3 stays, in " in outcome.line
    assert job.steps() == ()


def test_a_node_without_node_0_does_not_wait_for_ever(job: Job) -> None:
    job.begin({0: [5]}, {1: [5]}, silent=1)
    mailbox = MemoryMailbox(1, 2)
    attempt, slots = Attempt("job", 2), Ranks(job.root, {1: [5]})
    settings = PersistSettings(answer_s=0.1)
    alone = Persister(
        attempt, mailbox, slots, settings, threading.Lock(), lambda *_: None, job.lines.append
    )
    alone.ask("rank 1 died")
    alone.close()
    alone.wait_end()
    assert job.lines == [
        "flash checkpoint: node 0 does not answer; it is not known which step is kept"
    ]


def test_a_node_that_has_given_up_on_node_0_is_not_waited_for(tmp_path: Path) -> None:
    """Node 0 was only slow: it plans what the other will not write any more."""
    notes: dict[str, bytes] = {}
    first, second = (
        PersistRound(1, MemoryMailbox(node, 2, notes), 2, Ranks(tmp_path, {node: [5]}), settings)
        for node, settings in enumerate(
            (PersistSettings(2, 5.0, 60.0), PersistSettings(2, 5.0, 60.0, answer_s=0.05))
        )
    )
    assert "node 0 does not answer" in second.follow(lambda: None)
    outcome = first.lead("rank 1 died", None, lambda: None)
    assert outcome.verdict is Verdict.NOTHING
    assert "node 1 has given up waiting for node 0" in outcome.line


def test_a_node_that_dies_while_it_writes_is_not_waited_for(tmp_path: Path) -> None:
    notes: dict[str, bytes] = {}
    first, second = (
        PersistRound(
            1, MemoryMailbox(node, 2, notes), 2, Ranks(tmp_path, {node: [5]}),
            PersistSettings(2, 5.0, 60.0, silent_s=0.2),
        )
        for node in range(2)
    )  # fmt: skip
    second._put("offer/1", second._slots.collect().to_plain())
    outcome = first.lead("rank 1 died", None, lambda: None)
    assert outcome.verdict is Verdict.NOTHING
    assert "node 1 has given no sign of life for 0.2 s" in outcome.line
    # Not as long as writing may take.
    assert outcome.duration_s < 60.0


def differs(mailbox: MemoryMailbox, note: bytes | None) -> bool:
    return mailbox.get("alive/1") != note


def test_a_node_that_writes_for_long_gives_signs_of_life() -> None:
    mailbox, seen = MemoryMailbox(), set[bytes | None]()
    with signs_of_life(mailbox, "alive/1", every_s=0.001):
        for _ in range(5):
            seen.add(mailbox.get("alive/1"))
            eventually(partial(differs, mailbox, mailbox.get("alive/1")), "a sign of life")
    after = mailbox.get("alive/1")
    assert len(seen) == 5
    assert "relkit-alive" not in {thread.name for thread in threading.enumerate()}
    assert mailbox.get("alive/1") == after


def test_a_node_that_writes_for_longer_than_it_may_be_silent_is_waited_for(
    tmp_path: Path,
) -> None:
    notes: dict[str, bytes] = {}
    settings = PersistSettings(2, 5.0, 60.0, silent_s=6.0)
    ranks = [Ranks(tmp_path / "ck", {node: [5]}) for node in range(2)]
    ranks[1].may_write.clear()
    first, second = (
        PersistRound(1, MemoryMailbox(node, 2, notes), 2, ranks[node], settings)
        for node in range(2)
    )
    outcomes: list[PersistOutcome] = []
    leads = threading.Thread(
        target=lambda: outcomes.append(first.lead("rank 1 died", None, lambda: None))
    )
    follows = threading.Thread(target=second.follow, args=(lambda: None,))
    leads.start()
    follows.start()
    key = second._key("alive/1")
    # Twenty of them fit into the time for which it may be silent.
    eventually(lambda: int(notes.get(key, b"0")) > 22, "signs of life for longer than that")
    ranks[1].may_write.set()
    leads.join()
    follows.join()
    assert outcomes[0].verdict is Verdict.PERSIST, outcomes[0].line


def test_a_node_that_cannot_write_publishes_nothing(job: Job) -> None:
    job.begin({0: [5]}, {1: [5]})
    job.slots[1].broken[5] = Written(problem="cannot write x: No space", next_step="Free some.")
    job.nodes[0].ask("rank 1 died")
    outcome = job.outcome()
    assert outcome.line == (
        "flash checkpoint: nothing was persisted: step 5 could not be written: cannot write x:"
        " No space; nothing is on disk. Free some."
    )
    assert job.steps() == ()


def test_a_damaged_slot_has_the_step_before_persisted(job: Job) -> None:
    job.begin({0: [4, 5]}, {1: [4, 5]})
    job.slots[1].broken[5] = Written(problem="rank 1: damaged", is_damaged=True)
    job.nodes[0].ask("rank 1 died")
    outcome = job.outcome()
    assert (outcome.step, job.steps()) == (4, (4,))
    assert outcome.reason.endswith("step 5 is not used: rank 1: damaged")


def test_a_folder_that_cannot_be_written(tmp_path: Path, job: Job) -> None:
    (tmp_path / "file").touch()
    job.root = tmp_path / "file" / "ck"
    job.begin({0: [5]})
    job.nodes[0].ask("rank 0 died")
    outcome = job.outcome()
    assert outcome.verdict is Verdict.NOTHING
    assert "cannot write" in outcome.line
    assert "name another folder" in outcome.line


def test_what_both_nodes_ask_for_is_persisted_once_and_what_is_newer_again(job: Job) -> None:
    job.begin({0: [4]}, {1: [4]})
    for turn, step in enumerate((5, 6, 7), 1):
        for slots in job.slots:
            for steps in slots.steps.values():
                steps[:] = [step - 1, step]
        job.nodes[1].ask(f"rank 1 at {step}")
        eventually(partial(job.has_rounds, turn), lambda: str(job.lines))
        job.nodes[0].ask("as a consequence")
        job.nodes[1].ask("as a consequence")
        for node in job.nodes:
            node.wait_collected(20 * PATIENCE)
    job.end()
    assert [outcome.step for outcome in job.outcomes] == [5, 6, 7]
    assert [outcome.line for outcome in job.outcomes] == job.lines
    assert job.steps() == (6, 7), "two are kept"


def test_who_notices_the_fault_while_its_step_is_written_need_not_wait(job: Job) -> None:
    job.begin({0: [4]}, {1: [4]})
    for ranks in job.slots:
        ranks.may_write.clear()
    job.nodes[0].ask("rank 1 failed")
    eventually(lambda: all(ranks.locked for ranks in job.slots), lambda: "no round", 60.0)
    for node in job.nodes:
        node.wait_collected(60 * PATIENCE)
        node.ask("its neighbour failed")
        # The round is under way, and goes on for as long as nothing may be written.
        node.wait_collected(3600.0)
        assert node._requests.is_pending
    # A newer step must be locked first, and there is no round yet that does.
    job.slots[1].steps = {1: [4, 5]}
    job.nodes[1].ask("again")
    job.nodes[1].wait_collected(0.01)
    assert not job.nodes[1]._requests._collected.is_set()
    for ranks in job.slots:
        ranks.may_write.set()
    eventually(lambda: not any(n._requests.is_pending for n in job.nodes), lambda: "", 60.0)
    job.end()
    assert job.steps() == (4,)


def test_an_unexpected_error_is_said_once_and_not_tried_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: Ranks) -> NodeOffer:
        raise ValueError("unexpected")

    job.begin({0: [5]})
    monkeypatch.setattr(Ranks, "collect", fail)
    monkeypatch.setattr(Ranks, "release", lambda _self: None)
    job.nodes[0].ask("rank 0 died")
    job.end()
    assert job.lines == ["flash checkpoint: nothing was persisted: ValueError: unexpected"]
    assert job.outcomes == []


def test_what_try_to_persist_has_saved_is_not_written_again(job: Job) -> None:
    job.begin({0: [5]}, {1: [5]})
    job.nodes[1].ask("rank 0 died", SavedStep(6, "/ck/iter_0000006"))
    for node in job.nodes:
        node.close(is_restart=True)  # node 0 has not seen the note yet
    outcome = job.outcome()
    assert outcome.line == (
        "flash checkpoint: step 6 is kept in /ck/iter_0000006: try-to-persist has saved it; the"
        " newest in memory is step 5 (rank 0 died)"
    )
    assert job.steps() == ()


def test_a_stream_with_a_limit_takes_its_time() -> None:
    now_s = [0.0]
    out = BytesIO()

    def pause(seconds: float) -> None:
        now_s[0] += seconds

    stream = LimitedStream(out, 1e6, lambda: now_s[0], pause)
    stream.write(bytes(5_000_000))
    now_s[0] += 1.0  # what the disk takes counts
    stream.write(bytes(5_000_000))
    assert now_s[0] == pytest.approx(10.0)
    assert len(out.getvalue()) == 10_000_000
    assert LimitedStream(out, 0.0).write(b"x") == 1


@pytest.fixture
def node(tmp_path: Path) -> Iterator[tuple[Path, MemorySaver]]:
    """A launcher's folder, and the saver of its only rank."""
    folder = tmp_path / "slots"
    folder.mkdir(mode=0o700)
    saver = MemorySaver(slot_folder.slots_path(folder, 0), slot_folder.owner(folder, 0, 1), 1)
    destination.leave(folder, 0, tmp_path / "ck")
    yield folder, saver
    saver.close()


def persist(
    folder: Path, settings: PersistSettings, when: Callable[[], None] = lambda: None
) -> PersistOutcome:
    """What comes of persisting the slots in a folder."""
    outcomes: list[PersistOutcome] = []
    attempt, slots = Attempt("job"), NodeSlots(folder, [0], 1)
    publish = lambda outcome, _job: outcomes.append(outcome)  # noqa: E731
    persister = Persister(
        attempt, MemoryMailbox(), slots, settings, threading.Lock(), publish, lambda _line: None
    )
    persister.ask("the job hangs")
    persister.wait_collected(20 * PATIENCE)
    when()
    persister.close()
    persister.wait_end()
    (outcome,) = outcomes
    return outcome


@pytest.mark.long
def test_slots_are_written_while_the_job_saves_on(
    tmp_path: Path, node: tuple[Path, MemorySaver]
) -> None:
    folder, saver = node
    wanted = {step: rich_state(step) for step in (1, 2)}
    for step, state in wanted.items():
        saver.save(step, state).wait()

    def go_on() -> None:
        for step in range(3, 8):
            saver.save(step, {"step": step}).wait()

    outcome = persist(folder, PersistSettings(), go_on)
    found = persisted.latest(tmp_path / "ck")
    assert found is not None, outcome
    assert (outcome.step, found.step) == (2, 2)
    # torch's own format, and read as plain data.
    assert same(torch.load(found.path / "rank-0.pt", weights_only=False), wanted[2])
    assert same(persisted.read(found, 0, 1), wanted[2])
    assert outcome.size_bytes == (found.path / "rank-0.pt").stat().st_size
    # A newer save to disk is taken first, an older one is not.
    checkpointer = DdpCheckpointer(tmp_path / "ck")
    assert checkpointer.load_checkpoint()["step"] == 2
    disk.write({"step": 1}, tmp_path / "ck" / "1.pt", 1, tmp_path / "ck", saved_unix_ns=1)
    assert checkpointer.load_checkpoint()["step"] == 2
    disk.write({"step": 1}, tmp_path / "ck" / "1.pt", 1, tmp_path / "ck")
    assert checkpointer.load_checkpoint()["step"] == 1
    checkpointer.close()


@pytest.mark.long
def test_a_slot_with_a_wrong_bit_is_never_published(
    tmp_path: Path, node: tuple[Path, MemorySaver]
) -> None:
    folder, saver = node
    for step in (1, 2):
        saver.save(step, {"step": step, "x": torch.full((1000,), step)}).wait()
    slots = folder / "rank-0.slots"
    at = slots.read_bytes().index((2).to_bytes(8, "little") * 1000)
    with slots.open("r+b") as stream:
        stream.seek(at)
        stream.write(b"\3")
    outcome = persist(folder, PersistSettings())
    assert outcome.step == 1
    assert "step 2 is not used: rank 0: block 0 does not match its checksum" in outcome.reason
    found = persisted.latest(tmp_path / "ck")
    assert found is not None
    assert persisted.read(found, 0, 1)["step"] == 1
    with (found.path / "rank-0.pt").open("r+b") as stream:
        stream.write(b"!")
    with pytest.raises(BadInputFile, match="another content"):
        persisted.read(found, 0, 1)


@pytest.fixture
def small_files() -> Iterator[Callable[[], None]]:
    """Has files of more than 1 MiB refused, here and in child processes, until the test ends."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.long
def test_a_full_disk_leaves_nothing_behind(
    tmp_path: Path, node: tuple[Path, MemorySaver], small_files: Callable[[], None]
) -> None:
    folder, saver = node
    saver.save(1, {"x": torch.zeros(1 << 20)}).wait()
    small_files()
    line = persist(folder, PersistSettings()).line
    assert "nothing was persisted: step 1 could not be written: cannot write" in line
    assert "File too large; nothing is on disk. Free some space" in line
    assert list((tmp_path / "ck" / LAUNCHERS_FOLDER).iterdir()) == []


def test_a_rank_that_names_no_folder(tmp_path: Path) -> None:
    (tmp_path / "slots").mkdir(mode=0o700)
    assert destination.read(tmp_path / "slots", 0) is None
    (tmp_path / "slots" / "rank-0.destination").write_text("[]")
    (tmp_path / "slots" / "rank-0.destination").chmod(0o600)
    assert destination.read(tmp_path / "slots", 0) is None
    assert NodeSlots(tmp_path / "slots", [0], 1).collect() == NodeOffer({0: {}})
