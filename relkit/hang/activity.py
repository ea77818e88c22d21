"""What a rank's main thread can be doing, in the words a person sees."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Doing(str, Enum):
    """One category a main thread falls into."""

    COLLECTIVE = "collective"
    P2P = "p2p"
    SETUP = "setup"
    STREAM = "stream"
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
    GC = "gc"
    GIL = "gil"
    EXCEPTION = "exception"
    EXIT = "exit"
    COMPUTE = "compute"
    RUNNING = "running"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


PHRASES = {
    Doing.COLLECTIVE: "waiting in a collective",
    Doing.P2P: "waiting in a point-to-point transfer",
    Doing.SETUP: "setting up a process group",
    Doing.STREAM: "waiting for the accelerator",
    Doing.LOCK: "waiting on a lock",
    Doing.CONDITION: "waiting for an event",
    Doing.QUEUE: "waiting on a queue",
    Doing.DATA: "loading data",
    Doing.FILE: "reading or writing a file",
    Doing.SOCKET: "waiting on the network",
    Doing.DESCRIPTOR: "waiting for input",
    Doing.CHILD: "waiting for a child process",
    Doing.THREAD: "waiting for a thread to end",
    Doing.SLEEP: "sleeping",
    Doing.CHECKPOINT: "saving or loading a checkpoint",
    Doing.COMPILE: "compiling",
    Doing.GC: "collecting garbage",
    Doing.GIL: "waiting for the interpreter lock",
    Doing.EXCEPTION: "handling an exception",
    Doing.EXIT: "shutting down",
    Doing.COMPUTE: "computing",
    Doing.RUNNING: "running",
    Doing.UNKNOWN: "doing something relkit cannot name",
}

_FOR_PEERS = frozenset({Doing.COLLECTIVE, Doing.P2P, Doing.SETUP, Doing.STREAM})
_BUSY = frozenset({Doing.RUNNING, Doing.COMPUTE, Doing.COMPILE, Doing.GC, Doing.UNKNOWN})


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
    """

    doing: Doing
    place: str = ""
    leaf: str = ""
    kernel: str = ""
    runs: bool = False
    others: tuple[str, ...] = ()

    @property
    def phrase(self) -> str:
        """What it does, as the middle of a sentence."""
        return PHRASES[self.doing]

    @property
    def waits_for_peers(self) -> bool:
        """It stands in communication code, so that another rank may be what it waits for."""
        return self.doing in _FOR_PEERS

    @property
    def may_be_busy(self) -> bool:
        """Nothing in its stack says that it waits."""
        return self.doing in _BUSY

    @property
    def known(self) -> bool:
        """Its stack was read and says something."""
        return self.doing is not Doing.UNKNOWN or bool(self.place)

    def sentence(self) -> str:
        """`in examples/train.py:88 next_batch, waiting on a lock`."""
        return f"in {self.place}, {self.phrase}" if self.place else self.phrase
