"""--log-level, --log-format and -q of all commands: typed, in variables and in files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from relkit import log_lines
from relkit.cli import run
from relkit.log_lines import Level
from tests.unit.hang_picture.hang_folders import blocked_job, write_hang


@pytest.fixture(autouse=True)
def as_usual(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    yield
    log_lines.set_up(Level.INFO, is_json=False)


@pytest.fixture
def hangdir(tmp_path: Path) -> str:
    write_hang(tmp_path / "t", blocked_job(4), started=1.79e9)
    return str(tmp_path / "t")


def test_quiet_leaves_the_verdict(hangdir: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["-q"], ["--quiet"], ["--log-level", "error"]):
        assert run([*words, "report", hangdir]) == 1
        out, err = capsys.readouterr()
        assert "RK-HANG-008" in out
        assert err == ""
    assert run(["report", hangdir]) == 1
    assert capsys.readouterr().err.startswith("wrote ")


def test_lines_and_errors_as_json(hangdir: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--log-format", "json", "report", hangdir]) == 1
    line = json.loads(capsys.readouterr().err)
    assert line["level"] == "info"
    assert line["message"].startswith("wrote ")
    assert run(["--log-format", "json", "-q", "report", f"{hangdir}/none"]) == 2
    line = json.loads(capsys.readouterr().err)
    assert line["level"] == "error"
    assert "does not exist" in line["message"]
    assert line["next_step"]
    assert run(["--log-format", "json", "report", "--no-such"]) == 2
    assert "--no-such" in json.loads(capsys.readouterr().err)["message"]


@pytest.mark.parametrize(
    ("name", "value"), [("RELKIT_QUIET", "1"), ("RELKIT_LOG_LEVEL", "warning")]
)
def test_a_variable_does_it_too(
    hangdir: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert run(["report", hangdir]) == 1
    assert capsys.readouterr().err == ""
    # The command line has the last word.
    monkeypatch.setenv("RELKIT_LOG_LEVEL", "error")
    monkeypatch.delenv("RELKIT_QUIET", raising=False)
    assert run(["--log-level", "info", "report", hangdir]) == 1
    assert "wrote" in capsys.readouterr().err


def test_a_file_of_settings_does_it_too(
    hangdir: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    (tmp_path / "relkit.toml").write_text('log-level = "warning"\n[report]\nforce = true\n')
    assert run(["report", hangdir]) == 1
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RELKIT_LOG_LEVEL", "debug")
    assert run(["report", hangdir]) == 1
    assert "wrote" in capsys.readouterr().err
    monkeypatch.delenv("RELKIT_LOG_LEVEL")
    (tmp_path / "relkit.toml").write_text("quiet = true\nlog_format = 'json'\n")
    assert run(["report", f"{hangdir}/none"]) == 2
    assert json.loads(capsys.readouterr().err)["level"] == "error"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('log-level = "loud"', "line 1: --log-level"),
        ("quiet = 7", "line 1: --quiet is a switch"),
        ("hang-timeout = 7", "line 1: hang-timeout belongs to a command"),
    ],
)
def test_a_wrong_line_of_a_file_is_named(
    hangdir: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, words: str
) -> None:
    (tmp_path / "relkit.toml").write_text(f"{line}\n")
    assert run(["report", hangdir]) == 2
    assert words in capsys.readouterr().err
