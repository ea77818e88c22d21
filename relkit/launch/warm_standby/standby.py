"""The launcher's end of one standby."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.launch.job.exit_status import how_it_ended
from relkit.launch.warm_standby import handover
from relkit.launch.warm_standby.handover import WorkerCommand
from relkit.process.held_signals import signals_held
from relkit.text.foreign_json import parse_json
from relkit.text.whole_number import whole_number

# Imports that take longer than this do not end at all.
READY_S = 600.0
HAND_OVER_S = 5.0
_END_S, _EXIT_CODE_S = 2.0, 0.1
_MAX_MESSAGE_BYTES = 64 << 10
# What standby_process.py takes in one message.
_MAX_GIVEN_BYTES = 160 << 10
_MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class Target:
    """What a worker runs.

    Args:
        name: of the script, or of the module; is_module: it is the latter.
    """

    name: str
    is_module: bool = False


@dataclass(frozen=True, slots=True)
class First:
    """What is known of a worker that is started before its job is.

    Args:
        writes_here: what it writes goes where this process writes, and not into a file of its own.
    """

    writes_here: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """What a standby says once it waits.

    Args:
        pss_bytes: memory that it takes; 0 where that is not known.
        stopped: why it has not imported all that its script will; "" where it has.
    """

    pss_bytes: int
    stopped: str


class HandOverFailed(Exception):
    """A standby does not become a worker; it is gone, and a plain start takes its place."""


class Standby:
    """One process that waits to be the worker of a local rank.

    Start it in the launcher's main thread: the kernel ends it with the thread that has started it.
    Then look() until `ready` is set, and hand_over() or end() once.

    Args:
        command: of the worker that it is made after.
        target: that this command runs.
        first: set for one that may become a worker before it is ready, at the first start of a job.
    """

    def __init__(
        self, command: WorkerCommand, target: Target, *, first: First | None = None
    ) -> None:
        self.command, self.refused, self._first, self._is_here = command, "", first, False
        self.ready: Ready | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._target = target
        self._begun_s = time.monotonic()
        self._environment: dict[str, str] = {}
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Start the process.

        Raises:
            OSError: that is not possible.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        with theirs:
            environment = handover.standby_environment(
                self.command.environment, theirs.fileno(), os.getpid()
            )
            if environment is None:
                raise OSError(f"no path list can name {handover.FOLDER}")
            self._environment = environment
            script = os.path.abspath(self._target.name)  # noqa: PTH100  links stay
            order = {
                "path": script,
                "module": self._target.name if self._target.is_module else "",
                "folder": handover.script_folder(script, is_module=self._target.is_module),
                "first": self._first is not None,
                "keep_output": self._first is None or not self._first.writes_here,
                "unknown": [] if self._first is None else handover.unknown_of(self.command),
            }
            ours.setblocking(False)
            ours.send(json.dumps(order).encode())
            # As torch does it (SubprocessHandler): what it signals is the group.
            with signals_held():
                self.process = subprocess.Popen(
                    self.command.argv,
                    env=environment,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,
                )

    def look(self) -> str:
        """See how far it is; why it cannot be used any more, "" where it can or may yet."""
        if self.process is None or self._socket is None:
            return "it was not started"
        if self.refused:
            return self.refused
        if self.ready is None:
            try:
                while self.ready is None and not self.refused:
                    self._note(self._message())
            except BlockingIOError:
                if time.monotonic() - self._begun_s > READY_S:
                    return f"it was not ready after {READY_S:g} s"
            except (OSError, ValueError):
                # A process that ends closes its socket a little before its exit code is known.
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(_EXIT_CODE_S)
                self.refused = self._end_words() or "it sent an unexpected message"
        return self.refused or self._end_words()

    @property
    def was_killed(self) -> bool:
        """It was ended by SIGKILL; to be asked before end()."""
        return self.process is not None and self.process.returncode == -signal.SIGKILL

    def _end_words(self) -> str:
        code = None if self.process is None else self.process.poll()
        return "" if code is None else f"it {how_it_ended(code)}"

    def _note(self, message: dict[str, Any]) -> None:
        if "refused" in message:
            self.refused = str(message["refused"])[:_MAX_REASON]
            return
        # Of a program that a wrapper has started, the wrapper would be waited for.
        if self.process is None or self.process.pid not in (
            message.get("here"), message.get("ready")
        ):  # fmt: skip
            self.refused = "the interpreter is not what the launcher has started"
            return
        self._is_here = True
        if "here" in message:
            return
        self.ready = Ready(
            whole_number(str(message.get("pss_bytes"))) or 0,
            str(message.get("stopped", ""))[:_MAX_REASON],
        )

    def hand_over(
        self, worker: WorkerCommand, descriptors: Sequence[tuple[int, int]]
    ) -> subprocess.Popen[bytes]:
        """Have it become a worker.

        Args:
            worker: the command that it runs.
            descriptors: (1 or 2, what that shall be in it), for those that are not the launcher's.

        Returns:
            The process, which runs the script from now on.

        Raises:
            HandOverFailed: why it does not. It has run nothing of the script, and is gone.
        """
        why = self.look() or handover.why_not_for(self.command, worker)
        is_early = self.ready is None
        if not why and is_early and (self._first is None or not self._is_here):
            why = "it was not ready"
        if why or self.process is None or self._socket is None:
            self.end()
            raise HandOverFailed(why)
        to_set, to_unset = handover.changes(self._environment, worker.environment)
        try:
            given = {
                "set": to_set,
                "unset": to_unset,
                "folder": str(Path.cwd()),
                "descriptors": [number for number, _ in descriptors],
                "go": is_early,
            }
            self._socket.settimeout(HAND_OVER_S)
            data = json.dumps(given).encode()
            if len(data) > _MAX_GIVEN_BYTES:
                raise ValueError("too long")
            socket.send_fds(self._socket, [data], [each for _, each in descriptors])
            if is_early:
                self._socket.close()
                return self.process
            if self._message() != {"taken": self.process.pid}:
                raise ValueError("not what was expected")
            self._socket.send(json.dumps({"go": True}).encode())
        except (OSError, ValueError) as error:
            self.end()
            raise HandOverFailed(f"it did not take over ({type(error).__name__})") from error
        except BaseException:
            # A signal to the launcher: the process is in nobody's hands.
            self.end()
            raise
        self._socket.close()
        return self.process

    def end(self) -> None:
        """End it."""
        # First of all: at the end of its socket it would end by itself, in its own time.
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_END_S)
        if self._socket is not None:
            self._socket.close()

    def _message(self) -> dict[str, Any]:
        assert self._socket is not None
        plain = parse_json(self._socket.recv(_MAX_MESSAGE_BYTES))
        if not isinstance(plain, dict):
            raise ValueError("not an object")
        return plain
