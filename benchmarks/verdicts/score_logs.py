"""How often `relkit why` names the right cause in a folder of labelled logs.

    python benchmarks/verdicts/score_logs.py FOLDER

The folder holds labels.jsonl (`id` and `mode` a line) and logs/ID.log, as GPUAlert's public corpus
does. A hash of the name puts each log into one of two halves. The rules were tuned on the first:
nothing of the second was looked at before its score was taken.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from relkit.why.explain import explain

# Cause of relkit -> class of the corpus, which divides by the kind of exception as well.
CLASSES: Mapping[str, str] = {
    "device-oom": "cuda_oom",
    "host-oom": "ram_oom",
    "oom-killer": "oom_killer",
    "killed": "oom_killer",
    "nan": "nan_loss",
    "missing-module": "missing_module",
    "missing-file": "file_not_found",
    "permission": "permission",
    "assertion": "assertion",
    "device-assert": "cuda_runtime",
    "device-error": "cuda_runtime",
    "device-mismatch": "device_mismatch",
    "network": "nccl",
    "nccl": "nccl",
    "collective-timeout": "nccl",
    "peer-lost": "nccl",
    "segfault": "segfault",
    "abort": "segfault",
    "division": "div_zero",
    "version": "runtime_error",
    "shape": "runtime_error",
    "device-missing": "runtime_error",
    "runtime": "runtime_error",
    "exception": "traceback",
    "config": "traceback",
    "data": "traceback",
}


def half_of(name: str) -> str:
    """ "tuned" or "unseen", by a hash of the name."""
    return "unseen" if hashlib.sha256(name.encode()).digest()[0] % 2 else "tuned"


def macro_f1(pairs: Iterable[tuple[str, str]]) -> float:
    """The mean of F1 over the true classes.

    Args:
        pairs: the true class and the one that was said.
    """
    pairs = list(pairs)
    true, said = Counter(t for t, _ in pairs), Counter(s for _, s in pairs)
    right = Counter(t for t, s in pairs if t == s)
    return sum(2 * right[name] / (true[name] + said[name]) for name in true) / len(true)


def judged(folder: Path) -> list[tuple[str, str, str]]:
    """Of each log its name, its true class and the one that was said."""
    rows = [json.loads(line) for line in (folder / "labels.jsonl").read_text().splitlines()]
    made = []
    for row in rows:
        report = explain([folder / "logs" / f"{row['id']}.log"])
        cause = str(report.facts["cause"])
        made.append((row["id"], row["mode"], CLASSES.get(cause, f"none ({cause or 'unknown'})")))
    return made


def main() -> None:
    """Score a folder, half by half."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="with labels.jsonl and logs/")
    results = judged(parser.parse_args().folder)
    for half in ("tuned", "unseen"):
        pairs = [(true, said) for name, true, said in results if half_of(name) == half]
        wrong = [(t, s) for t, s in pairs if t != s]
        print(f"{half}: {len(pairs)} logs, macro-F1 {macro_f1(pairs):.4f}, {len(wrong)} wrong")
        for (true, said), count in Counter(wrong).most_common():
            print(f"    {count} x {true} taken for {said}")


if __name__ == "__main__":
    main()
