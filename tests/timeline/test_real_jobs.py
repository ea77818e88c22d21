"""A real gloo job under `relkit launch`: recorded while it runs, merged, and asked."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from relkit.hook.environment import job_folders
from relkit.hook.reader import state_files
from tests.eager import eager
from tests.timeline.trace_processor import TraceProcessor

pytestmark = [pytest.mark.native, pytest.mark.job, pytest.mark.timeout(300)]

DDP = str(Path(__file__).resolve().parents[1] / "straggler" / "ddp_job.py")
LIMIT_S = 120.0


@contextmanager
def launched(ranks: int, *options: str, launch: Sequence[str] = ()) -> Iterator[str]:
    """Id of a job that runs for longer than any test looks at it."""
    job = f"timeline-{secrets.token_hex(4)}"
    command = [sys.executable, "-m", "relkit", "launch", "--rdzv-id", job]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command += [
        *launch,
        "--nproc-per-node",
        str(ranks),
        DDP,
        "--steps",
        "100000",
        "--marks",
        *options,
    ]
    environment = eager(os.environ) | {"OMP_NUM_THREADS": "1", "RELKIT_RECOVERY": "0"}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until = time.monotonic() + LIMIT_S
        while sum(len(state_files(each)) for each in job_folders(job)) < ranks:
            assert process.poll() is None
            assert time.monotonic() < until, "the ranks do not start"
            time.sleep(0.1)
        yield job
    finally:
        process.terminate()
        process.wait(60)


def relkit(*arguments: str, code: int = 0) -> Any:  # noqa: ANN401
    """What a command says, as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "relkit", "timeline", *arguments, "--json"],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_a_job_is_recorded_merged_and_asked(tmp_path: Path) -> None:
    folder, trace = tmp_path / "recorded", tmp_path / "trace.pftrace"
    slow = ["--slow-rank", "1", "--slow-input-ms", "200", "--collect-every", "2"]
    traced = ("--trace-python", "torch.nn.modules.linear:Linear.forward,tests.straggler.none:f")
    with launched(2, *slow, launch=traced) as job:
        recorded = relkit("record", job, "--steps", "6", "-o", str(folder))
        now = relkit("record", job, "--now", "-o", str(tmp_path / "now"))
    assert [each["rank"] for each in recorded["ranks"]] == [0, 1]
    assert all(each["steps"] >= 6 for each in recorded["ranks"])
    merged = relkit("merge", str(folder), "-o", str(trace))
    assert (merged["ranks"], merged["missing"]) == ("0-1", "")
    assert merged["slices"] > 50
    assert relkit("merge", str(tmp_path / "now"), "-o", str(tmp_path / "now.pftrace"))["slices"]
    assert len(now["ranks"]) == 2
    with TraceProcessor(trace) as processor:
        assert processor.stats() == {}
        names = {row["name"] for row in processor.query("select distinct name from slice")}
        last = processor.query(
            "select extract_arg(arg_set_id, 'debug.last_rank') last, count(*) n from slice"
            " where name = 'allreduce' and extract_arg(arg_set_id, 'debug.last_by_us') > 100000"
            " group by last"
        )
        by_rank = processor.query(
            "select p.name rank, s.name what, sum(s.dur) dur from slice s join process_track t"
            " on s.track_id = t.id join process p using (upid)"
            " where s.name in ('gc', 'input wait') group by rank, what"
        )
        forwards = processor.query(
            "select p.name rank, count(*) n, max(t.name) track from slice s"
            " join process_track t on s.track_id = t.id join process p using (upid)"
            " where s.name = 'torch.nn.modules.linear:Linear.forward' group by rank"
        )
        steps = processor.query(
            "select count(*) n from slice where category = 'step' group by track_id"
        )
    assert {"allreduce", "input wait", "gc"} <= names
    # The rank whose input is slow comes last to the first reduction of each step; on a busy machine
    # another one does now and then.
    assert max(last, key=lambda row: row["n"])["last"] == 1
    assert [(row["rank"][:6], row["track"]) for row in forwards] == [
        ("rank 0", "python"), ("rank 1", "python"),
    ]  # fmt: skip
    assert all(row["n"] > 10 for row in forwards)
    waits = {(row["rank"][:6], row["what"]): row["dur"] for row in by_rank}
    assert waits["rank 1", "input wait"] > 3 * waits["rank 0", "input wait"]
    assert waits["rank 1", "gc"] > 1_000_000
    assert all(row["n"] >= 6 for row in steps)
    assert len(steps) == 2
    # What the launcher noted came along.
    assert len(list(folder.glob("*.rklauncher"))) == 1


def test_nothing_to_record_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relkit", "timeline", "record", "no-such-job", "-o",
         str(tmp_path / "x")],
        capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert done.returncode == 3
    assert "next: " in done.stderr
