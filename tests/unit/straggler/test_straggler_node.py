"""A node's part in straggler detection: what goes between nodes, what is said, who leaves."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from relkit.errors import BadInputFile
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, MemoryMailbox
from relkit.launch.job.settings import LocalRank
from relkit.launch.straggler.edge_reports import EdgeLooker, EdgeReports
from relkit.launch.straggler.history_publisher import EXCLUDED
from relkit.launch.straggler.poll_interval import QUICK_S, SELDOM_S
from relkit.launch.straggler.straggler_node import StragglerNode
from relkit.launch.straggler.straggler_thread import Stragglers
from relkit.straggler.collect.socket_rates import Connection, SocketRates
from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.host_load import HostLoad
from relkit.straggler.model import Verdict
from relkit.straggler.score.online_scorer import Network
from relkit.straggler.step_record import RankProcess, StepRecord
from relkit.straggler.transport import control, live_file
from relkit.straggler.transport.control_settings import Control, Mode
from relkit.straggler.transport.history import load
from relkit.straggler.transport.locate import KEPT_FILE, LIVE_FILE
from tests.unit.straggler.step_records import records

RANKS = 8


class Told:
    """Steps that a test gives out, as if they were collected from recorders."""

    def __init__(self, found: Sequence[StepRecord]) -> None:
        self.waiting = list(found)
        self.upto = -1
        self.closed = 0
        self.fill = 0.0
        self.load = HostLoad(2, 1.5, 0.5)

    def collect(self, ranks: Sequence[RankProcess]) -> tuple[StepRecord, ...]:
        wanted = {local.rank for local in ranks}
        new = [one for one in self.waiting if one.step <= self.upto and one.rank in wanted]
        self.waiting = [one for one in self.waiting if one.step > self.upto]
        return tuple(new)

    def notes(self) -> tuple[str, ...]:
        return ("one was not seen",)

    def close(self) -> None:
        self.closed += 1


class Job:
    """All nodes of a job in one process."""

    def __init__(
        self,
        folder: Path,
        mode: Mode,
        *,
        nodes: int = 2,
        min_nodes: int = 1,
        restarts_left: int = 1,
        steps: int = 60,
        recovered: int = 60,
    ) -> None:
        notes: dict[str, bytes] = {}
        self.said: list[list[str]] = [[] for _ in range(nodes)]
        self.sources: list[Told] = []
        self.folder, self.timeline = folder / "job", folder / "timeline"
        self.folder.mkdir()
        self.notes = notes
        hosts = [f"h{rank * nodes // RANKS}" for rank in range(RANKS)]
        self.nodes = []
        for node in range(nodes):
            mine = [rank for rank in range(RANKS) if hosts[rank] == f"h{node}"]
            # Of recorded kernels: nothing is sure about time of which nothing is known.
            slow = records(range(recovered), RANKS, slow={6: 0.3}, onset=10, host_of=hosts)
            even = records(range(steps), RANKS, host_of=hosts)
            made = [*slow, *(one for one in even if one.step >= recovered)]
            told = Told(
                [
                    replace(
                        s, parts=s.parts._replace(compute_s=s.parts.local_s, unattributed_s=0.0)
                    )
                    for s in made
                    if s.rank in mine
                ]
            )
            self.sources.append(told)
            attempt = Attempt(
                "j", RANKS, tuple(LocalRank(rank, 1) for rank in mine), host=f"h{node}",
                restarts_left=restarts_left, holds_store=node == 0,
            )  # fmt: skip
            self.nodes.append(
                StragglerNode(
                    attempt,
                    MemoryMailbox(node, nodes, notes),
                    self.folder,
                    Control(mode),
                    self.timeline,
                    self.said[node].append,
                    min_nodes=min_nodes,
                    source=lambda _folder, _host, told=told: told,  # type: ignore[misc]
                )
            )

    def run(self, steps: range) -> None:
        """Give out steps one by one, and have all nodes look after each."""
        for step in steps:
            for told, node in zip(self.sources[::-1], self.nodes[::-1], strict=True):
                told.upto = step
                node.tick(float(step))


def test_all_nodes_report_to_the_first_which_says_who_is_slow(tmp_path: Path) -> None:
    job = Job(tmp_path, Mode.WARN)
    job.run(range(60))
    (line,) = job.said[0]
    assert "rank 6 (host h1) slow-compute" in line
    assert "relkit straggler watch j" in line
    assert job.said[1] == []
    live = load(job.folder / LIVE_FILE)
    assert [raised.verdict.rank for raised in live.verdicts] == [6]
    assert live.hosts == ("h0",) * 4 + ("h1",) * 4
    assert "one was not seen" in live.notes
    assert not live.ended
    kept = tmp_path / "timeline" / KEPT_FILE
    assert load(kept).verdicts
    assert (kept.parent / "report.json").exists()
    job.nodes[0].close(60.0)
    assert load(kept).ended
    # What was read is gone from the store.
    assert not [key for key in job.notes if key.startswith("steps/")]


def test_who_has_just_recovered_when_the_job_ends_is_told(tmp_path: Path) -> None:
    # Ten steps take a second, the last one of which is never judged.
    job = Job(tmp_path, Mode.WARN, steps=121, recovered=100)
    job.run(range(121))
    assert len(job.said[0]) == 1
    (over,) = load(job.folder / LIVE_FILE).past
    assert 100 < over.ended_step < 110
    job.nodes[0].close(121.0)
    assert "rank 6 (host h1) is as fast as the others again" in job.said[0][1]


def test_the_node_of_a_straggler_is_asked_to_leave_with_the_evidence_kept(tmp_path: Path) -> None:
    job = Job(tmp_path, Mode.EXCLUDE)
    job.run(range(60))
    assert [node.ordered_away for node in job.nodes] == [False, True]
    for node in job.nodes:
        assert node.order is not None
        assert "rank 6" in node.order.why
    assert any("node 1 is asked to leave" in line for line in job.said[0])
    evidence = tmp_path / "timeline" / KEPT_FILE.parent / EXCLUDED / KEPT_FILE.name
    assert [raised.verdict.rank for raised in load(evidence).verdicts] == [6]


def test_nobody_leaves_where_that_cannot_be_and_it_is_said_first(tmp_path: Path) -> None:
    for number, (least, restarts, why) in enumerate(
        [(2, 1, "--nnodes asks for 2"), (1, 0, "--max-restarts")]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = Job(folder, Mode.EXCLUDE, min_nodes=least, restarts_left=restarts)
        job.run(range(60))
        assert [node.order for node in job.nodes] == [None, None]
        assert why in job.said[0][0]
        assert sum("not excluded" in line for line in job.said[0]) == 1
        assert len(job.said[0]) == 3


def test_settings_of_the_first_node_reach_all_and_nothing_is_collected_while_off(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path, Mode.OFF)
    job.run(range(5))
    assert not (job.folder / LIVE_FILE).exists()
    assert all(len(told.waiting) == RANKS // 2 * 60 for told in job.sources)
    control.write(job.folder, {"mode": "warn", "min_slowdown": 0.1})
    # The first tick of the first node comes after that of the others.
    job.run(range(5, 7))
    for lines in job.said:
        assert lines == ["straggler detection: warn, minimum slowdown 10%"]
    assert [node.settings for node in job.nodes] == [Control(Mode.WARN, 0.1)] * 2
    job.run(range(7, 60))
    assert "rank 6" in job.said[0][1]
    control.write(job.folder, {"mode": "off"})
    job.run(range(60, 62))
    assert [told.closed for told in job.sources] == [1, 1]
    assert "switched off" in " ".join(load(job.folder / LIVE_FILE).notes)


def called(node: StragglerNode) -> bool:
    return node.is_called


def test_a_job_that_nobody_looks_at_is_looked_at_seldom(tmp_path: Path) -> None:
    job = Job(tmp_path, Mode.WARN, nodes=1)
    (node,) = job.nodes
    job.run(range(5))
    assert node.interval_s == QUICK_S
    # Long after its start, before anything is slow.
    for now_s in (100.0, 101.0, 102.0, 103.0):
        node.tick(now_s)
    assert node.interval_s == SELDOM_S
    assert not called(node)
    before_ns = (job.folder / LIVE_FILE).stat().st_mtime_ns
    live_file.ask(job.folder)
    assert called(node)
    node.tick(104.0)
    assert (node.interval_s, called(node)) == (QUICK_S, False)
    assert (job.folder / LIVE_FILE).stat().st_mtime_ns > before_ns
    control.write(job.folder, {"mode": "off"})
    assert called(node)
    node.tick(105.0)
    assert not called(node)
    # Who asks is told that it is off, and need not wait.
    (job.folder / LIVE_FILE).unlink()
    node.tick(120.0)
    assert "switched off" in " ".join(load(job.folder / LIVE_FILE).notes)


def test_a_ring_that_fills_is_looked_at_often(tmp_path: Path) -> None:
    job = Job(tmp_path, Mode.WARN, nodes=1)
    job.sources[0].fill = 0.5
    job.run(range(1))
    assert job.nodes[0].interval_s == QUICK_S / 2


def test_settings_that_cannot_be_read_are_refused_once(tmp_path: Path) -> None:
    job = Job(tmp_path, Mode.WARN)
    (job.folder / control.FILE).touch(mode=0o600)
    (job.folder / control.FILE).write_text("{")
    job.run(range(3))
    assert ["settings not taken" in line for line in job.said[0]] == [True]
    with pytest.raises(BadInputFile):
        control.read(job.folder, Control())


def test_notes_of_a_node_that_make_no_sense_are_left_out_and_told(tmp_path: Path) -> None:
    job = Job(tmp_path, Mode.WARN)
    job.run(range(3))
    for told in job.sources:
        told.upto = 3
    job.nodes[1].tick(3.0)
    (key,) = [key for key in job.notes if key.startswith("steps/1/")]
    job.notes[key] = b"RKS1 and then nothing"
    job.nodes[0].tick(3.0)
    live_file.ask(job.folder)
    job.nodes[0].tick(4.0)
    assert any("cannot be read" in note for note in load(job.folder / LIVE_FILE).notes)
    # The node goes on counting, and so is heard again.
    job.run(range(8, 60))
    assert any("rank 6" in line for line in job.said[0])


class Broken(MemoryMailbox):
    """A store that takes no notes."""

    def __init__(self, node: int, nodes: int) -> None:
        super().__init__(node, nodes)
        self.asked, self._times = threading.Event(), 0

    def put(self, key: str, data: bytes) -> None:
        self._times += 1
        if self._times > 5:
            self.asked.set()
        raise ExchangeBroken("the rendezvous store failed: gone")


class Stuck(MemoryMailbox):
    """A store that does not answer for a while."""

    def __init__(self, node: int, nodes: int) -> None:
        super().__init__(node, nodes)
        self.asked, self.released = threading.Event(), threading.Event()

    def get(self, key: str) -> bytes | None:
        self.asked.set()
        self.released.wait(10)
        return super().get(key)


def test_a_problem_is_said_once_and_ends_nothing(tmp_path: Path) -> None:
    said: list[str] = []
    watcher = Stragglers(Control(), tmp_path / "t", said.append)
    mailbox = Broken(1, 2)
    watcher.begin(Attempt("j", 2, job_dir=tmp_path), mailbox)
    assert mailbox.asked.wait(10)
    watcher.pause()
    assert watcher.leaves() == watcher.other_leaves() == ""
    watcher.close()
    assert said == ["straggler detection hit a problem: the rendezvous store failed: gone"]


def test_a_store_that_hangs_does_not_hold_the_launcher_up(tmp_path: Path) -> None:
    watcher = Stragglers(Control(), tmp_path / "t", lambda _line: None)
    mailbox = Stuck(1, 2)
    watcher.begin(Attempt("j", 2, job_dir=tmp_path), mailbox)
    assert mailbox.asked.wait(10)
    watcher.pause(timeout_s=0.05)
    # It came back while the store was still stuck.
    assert not mailbox.released.is_set()
    mailbox.released.set()
    watcher.close()


def test_settings_of_an_earlier_job_are_forgotten_those_of_this_one_hold(tmp_path: Path) -> None:
    job_dir = tmp_path / "job"
    job_dir.mkdir(mode=0o700)
    said: list[str] = []
    taken = threading.Event()

    def log(line: str) -> None:
        said.append(line)
        taken.set()

    watcher = Stragglers(Control(Mode.OFF), tmp_path / "t", log)
    control.write(job_dir, {"mode": "exclude"})
    watcher.forget_earlier_job(job_dir, 0)
    assert control.read(job_dir, Control(Mode.OFF)).mode is Mode.OFF
    # Asked for when the job is said to be watched, and the thread has not come to it yet.
    control.write(job_dir, {"mode": "warn"})
    watcher.begin(Attempt("j", 2, job_dir=job_dir), MemoryMailbox())
    assert taken.wait(10)
    # A later attempt is of the same job.
    watcher.forget_earlier_job(job_dir, 0)
    assert control.read(job_dir, Control(Mode.OFF)).mode is Mode.WARN
    watcher.close()
    assert said == ["straggler detection: warn, minimum slowdown 4%"]


def test_another_node_does_not_forget_for_the_first(tmp_path: Path) -> None:
    control.write(tmp_path, {"mode": "warn"})
    Stragglers(Control(), tmp_path / "t", print).forget_earlier_job(tmp_path, 1)
    assert control.read(tmp_path, Control(Mode.OFF)).mode is Mode.WARN


def test_without_a_hook_nobody_looks(tmp_path: Path) -> None:
    watcher = Stragglers(Control(), tmp_path, lambda _line: None)
    watcher.begin(Attempt("j"), MemoryMailbox())
    watcher.pause()
    watcher.close()
    assert watcher.leaves() == ""


class Counters:
    """Connections whose counters a test sets."""

    def __init__(self, *answers: tuple[Connection, ...] | OSError) -> None:
        self.answers = list(answers)

    def read(self) -> tuple[Connection, ...]:
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


def test_a_kernel_that_does_not_tell_is_asked_once(tmp_path: Path) -> None:
    said: list[str] = []
    looker = EdgeLooker(said.append, SocketRates(Counters(OSError(1, "not permitted"))))
    for now_s in range(5):
        assert looker.look([LocalRank(0, 1)], float(now_s)) == ()
    assert len(said) == 1
    assert "not permitted" in said[0]


def test_what_hosts_send_each_other_is_put_together_once_a_second() -> None:
    reports = EdgeReports()
    assert reports.take(0.0) == ((), 0.0)
    for _ in range(2):
        reports.add("a", [EdgeTraffic("10.0.0.1", "10.0.0.2", 1000, 0.25, 1, 0.001)])
    reports.add("b", [EdgeTraffic("10.0.0.2", "10.0.0.1", 10, 0.0, 0, 0.001)])
    assert reports.take(0.9) == ((), 0.0)
    traffic, elapsed_s = reports.take(2.0)
    assert elapsed_s == 2.0
    assert {(one.source, one.target): one.acked_bytes for one in traffic} == {
        ("a", "b"): 2000, ("b", "a"): 10,
    }  # fmt: skip
    (first,) = [one for one in traffic if one.source == "a"]
    assert (first.busy_s, first.retransmits) == (0.5, 2)
    assert reports.take(3.0) == ((), 1.0)


def test_a_slow_edge_is_told_by_its_counters() -> None:
    network = Network()
    told: tuple[Verdict, ...] = ()
    edges = [("a", "b"), ("b", "c"), ("c", "d"), ("d", "a")]
    for step in range(40):
        traffic = [
            EdgeTraffic(s, t, 1 << 20, 0.4 if (s, t) == ("b", "c") else 0.1) for s, t in edges
        ]
        network.take_traffic(step, traffic, 1.0)
        told = network.update(step, [])
    (verdict,) = told
    assert verdict.ends == ("b", "c")
    worst = network.rows()[0]
    assert (worst.source, worst.target) == ("b", "c")
