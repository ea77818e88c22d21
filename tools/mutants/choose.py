"""Which places are broken: at random over all files, or those that a change touches."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

from tools.mutants.generate import Place, Source
from tools.mutants.model import Break

TOPS = ("relkit", "commands", "reports")
# So many draws of what was drawn before, or cannot be changed, in all: there is nothing left.
_MISSES = 200
_HUNK = re.compile(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", re.MULTILINE)


def python_files(root: Path, paths: Sequence[str] = TOPS) -> list[str]:
    """All files of the product below these paths, each once."""
    found = {
        str(each.relative_to(root))
        for path in paths
        for each in ([root / path] if (root / path).is_file() else (root / path).rglob("*.py"))
    }
    return sorted(found)


def at_random(root: Path, count: int, seed: int, files: Sequence[str]) -> Iterator[Break]:
    """This many breaks: first a line of any file, then a kind of break, then one of that kind.

    Args:
        seed: the same for the same breaks of the same files.
        files: each is drawn as often as it has lines.
    """
    draw = random.Random(seed)  # noqa: S311
    weights = [len((root / file).read_text(encoding="utf-8").splitlines()) for file in files]
    read = cache(partial(Source.read, root))
    tried: set[tuple[str, str]] = set()
    misses = 0
    while len(tried) < count and misses < _MISSES:
        source = read(draw.choices(files, weights)[0])
        change = _any_of(draw, source) if source.places else None
        if change is None or (change.file, change.source) in tried:
            misses += 1
            continue
        tried.add((change.file, change.source))
        yield change


def _any_of(draw: random.Random, source: Source) -> Break | None:
    line = draw.choice(sorted({place.line for place in source.places}))
    by_kind: dict[str, list[Place]] = {}
    for place in source.on_lines(frozenset([line])):
        by_kind.setdefault(place.kind, []).append(place)
    return source.write_out(draw.choice(by_kind[draw.choice(sorted(by_kind))]))


def on_changed_lines(root: Path, base: str, files: Sequence[str]) -> Iterator[Break]:
    """All breaks of lines that have changed since a commit."""
    for file in files:
        lines = changed_lines(_diff(root, base, file))
        if lines:
            source = Source.read(root, file)
            yield from _all_of(source, source.on_lines(lines))


def in_files(root: Path, files: Iterable[str]) -> Iterator[Break]:
    """All breaks of these files."""
    for file in files:
        source = Source.read(root, file)
        yield from _all_of(source, source.places)


def _all_of(source: Source, places: Iterable[Place]) -> Iterator[Break]:
    return filter(None, map(source.write_out, places))


def changed_lines(diff: str) -> frozenset[int]:
    """Numbers of the lines that a diff without context adds or changes."""
    hunks = ((int(first), int(count or 1)) for first, count in _HUNK.findall(diff))
    return frozenset(line for first, count in hunks for line in range(first, first + count))


def default_base(root: Path) -> str:
    """Where this branch left main; on main, the commit before."""
    for argv in (["merge-base", "HEAD", "origin/main"], ["merge-base", "HEAD", "main"]):
        done = _git(root, *argv)
        if done.returncode == 0 and done.stdout != _git(root, "rev-parse", "HEAD").stdout:
            return done.stdout.strip()
    return "HEAD~1"


def _diff(root: Path, base: str, file: str) -> str:
    done = _git(root, "diff", "--unified=0", "--no-color", "--no-ext-diff", base, "--", file)
    done.check_returncode()
    return done.stdout


def _git(root: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *argv], cwd=root, capture_output=True, text=True, timeout=60, check=False
    )
