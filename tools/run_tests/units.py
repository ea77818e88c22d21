"""How the tests are cut into units, each run by a pytest of its own, and in which order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

# Folders whose tests judge the speed of ranks: they have the machine to themselves.
_ALONE = ("tests/straggler",)
# The longest first, so that all lanes end together. A folder that is not here comes after, by its
# number of files; one that has gone does no harm.
_LONGEST_FIRST = (
    "tests/cluster", "tests/ttp", "tests/native", "tests/flash_checkpoint", "tests/trainer/core",
)  # fmt: skip
# Folders that would keep a lane busy to the very end, while others stand idle: they are cut in two.
_HALVED = ("tests/cluster", "tests/flash_checkpoint")
# A process costs two seconds of start, so a folder of fewer files is run with the one above it.
_FEWEST_FILES = 5


@dataclass(frozen=True)
class Unit:
    """What one process runs.

    Args:
        name: shown in front of its lines.
        paths: pytest's arguments.
        argv: another command than pytest.
    """

    name: str
    paths: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Units that the lanes take one after the other, and those that run after all others."""

    shared: tuple[Unit, ...]
    alone: tuple[Unit, ...]


def plan(root: Path) -> Plan:
    """Every folder below tests/ with test files is a unit of these files, if they are not few.

    Those that take longest are two.

    Args:
        root: the checkout.
    """
    files = [str(path.relative_to(root)) for path in sorted(root.glob("tests/**/test_*.py"))]
    return arrange(files)


def arrange(files: Iterable[str]) -> Plan:
    """Cut a list of test files, with forward slashes and relative to the checkout."""
    folders: dict[str, list[str]] = {}
    for file in files:
        folders.setdefault(os.path.dirname(file), []).append(file)  # noqa: PTH120
    for folder in sorted(folders, key=lambda folder: -folder.count("/")):
        if len(folders[folder]) < _FEWEST_FILES and folder.count("/") > 1:
            above = os.path.dirname(folder)  # noqa: PTH120
            folders.setdefault(above, []).extend(folders.pop(folder))
    order = sorted(folders, key=lambda folder: (_place(folder), -len(folders[folder]), folder))
    shared: list[Unit] = []
    alone: list[Unit] = []
    for folder in order:
        (alone if _is_below(folder, _ALONE) else shared).extend(_units(folder, folders[folder]))
    return Plan(tuple(shared), tuple(alone))


def _units(folder: str, files: Sequence[str]) -> list[Unit]:
    name = folder.removeprefix("tests/")
    if folder not in _HALVED or len(files) < 2:
        return [Unit(name, tuple(files))]
    return [Unit(f"{name} {half + 1}/2", tuple(files[half::2])) for half in (0, 1)]


def selected(words: Sequence[str]) -> tuple[Unit, ...]:
    """Each path that was asked for is a unit; with options among them, all are one."""
    if any(word.startswith("-") for word in words):
        return (Unit("tests", tuple(words)),)
    return tuple(Unit(word.removeprefix("tests/"), (word,)) for word in dict.fromkeys(words))


def _place(folder: str) -> int:
    for place, first in enumerate(_LONGEST_FIRST):
        if _is_below(folder, (first,)):
            return place
    return len(_LONGEST_FIRST)


def _is_below(folder: str, tops: Sequence[str]) -> bool:
    return any(folder == top or folder.startswith(f"{top}/") for top in tops)
