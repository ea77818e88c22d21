"""The C reader of stack dumps under libFuzzer, AddressSanitizer and UBSan (native/fuzz/merge)."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools.audit.supervise import Outcome, Progress

NAME = "native"
WHAT = "the C reader of dumps, ASan and UBSan"
ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = "fuzz_dump"


def build(folder: Path, *flags: str) -> Path:
    """Compile the fuzzer.

    Raises:
        subprocess.CalledProcessError: clang cannot.
    """
    program = folder / _PROGRAM
    sources = [*(ROOT / "native/merge").glob("*.c"), ROOT / "native/fuzz/merge/fuzz_dump.c"]
    subprocess.run(
        ["clang", "-std=c11", "-D_GNU_SOURCE", "-O1", "-g", "-I", str(ROOT / "native"),
         "-I", str(ROOT / "native/include"),
         "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all",
         *flags, *map(str, sources), "-o", str(program)],
        timeout=300, check=True,
    )  # fmt: skip
    return program


def fuzz(
    folder: Path,
    *,
    seed: int,
    seconds: float,
    inputs: int,
    progress: Progress,
    flags: tuple[str, ...] = (),
) -> Outcome:
    """See supervise.fuzz; flags are the compiler's."""
    outcome = Outcome(NAME)
    if shutil.which("clang") is None:
        outcome.trouble = "clang is not installed"
        return outcome
    folder.mkdir(parents=True, exist_ok=True)
    progress(f"{NAME}: compiling")
    program, corpus = build(folder, *flags), folder / "corpus"
    subprocess.run(
        [sys.executable, str(ROOT / "native/fuzz/merge/make_corpus.py"), str(corpus)],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60, check=True,
    )  # fmt: skip
    began_s = time.monotonic()
    progress(f"{NAME}: for {seconds:.0f} s")
    done = subprocess.run(
        [str(program), f"-runs={inputs}", f"-max_total_time={max(1, round(seconds))}",
         f"-seed={max(1, seed)}", "-max_len=4096", "-rss_limit_mb=1024", "-timeout=10",
         "-print_final_stats=1", f"-artifact_prefix={folder}/", str(corpus)],
        capture_output=True, text=True, errors="replace", timeout=seconds + 120, check=False,
    )  # fmt: skip
    outcome.time_s = time.monotonic() - began_s
    outcome.inputs = _figure(done.stderr, "number_of_executed_units")
    outcome.peak_bytes = _figure(done.stderr, "peak_rss_mb") << 20
    if not outcome.peak_bytes:
        outcome.peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
    outcome.failures = sorted(
        path for path in folder.iterdir() if re.match(r"(crash|oom|timeout|leak)-", path.name)
    )
    if done.returncode and not outcome.failures:
        outcome.trouble = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed"
    if done.returncode:
        (folder / "stderr").write_text(done.stderr)
    return outcome


def reproduce(path: Path) -> int:
    """Give the fuzzer an input again that it has left beside itself; its exit code."""
    return subprocess.run([path.parent / _PROGRAM, path], timeout=60, check=False).returncode


def _figure(text: str, name: str) -> int:
    found = re.search(rf"stat::{name}:\s+(\d+)", text)
    return int(found[1]) if found else 0
