"""What a worker was seen to import, and which of it a standby for the next one may import ahead.

An import may be made ahead if it would give the same. What it gives depends on all that the process
did before, most of which cannot be compared (a patched function, a seed, a default). So the first
rule needs no comparison: **what was imported while the script, and every module of its own that had
begun, had done nothing but import** (only_imports.py). A change of sys.path, of the environment, of
sys.modules, a hook, a filter, a call of any kind: from the line that makes it on, nothing is
imported ahead. The standby repeats these imports in their order, with the sys.path of the script;
it stops being one as soon as they ask for a module that the worker did not ask for, or find it in
another file.

One import comes later: torch makes it itself, at the first optimizer (`later`). It is made ahead
where a digest of what scripts set is the same in the standby as it was then in the worker.

The notes are lines of fields (relkit/bootstrap/worker/relkit_import_notes.py writes them):

    had NAME ...             modules that were there before
    path ENTRY ...           sys.path, at the script's first import
    file FILE MTIME SIZE INODE    a source of the script's own, ns and bytes
    at FILE:LINE ...         where the script and its modules stand from here on
    import NAME KIND FILE    a module that is looked for: installed, own, absent or other
    asked NAME KIND FILE     the same, by another thread
    over NAME                a function of the script's imports this; places are not told any more
    later DIGEST             torch._dynamo is looked for, by torch
    imported                 it has been imported
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from relkit.files.input_file import read_input
from relkit.files.private_file import read_private
from relkit.launch.warm_standby.only_imports import first_other_line
from relkit.text.whole_number import whole_number

_MAX_NOTES_BYTES = 8 << 20
# To parse a source takes 1.5 s and 300 MB a MiB, while the launcher does nothing else.
_MAX_SOURCE_BYTES = 256 << 10
_MAX_NUMBER = 1 << 64
_KINDS = frozenset(("installed", "own", "absent", "other"))
_STANDARD = sys.stdlib_module_names
# Who has noted nothing for so long has made an import to its end.
_QUIET_S = 0.25
# Modified ns, bytes, inode.
Signature = tuple[int, int, int]


class NothingSeen(Exception):
    """Nothing can be imported ahead, and why."""


class Signatures(dict[str, Signature | None]):
    """Of files, as they are when first asked for; None where there is none."""

    def __missing__(self, file: str) -> Signature | None:
        try:
            status = os.stat(file)  # noqa: PTH116
        except (OSError, ValueError):
            signature = None
        else:
            signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        self[file] = signature
        return signature


@dataclass(frozen=True, slots=True)
class SeenImports:
    """What a standby imports.

    Args:
        path: sys.path.
        imports: names of modules, in order.
        places: name -> kind and file, of all that may be asked for.
        later: digest; "" where that is not imported ahead.
        own: signatures of the script and of its modules.
        stopped: why not everything is imported ahead; "" where it is.
    """

    path: tuple[str, ...]
    imports: tuple[str, ...]
    places: dict[str, tuple[str, str]]
    later: str
    own: dict[str, Signature]
    stopped: str

    def to_json(self) -> bytes:
        """For the standby."""
        return json.dumps(
            {
                "path": self.path, "imports": self.imports, "places": self.places,
                "later": self.later,
            }
        ).encode()  # fmt: skip

    def files(self, look: Signatures) -> dict[str, Signature | None]:
        """The files that a standby imports, and those of the script, as they are now."""
        imported = (self.places[name][1] for name in self.imports)
        return {file: look[file] for file in (*imported, *self.own) if os.sep in file}

    def beside(self) -> frozenset[str]:
        """Modules to import whose names a file beside the script has; it would be found first."""
        tops = {name.partition(".")[0] for name in self.imports}
        try:
            names = os.listdir(self.path[0])  # noqa: PTH208
        except OSError:
            return frozenset()
        return frozenset(tops.intersection(name.partition(".")[0] for name in names))


def quiet_s(notes: Path) -> float:
    """For how long nothing has been noted; infinite where nothing ever was."""
    try:
        return abs(time.time() - notes.stat().st_mtime)
    except OSError:
        return math.inf


def seen_imports(notes: Path) -> SeenImports:
    """Read what a worker has noted, and judge it.

    Args:
        notes: a file that a process of this user's may have written anything to.

    Raises:
        NothingSeen: there is nothing to import ahead.
    """
    is_quiet = quiet_s(notes) > _QUIET_S
    try:
        data = read_private(notes, _MAX_NOTES_BYTES)
    except FileNotFoundError:
        raise NothingSeen("the worker has noted no imports") from None
    except OSError as error:
        raise NothingSeen(f"the notes of the worker's imports: {error.strerror}") from error
    judge = _Judge(is_quiet)
    try:
        # The last line may still be written.
        for line in data.split(b"\n")[:-1]:
            judge.take(*(os.fsdecode(each) for each in line.split(b"\0")))
    except (ValueError, TypeError) as error:
        raise NothingSeen("the notes of the worker's imports cannot be read") from error
    return judge.judged()


@dataclass(slots=True)
class _Judge:
    is_quiet: bool
    path: tuple[str, ...] = ()
    places: dict[str, tuple[str, str]] = field(default_factory=dict)
    imports: list[str] = field(default_factory=list)
    own: dict[str, Signature] = field(default_factory=dict)
    standing: dict[str, int] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    later: str = ""
    stopped: str = ""
    why: str = ""
    tops: set[str] = field(default_factory=set)

    def take(self, kind: str, *fields: str) -> None:
        """One line.

        Raises:
            ValueError, TypeError: it is none.
        """
        match kind:
            case "had":
                self.places |= dict.fromkeys(fields, ("had", ""))
            case "path":
                self.path = self.path or fields
            case "file":
                self._file(*fields)
            case "at":
                self._at(fields)
            case "over":
                (name,) = fields
                self.why = self.why or f"{name} is imported from a function of the script's"
            case "later":
                (self.later,) = fields
            case "imported":
                self.is_quiet = True
            case "import" | "asked":
                self._module(*fields, is_repeated=kind == "import")
            case _:
                raise ValueError(kind)

    def judged(self) -> SeenImports:
        """What comes of all lines."""
        names = self.imports
        if not self.path or self.tops <= _STANDARD:
            raise NothingSeen(self.stopped or "the script has imported no installed package")
        # Half of its names would be refused.
        later = self.later if self.is_quiet and "torch" in names else ""
        return SeenImports(self.path, tuple(names), self.places, later, self.own, self.stopped)

    def _file(self, file: str, *numbers: str) -> None:
        modified_ns, size, inode = (whole_number(each, _MAX_NUMBER) for each in numbers)
        if modified_ns is None or size is None or inode is None:
            raise ValueError(file)
        self.own[file] = (modified_ns, size, inode)

    def _at(self, places: tuple[str, ...]) -> None:
        self.standing = {}
        for place in places if places != ("",) else ():
            file, _, number = place.rpartition(":")
            line = whole_number(number)
            if line is None:
                raise ValueError(place)
            self.standing[file] = max(line, self.standing.get(file, 0))
            self.begun.add(file)

    def _module(self, name: str, kind: str, file: str, *, is_repeated: bool) -> None:
        if kind not in _KINDS:
            raise ValueError(kind)
        self.places[name] = (kind, file)
        if not is_repeated:
            return
        self.why = self.why or self._other()
        top = name.partition(".")[0]
        if not self.why and kind == "installed":
            self.imports.append(name)
            self.tops.add(top)
        elif not self.why and kind == "own" and file:
            self.begun.add(file)
        elif kind == "installed" and not self.stopped and self._is_missed(top):
            self.stopped = f"{self.why}; {name} and what follows is not imported ahead"

    def _is_missed(self, top: str) -> bool:
        return bool(self.why) and not self.later and top not in {*self.tops, *_STANDARD}

    def _other(self) -> str:
        """What has been done beside importing; "" for nothing."""
        for file in sorted(self.begun):
            line = self._other_line(file)
            if line <= self.standing.get(file, math.inf) and line < math.inf:
                where = f" (line {line:.0f})" if line else ""
                return f"{os.path.basename(file)} does more than import{where}"  # noqa: PTH119
        return ""

    def _other_line(self, file: str) -> float:
        was = self.own.get(file)
        return 0.0 if was is None else _other_line_of(file, was)


# All ranks have the same sources.
@lru_cache(maxsize=1024)
def _other_line_of(file: str, was: Signature) -> float:
    """Where a source begins to do more than import; 0 where that is not known."""
    if Signatures()[file] != was:
        return 0.0
    try:
        return first_other_line(read_input(Path(file), _MAX_SOURCE_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return 0.0
