"""What ranks say of themselves does not steer the terminal of whoever asks for it."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path

import pytest
from click.testing import CliRunner

from relkit.cli import cli
from relkit.hook import environment
from relkit.launch.recovery.persist_folder import PREFIX, STATUS
from relkit.log_lines import say as log
from relkit.process.identity import own_identity
from relkit.stacks.dump.report import stacks_text
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack
from relkit.text.printable import UNSAFE

HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202e\n>>> all is well"


def lines_of(text: str) -> list[str]:
    lines = text.rstrip("\n").split("\n")
    assert not any(UNSAFE.search(line) for line in lines)
    assert not any(line.startswith(">>>") for line in lines)
    assert "owned" in text
    return lines


def test_in_the_launchers_own_lines(capsys: pytest.CaptureFixture[str]) -> None:
    log(f"ttp: rank 0 raised {HOSTILE}")
    lines_of(capsys.readouterr().err)


def test_in_what_a_launcher_says_of_its_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_SHARED_MEMORY", tmp_path)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    persist = environment.prepare_job_dir("job", 1) / f"{PREFIX}{os.getpid()}"
    persist.mkdir(mode=0o700)
    status = {
        **asdict(own_identity()), "job_id": "job",
        "node": HOSTILE, "phase": HOSTILE, "role": HOSTILE, "attempt": 0, "world_size": 1,
        "ranks": [{"rank": 0, "step": 1, "phase": HOSTILE}], "dead": [HOSTILE],
    }  # fmt: skip
    (persist / STATUS).write_text(json.dumps(status))
    (persist / STATUS).chmod(0o600)
    result = CliRunner().invoke(cli, ["ttp", "status", "job"], standalone_mode=False)
    lines_of(result.stdout)


def test_in_stacks_on_a_terminal() -> None:
    thread = ThreadStack(1, HOSTILE, (Frame(HOSTILE, HOSTILE),), Role.MAIN, HOSTILE)
    text = stacks_text([RankDump(0, 1, 5, HOSTILE, (thread,), (thread,), HOSTILE)])
    assert len(lines_of(text)) == 5
