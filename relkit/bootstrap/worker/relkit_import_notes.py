"""Notes what a rank imports, and what its script has done by then, for a warm standby to repeat.

Loaded into the rank before its script runs. Each module that is asked for makes a line of a private
file, so that no moment has to be found at which all is there; the launcher reads it once the job
trains (relkit/launch/warm_standby/seen_imports.py, where the lines are explained).

It needs nothing but the standard library, imports nothing, takes no lock, opens its file anew for
each line (a script may close descriptors, and theirs may be ours next), and never raises into the
script. What it cannot write ends the notes: less is imported ahead then.
"""

from __future__ import annotations

import _thread
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# torch imports it at the first optimizer, whatever the script does; it takes as long as torch.
LATER = "torch._dynamo"
_MAX_BYTES = 4 << 20
_OPEN = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NEW = os.O_CREAT | os.O_EXCL
# Modules of relkit's own finders, which are not the same in a worker and in a standby.
_OURS = ("sitecustomize", "relkit_import_notes", "relkit_standby_replay")


class ImportNotes:
    """A finder that finds what the finders behind it find.

    Args:
        file: to be made; packages: folders whose modules count as installed.
    """

    def __init__(self, file: str, packages: tuple[str, ...]) -> None:
        self._file, self._packages = file, packages
        self._pid, self._thread = os.getpid(), _thread.get_ident()
        self._environment = dict(os.environ)
        # What runs before the script (a sitecustomize, its finders) runs in a standby as well.
        modules: Any = sys.modules
        files = (inside(module).get("__file__") for module in tuple(modules.values()))
        self._own_files: dict[str, bool] = {str(file): False for file in files if file}
        self._looking: set[tuple[int, str]] = set()
        self._signed: set[str] = set()
        self._origins: dict[str, str] = {}
        self._places: tuple[str, ...] = ()
        self._is_done = self._is_over = self._imports_later = False
        self._bytes = 0
        self._write("had", *sys.modules)

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """As the finders behind this one; None where Python asks those itself."""
        if os.getpid() != self._pid:
            self._is_done = True
        # One of them may ask all the others in turn, and this one with them.
        asked = (_thread.get_ident(), name)
        if self._is_done or asked in self._looking:
            return None
        self._looking.add(asked)
        try:
            spec = found_behind(self, name, path, target)
        finally:
            self._looking.discard(asked)
        try:
            self._note(name, spec)
        except Exception as error:
            self._is_done = True
            if self._is_of_the_script(error):
                raise
        return spec

    def _is_of_the_script(self, error: BaseException) -> bool:
        """A handler of its own for a signal that came just now has raised it."""
        traceback = error.__traceback__
        while traceback is not None:
            if self._is_own(traceback.tb_frame.f_code.co_filename):
                return True
            traceback = traceback.tb_next
        return False

    def _note(self, name: str, spec: Any) -> None:  # noqa: ANN401
        kind, origin = place_of(spec, self._packages)
        if _thread.get_ident() != self._thread:
            self._write("asked", name, kind, origin)
            return
        if not self._is_over:
            self._note_places(name)
        if self._imports_later and not _is_being_imported(LATER):
            self._imports_later = False
            self._write("imported")
        if name == LATER and f"{_importer()}.".startswith("torch."):
            self._write("later", state(self._environment, self._origins))
            self._imports_later = True
        if kind == "installed" and not self._is_over:
            self._origins[name] = origin
        elif kind == "own" and origin:
            self._sign(origin)
        self._write("import", name, kind, origin)

    def _note_places(self, name: str) -> None:
        places = self._own_places()
        if places is None:
            self._is_over = True
            self._write("over", name)
        elif places != self._places:
            if not self._places:
                self._write("path", *sys.path)
            for place in places:
                self._sign(place.rpartition(":")[0])
            self._places = places
            self._write("at", *places)

    def _own_places(self) -> tuple[str, ...] | None:
        """FILE:LINE of the script and of its modules that run; None within a function of theirs."""
        places = []
        frame: Any = sys._getframe(4)
        while frame is not None:
            code, variables = frame.f_code, frame.f_globals
            file = code.co_filename
            if file[:1] == "<" and not file.startswith("<frozen "):
                # Made at run time, for the module that it belongs to.
                file = str(variables.get("__file__", file))
            if self._is_own(file) or variables.get("__name__") == "__main__":
                if code.co_name != "<module>":
                    return None
                places.append(f"{os.path.join(os.getcwd(), file)}:{frame.f_lineno}")  # noqa: PTH109, PTH118
            frame = frame.f_back
        return tuple(places)

    def _is_own(self, file: str) -> bool:
        known = self._own_files.get(file)
        if known is None:
            known = not file.startswith(("<frozen ", *self._packages))
            self._own_files[file] = known
        return known

    def _sign(self, file: str) -> None:
        if file not in self._signed:
            self._signed.add(file)
            status = os.stat(file)  # noqa: PTH116
            self._write(
                "file", file, f"{status.st_mtime_ns}", f"{status.st_size}", f"{status.st_ino}"
            )

    def _write(self, *fields: str) -> None:
        line = b"\0".join(os.fsencode(field) for field in fields) + b"\n"
        flags = _OPEN if self._bytes else _OPEN | _NEW
        self._bytes += len(line)
        if line.count(b"\n") != 1 or self._bytes > _MAX_BYTES:
            raise ValueError
        descriptor = os.open(self._file, flags, 0o600)
        try:
            if os.write(descriptor, line) != len(line):
                raise ValueError
        finally:
            os.close(descriptor)


def found_behind(self: object, name: str, path: object, target: object) -> Any:  # noqa: ANN401
    """What the finders behind one of them find; None for nothing."""
    finders = iter(tuple(sys.meta_path))
    for finder in finders:
        if finder is self:
            break
    for finder in finders:
        find: Any = getattr(finder, "find_spec", None)
        if find is None:
            # Of the old kind, which Python 3.11 still asks, in its turn.
            return None
        spec = find(name, path, target)
        if spec is not None:
            return spec
    return None


def inside(module: object) -> dict[str, Any]:
    """What is in a module, without waking one that is imported once it is used."""
    try:
        names: dict[str, Any] = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return {}
    return names


def place_of(spec: Any, packages: tuple[str, ...]) -> tuple[str, str]:  # noqa: ANN401
    """(installed, own, absent or other, and the file) of what a finder has found."""
    if spec is None:
        return "absent", ""
    origin = str(spec.origin or "")
    if origin in ("built-in", "frozen"):
        return "installed", origin
    folders = [str(each) for each in spec.submodule_search_locations or ()]
    # A folder without __init__.py has no file.
    files = [origin] if origin else [f"{folder}{os.sep}" for folder in folders]
    if not files or not all(os.path.isabs(file) or os.sep in file for file in files):  # noqa: PTH117
        return "other", origin
    is_installed = all(file.startswith(packages) for file in files)
    return ("installed" if is_installed else "own"), origin


def installed_folders() -> tuple[str, ...]:
    """Of the standard library and of what is installed; relkit counts, wherever it is."""
    import site

    own = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
    folders = [os.path.dirname(os.__file__), own, *site.getsitepackages()]  # noqa: PTH120
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    # An interpreter that was started by a relative path has relative folders.
    every = {*folders, *map(os.path.abspath, folders), *map(os.path.realpath, folders)}
    return tuple(f"{folder}{os.sep}" for folder in sorted(every))


def state(before: dict[str, str], origins: dict[str, str]) -> str:
    """A digest of what a script may set and imports may read, beside what is in the modules.

    Args:
        before: the environment as it was before the script.
        origins: name -> file of the installed modules that have been found.
    """
    # Both are there long since; nothing is imported here.
    hashlib: Any = sys.modules["hashlib"]
    filters: Any = getattr(sys.modules.get("warnings"), "filters", ())
    now = dict(os.environ)
    names = sorted(name for name in {*before, *now} if not name.startswith("RELKIT_"))
    finders = [each if isinstance(each, type) else type(each) for each in sys.meta_path]
    facts = [
        [(name, now.get(name)) for name in names if now.get(name) != before.get(name)],
        [str(entry) for entry in sys.path],
        [each.__qualname__ for each in finders if each.__module__ not in _OURS],
        [getattr(each, "__qualname__", "") for each in sys.path_hooks],
        repr(filters),
        _replaced(origins),
        repr(getattr(sys.modules.get("builtins"), "__import__", None)),
        sys.getdlopenflags(),
        sys.argv[1:],
        os.getcwd(),  # noqa: PTH109
    ]
    return str(hashlib.sha256(repr(facts).encode("utf-8", "surrogateescape")).hexdigest())


def _replaced(origins: dict[str, str]) -> list[tuple[str, str]]:
    """Modules in whose places something else was put, and its type; torch does it itself."""
    modules: Any = sys.modules
    return sorted(
        (name, str(type(modules[name])))
        for name, origin in origins.items()
        if name in modules
        and str(getattr(inside(modules[name]).get("__spec__"), "origin", None) or "") != origin
    )


def _is_being_imported(name: str) -> bool:
    module: Any = sys.modules.get(name)
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", module is None))


def _importer() -> str:
    """The module that asks for what is looked for, also where it does so by importlib."""
    frame = sys._getframe(3)
    while frame is not None and str(frame.f_globals.get("__name__")).startswith("importlib"):
        frame = frame.f_back  # type: ignore[assignment]
    return "" if frame is None else str(frame.f_globals.get("__name__"))
