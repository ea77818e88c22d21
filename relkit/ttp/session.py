"""Try-to-persist around one training loop: what it tells, and what happens when it is left."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn, TypeVar

from relkit.ttp.collective_aborter import CollectiveAborter, own_recorder
from relkit.ttp.emergency_save import Saver
from relkit.ttp.environment import WorkerEnvironment
from relkit.ttp.handlers import Handlers
from relkit.ttp.messages import Commit, Discard, Exit, Finished, Hello, Save
from relkit.ttp.processor import Processor
from relkit.ttp.rank_state import RankState, TrainingInterrupted
from relkit.ttp.replicas import ReplicaMap
from relkit.ttp.training_thread import TrainingThread

# A peer's end is felt in a collective some milliseconds before the controller tells of it.
_ECHO_S = 1.0
_PR_SET_PDEATHSIG = 1
# The launcher alone decides when ranks end: one that leaves takes its shards with it.
_LEFT_TO_THE_LAUNCHER = (signal.SIGTERM, signal.SIGINT)
_STUCK = (
    "no error reaches the training thread, which sleeps in a call that cannot return;"
    " its state is saved without it"
)
T = TypeVar("T")


class Session:
    """One rank under try-to-persist; for one run of one loop.

    Args:
        environment: see WorkerEnvironment.
        rank, world_size: as torch has them.
        maps: replica maps of the groups that this rank is in.
        step: committed step that the run starts from.
        handlers: see Handlers.
        kept: what collective_aborter.open_sockets gave before process groups were made.
    """

    def __init__(
        self,
        environment: WorkerEnvironment,
        *,
        rank: int,
        world_size: int,
        maps: Sequence[ReplicaMap],
        step: int,
        handlers: Handlers,
        kept: Sequence[str] = (),
    ) -> None:
        self.state = RankState(rank, step)
        self._environment = environment
        aborter = CollectiveAborter([environment.store.port], own_recorder(), kept)
        hello = Hello(rank, world_size, os.getpid(), socket.gethostname(), step, tuple(maps))
        self._training = TrainingThread(self.state, aborter.abort)
        self._processor = Processor(
            environment.wire, hello, self.state, self._training, self._start_stand_in
        )
        self._saver = Saver(self.state, handlers, self._processor.notes, self._processor.answer)

    def run(self, train: Callable[[], T]) -> T:
        """Run a training loop; where it is left by a fault, save and leave the process.

        A rank that has come to the loop's end waits here for the others: its shards may be needed.

        Returns:
            what the loop returned, if it came to its end on all ranks.

        Raises:
            LinkEnded: there is no controller.
            SystemExit: the loop asked for the end of the program, with success.
        """
        # First of all: from here on the launcher must not end the others when this one fails.
        self._environment.mark(self.state.rank)
        self._training.is_this_one()
        self._processor.start()
        _end_with_the_launcher()
        with _left_to_the_launcher():
            leaving: SystemExit | None = None
            try:
                result = train()
            except TrainingInterrupted as asked:
                self._persist(asked)
            except SystemExit as error:
                if error.code not in (None, 0):
                    self._persist(error)
                leaving = error
            except BaseException as error:  # noqa: BLE001 (whatever a user's loop raises is a fault)
                self._persist(error)
            self.state.park(None)
            self._processor.done()
            self._obey()
            self.state.commands.unpark()
            self._environment.unmark(self.state.rank)
            self._processor.close()
        if leaving is not None:
            raise leaving
        return result

    def _persist(self, error: BaseException) -> NoReturn:
        self.state.park(error)
        if not isinstance(error, TrainingInterrupted) and not self._is_an_echo(error):
            sys.excepthook(type(error), error, error.__traceback__)
            first = (str(error).splitlines() or [""])[0]
            self._processor.raised(f"{type(error).__name__}: {first}")
        self._obey()
        # Not reached: the controller lets only those go who have come to the loop's end.
        self._leave(1)

    def _obey(self) -> None:
        """Carry out commands, until all ranks have finished."""
        while True:
            command = self.state.commands.next()
            if isinstance(command, Finished):
                return
            if isinstance(command, Exit):
                self._leave(command.code)
            elif command.epoch == self._processor.epoch:
                if isinstance(command, Save):
                    self._processor.answer(self._saver.save(command))
                elif isinstance(command, Commit):
                    self._processor.answer(self._saver.commit(command))
                elif isinstance(command, Discard):
                    self._saver.discard()
            self.state.commands.done()

    def _start_stand_in(self) -> None:
        """Nothing wakes the training thread: another one saves, and ends the process."""
        # In one piece, as all ranks write to one terminal.
        os.write(2, f"relkit: rank {self.state.rank}: {_STUCK}\n".encode())
        threading.Thread(target=self._carry_out, name="relkit-ttp-save", daemon=True).start()

    def _carry_out(self) -> None:
        self._obey()
        self._leave(1)

    def _is_an_echo(self, error: BaseException) -> bool:
        """Whether the error only says that another rank is gone, which the controller knows."""
        if isinstance(error, RuntimeError) and "gloo" in str(error).lower():
            until_s = time.monotonic() + _ECHO_S
            while not self.state.fault and time.monotonic() < until_s:
                time.sleep(0.002)
        return self.state.fault

    def _leave(self, code: int) -> NoReturn:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        self.state.gone = True
        # Not sys.exit: destructors of process groups whose peers are dead wait for them.
        os._exit(code)


@contextlib.contextmanager
def _left_to_the_launcher() -> Iterator[None]:
    before = {}
    for number in _LEFT_TO_THE_LAUNCHER:
        # Signals can only be set by the main thread; a loop in another one does without.
        with contextlib.suppress(ValueError):
            before[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


def _end_with_the_launcher() -> None:
    """Have the kernel end this process with its launcher: nobody would lead it any more."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
