"""Checks of whole jobs under `relkit launch`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relkit.findings import Status
from tools.gpu_check import judge
from tools.gpu_check.outcome import Outcome
from tools.gpu_check.place import JOBS, ROOT, last_json, run

HANG_TIMEOUT_S = 5.0
LIMIT_S = 120.0
TRAINED_STEPS = 20


def hang() -> Outcome:
    """A kernel that spins for ever is called hung on time, and every rank is captured."""
    code, dumps, report, tail, took_s = _hung("spin.py", 1)
    titles = [finding["title"] for finding in report.get("findings", [])]
    good = code == 1 and dumps == 1 and report.get("status") == "fail"
    sentence = f"{titles[0] if titles else tail}; {dumps} rank captured, {took_s:.0f} s"
    status = Status.OK if good else Status.FAIL
    return Outcome("hang", status, sentence, {"took_s": round(took_s, 1), "captured": dumps})


def late_rank() -> Outcome:
    """A rank that does not come to a collective of NCCL is named, the one that waits is not."""
    code, dumps, report, tail, took_s = _hung("late_rank.py", 2)
    return judge.late_rank(code, dumps, report, tail, took_s)


def flash() -> Outcome:
    """A state of the GPU that was saved into memory is there bit for bit after a kill."""
    with tempfile.TemporaryDirectory() as folder:
        code, output = _launch("flash.py", 1, [folder], ["--max-restarts=1"], folder)
    # What relkit has said of it, above the long account of torch.
    told = [line for line in output.splitlines() if line.startswith("relkit: ")]
    # Two states of the job have to fit there, 1.6 GB; containers often have 64 MB.
    room = shutil.disk_usage("/dev/shm")
    told.append(f"/dev/shm has {room.free / 1e6:,.0f} of {room.total / 1e6:,.0f} MB free")
    return judge.flash(code, last_json(output), " / ".join(told)[-1500:])


def trainer() -> Outcome:
    """Losses of two tensor-parallel ranks on NCCL are those on gloo."""
    losses: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        why = _prepare(Path(folder))
        if why:
            return Outcome("trainer", Status.FAIL, f"no data: {why}")
        for backend in ("gloo", "nccl"):
            arguments = [
                "--config_path", str(ROOT / "examples" / "gpt_tiny.yaml"),
                "--tensor-model-parallel-size=2", f"--train-iters={TRAINED_STEPS}",
                f"--distributed-backend={backend}", f"--output-dir={folder}/{backend}",
            ]  # fmt: skip
            code, output = _launch("trainer.py", 2, arguments, [], folder)
            events = Path(folder, backend, "events", "rank_0.jsonl")
            if code or not events.exists():
                return Outcome(
                    "trainer", Status.FAIL, f"{backend} ended with {code}: {output[-400:]}"
                )
            lines = [json.loads(line) for line in events.read_text().splitlines()]
            losses[backend] = [each["loss"] for each in lines if each["event"] == "step"]
    return judge.losses(losses["gloo"], losses["nccl"], TRAINED_STEPS)


def _hung(script: str, ranks: int) -> tuple[int, int, dict[str, Any], str, float]:
    """(exit code, ranks captured, report, end of the output, how long it took in s)."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        options = [f"--hang-timeout={HANG_TIMEOUT_S:g}", "--on-hang=abort"]
        code, output = _launch(script, ranks, [], options, folder)
        took_s = time.monotonic() - began
        dumps = len(list(Path(folder).glob("*.stacktrace")))
        page = Path(folder, "report.json")
        report = json.loads(page.read_text()) if page.exists() else {}
    return code, dumps, report, output[-400:], took_s


def _launch(
    script: str, ranks: int, arguments: Sequence[str], options: Sequence[str], folder: str
) -> tuple[int, str]:
    """(exit code, output) of a job that runs in this folder, where its timeline is as well."""
    command = [
        sys.executable, "-m", "relkit", "launch", "--standalone", f"--nproc-per-node={ranks}",
        f"--timeline-path={folder}",
        *options, str(JOBS / script), *arguments,
    ]  # fmt: skip
    return run(command, os.environ, LIMIT_S, folder)


def _prepare(folder: Path) -> str:
    """Make the data that examples/gpt_tiny.yaml names; why not, or ""."""
    for command in (
        [str(ROOT / "examples" / "prepare_data.py")],
        [
            "-m", "relkit", "data", "preprocess", "--input=corpus.json",
            "--output-prefix=gpt_pretrain_data/sonnets", "--tokenizer-type=GPT2BPETokenizer",
            "--vocab-file=gpt-tokenizer/gpt2-vocab.json",
            "--merge-file=gpt-tokenizer/gpt2-merges.txt", "--append-eod",
        ],
    ):  # fmt: skip
        code, output = run([sys.executable, *command], os.environ, LIMIT_S, str(folder))
        if code:
            return output[-300:]
    return ""
