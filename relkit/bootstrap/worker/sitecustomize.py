"""Runs in a worker before its own code: reports garbage collections and waits for input.

It leaves word of the exception that ended the script, which the launcher then names.
It notes what the rank imports, where warm standbys are wanted (relkit_import_notes).
A rank also asks the kernel to end it with its launcher, so that none is left behind. Where the hook
cannot see its collectives, it has torch's worker server answer the launcher.

It needs nothing but the standard library, imports no relkit (the worker may have another one),
does nothing without the launcher, and gives way to the worker's own sitecustomize. All that takes
time to import is left alone: this runs at the start of every Python in the job.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_PID = os.getpid()
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_MIN_GC_NS, _MIN_INPUT_NS = 1_000_000, 10_000
_ANSWER_S = 1.0
_MAX_MESSAGE = 2000
# What can be put into words without running code of the script's.
_PLAIN = (str, int, float, bool, bytes, type(None))
_gc_began = [0]
_marks: dict[str, Any] = {}
_servers: list[Any] = []


def _mark(kind: str, start_ns: int, end_ns: int) -> None:
    """Write one into the recorder; the first of its kind says that it is being reported."""
    ctypes = sys.modules.get("ctypes")
    # A collection may come while somebody imports ctypes; to import it here would be too dear.
    ready = ctypes is not None and not getattr(ctypes.__spec__, "_initializing", False)
    # A standby has no rank yet: its first one is still to come.
    if kind not in _marks and ctypes is not None and ready and "RELKIT_STANDBY" not in os.environ:
        mark = getattr(ctypes.PyDLL(None), "relkit_mark_" + kind, None)
        if mark is not None:
            mark.argtypes, mark.restype = (ctypes.c_uint64, ctypes.c_uint64), None
            mark(end_ns, end_ns)
        _marks[kind] = mark
    if start_ns < end_ns and _marks.get(kind) and os.getpid() == _PID:
        _marks[kind](start_ns, end_ns)


def _on_gc(phase: str, _info: object) -> None:
    now_ns = time.monotonic_ns()
    if phase == "start":
        _gc_began[0] = now_ns
    elif now_ns - _gc_began[0] >= _MIN_GC_NS:
        _mark("gc", _gc_began[0], now_ns)
    elif "gc" not in _marks:
        _mark("gc", now_ns, now_ns)


def _watch_loader(module: Any) -> None:  # noqa: ANN401
    iterator = getattr(module, "_BaseDataLoaderIter", None)
    following = getattr(iterator, "__next__", None)
    if iterator is None or following is None:
        return

    def wait(self: object) -> object:
        start_ns = time.monotonic_ns()
        try:
            return following(self)
        finally:
            end_ns = time.monotonic_ns()
            if end_ns - start_ns >= _MIN_INPUT_NS:
                _mark("input", start_ns, end_ns)

    iterator.__next__ = wait


def _serve_with_groups(module: Any) -> None:  # noqa: ANN401
    """Have torch's worker server run from the first process group on."""
    import functools

    begin = getattr(module, "init_process_group", None)
    if begin is None:
        return

    @functools.wraps(begin)
    def init_process_group(*args: object, **kwargs: object) -> object:
        result = begin(*args, **kwargs)
        try:
            if not _servers and os.getpid() == _PID and _is_server_wanted(module):
                _serve()
        except Exception:  # noqa: BLE001, S110 (whatever it is, the job goes on without)
            pass
        return result

    module.init_process_group = init_process_group


def _is_server_wanted(module: Any) -> bool:  # noqa: ANN401
    """Whether the hook cannot see collectives: it is not loaded, or NCCL is part of torch."""
    import ctypes

    if os.environ.get("RELKIT_WORKER_SERVER") == "1":
        return True
    if getattr(ctypes.PyDLL(None), "relkit_mark_gc", None) is None:
        return True
    if not module.is_nccl_available():
        return False
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as mapped:  # noqa: PTH123
        return not any("libnccl" in line or "librccl" in line for line in mapped)


def _serve() -> None:
    import ctypes

    path = os.path.join(os.environ["RELKIT_SOCKET_DIR"], f"{_name()}.sock")  # noqa: PTH118
    bindings: Any = sys.modules.get("torch._C._distributed_c10d")
    try:
        server = bindings._WorkerServer(path)
    except (AttributeError, OSError, RuntimeError, TypeError):
        # An older torch has none. The job is the same without it.
        return
    # Its thread must have ended before the object does, or the process aborts; a child of a fork
    # has the object without the thread. So it is ended here, and never freed.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(server))
    _servers.append(server)

    def end() -> None:
        # It would wait for ever for a thread that has not begun, and keep the interpreter's lock.
        if os.getpid() == _PID and _answers(path):
            server.shutdown()

    atexit.register(end)


def _answers(path: str) -> bool:
    import socket

    asked = b"GET /handler/ HTTP/1.1\r\nHost: rank\r\nConnection: close\r\n\r\n"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_S)
            connection.connect(path)
            connection.sendall(asked)
            return bool(connection.recv(1))
    except OSError:
        return False


def _note_exception(file: bytes) -> None:
    """Leave word of the exception that ended the script, which Python keeps when it has printed it.

    Nothing stands in the script's way for that, nor in the place of sys.excepthook. No code of the
    script's is run either: not that which puts an exception of its own into words.

    Args:
        file: where; it must not exist.
    """
    try:
        error, traceback = getattr(sys, "last_value", None), getattr(sys, "last_traceback", None)
        if os.getpid() == _PID and error is not None and _ended_the_script(error, traceback):
            fields = (_in_words(error), _place(error, traceback))
            data = "\0".join(fields).encode("utf-8", "backslashreplace")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(file, flags, 0o600)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
    except Exception:  # noqa: BLE001, S110  whatever it is, the script ends as it would
        pass


def _ended_the_script(error: object, traceback: Any) -> bool:  # noqa: ANN401
    """It has left the main module; others, of callbacks from C, are printed and forgotten."""
    if traceback is None:
        return issubclass(type(error), SyntaxError)
    frame = traceback.tb_frame
    variables = frame.f_globals
    if variables.get("__name__") == "runpy":
        return bool(frame.f_code.co_name == "_run_module_as_main")
    is_main = variables is _main_variables()
    return is_main and bool(frame.f_code.co_name == "<module>")


def _main_variables() -> object:
    """The variables of the script."""
    return object.__getattribute__(sys.modules["__main__"], "__dict__")


def _in_words(error: object) -> str:
    """As the last line of a traceback: `ValueError: bad batch`, of the message the first line."""
    kind = type(error)
    module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    lines = [line.strip() for line in _message(error)[:_MAX_MESSAGE].split("\n")]
    first = next(filter(None, lines), "")
    return f"{module}{kind.__qualname__}" + (f": {first}" if first else "")


def _message(error: Any) -> str:  # noqa: ANN401
    """What the exception says, where Python's own code puts that together of plain values."""
    kind = type(error)
    if issubclass(kind, SyntaxError):
        told = _of(SyntaxError, "msg", error)
        return told if type(told) is str else ""
    parts = [*_of(BaseException, "args", error)]
    if issubclass(kind, OSError):
        parts += [_of(OSError, "filename", error), _of(OSError, "filename2", error)]
    if issubclass(kind, ImportError):
        parts.append(_of(ImportError, "msg", error))
    owner = getattr(kind.__str__, "__objclass__", None)
    is_known = owner is not None and owner.__module__ == "builtins"
    return str(error) if is_known and all(type(part) in _PLAIN for part in parts) else ""


def _of(kind: Any, name: str, error: object) -> Any:  # noqa: ANN401
    """An attribute as Python's own exception has it, whatever a class below makes of the name."""
    return kind.__dict__[name].__get__(error)


def _place(error: Any, traceback: Any) -> str:  # noqa: ANN401
    """FILE:LINE where it was raised; of a script that is no Python, where it ceases to be."""
    if issubclass(type(error), SyntaxError):
        file, line = _of(SyntaxError, "filename", error), _of(SyntaxError, "lineno", error)
        if type(file) is str and type(line) is int:
            return f"{file}:{line}"
    while traceback.tb_next is not None:
        traceback = traceback.tb_next
    return f"{traceback.tb_frame.f_code.co_filename}:{traceback.tb_lineno}"


class _Finder:
    """Waits until a module of torch's is imported, and is gone then.

    Args:
        name: of the module; then: called with it.
    """

    def __init__(self, name: str, then: Any) -> None:  # noqa: ANN401
        self._name, self._then = name, then

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        if name != self._name:
            return None
        finders: list[Any] = sys.meta_path
        # A script may have put it into a list or a finder of its own.
        if self not in finders:
            return None
        # Those before it have been asked already: a script may count.
        place = finders.index(self)
        behind = finders[place + 1 :]
        del finders[place]
        specs = (finder.find_spec(name, path, target) for finder in behind)
        spec: Any = next((spec for spec in specs if spec is not None), None)
        loader = getattr(spec, "loader", None)
        run = getattr(loader, "exec_module", None)
        # What Python has built in has a class for a loader, and all such modules have the same one.
        if run is not None and not isinstance(loader, type):

            def exec_module(module: object) -> None:
                run(module)
                self._then(module)

            spec.loader.exec_module = exec_module
        return spec


def _namespace() -> str:
    """Inode of the PID namespace that this process is in; "0" where that is not known."""
    try:
        return os.readlink("/proc/self/ns/pid")[len("pid:[") : -1]  # noqa: PTH115
    except OSError:
        return "0"


def _name() -> str:
    """Of this process, and of no other one of this host that runs now."""
    return f"{_PID}.{_namespace()}"


def _is_parent(launcher: str) -> bool:
    """Whether this process is the launcher's child: its number alone may be any process's.

    Args:
        launcher: PID/START/NAMESPACE/BOOT, as relkit/process/identity.py writes it. False in
            another PID namespace (a container's), on another host, and where that is not known.
    """
    number, _, rest = launcher.partition("/")
    ticks, _, rest = rest.partition("/")
    namespace, _, boot = rest.partition("/")
    if number != str(os.getppid()) or namespace in ("", "0") or namespace != _namespace():
        return False
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as stream:  # noqa: PTH123
            is_here = stream.read().strip() == boot
        with open(f"/proc/{number}/stat", "rb") as stat:  # noqa: PTH123
            fields = stat.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return False
    return is_here and fields[19:20] == [ticks.encode()]


def _end_with_launcher(launcher: str) -> None:
    """Have the kernel end this process with its launcher, from here on until it ends.

    A rank that some wrapper has started is not the launcher's child, and is left alone; so is what
    a wrapper starts when the launcher has gone.
    """
    if not _is_parent(launcher):
        return
    # The one import that takes time; only a rank does it, and torch would do it anyway.
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    # It may have ended before that, and its death is not signalled any more.
    if str(os.getppid()) != launcher.partition("/")[0]:
        os.kill(_PID, _SIGKILL)


def _begin() -> None:
    # As bytes, since a warm standby notes which variables others ask for.
    environ = os.environb
    is_hooked = b"relkit" in environ.get(b"LD_PRELOAD", b"")
    if b"RANK" not in environ or not (is_hooked or b"RELKIT_SOCKET_DIR" in environ):
        return
    # What the rank starts inherits this, and is not the rank.
    me = os.fsencode(_name())
    if environ.setdefault(b"RELKIT_BOOTSTRAP_PID", me) != me:
        return
    finders: list[Any] = sys.meta_path
    if is_hooked:
        _end_with_launcher(os.fsdecode(environ.get(b"RELKIT_LAUNCHER", b"")))
        gc.callbacks.append(_on_gc)
        finders.insert(0, _Finder("torch.utils.data.dataloader", _watch_loader))
        _mark_calls(os.fsdecode(environ.get(b"RELKIT_TRACE_PYTHON", b"")))
    if b"RELKIT_SOCKET_DIR" in environ:
        finders.insert(0, _Finder("torch.distributed.distributed_c10d", _serve_with_groups))
        # The first to be registered is the last to be called: it changes nothing for the others.
        atexit.register(_note_exception, b"%s/%s.raised" % (environ[b"RELKIT_SOCKET_DIR"], me))


def _mark_calls(named: str) -> None:
    """Have calls of functions be seen in timelines.

    Args:
        named: MODULE:FUNCTION, by commas, beside those that always are.
    """
    told: set[str] = set()

    def says(text: str) -> None:
        if text not in told and os.environ.get("LOCAL_RANK", "0") == "0":
            told.add(text)
            sys.stderr.write(f"relkit: {text}\n")

    def after_import(name: str, then: Any) -> None:  # noqa: ANN401
        finders: list[Any] = sys.meta_path
        finders.insert(0, _Finder(name, then))

    try:
        # In this folder, which stands on the path for a moment. It stays among the modules: torch's
        # compiler looks up those of functions that it sees.
        import relkit_call_marks  # type: ignore[import-not-found]

        tracer = relkit_call_marks.Tracer(after_import, says)
        tracer.defaults()
        tracer.named(named)
    except Exception as error:  # noqa: BLE001  whatever it is, the rank trains on
        says(f"no calls are traced, the rank goes on: {error!r}")


def _import_notes() -> Any:  # noqa: ANN401
    """What notes the imports of a rank, for a standby to repeat; None where nothing does."""
    environ = os.environb
    if b"RELKIT_IMPORTS_DIR" not in environ or b"RELKIT_STANDBY" in environ:
        return None
    if environ.get(b"RELKIT_BOOTSTRAP_PID") != os.fsencode(_name()):
        return None
    # In this folder, which stands on the path for a moment; it is not the script's to see.
    import relkit_import_notes  # type: ignore[import-not-found]

    return sys.modules.pop(relkit_import_notes.__name__)


def _note_imports(notes: Any) -> None:  # noqa: ANN401
    file = f"{os.environ['RELKIT_IMPORTS_DIR']}{os.sep}{_PID}.imports"
    finders: list[Any] = sys.meta_path
    # Those of this file ask it in their turn.
    place = sum(isinstance(finder, _Finder) for finder in finders)
    try:
        finders.insert(place, notes.ImportNotes(file, notes.installed_folders()))
    except Exception:  # noqa: BLE001  modules that others have put there may raise anything
        # Nothing is noted, and nothing is imported ahead.
        return


def _give_way() -> None:
    here = __file__.rpartition(os.sep)[0]
    sys.path[:] = [entry for entry in sys.path if entry != here]
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize" or mine is None:
            raise
        sys.modules["sitecustomize"] = mine


if os.environb.get(b"RELKIT_BOOTSTRAP") != b"0":
    _begin()
_notes = _import_notes()
_give_way()
if _notes is not None:
    _note_imports(_notes)
