"""Evidence from many nodes: what comes, from whom, and what an agent may not say."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from relkit.errors import RelkitError, UsageProblem
from relkit.findings import Status
from relkit.fleet.agent import Request
from relkit.hang.collect import evidence_files
from relkit.hang.collect.evidence_files import CHUNK_BYTES, LIST, READ
from relkit.hang.collect.gather import CollectedEvidence, gather, new_folder
from relkit.hang.collect.gathered_report import gathered_report
from relkit.hosts import NodeSpec
from tests.unit.fleet.fake_fleet import FakeFleet, Message

RANK = "0000{}-00004.stacktrace"


class Disks(FakeFleet):
    """Agents that answer as real ones do, each about a folder of its own.

    Args:
        folders: node -> its timeline folder.
        more: as of FakeFleet.
    """

    def __init__(self, folders: Mapping[str, Path], **more: Any) -> None:  # noqa: ANN401
        super().__init__(**more)
        self.folders, self.asked = folders, list[tuple[str, str]]()
        # Node -> after how many requests to read it is gone.
        self.dies_after: dict[str, int] = {}

    def _replies(self, node: str, op: str, fields: Mapping[str, Any]) -> list[Message]:
        self.asked.append((node, op))
        if op == READ and node in self.dies_after:
            self.dies_after[node] -= 1
            if self.dies_after[node] < 0:
                self._live.remove(node)
                return [{"op": "gone", "detail": "killed"}]
        mine = {**fields, "folder": str(self.folders[node])}
        request = Request(node, op, 1, mine, threading.Event())
        try:
            plain = [dict(reply) for reply in evidence_files.handlers()[op](request)]
        except (RelkitError, OSError) as error:
            return [{"op": "error", "detail": str(error)}]
        replies: list[Message] = json.loads(json.dumps(plain))
        return replies


def disk(tmp_path: Path, name: str, files: Mapping[str, bytes]) -> Path:
    folder = tmp_path / f"disk-{name}"
    folder.mkdir(exist_ok=True)
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def collected(fleet: Disks, out: Path, nodes: Sequence[str] = ()) -> CollectedEvidence:
    new_folder(out)
    names = nodes or tuple(fleet.folders)
    gathered = gather(fleet, [NodeSpec(name) for name in names], out, step_s=5.0)
    assert fleet.closed == 1
    # Nothing that is not whole is left, and nothing that others may read.
    here = {path for path in out.rglob("*") if path.is_file()}
    assert {str(path.relative_to(out)) for path in here} == gathered.files.keys()
    assert {path.stat().st_mode & 0o777 for path in here} <= {0o600}
    assert {path.stat().st_mode & 0o777 for path in out.glob("*/")} <= {0o700}
    return gathered


def test_each_nodes_files_come_into_its_folder(tmp_path: Path) -> None:
    long = bytes(range(256)) * (CHUNK_BYTES // 100)
    one = disk(
        tmp_path,
        "a",
        {
            "report.json": b"{}",
            RANK.format(0): long,
            RANK.format(1): b"",
            "py_stack": b"x",
            ".hidden.stacktrace": b"x",
            "previous-7/report.json": b"old",
        },
    )
    two = disk(tmp_path, "b", {"node-b/report.json": b"[]", f"node-b/{RANK.format(2)}": b"2"})
    (one / RANK.format(3)).symlink_to("/etc/passwd")
    (one / "node-x").symlink_to(two / "node-b")
    gathered = collected(Disks({"a": one, "b": two}), tmp_path / "out")
    assert {path: (tmp_path / "out" / path).read_bytes() for path in gathered.files} == {
        "node-a/report.json": b"{}",
        f"node-a/{RANK.format(0)}": long,
        f"node-a/{RANK.format(1)}": b"",
        "node-b/report.json": b"[]",
        f"node-b/{RANK.format(2)}": b"2",
    }
    assert (gathered.silent, gathered.refused, gathered.empty, gathered.left_out) == (
        {},
        {},
        (),
        (),
    )


def test_what_nodes_share_is_fetched_once_and_copies_are_kept_once(tmp_path: Path) -> None:
    shared = disk(tmp_path, "shared", {f"node-{n}/{RANK.format(n)}": b"%d" % n for n in range(4)})
    fleet = Disks(dict.fromkeys("abcd", shared))
    gathered = collected(fleet, tmp_path / "out")
    assert len(gathered.files) == 4
    # Each node reads some of it.
    assert sorted(node for node, op in fleet.asked if op == READ) == ["a", "b", "c", "d"]
    # The leader of a job has the others' dumps as well.
    own = disk(tmp_path, "own", {RANK.format(1): b"rank 1"})
    leader = disk(tmp_path, "leader", {RANK.format(0): b"rank 0", RANK.format(1): b"rank 1"})
    gathered = collected(Disks({"a": leader, "b": own}), tmp_path / "out2")
    assert [path.rpartition("/")[2] for path in gathered.files] == [RANK.format(0), RANK.format(1)]


def test_a_node_that_is_lost_is_named_and_another_gives_what_it_shared(tmp_path: Path) -> None:
    size = 3 * CHUNK_BYTES
    shared = disk(tmp_path, "s", {f"node-s/{RANK.format(0)}": b"s" * size})
    own = disk(tmp_path, "own", {RANK.format(1): b"o" * size})
    fleet = Disks(
        {"a": shared, "b": shared, "c": own, "d": own},
        unanswered={"d": "no route to it"},
        silent={("e", LIST)},
    )
    fleet.folders = {**fleet.folders, "e": own}
    fleet.dies_after = {"a": 1, "c": 2}
    gathered = collected(fleet, tmp_path / "out")
    assert gathered.files == {f"node-s/{RANK.format(0)}": size}
    assert gathered.silent == {
        "a": "killed",
        "c": "killed",
        "d": "no route to it",
        "e": f'did not reply to "{LIST}" within 5 s',
    }
    ((node, path, why),) = gathered.left_out
    assert (node, path) == ("c", RANK.format(1))
    assert "was lost after 524,288 bytes" in why


GOOD = {"op": LIST, "folder": "/t", "more": False}


def listing(*rows: object, **more: object) -> Message:
    return {**GOOD, "files": list(rows), **more}


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (listing(["../../etc/passwd", 1, 1]), "'../../etc/passwd', no file of a hang"),
        (listing(["/etc/report.json", 1, 1]), "no file of a hang"),
        (listing(["node-a/node-b/report.json", 1, 1]), "no file of a hang"),
        (listing(["node-a/../report.json", 1, 1]), "no file of a hang"),
        (listing([".ssh/report.json", 1, 1]), "no file of a hang"),
        (listing(["report.json\n", 1, 1]), "no file of a hang"),
        (listing(["a\x1b[2Jstacktrace", 1, 1]), "no file of a hang"),
        (listing(["x" * 5000 + "stacktrace", 1, 1]), "no file of a hang"),
        (listing(["report.json", -1, 1]), "gives report.json no size"),
        (listing(["report.json", True, 1]), "gives report.json no size"),
        (listing(["report.json", 1.5, 1]), "gives report.json no size"),
        (listing(["report.json", 1]), "no file"),
        (listing("report.json"), "no file"),
        (listing(["report.json", 1, 1], ["report.json", 2, 2]), "twice"),
        (listing(more=True), "promises files and lists none"),
        ({**GOOD, "files": {"report.json": 1}}, "no list of files"),
        (listing(*[["report.json", 1, 1]] * 4001), "too long a one"),
        ({**GOOD}, "no list of files"),
        (listing(["report.json", 1, 1], folder=None), "names no folder"),
        (listing(["report.json", 1, 1], folder="/t" * 4096), "names no folder"),
    ],
)
def test_an_agent_that_lists_what_cannot_be_is_named(
    reply: Message, why: str, tmp_path: Path
) -> None:
    good = disk(tmp_path, "b", {RANK.format(1): b"1"})
    fleet = Disks({"a": good, "b": good}, odd={("a", LIST): [reply]})
    gathered = collected(fleet, tmp_path / "out")
    assert gathered.files == {f"node-b/{RANK.format(1)}": 1}
    assert why in gathered.refused["a"]
    assert "\x1b" not in gathered.refused["a"]
    assert gathered.silent == {}


@pytest.mark.parametrize(
    "reply",
    [
        {"op": READ},
        {"op": READ, "data": 7},
        {"op": READ, "data": "not base64!"},
        {"op": READ, "data": base64.b64encode(b"too much").decode()},
    ],
)
def test_an_agent_that_sends_other_data_is_named(reply: Message, tmp_path: Path) -> None:
    mine = disk(tmp_path, "a", {RANK.format(0): b"0"})
    good = disk(tmp_path, "b", {RANK.format(1): b"1"})
    gathered = collected(Disks({"a": mine, "b": good}, odd={("a", READ): [reply]}), tmp_path / "o")
    assert gathered.files == {f"node-b/{RANK.format(1)}": 1}
    assert RANK.format(0) in gathered.refused["a"]
    assert [row[:2] for row in gathered.left_out] == [("a", RANK.format(0))]


def test_more_files_or_bytes_than_there_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, most in (("FILES", 2), ("FILE_BYTES", 10), ("NODE_BYTES", 12), ("BYTES", 20)):
        monkeypatch.setattr(f"relkit.hang.collect.gather.MAX_{name}", most)
    monkeypatch.setattr("relkit.hang.collect.evidence_files.FILES_A_PAGE", 1)
    many = disk(tmp_path, "a", {RANK.format(n): b"1" for n in range(3)})
    large = disk(tmp_path, "b", {RANK.format(3): b"3" * 11, RANK.format(4): b"4" * 9})
    much = disk(tmp_path, "c", {RANK.format(5): b"5" * 9, RANK.format(6): b"6" * 4})
    last = disk(tmp_path, "d", {RANK.format(7): b"7" * 3, RANK.format(8): b"8" * 2})
    folders = {"a": many, "b": large, "c": much, "d": last}
    gathered = collected(Disks(folders), tmp_path / "out")
    expected = {("c", 5): 9, ("d", 7): 3, ("d", 8): 2}
    assert gathered.files == {
        f"node-{node}/{RANK.format(rank)}": size for (node, rank), size in expected.items()
    }
    assert gathered.refused == {"a": "its agent lists more than 2 files"}
    assert gathered.left_out == (
        ("b", RANK.format(3), "larger than 0 MiB"),
        ("b", RANK.format(4), "more than 0 GiB in all"),
        ("c", RANK.format(6), "more than 0 GiB of one node"),
    )


def test_many_files_take_turns(tmp_path: Path) -> None:
    count = 1000
    names = [f"{rank:05d}-01000.stacktrace" for rank in range(count)]
    one = disk(tmp_path, "a", {name: name.encode() for name in names})
    other = disk(tmp_path, "b", {names[0]: b"rank 0, later"})
    gathered = collected(Disks({"a": one, "b": other}), tmp_path / "out")
    assert len(gathered.files) == count + 1


def test_a_file_that_becomes_shorter_and_one_of_the_same_name(tmp_path: Path) -> None:
    a = disk(tmp_path, "a", {RANK.format(0): b"0000", f"node-x/{RANK.format(1)}": b"1"})
    b = disk(tmp_path, "b", {f"node-x/{RANK.format(1)}": b"22"})
    fleet = Disks({"a": a, "b": b})

    def shorten(message: Mapping[str, Any]) -> None:
        if message["op"] == READ:
            (a / RANK.format(0)).write_bytes(b"0")

    fleet.on_send = shorten
    gathered = collected(fleet, tmp_path / "out")
    assert gathered.files == {f"node-x/{RANK.format(1)}": 1}
    assert sorted(gathered.left_out) == [
        ("a", RANK.format(0), "it became shorter while it was read"),
        ("b", f"node-x/{RANK.format(1)}", "another node has another file of that name"),
    ]
    assert gathered.refused == {}


def test_a_folder_that_is_not_new(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageProblem, match="evidence of two hangs would be mixed"):
        new_folder(tmp_path)


def test_an_agent_gives_only_evidence(tmp_path: Path) -> None:
    folder = disk(tmp_path, "a", {"report.json": b"{}", "secret": b"s"})
    (folder / RANK.format(1)).symlink_to(folder / "secret")
    read = evidence_files.handlers()[READ]
    for path in ("secret", "../disk-a/secret", "/etc/passwd", RANK.format(1), "node-a/report.json"):
        fields = {"folder": str(folder), "path": path, "offset": 0}
        with pytest.raises((RelkitError, OSError)):
            list(read(Request("a", READ, 1, fields, threading.Event())))


def test_the_report_says_whose_evidence_is_missing(tmp_path: Path) -> None:
    one = disk(tmp_path, "a", {"report.json": b"{}"})
    fleet = Disks(
        {"a": one, "b": disk(tmp_path, "b", {}), "c": one, "d": one},
        unanswered={"c": "no route to it", "d": "no route to it"},
    )
    out = tmp_path / "out"
    report = gathered_report(
        collected(fleet, out), out, nodes="abcd", argv=(), started=0.0, duration_s=0.0
    )
    assert {finding.id: finding.status for finding in report.findings} == {
        "RK-HANG-020": Status.UNKNOWN,
        "RK-HANG-022": Status.WARN,
        "RK-HANG-019": Status.OK,
    }
    assert report.exit_code == 3
    assert report.findings[0].title == ("2 nodes c,d gave no evidence, or not all: no route to it")
    nothing = gathered_report(
        collected(Disks({"b": tmp_path / "disk-b"}), tmp_path / "o2"),
        tmp_path, nodes="b", argv=(), started=0.0, duration_s=0.0,
    )  # fmt: skip
    assert (nothing.exit_code, nothing.findings[0].id) == (3, "RK-HANG-022")
