"""What a standby does before it is a worker: import, wait, take over what it is given.

It talks to the launcher over a socket of whole messages (JSON, one object each):

    launcher: {"plan": DESCRIPTOR, "hurry": ...}
              a file with what it imports (SeenImports), and whether the job waits for it
    standby:  {"here": PID}                                 it is held, and begins to import
    launcher: {"hurry": true}                               the job waits for it from now on
    standby:  {"heard": PID}                                between two of its imports
    standby:  {"ready": PID, "pss_bytes": ...}  or  {"refused": WHY}
    launcher: {"set": {...}, "unset": [...], "folder": ..., "descriptors": [1, 2], "go": ...}, and
              these two
    standby:  {"taken": PID}
    launcher: {"go": true}

Only after "go" does Python go on to the script, so that a launcher that has lost patience never has
it run twice. The end of the socket at any moment, or an error, is the end of the process.

One that still imports when its worker is to start becomes it all the same: what is given to it has
"go" in it, which is the last word between them. It must run then; where it cannot be what a new
process would be, it becomes a new one. That is later than a new process only by the imports that
it has made in vain.

It needs nothing but the standard library, and is loaded without relkit.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

MAX_MESSAGE_BYTES = 160 << 10
NICE = 10
# The longest that one that cannot be nice lets the job alone between two imports, ms.
_BREAK_MS = 100
_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2
_CAP_SYS_NICE = 1 << 23
# Device files that a process has open once it uses a device; CUDA's contexts are looked at below.
_DEVICES = ("/dev/kfd", "/dev/davinci", "/dev/accel")
# Killed first where memory runs out: the job comes first.
_OOM_SCORE = "1000"


def become_a_worker(descriptor: int, modules: dict[str, Any]) -> None:
    """Import, wait and take over; returns once the script is to run, and ends the process else.

    Args:
        descriptor: of the socket to the launcher.
        modules: those beside this one that a standby needs, by their names.
    """
    try:
        with socket.socket(fileno=descriptor) as launcher:
            launcher.set_inheritable(False)
            _Standby(launcher, modules).run()
    except KeyboardInterrupt:
        # As it ends any worker that still imports.
        modules["interrupts"].end_by_interrupt()
    except BaseException as error:  # noqa: BLE001  whatever it is, nobody waits for this process
        with suppress(OSError):
            os.write(2, f"relkit: a worker cannot begin: {error!r}\n".encode())
        os._exit(1)


class _Standby:
    def __init__(self, launcher: socket.socket, modules: dict[str, Any]) -> None:
        self._launcher, self._modules = launcher, modules
        self._fresh_start = modules["fresh_start"].FreshStart()
        self._output = modules["captured_output"].CapturedOutput()
        self._modest = Modest()
        self._hurries = self._waits = False
        self._given: tuple[dict[str, Any], list[int]] | None = None
        self._went_on_s = time.monotonic()

    def run(self) -> None:
        """From the first message to "go"."""
        order, _ = self._receive()
        self._hurries = bool(order["hurry"])
        if not self._hurries:
            self._modest.step_back()
        self._send({"here": os.getpid()})
        refused = self._imported(order["plan"])
        if self._given is None:
            self._waits = True
            self._modest.step_back()
            self._say_whether_ready(refused)
        while self._given is None:
            self._take_message()
        given, descriptors = self._given
        self._fresh_start.prepare(given)
        is_like_new = not refused
        try:
            self._take_over(given, descriptors)
        except Exception:
            if not given["go"]:
                raise
            is_like_new = False
        if not is_like_new:
            self._fresh_start.begin()
        self._output.show()
        start_clocks_anew()
        tell_the_hook()

    def _imported(self, descriptor: int) -> str:
        """Import; why this is not what a new process would be, "" where it is."""
        with open(descriptor, "rb") as stream:
            plan = json.load(stream)
        folder = working_folder()
        replay = self._modules["replay"]
        self._output.keep()
        try:
            replay.Replay(plan, self._modules["relkit_import_notes"], self._breathe).run()
        except replay.Refused as why:
            return str(why)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  the script may end of it, and not this
            return f"an import has ended with {type(error).__name__}"
        finally:
            self._output.stop()
        if working_folder() != folder:
            return "an import has changed the working folder"
        return why_not_like_new(self._launcher.fileno())

    def _breathe(self) -> None:
        """Between two imports: hear what the launcher says, and else leave the job its cores."""
        if self._hurries and self._given is not None:
            return
        # Not select(), which refuses the numbers that descriptors have in a large launcher.
        poll = select.poll()
        poll.register(self._launcher, select.POLLIN)
        took_ms = (time.monotonic() - self._went_on_s) * 1e3
        gives_way = not (self._hurries or self._modest.is_nice)
        if poll.poll(min(took_ms, _BREAK_MS) if gives_way else 0):
            self._take_message()
        self._went_on_s = time.monotonic()

    def _take_message(self) -> None:
        message, descriptors = self._receive()
        if "hurry" in message:
            with suppress(OSError):
                self._send({"heard": os.getpid()})
            if self._waits:
                # It has nothing more to do.
                return
        else:
            self._given = message, descriptors
        self._hurries = True
        # What cannot be undone here is tried, and said, once more at the end.
        with suppress(OSError):
            self._modest.step_forward()

    def _say_whether_ready(self, refused: str) -> None:
        # The launcher may have given all that is needed meanwhile, and does not listen any more:
        # whoever is refused waits to be ended, or to begin anew.
        with suppress(OSError):
            self._send(
                {"refused": refused}
                if refused
                else {"ready": os.getpid(), "pss_bytes": pss_bytes()}
            )

    def _take_over(self, given: dict[str, Any], descriptors: list[int]) -> None:
        for target, given_descriptor in zip(given["descriptors"], descriptors, strict=True):
            os.dup2(given_descriptor, target)
            os.close(given_descriptor)
        self._modest.end()
        take_environment(given)
        os.chdir(given["folder"])
        if not given["go"]:
            self._send({"taken": os.getpid()})
            go, _ = self._receive()
            if go != {"go": True}:
                os._exit(1)

    def _receive(self) -> tuple[dict[str, Any], list[int]]:
        try:
            received = socket.recv_fds(self._launcher, MAX_MESSAGE_BYTES, 2)
        except ConnectionResetError:
            # What was said to the launcher last, it has not read. What it has sent is still here.
            received = socket.recv_fds(self._launcher, MAX_MESSAGE_BYTES, 2)
        data, descriptors, flags, _ = received
        if not data or flags & socket.MSG_TRUNC:
            os._exit(1)
        return json.loads(data), descriptors

    def _send(self, message: dict[str, Any]) -> None:
        self._launcher.send(json.dumps(message).encode())


class Modest:
    """Gone with the launcher, and after step_back() the first to be killed and the last to run.

    All of it ends with end().
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        signal_at_end = ctypes.c_int(0)
        self._libc.prctl(_PR_GET_PDEATHSIG, ctypes.byref(signal_at_end), 0, 0, 0)
        self._signal_at_end = signal_at_end.value
        launcher = os.getppid()
        self._libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
        if launcher != os.getppid():
            os._exit(0)
        self._comm = self._oom_score = ""
        self.is_nice = False
        self._nice = 0

    def step_back(self) -> None:
        """Nobody needs this process for now."""
        if self._comm:
            return
        self._comm = _read("/proc/self/comm")
        _write("/proc/self/comm", "relkit-standby")
        self._oom_score = _read("/proc/self/oom_score_adj")
        _write("/proc/self/oom_score_adj", _OOM_SCORE)
        self._nice = os.getpriority(os.PRIO_PROCESS, 0)
        # Only where it can be undone.
        self.is_nice = may_be_raised() and self._nice < NICE
        if self.is_nice:
            os.setpriority(os.PRIO_PROCESS, 0, NICE)

    def step_forward(self) -> None:
        """As any other process again, but for its end with the launcher.

        Raises:
            OSError: that is not possible.
        """
        if self.is_nice:
            for thread in _names("/proc/self/task"):
                with suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, int(thread), self._nice)
        if self._oom_score:
            _write("/proc/self/oom_score_adj", self._oom_score)
            if _read("/proc/self/oom_score_adj") != self._oom_score:
                raise OSError("oom_score_adj cannot be set back")
        if self._comm:
            _write("/proc/self/comm", self._comm)
        self._comm, self.is_nice = "", False

    def end(self) -> None:
        """As any other process again.

        Raises:
            OSError: that is not possible.
        """
        self.step_forward()
        self._libc.prctl(_PR_SET_PDEATHSIG, self._signal_at_end, 0, 0, 0)


def may_be_raised() -> bool:
    """Whether this process may run at a higher priority again once it has lowered it."""
    with suppress(OSError, ValueError):
        for line in _read("/proc/self/status").splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) & _CAP_SYS_NICE)
    return False


def why_not_like_new(launcher: int) -> str:
    """What imports have done that a waiting process must not have; "" for nothing.

    Args:
        launcher: descriptor of the socket to it.
    """
    threads = [each.name for each in threading.enumerate() if each is not threading.main_thread()]
    if threads:
        return f"an import has started a thread ({threads[0][:40]})"
    if any(_read(f"/proc/self/task/{each}/children") for each in _names("/proc/self/task")):
        return "an import has started a process"
    for name in _names("/proc/self/fd"):
        with suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
            if target.startswith(_DEVICES):
                return f"an import has opened a device ({target})"
            if target.startswith("socket:") and int(name) != launcher and int(name) > 2:
                return "an import has opened a socket"
    if os.environ.get("RELKIT_HOOK_DIR") and not hasattr(ctypes.CDLL(None), "relkit_standby_over"):
        return "its hook is of another version of relkit"
    return "an import has made a CUDA context" if has_cuda_context() else ""


def has_cuda_context() -> bool:
    """Whether this process holds memory of a device; makes nothing that is not there."""
    with suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        count, context = ctypes.c_int(0), ctypes.c_void_p(None)
        # Without cuInit, which nothing here calls, these say so and there is no context.
        if driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return False
        if driver.cuCtxGetCurrent(ctypes.byref(context)) == 0 and context.value:
            return True
        for device in range(count.value):
            flags, active = ctypes.c_uint(0), ctypes.c_int(0)
            state = driver.cuDevicePrimaryCtxGetState
            if state(device, ctypes.byref(flags), ctypes.byref(active)) == 0 and active.value:
                return True
    return False


def working_folder() -> str:
    """Of this process; "" where it has been removed."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


def take_environment(given: dict[str, Any]) -> None:
    """Make the variables those of the worker; what imports have set beside them stays."""
    for name in given["unset"]:
        os.environ.pop(name, None)
    os.environ.update(given["set"])


def start_clocks_anew() -> None:
    """What counts from the import of a module on, as far as the standard library has it."""
    logging: ModuleType | None = sys.modules.get("logging")
    begun = getattr(logging, "_startTime", None)
    if isinstance(begun, float):
        vars(logging)["_startTime"] = time.time()
    elif isinstance(begun, int):  # Python 3.13
        vars(logging)["_startTime"] = time.time_ns()


def tell_the_hook() -> None:
    """The preloaded library, if it is here, begins as in a new process."""
    over: Callable[[], None] | None = getattr(ctypes.CDLL(None), "relkit_standby_over", None)
    if over is not None:
        over()


def pss_bytes() -> int:
    """This process's share of the memory that it uses; 0 where the kernel does not say."""
    for line in _lines("/proc/self/smaps_rollup"):
        if line.startswith("Pss:"):
            return int(line.split()[1]) << 10
    return 0


def _names(folder: str) -> list[str]:
    return os.listdir(folder)  # noqa: PTH208


def _lines(path: str) -> Iterator[str]:
    yield from _read(path).splitlines()


def _read(path: str) -> str:
    try:
        with open(path) as stream:  # noqa: PTH123
            return stream.read().strip()
    except OSError:
        return ""


def _write(path: str, text: str) -> None:
    with suppress(OSError), open(path, "w") as stream:  # noqa: PTH123
        stream.write(text)
