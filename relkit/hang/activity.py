"""What a rank's main thread can be doing, in the words a person sees."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class ThreadState(str, Enum):
    """One category a main thread falls into."""

    COLLECTIVE = "collective"
    P2P = "p2p"
    SETUP = "setup"
    STREAM = "stream"
    BACKWARD = "backward"
    LOCK = "lock"
    CONDITION = "condition"
    QUEUE = "queue"
    DATA = "data"
    FILE = "file"
    SOCKET = "socket"
    DESCRIPTOR = "descriptor"
    CHILD = "child"
    THREAD = "thread"
    SLEEP = "sleep"
    CHECKPOINT = "checkpoint"
    COMPILE = "compile"
    IMPORT = "import"
    GC = "gc"
    GIL = "gil"
    GIL_HELD = "gil-held"
    EXCEPTION = "exception"
    EXIT = "exit"
    COMPUTE = "compute"
    RUNNING = "running"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


PHRASES = {
    ThreadState.COLLECTIVE: "waiting in a collective",
    ThreadState.P2P: "waiting in a point-to-point transfer",
    ThreadState.SETUP: "setting up a process group",
    ThreadState.STREAM: "waiting for the accelerator",
    ThreadState.BACKWARD: "waiting in the backward pass, where gradients are exchanged",
    ThreadState.LOCK: "waiting on a lock",
    ThreadState.CONDITION: "waiting for an event",
    ThreadState.QUEUE: "waiting on a queue",
    ThreadState.DATA: "loading data",
    ThreadState.FILE: "reading or writing a file",
    ThreadState.SOCKET: "waiting on the network",
    ThreadState.DESCRIPTOR: "waiting for input",
    ThreadState.CHILD: "waiting for a child process",
    ThreadState.THREAD: "waiting for a thread to end",
    ThreadState.SLEEP: "sleeping",
    ThreadState.CHECKPOINT: "saving or loading a checkpoint",
    ThreadState.COMPILE: "compiling",
    ThreadState.IMPORT: "importing modules",
    ThreadState.GC: "collecting garbage",
    ThreadState.GIL: "waiting for the interpreter lock",
    ThreadState.GIL_HELD: "holding the interpreter lock in native code",
    ThreadState.EXCEPTION: "handling an exception",
    ThreadState.EXIT: "shutting down",
    ThreadState.COMPUTE: "computing",
    ThreadState.RUNNING: "running",
    ThreadState.UNKNOWN: "doing something relkit does not recognise",
}

WAITS_FOR_PEERS = frozenset(
    {
        ThreadState.COLLECTIVE,
        ThreadState.P2P,
        ThreadState.SETUP,
        ThreadState.STREAM,
        ThreadState.BACKWARD,
    }
)
_BUSY = frozenset(
    {
        ThreadState.RUNNING,
        ThreadState.COMPUTE,
        ThreadState.COMPILE,
        ThreadState.IMPORT,
        ThreadState.GC,
        ThreadState.UNKNOWN,
    }
)


@dataclass(frozen=True, slots=True)
class Activity:
    """What one main thread is doing.

    Args:
        doing: the category.
        place: innermost frame of user code, "examples/train.py:88 next_batch"; "" unknown.
        leaf: innermost frame of all where that is not user code, "threading.py:327 wait".
        kernel: kernel function it sleeps in, "" where it runs or that is unknown.
        runs: the kernel has it on a CPU.
        others: other threads of the process that hold user code, in words.
        gil: which thread holds the interpreter lock in native code, in words; "" for none.
        exits: its script has ended, and the interpreter is shutting down.
    """

    thread_state: ThreadState
    place: str = ""
    leaf: str = ""
    kernel: str = ""
    runs: bool = False
    others: tuple[str, ...] = ()
    gil: str = ""
    exits: bool = False

    @property
    def phrase(self) -> str:
        """What it does, as the middle of a sentence."""
        return PHRASES[self.thread_state]

    @property
    def waits_for_peers(self) -> bool:
        """It is inside communication code, so it may be waiting for another rank."""
        return self.thread_state in WAITS_FOR_PEERS

    @property
    def may_be_busy(self) -> bool:
        """Nothing in its stack says that it waits."""
        return self.thread_state in _BUSY

    @property
    def known(self) -> bool:
        """Its stack was read and says something."""
        return self.thread_state is not ThreadState.UNKNOWN or bool(self.place)

    def sentence(self) -> str:
        """`in examples/train.py:88 next_batch, waiting on a lock`."""
        return f"in {self.place}, {self.phrase}" if self.place else self.phrase
