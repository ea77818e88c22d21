"""What a launcher keeps of its job, and says of nodes that were named before."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from relkit.accounting.records import Record
from relkit.accounting.records import What as Noted
from relkit.findings import Finding, Report, Status
from relkit.history import database
from relkit.history.counting import Named
from relkit.history.model import Event, What
from relkit.history.place import NAME, NoHistory
from relkit.launch.history import keeper as keeper_module
from relkit.launch.history.keeper import HistoryKeeper
from relkit.launch.history.named_nodes import NamedNodes
from relkit.launch.history.service import HistoryService
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import MemoryMailbox
from relkit.launch.job.service import Stop
from relkit.output import as_json
from tests.waiting import eventually


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "relkit"


def record(what: Noted, **members: object) -> Record:
    return Record(what, time.monotonic(), time.time(), **members)  # type: ignore[arg-type]


def begun(folder: Path, tmp_path: Path, said: list[str]) -> HistoryKeeper:
    keeper = HistoryKeeper(tmp_path, said.append, lambda: folder)
    keeper.hear(record(Noted.LAUNCHER, name="h", text="j"))
    keeper.hear(record(Noted.ATTEMPT, number=0, nodes=2, world_size=4))
    return keeper


def whats(folder: Path) -> list[What]:
    return [event.what for event in database.read(folder, 0.0)]


def test_the_journal_and_the_reports_of_this_launcher_are_kept(
    folder: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    fault = Finding("RK-HANG-008", Status.FAIL, "rank 1 waits", ranks="1", nodes="n1")
    report = as_json(Report("hang", (fault,), {"job_id": "j"}))
    (tmp_path / "netcheck.json").write_text(as_json(Report("netcheck", (fault,))))
    keeper = begun(folder, tmp_path, said)
    (tmp_path / "report.json").write_text(report)
    other = json.loads(report)
    other["meta"]["pid"] += 1
    (tmp_path / "ttp.json").write_text(json.dumps(other))
    (tmp_path / "flash_checkpoint.json").write_text("{")
    keeper.hear(record(Noted.FAULT, name="hang", text="the job hung", number=1))
    keeper.hear(record(Noted.SAVED, name="memory", number=7))
    keeper.hear(record(Noted.LAST_STEP, number=7))
    HistoryService(keeper).stopped(Attempt("j"), Stop.RESTART)
    keeper.hear(record(Noted.ATTEMPT, number=1, nodes=2, world_size=4))
    keeper.hear(record(Noted.ENDED, name="succeeded"))
    keeper.close()
    assert sorted(whats(folder)) == sorted(
        [What.START, What.INCIDENT, What.SAVE, What.VERDICT, What.RESTART, What.END]
    )
    events = {event.what: event for event in database.read(folder, 0.0)}
    assert {event.job for event in events.values()} == {"j"}
    assert (events[What.VERDICT].nodes, events[What.VERDICT].of_nodes) == (("n1",), 2)
    assert (events[What.INCIDENT].status, events[What.INCIDENT].ranks) == ("hang", "1")
    assert (events[What.SAVE].step, events[What.END].status) == (7, "succeeded")
    assert said == []


def test_a_history_that_fails_is_one_line_and_the_job_goes_on(folder: Path, tmp_path: Path) -> None:
    said: list[str] = []
    folder.mkdir(parents=True, mode=0o700)
    (folder / "history.sqlite").write_bytes(b"damaged" * 1000)
    (folder / "history.sqlite").chmod(0o600)
    keeper = begun(folder, tmp_path, said)
    eventually(lambda: bool(said), "a line")
    for _ in range(5):
        keeper.hear(record(Noted.FAULT, name="hang"))
    keeper.close()
    (line,) = said
    assert line.startswith("no history is kept of this job: ")
    assert (folder / "history.sqlite").read_bytes() == b"damaged" * 1000


def test_a_node_that_was_named_three_times_is_said_once(folder: Path, tmp_path: Path) -> None:
    now_s, said = time.time(), list[str]()
    named = [
        Event(
            now_s - 86400 * days,
            What.VERDICT,
            "old",
            f"r{days}",
            "h",
            "slow",
            "RK-STRAG-004",
            "fail",
            "3",
            ("n1",),
            True,
            2,
        )
        for days in (1, 2, 3)
    ]
    database.write(folder, named)
    keeper = begun(folder, tmp_path, said)
    service = HistoryService(keeper)
    attempt = Attempt("j", host="n1")
    assert service.environment(attempt) == {}
    eventually(lambda: bool(said), "a line")
    service.environment(attempt)
    keeper.close()
    (line,) = said
    assert line == (
        "node n1 was named 3 times in 30 days (RK-STRAG-004: 3); that is evidence, and no verdict:"
        " relkit history --node n1"
    )


def test_node_0_learns_from_the_others_who_they_are_and_what_their_hosts_know() -> None:
    notes: dict[str, bytes] = {}
    often = Named("n1", 4, {"RK-NET-001": 4})
    first = NamedNodes(
        MemoryMailbox(0, 4, notes), "n0", [Named("n2", 3, {"RK-HANG-008": 3}), often]
    )
    second = NamedNodes(MemoryMailbox(1, 4, notes), "m", [Named("m", 5, {"RK-HANG-001": 5}, 1)])
    second.tell()
    first.tell()
    first.ask()
    assert [(each.node, each.times, each.alone) for each in first.often()] == [("m", 5, 1)]
    assert (first.is_done, second.is_done, list(second.often())) == (False, True, [])
    notes["node/2"] = b'{"node": "n2", "times": "9", "alone": [], "findings": {"x": 1}}'
    notes["node/3"] = b"\xff{"
    first.ask()
    assert first.is_done
    # Whatever others write of a node is no more than it can be.
    assert [(each.node, each.times) for each in first.often()] == [("m", 5), ("n2", 3)]


def test_a_host_without_a_free_thread_is_one_line(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    said: list[str] = []
    monkeypatch.setattr(threading.Thread, "start", refuse)
    keeper = begun(folder, tmp_path, said)
    keeper.hear(record(Noted.ENDED, name="succeeded"))
    keeper.close()
    assert said == ["no history is kept of this job: can't start new thread"]


def test_a_launcher_without_a_journal_keeps_nothing(folder: Path, tmp_path: Path) -> None:
    keeper = HistoryKeeper(tmp_path, print, lambda: folder)
    keeper.close()
    assert not folder.exists()


def test_a_history_that_another_process_holds_is_written_later(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    monkeypatch.setattr(keeper_module, "LOOK_S", 0.1)
    database.write(folder, [Event(time.time(), What.NETCHECK)])
    write, failed = database.write, []

    def watched(*arguments: object) -> None:
        try:
            write(*arguments)  # type: ignore[arg-type]
        except NoHistory:
            failed.append(1)
            raise

    monkeypatch.setattr(database, "write", watched)
    said: list[str] = []
    with closing(sqlite3.connect(folder / NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        keeper = begun(folder, tmp_path, said)
        eventually(lambda: failed, "a write that fails")
        other.execute("ROLLBACK")
    keeper.close()
    assert said == []
    assert whats(folder) == [What.NETCHECK, What.START]


def test_a_python_without_sqlite_keeps_none_and_says_so(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "relkit.history.database", None)
    monkeypatch.delattr("relkit.history.database")
    said: list[str] = []
    keeper = begun(folder, tmp_path, said)
    eventually(lambda: said, "a word")
    keeper.close()
    assert said[0].startswith("no history is kept of this job: ")
