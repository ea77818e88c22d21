"""relkit straggler report on traces and tables: exit codes, table, JSON, page, what it refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.straggler.traces.simulated_traces import Fault, data_parallel, write

LIMIT_S = 60


def report(*line: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "relkit", "straggler", "report", *map(str, line)],
        env={**os.environ, **more}, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(
        tmp_path_factory.mktemp("slow") / "traces", data_parallel(4, 12, Fault(2, 60.0, 4))
    )


def test_a_folder_of_traces(traces: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = report(traces, "-o", page)
    assert done.returncode == 1, done.stderr
    assert "FAIL  RK-STRAG-001  rank 2 computes" in done.stdout
    assert "since step 14" in done.stdout
    assert "GPU-hours" in done.stdout
    assert "held against ranks 0-1,3" in done.stdout
    assert "<h1>Rank 2 slows the job down" in page.read_text()
    document = json.loads(report(traces, "--json").stdout)
    assert document["schema"] == "relkit.straggler/1"
    assert document["measured_by"] == "kernels"
    assert document["world_size"] == 4
    assert document["ideal"]["lost_gpu_hours"] == pytest.approx(
        document["ideal"]["lost_s"] * 4 / 3600, rel=0.01
    )
    assert set(document["files"]) == {f"rank{rank}.json" for rank in range(4)}


def test_files_by_name(traces: Path) -> None:
    files = sorted(traces.glob("*.json"))
    done = report(*files, "--json")
    assert done.returncode == 1
    # Without a word of it in the folder, a rank is missed and said.
    done = report(*files[1:], "--json")
    assert done.returncode == 1
    notes = json.loads(done.stdout)["notes"]
    assert any("rank 0" in note for note in notes)


def test_healthy_traces_and_one_alone(tmp_path: Path) -> None:
    folder = write(tmp_path / "traces", data_parallel(3, 10))
    done = report(folder, "-o", tmp_path / "page.html")
    assert done.returncode == 0, done.stderr
    assert "OK  RK-STRAG-005  nobody is slow" in done.stdout
    done = report(folder / "rank1.json")
    assert done.returncode == 3
    assert "could not tell" in done.stdout


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (("--rank", "x=rank0.json"), 2, "RANK=FILE"),
        (("--rank", "0=no-such-file.json"), 2, "there is no no-such-file.json"),
        (("no-such-job", "another"), 2, "several jobs"),
        ((), 2, "Missing argument"),
    ],
)
def test_what_is_refused(line: tuple[str, ...], code: int, said: str) -> None:
    done = report(*line)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_names_in_traces_do_not_steer_the_terminal(tmp_path: Path) -> None:
    traces = data_parallel(2, 10, Fault(1, 60.0))
    for trace in traces:
        for event in trace.events:
            event["name"] = event["name"].replace("sgemm", "\x1b[2J\x9b\u202e owned")
    folder = write(tmp_path / "traces", traces)
    for more in ((), ("--json",)):
        done = report(folder, *more, PYTHONUTF8="1")
        assert done.returncode == 1
        assert "owned" in done.stdout
        assert "\x1b" not in done.stdout
        assert "\u202e" not in done.stdout
