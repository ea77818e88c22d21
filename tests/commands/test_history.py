"""relkit history: tables, JSON, CSV, and what cannot be read."""

from __future__ import annotations

import csv
import io
import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from relkit.cli import cli
from relkit.errors import EXIT_OK
from relkit.history import database
from relkit.history.model import Event, What
from relkit.history.place import NoHistory

DAY_S = 86400.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "relkit"


def filled(folder: Path) -> None:
    now_s = time.time()
    database.write(
        folder,
        [
            Event(now_s - 60 * DAY_S, What.END, "old", "r0", "h", "long ago", status="failed"),
            *(
                Event(
                    now_s - days * DAY_S,
                    What.VERDICT,
                    f"job{days}",
                    f"r{days}",
                    "h",
                    "=cmd|' /C calc'!A0\x1b[31m",
                    "RK-HANG-008",
                    "fail",
                    "3",
                    ("n1",),
                    True,
                    2,
                )
                for days in (1, 2, 3)
            ),
            Event(now_s - 10, What.SAVE, "job1", "r1", "h", "step 7", "RK-FLASH-001", step=7),
        ],
    )


def invoke(*arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["history", *arguments], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result


def test_a_host_without_a_history_has_nothing_to_say(folder: Path) -> None:
    result = invoke()
    assert result.return_value == EXIT_OK
    assert "RK-HIST-001  0 events of 0 jobs in 30 days" in result.stderr
    assert not folder.exists()


def test_who_was_named_how_often_and_what_happened(folder: Path) -> None:
    filled(folder)
    result = invoke()
    assert result.return_value == EXIT_OK
    nodes, _, events = result.stdout.partition("\n\n")
    assert nodes.splitlines()[0].split() == ["NODE", "NAMED", "ALONE", "LAST", "FINDINGS"]
    assert nodes.splitlines()[1].split()[:3] == ["n1", "3", "0"]
    assert len(events.splitlines()) == 5
    assert "\x1b" not in result.stdout
    assert "RK-HIST-002  node n1 was named 3 times in 30 days" in result.stderr
    assert "long ago" not in result.stdout
    assert "long ago" in invoke("--since", "10w").stdout
    assert "long ago" in invoke("--since", "10w", "--job", "old").stdout
    assert len(invoke("--last", "1").stdout.partition("\n\n")[2].splitlines()) == 2


def test_json_and_csv_have_all(folder: Path) -> None:
    filled(folder)
    plain = json.loads(invoke("--json", "--last", "1").stdout)
    assert plain["schema"] == "relkit.history/1"
    assert [(row["node"], row["times"]) for row in plain["nodes"]] == [("n1", 3)]
    assert [row["what"] for row in plain["events"]] == ["verdict"] * 3 + ["save"]
    assert plain["is_cut"] is False
    of_job = json.loads(invoke("--job", "job1", "--json").stdout)["events"]
    assert [row["step"] for row in of_job] == [-1, 7]
    rows = list(csv.DictReader(io.StringIO(invoke("--csv", "--node", "n1").stdout)))
    assert [row["job"] for row in rows] == ["job3", "job2", "job1"]
    # No spreadsheet takes it for a formula, no terminal for a command.
    assert all(row["text"].startswith("'=cmd") and "\x1b" not in row["text"] for row in rows)


@pytest.mark.parametrize("word", ["30", "d", "-1d", "1y", "9999999d"])
def test_a_time_that_is_none_is_refused(folder: Path, word: str) -> None:
    result = CliRunner().invoke(cli, ["history", f"--since={word}"])
    assert result.exit_code == 2
    assert "no time such as 30d" in result.output


def test_a_damaged_one_says_what_to_do(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "history.sqlite").write_bytes(b"x" * 5000)
    (folder / "history.sqlite").chmod(0o600)
    with pytest.raises(NoHistory) as raised:
        invoke()
    assert "move" in raised.value.next_step
