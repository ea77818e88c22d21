"""Which test files are run for a break of a file: the nearest by imports and by name first."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

_FROM = re.compile(r"^\s*from ([\w.]+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)
# Also in strings: a module is started with -m, loaded by name, or patched.
_NAMED = re.compile(r"\b(?:relkit|tests|tools)(?:\.\w+)+")
_TOO_FAR = 5.0
_MOST = 8
# Tests that start jobs, compilers or daemons: some of a file's, or all.
_HEAVY = re.compile(r"\bmark\.(?:job|native|gdb|root|sshd)\b")
_ALL_HEAVY = re.compile(
    r"^pytestmark = .*mark\.(?:long|browser|spark|slurm|sshd|gdb|root|job|fuzz|native)",
    re.MULTILINE,
)
# They read every file, and notice none by what it does.
_OF_TEXT = ("tests/unit/layout/", "tests/docs/", "tests/unit/tools/")
_ANY = {"test", "tests", "unit", "relkit", "py", "init", "model", "report", ""}


@dataclass(frozen=True)
class NearestTests:
    """How far each test file is from each module of a repository.

    Args:
        root: the repository.
    """

    root: Path
    _distances: dict[str, dict[str, int]] = field(default_factory=dict)

    def of(self, file: str) -> list[str]:
        """Test files, the nearest first, without those that start jobs, compilers or daemons."""
        return self._nearest(
            file, [test for test in self._tests if not self._marks(_ALL_HEAVY, test)]
        )

    def heavy(self, file: str) -> list[str]:
        """Files with tests that start such things, the nearest first."""
        return self._nearest(file, [test for test in self._tests if self._marks(_HEAVY, test)])

    def _marks(self, pattern: re.Pattern[str], test: str) -> bool:
        return pattern.search((self.root / test).read_text(encoding="utf-8")) is not None

    def _nearest(self, file: str, tests: list[str]) -> list[str]:
        scored = sorted((self._distance(file, test), test) for test in tests)
        return [test for distance, test in scored if distance <= _TOO_FAR][:_MOST]

    def _distance(self, file: str, test: str) -> float:
        steps = self._steps_to(file).get(test)
        shared = len(_words(file) & _words(test))
        if steps is None:
            return _TOO_FAR - 1 if shared else _TOO_FAR + 1
        return steps - shared

    def _steps_to(self, file: str) -> dict[str, int]:
        """How many imports lead from each file to this one."""
        if file not in self._distances:
            known = {file: 0}
            waiting = deque([file])
            while waiting:
                here = waiting.popleft()
                for importer in self._importers.get(here, ()):
                    if importer not in known:
                        known[importer] = known[here] + 1
                        waiting.append(importer)
            self._distances[file] = known
        return self._distances[file]

    @cached_property
    def _tests(self) -> list[str]:
        return [
            file
            for file in self._modules.values()
            if Path(file).name.startswith("test_") and not file.startswith(_OF_TEXT)
        ]

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Every module's name -> its file."""
        found: dict[str, str] = {}
        for top, name in _TOPS.items():
            for path in sorted((self.root / top).rglob("*.py")):
                parts = [name, *path.relative_to(self.root / top).with_suffix("").parts]
                module = ".".join(part for part in parts if part != "__init__")
                found.setdefault(module, str(path.relative_to(self.root)))
        return found

    @cached_property
    def _importers(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for file in self._modules.values():
            for name in named_in((self.root / file).read_text(encoding="utf-8")):
                other = self._modules.get(name) or self._modules.get(name.rpartition(".")[0])
                if other is not None and other != file:
                    found.setdefault(other, set()).add(file)
        return found


_TOPS = {
    "commands": "relkit.commands",
    "reports": "relkit.reports",
    "relkit": "relkit",
    "tests": "tests",
    "tools": "tools",
}


def named_in(text: str) -> set[str]:
    """Names in a file that may be modules."""
    names = set(_NAMED.findall(text))
    for module, many, one in _FROM.findall(text):
        names |= {
            f"{module}.{name.split()[0]}" for name in (many or one).split(",") if name.split()
        }
    return names


def _words(file: str) -> set[str]:
    return set(re.split(r"[/_.]", file)) - _ANY
