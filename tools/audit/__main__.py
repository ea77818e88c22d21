"""Fuzz every reader of outside input: python -m tools.audit [OPTIONS] [NAME ...]."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from relkit.errors import RelkitError
from tools.audit import native
from tools.audit.supervise import Outcome, fuzz
from tools.audit.targets import TARGETS

KEPT = Path("build/audit")


def main(argv: list[str]) -> int:
    """Run the fuzzers one after the other; 0 where each ran and found nothing, else 1."""
    asked = _arguments(argv)
    if asked.reproduce is not None:
        return _reproduce(asked.names[0], asked.reproduce)
    names = asked.names or [*TARGETS, native.NAME]
    outcomes = []
    for name in names:
        run: Callable[..., Outcome] = native.fuzz if name == native.NAME else partial(fuzz, name)
        outcome = run(
            asked.folder / f"{name}-{asked.seed}",
            seed=asked.seed,
            seconds=asked.seconds,
            inputs=asked.inputs,
            progress=_Line(),
        )
        outcomes.append(outcome)
        _print_failures(outcome)
    print(table(outcomes))
    return 0 if all(outcome.is_good for outcome in outcomes) else 1


def _arguments(argv: list[str]) -> argparse.Namespace:
    known = [*TARGETS, native.NAME]
    parser = argparse.ArgumentParser(
        prog="make audit AUDIT_ARGS=", description=f"Fuzzers: {', '.join(known)}."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="these fuzzers only")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each of them")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="no more than that for each")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    parser.add_argument("--folder", type=Path, default=KEPT, help="for inputs that go wrong")
    parser.add_argument("--reproduce", type=Path, metavar="FILE", help="give NAME this input again")
    asked = parser.parse_args(argv)
    if unknown := set(asked.names) - set(known):
        parser.error(f"no fuzzer {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    if asked.reproduce is not None and len(asked.names) != 1:
        parser.error("--reproduce needs the NAME of one fuzzer")
    return asked


def _reproduce(name: str, path: Path) -> int:
    """Try one input; what it raises is shown in full."""
    if name == native.NAME:
        return native.reproduce(path)
    with tempfile.TemporaryDirectory(prefix="relkit-audit-") as folder:
        run = TARGETS[name].open(Path(folder))
        try:
            run(path.read_bytes())
        except RelkitError as error:
            print(f"refused, as it should be: {type(error).__name__}: {error}")
        else:
            print("taken")
    return 0


class _Line:
    """One line that is written over on a terminal, and one every ten seconds elsewhere."""

    def __init__(self) -> None:
        self._next_s = 0.0

    def __call__(self, text: str) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        is_terminal = sys.stderr.isatty()
        self._next_s = now_s + (0.5 if is_terminal else 10.0)
        print(f"\r\x1b[K{text}" if is_terminal else text, end="" if is_terminal else "\n",
              file=sys.stderr, flush=True)  # fmt: skip


def _print_failures(outcome: Outcome) -> None:
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    for path in outcome.failures:
        note = path.with_suffix(".txt")
        lines = note.read_text(errors="replace").strip().splitlines() if note.exists() else [""]
        print(f"{outcome.name}: {lines[-1][:200]!a}", file=sys.stderr)
        print(
            f"  again: make audit AUDIT_ARGS='--reproduce {path} {outcome.name}'", file=sys.stderr
        )


def table(outcomes: list[Outcome]) -> str:
    """A line for each fuzzer."""
    what = {name: target.what for name, target in TARGETS.items()} | {native.NAME: native.WHAT}
    lines = [f"{'fuzzer':11} {'reads':45} {'inputs':>9} {'a second':>9} {'peak MiB':>9}  found"]
    for outcome in outcomes:
        rate = outcome.inputs / outcome.time_s if outcome.time_s else 0.0
        result = outcome.trouble or str(len(outcome.failures) or "nothing")
        lines.append(
            f"{outcome.name:11} {what[outcome.name]:45} {outcome.inputs:9,}"
            f" {rate:9,.0f} {outcome.peak_bytes >> 20:9,}  {result}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
