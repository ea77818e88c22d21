"""The history's database: kept, pruned, written by two at once; damaged, it is an error."""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.history import database, place
from relkit.history.model import Event, What
from relkit.history.place import NoHistory, history_folder, type_of_mount

NOW_S = 1_800_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state" / "relkit"


def event(text: str, at_s: float = NOW_S, node: str = "", **members: object) -> Event:
    nodes = (node,) if node else ()
    return Event(
        at_s, What.VERDICT, "job", "run", "host", text,
        nodes=nodes, speaks_of_nodes=bool(node), **members,  # type: ignore[arg-type]
    )  # fmt: skip


def test_what_is_written_is_read_by_node_job_and_time(folder: Path) -> None:
    assert database.read(folder, 0.0) == []
    first = Event(
        NOW_S, What.SAVE, "j1", "r", "h", "t", "RK-FLASH-001", "warn", "0-3", ("n1", "n2"),
        True, 4, 17, 2.5,
    )  # fmt: skip
    second = event("later", NOW_S + 10, "n2")
    database.write(folder, [second, first], NOW_S)
    assert database.read(folder, 0.0) == [first, second]
    assert database.read(folder, 0.0, job="j1") == [first]
    assert database.read(folder, 0.0, node="n1") == [first]
    assert database.read(folder, 0.0, node="n2") == [first, second]
    assert database.read(folder, 0.0, node="h") == [first]
    assert database.read(folder, NOW_S + 1) == [second]
    assert database.read(folder, 0.0, most=1) == [second]
    found = database.mentions(folder, 0.0, NOW_S + 20)
    assert [(m.node, m.is_alone) for m in found] == [("n2", False), ("n1", False), ("n2", False)]


def test_nobody_else_may_read_it(folder: Path) -> None:
    database.write(folder, [event("x")], NOW_S)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    folder.chmod(0o755)
    with pytest.raises(NoHistory, match="others may read it"):
        database.write(folder, [event("x")], NOW_S)
    with pytest.raises(NoHistory, match="others may read it"):
        database.read(folder, 0.0)


@given(
    ages_s=st.lists(
        st.floats(0, 2 * database.MAX_AGE_S).filter(
            lambda age_s: abs(age_s - database.MAX_AGE_S) > 1
        ),
        max_size=20,
    )
)
def test_what_is_too_old_is_dropped_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, ages_s: list[float]
) -> None:
    folder = tmp_path_factory.mktemp("history") / "relkit"
    database.write(folder, [event("x", NOW_S - age_s, "n1") for age_s in ages_s], NOW_S)
    kept = sorted(NOW_S - age_s for age_s in ages_s if age_s < database.MAX_AGE_S)
    assert [each.at_unix_s for each in database.read(folder, 0.0)] == kept
    assert len(database.mentions(folder, 0.0, NOW_S)) == len(kept)


def test_what_is_too_much_is_dropped_oldest_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "MAX_BYTES", 400_000)
    for batch in range(4):
        events = [event("x" * 500, NOW_S + 1000 * batch + i, "n1") for i in range(400)]
        database.write(folder, events, NOW_S)
    left = database.read(folder, 0.0)
    assert 100 < len(left) < 1000
    assert [each.at_unix_s for each in left] == sorted(each.at_unix_s for each in left)
    assert left[-1].at_unix_s == NOW_S + 3399
    assert (folder / place.NAME).stat().st_size < 600_000
    assert len(database.mentions(folder, 0.0, NOW_S + 1e6)) == len(left)


def _write_many(folder: Path, name: str, begin: object) -> None:
    begin.wait()  # type: ignore[attr-defined]
    for number in range(25):
        database.write(folder, [event(f"{name} {number}")], NOW_S)
    os._exit(0)


def test_two_processes_that_write_at_once_both_keep_all(folder: Path) -> None:
    context = multiprocessing.get_context("fork")
    begin = context.Barrier(2)
    writers = [
        context.Process(target=_write_many, args=(folder, name, begin)) for name in ("a", "b")
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(100)
        assert writer.exitcode == 0
    texts = {each.text for each in database.read(folder, 0.0)}
    assert texts == {f"{name} {number}" for name in "ab" for number in range(25)}


@pytest.mark.parametrize("data", [b"not a database at all" * 500, b"SQLite format 3\0" + b"x" * 99])
def test_a_damaged_one_is_said_and_left_as_it_is(folder: Path, data: bytes) -> None:
    folder.mkdir(mode=0o700, parents=True)
    path = folder / place.NAME
    path.write_bytes(data)
    path.chmod(0o600)
    for call in (
        lambda: database.write(folder, [event("x")], NOW_S),
        lambda: database.read(folder, 0.0),
        lambda: database.mentions(folder, 0.0, NOW_S),
    ):
        with pytest.raises(NoHistory) as raised:
            call()
        assert "move" in raised.value.next_step
    assert path.read_bytes() == data


def test_one_that_is_damaged_inside_is_an_error_too(folder: Path) -> None:
    database.write(folder, [event("x" * 400, NOW_S + i, "n1") for i in range(300)], NOW_S)
    path = folder / place.NAME
    data = bytearray(path.read_bytes())
    for at in range(4096 + 200, len(data), 512):
        data[at : at + 300] = b"\xff" * 300
    path.write_bytes(data)
    with pytest.raises(NoHistory, match=r"malformed|corrupt"):
        database.read(folder, 0.0)


def test_another_version_is_refused(folder: Path) -> None:
    database.write(folder, [event("x")], NOW_S)
    with sqlite3.connect(folder / place.NAME) as other:
        other.execute("PRAGMA user_version = 9")
    other.close()
    for call in (
        lambda: database.write(folder, [event("x")], NOW_S),
        lambda: database.read(folder, 0.0),
    ):
        with pytest.raises(NoHistory, match="version 9"):
            call()


def test_rows_of_other_types_are_left_out(folder: Path) -> None:
    database.write(folder, [event("good")], NOW_S)
    with sqlite3.connect(folder / place.NAME) as other:
        other.execute("UPDATE event SET what = 'nonsense', step = 'x'")
        other.execute("INSERT INTO event SELECT NULL, at, 'save', job, run, host, x'ff00', finding,"
                      " status, ranks, speaks, of_nodes, step, seconds FROM event")  # fmt: skip
    other.close()
    assert database.read(folder, 0.0) == []


@given(st.text(max_size=600))
def test_hostile_text_is_data(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("history") / "relkit"
    text = f"'); DROP TABLE event; --{text}\ud800"
    database.write(folder, [event(text, node=text)], NOW_S)
    (back,) = database.read(folder, 0.0, node=database._storable(text))
    assert back.text.startswith("'); DROP TABLE event; --")
    assert len(back.text) <= 500


def test_a_link_in_its_place_is_not_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(mode=0o700, parents=True)
    (tmp_path / "else").touch(mode=0o600)
    (folder / place.NAME).symlink_to(tmp_path / "else")
    with pytest.raises(NoHistory):
        database.write(folder, [event("x")], NOW_S)
    assert (tmp_path / "else").read_bytes() == b""


def test_a_place_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NoHistory, match="cannot be made"):
        database.write(tmp_path / "file" / "relkit", [event("x")], NOW_S)


MOUNTS = """\
22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:40 / /home rw shared:1 - nfs4 server:/home rw
31 30 0:41 / /home/a\\040b rw - xfs /dev/sdb rw
32 22 0:42 / /lustre rw - lustre mgs:/fs rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/var/lib/relkit", "ext4"), ("/home/me/x", "nfs4"), ("/home/a b/x", "xfs"),
     ("/homes/x", "ext4"), ("/lustre/x", "lustre")],
)  # fmt: skip
def test_the_type_of_a_file_system_is_that_of_the_nearest_mount(path: str, kind: str) -> None:
    assert type_of_mount(Path(path), MOUNTS) == kind


def test_on_a_network_file_system_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = f"1 1 0:1 / {tmp_path.resolve()} rw - nfs4 server:/x rw\n"
    monkeypatch.setattr(place, "_read_mounts", lambda: mounts)
    with pytest.raises(NoHistory, match="is on nfs4"):
        database.write(tmp_path / "relkit", [event("x")], NOW_S)
    assert not (tmp_path / "relkit").exists()


@pytest.mark.parametrize(
    ("kind", "is_shared"),
    [("dvs", True), ("autofs", True), ("fuse.dfuse", True), ("fuse.s3fs", True), ("nfs4", True),
     ("fuse.fuse-overlayfs", False), ("overlay", False), ("ext4", False), ("tmpfs", False)],
)  # fmt: skip
def test_which_file_systems_are_of_several_hosts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, is_shared: bool
) -> None:
    mounts = f"1 1 0:1 / {tmp_path.resolve()} rw - {kind} x rw\n"
    monkeypatch.setattr(place, "_read_mounts", lambda: mounts)
    if is_shared:
        with pytest.raises(NoHistory, match=f"is on {kind}"):
            place.prepared_folder(tmp_path / "relkit")
    else:
        assert place.prepared_folder(tmp_path / "relkit").is_dir()


def test_where_it_is() -> None:
    assert history_folder({"XDG_STATE_HOME": "/x"}) == Path("/x/relkit")
    usual = history_folder({"XDG_STATE_HOME": "relative"})
    assert usual in (Path("/var/lib/relkit"), Path.home() / ".local/state/relkit")
    assert (usual == Path("/var/lib/relkit")) is (os.geteuid() == 0)
