"""A file that is written takes its name whole, or leaves what was there."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from relkit.errors import UnwritablePath
from relkit.findings import Finding, Report, Status
from relkit.output import as_text, atomic_file, use_colour, write_atomic


@pytest.mark.parametrize("is_flushed_to_disk", [False, True])
def test_the_name_is_taken_when_the_block_ends(tmp_path: Path, is_flushed_to_disk: bool) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with atomic_file(path, is_flushed_to_disk=is_flushed_to_disk) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("raised", [OSError(28, "No space left on device"), ValueError("no")])
def test_an_error_in_the_block_leaves_the_old_file_alone(tmp_path: Path, raised: Exception) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    seen = UnwritablePath if isinstance(raised, OSError) else ValueError

    def write() -> None:
        with atomic_file(path) as stream:
            stream.write(b"half")
            raise raised

    with pytest.raises(seen):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(UnwritablePath, match="No such file or directory"):
        write_atomic(tmp_path / "none" / "file", "text")


def test_text_is_utf8_and_the_mode_is_the_one_asked_for(tmp_path: Path) -> None:
    write_atomic(tmp_path / "file", "é", mode=0o640)
    assert (tmp_path / "file").read_bytes() == "é".encode()
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("is_flushed_to_disk", [False, True])
def test_what_must_outlive_a_power_cut_is_on_the_disk_before_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_flushed_to_disk: bool
) -> None:
    path, seen = tmp_path / "file", []

    def fsync(descriptor: int) -> None:
        seen.append((os.fstat(descriptor).st_size, path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_file(path, is_flushed_to_disk=is_flushed_to_disk) as stream:
        stream.write(b"content")
    assert seen == ([(7, False)] if is_flushed_to_disk else [])


class Terminal(io.StringIO):
    """Where colours can be seen."""

    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_and_no_color_has_the_last_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    assert use_colour(Terminal())
    assert not use_colour(io.StringIO())
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert use_colour(io.StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not use_colour(Terminal())


def test_a_text_of_several_lines_cannot_pass_for_a_finding_of_its_own() -> None:
    finding = Finding("RK-NET-003", Status.FAIL, "slow\nOK  RK-NET-001  all is well")
    assert as_text(Report("net", (finding,))).splitlines() == [
        "FAIL  RK-NET-003  slow",
        "      OK  RK-NET-001  all is well",
    ]
