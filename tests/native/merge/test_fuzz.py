"""The coverage-guided fuzzer of the dump reader, for a short fixed time from its seeds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.kept import NATIVE
from tests.native.merge.library import build

pytestmark = [pytest.mark.native, pytest.mark.fuzz]

FUZZ = NATIVE / "fuzz/merge"
RUNS = 200_000
LIMIT_S = 20


@pytest.mark.long
@pytest.mark.timeout(180)
def test_the_fuzzer_finds_nothing(tmp_path: Path) -> None:
    fuzzer = build(
        "clang", tmp_path / "fuzz_dump", "-O1",
        "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all",
        str(FUZZ / "fuzz_dump.c"),
    )  # fmt: skip
    corpus = tmp_path / "corpus"
    checkout = str(NATIVE.parent)
    subprocess.run(
        [sys.executable, str(FUZZ / "make_corpus.py"), str(corpus)],
        env={**os.environ, "PYTHONPATH": checkout}, timeout=60, check=True,
    )  # fmt: skip
    seeds = len(list(corpus.iterdir()))
    assert seeds >= 10
    done = subprocess.run(
        [
            # A child of a small process: by the kernel's account, the most memory that a program
            # has used includes what started it.
            "sh", "-c", '"$@"; exit $?', "sh",
            str(fuzzer), f"-runs={RUNS}", f"-max_total_time={LIMIT_S}", "-seed=1", "-max_len=2048",
            "-rss_limit_mb=1024", f"-artifact_prefix={tmp_path}/", str(corpus),
        ],
        capture_output=True, text=True, timeout=LIMIT_S + 60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    assert len(list(corpus.iterdir())) > seeds, "no input reached new code: is it instrumented?"
