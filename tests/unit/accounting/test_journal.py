"""The journal: what is written is read back; what is torn, hostile or full is said."""

from __future__ import annotations

import os
import resource
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.accounting import journal as journal_module
from relkit.accounting import journal_folder
from relkit.accounting.journal import MAX_BYTES, Journal
from relkit.accounting.journal_folder import JournalFile
from relkit.accounting.read_journal import parse_journal, read_journal
from relkit.accounting.records import MAX_LINE_BYTES, Record, What, parse_record
from relkit.errors import BadInputFile
from relkit.process import procfs
from tests.unit.accounting.stories import Story


@pytest.fixture(autouse=True)
def _own_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_folder, "_SHARED_MEMORY", tmp_path)


def lines_of(story: Story) -> bytes:
    return b"".join(record.to_line() for record in story.records)


def own() -> JournalFile:
    (file,) = journal_folder.journals_of("job")
    return file


def test_what_a_launcher_notes_is_read_back_while_it_runs() -> None:
    said: list[str] = []
    journal = Journal("job", said.append)
    journal.add(What.ATTEMPT, number=0, node=1, nodes=2, world_size=8)
    journal.add(What.FAULT, 5.0, name="hang", text="r\xe9nk 3\n hangs", seconds=1.5, number=3)
    file = own()
    assert file.path.stat().st_mode & 0o777 == 0o600
    assert file.path.parent.stat().st_mode & 0o777 == 0o700
    read = read_journal(file)
    assert (read.is_live, read.problem) == (True, "")
    assert [record.what for record in read.records] == [What.LAUNCHER, What.ATTEMPT, What.FAULT]
    fault = read.records[-1]
    assert (fault.at_s, fault.name, fault.text) == (5.0, "hang", "r?nk 3\n hangs")
    # The wall clock is moved by as much as the monotonic one.
    begun = read.records[0]
    assert fault.unix_s - begun.unix_s == pytest.approx(5.0 - begun.at_s, abs=0.01)
    journal.close()
    assert said == []
    assert journal_folder.jobs_here() == ("job",)


def test_what_the_launcher_keeps_is_what_a_reader_gets() -> None:
    """Else the report at the end and `relkit status` differ by a digit now and then."""
    journal = Journal("job", print)
    journal.add(What.FAULT, 1.00049999951, name="hang", seconds=0.1234567890123)
    assert read_journal(own()).records == journal.records
    assert (journal.records[-1].at_s, journal.records[-1].seconds) == (1.0005, 0.123457)
    journal.close()


def test_what_it_does_now_is_taken_while_it_is_the_newest() -> None:
    journal = Journal("job", print)
    journal.add(What.FIRST_STEP, number=3)
    last_s = journal.records[-1].at_s
    journal.put_now(
        Record(What.LAST_STEP, last_s + 1, 0, number=9), Record(What.ALIVE, last_s + 2, 0)
    )
    assert [r.what for r in read_journal(own()).records[-2:]] == [What.LAST_STEP, What.ALIVE]
    journal.add(What.ENDED, last_s + 3, name="succeeded")
    assert read_journal(own()).records[-1].what is What.ENDED
    journal.close()


def test_a_journal_grows_to_its_limit_and_still_has_its_end() -> None:
    said: list[str] = []
    journal = Journal("job", said.append)
    for _ in range(MAX_BYTES // 300):
        journal.add(What.FAULT, text="x" * 300)
    assert journal.is_full
    journal.add(What.ALIVE)
    journal.add(What.ENDED, name="failed", text="y" * 300)
    read = read_journal(own())
    assert own().path.stat().st_size <= MAX_BYTES
    assert [record.what for record in read.records[-2:]] == [What.FULL, What.ENDED]
    assert read.problem == "it was full, later restarts are not in it"
    assert len(said) == 1
    assert len(journal.records) == len(read.records)
    journal.close()


def test_a_folder_that_cannot_be_written_is_a_line_and_no_more(tmp_path: Path) -> None:
    (tmp_path / f"relkit-{os.geteuid()}-jobs").write_text("")
    said: list[str] = []
    journal = Journal("job", said.append)
    for _ in range(3):
        journal.add(What.ALIVE)
        journal.put_now(Record(What.ALIVE, 1.0, 1.0))
    journal.close()
    assert len(said) == 1
    assert said[0].startswith("the job's restarts are not accounted for: ")


def test_a_folder_that_others_may_read_is_not_written_to(tmp_path: Path) -> None:
    home = tmp_path / f"relkit-{os.geteuid()}-jobs"
    home.mkdir()
    home.chmod(0o755)
    said: list[str] = []
    Journal("job", said.append).close()
    assert "others may read it" in said[0]
    assert list(home.iterdir()) == []


def test_a_full_disk_is_a_line_and_leaves_whole_records() -> None:
    said: list[str] = []
    journal = Journal("job", said.append)
    size = own().path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, hard))
    try:
        journal.add(What.FAULT, name="hang")
        journal.add(What.FAULT, name="hang")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert len(said) == 1
    read = read_journal(own())
    assert ([record.what for record in read.records], read.problem) == ([What.LAUNCHER], "")
    assert len(journal.records) == 3, "the line after a recovery needs them"


def test_a_child_that_was_forked_writes_nothing() -> None:
    journal = Journal("job", print)
    size = own().path.stat().st_size
    pid = os.fork()
    if pid == 0:
        journal.add(What.FAULT)
        journal.put_now(Record(What.ALIVE, 1.0, 1.0))
        os._exit(0)
    os.waitpid(pid, 0)
    assert own().path.stat().st_size == size
    assert not own().path.with_suffix(journal_folder.NOW_SUFFIX).exists()
    journal.close()


def test_its_whole_part_is_used_and_the_rest_is_said() -> None:
    data = lines_of(Story().attempt(0, 3).fault())
    whole = parse_journal(data)
    assert whole.problem == ""
    torn = parse_journal(data[:-5])
    assert torn.records == whole.records[:-1]
    assert torn.problem == "its last line is cut off"
    lines = data.splitlines(keepends=True)
    for bad in (b"\xff\n", b"[]\n", b"\n", b'{"what":"fault"}\n', lines[0], b"x" * 2000 + b"\n"):
        damaged = parse_journal(b"".join((*lines[:3], bad, *lines[3:])))
        assert damaged.records == whole.records[:3]
        assert damaged.problem.startswith("line 4 and what follows are left out: ")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b'{"what":"launcher"', "its last line is cut off"),
        (b"\0\0\0\n", "line 1"),
        (Record(What.ALIVE, 1, 1).to_line(), "not the first"),
        (Record(What.LAUNCHER, 1, 1, number=99).to_line(), "version 99"),
    ],
)
def test_what_is_no_journal_is_an_error_with_a_next_step(data: bytes, why: str) -> None:
    Journal("job", print).close()
    own().path.write_bytes(data)
    with pytest.raises(BadInputFile, match=why) as told:
        read_journal(own())
    assert told.value.next_step


def test_a_journal_of_somebody_else_or_a_link_is_refused(tmp_path: Path) -> None:
    Journal("job", print).close()
    path = own().path
    path.chmod(0o644)
    with pytest.raises(BadInputFile, match="other users may read"):
        read_journal(own())
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadInputFile, match=path.name):
        read_journal(own())


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (b'"at_s":"x"', "at_s is not what"),
        (b'"at_s":NaN', "at_s is out of range"),
        (b'"at_s":1e999', "at_s is out of range"),
        (b'"at_s":true', "at_s is not what"),
        (b'"seconds":-1', "a duration is negative"),
        (b'"number":1.5', "number is not what"),
        (b'"number":1e30', "number is not what"),
        (b'"text":7', "text is not what"),
        (b'"unix_s":null', "unix_s is not what"),
        (b'"number":1' + b"0" * 400, "number is out of range"),
    ],
)
def test_a_member_that_is_not_what_it_should_be_is_refused(member: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_record(b'{"what":"alive","at_s":1,"unix_s":1,' + member + b"}")


_TEXT = st.text(max_size=400)
_NUMBER = st.integers(-(10**12), 10**12)


@given(
    st.builds(
        Record, st.sampled_from(What), st.floats(-1e12, 1e12), st.floats(-1e12, 1e12),
        _TEXT, _TEXT, st.floats(0, 1e12), _NUMBER, _NUMBER, _NUMBER, _NUMBER,
    )
)  # fmt: skip
def test_every_record_fits_into_its_line_and_comes_back(record: Record) -> None:
    line = record.to_line()
    assert len(line) <= MAX_LINE_BYTES
    assert line.count(b"\n") == 1
    read = parse_record(line[:-1])
    assert (read.what, read.number, read.world_size) == (
        record.what, record.number, record.world_size,
    )  # fmt: skip
    assert read.seconds == pytest.approx(record.seconds, abs=1e-6)
    assert parse_record(read.to_line()[:-1]) == read


@given(st.binary(max_size=300))
def test_bytes_that_are_no_journal_are_a_value_error(data: bytes) -> None:
    try:
        parse_journal(data)
    except ValueError:
        return
    raise AssertionError("taken")


def test_old_journals_and_folders_go_and_live_ones_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_folder, "MAX_JOBS", 2)
    monkeypatch.setattr(journal_folder, "MAX_ENDED", 3)
    home = tmp_path / f"relkit-{os.geteuid()}-jobs"
    live = f"{os.getppid()}-{procfs.start_ticks(os.getppid())}.journal"
    for number in range(5):
        folder = home / f"old-{number}"
        folder.mkdir(mode=0o700, parents=True)
        home.chmod(0o700)
        path = folder / (live if number == 0 else "1-1.journal")
        path.touch(mode=0o600)
        for each in (path, folder):
            os.utime(each, (1000 + number, 1000 + number))
    mine = home / "job"
    mine.mkdir(mode=0o700)
    for number in range(1, 7):
        path = mine / f"{number}-1.journal"
        path.touch(mode=0o600)
        os.utime(path, (2000 + number, 2000 + number))
    Journal("job", print).close()
    assert {folder.name for folder in home.iterdir()} == {"job", "old-0", "old-3", "old-4"}
    kept = {file.launcher.pid for file in journal_folder.journals_of("job")}
    assert kept == {4, 5, 6, os.getpid()}


@pytest.mark.parametrize("has_run_before", [False, True])
def test_a_folder_in_which_a_launcher_is_about_to_write_stays(
    monkeypatch: pytest.MonkeyPatch, has_run_before: bool
) -> None:
    for number, job in enumerate(["starts"] * has_run_before + ["old", "older", "oldest"]):
        ended = journal_folder.make(job).with_name("1-1.journal")
        ended.write_bytes(b"")
        for each in (ended, ended.parent):
            os.utime(each, (number, number))
    monkeypatch.setattr(journal_folder, "MAX_JOBS", 2)
    mine = journal_folder.make("starts")
    # Another job's launcher starts at the same moment.
    journal_folder.make("other")
    assert mine.parent.is_dir()


def test_the_limit_has_room_for_the_restarts_that_are_promised() -> None:
    restart = len(lines_of(Story().fault().attempt(3, 9))) - len(lines_of(Story()))
    assert 340 * restart < journal_module.MAX_BYTES
