"""The launcher's end of one standby."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from relkit.launch.job.exit_status import how_it_ended
from relkit.launch.warm_standby import handover
from relkit.launch.warm_standby.handover import WorkerCommand
from relkit.launch.warm_standby.seen_imports import SeenImports, Signatures
from relkit.process.held_signals import signals_held
from relkit.text.foreign_json import parse_json
from relkit.text.whole_number import whole_number

# Imports that take longer than this do not end at all.
READY_S = 600.0
HAND_OVER_S = 5.0
# Until the interpreter of one that was started just now runs: a new one would take as long.
_HERE_S = 5.0
_END_S, _EXIT_CODE_S = 2.0, 0.1
_MAX_MESSAGE_BYTES = 64 << 10
# What standby_process.py takes in one message.
_MAX_GIVEN_BYTES = 160 << 10
_MAX_REASON = 500


@dataclass(frozen=True, slots=True)
class Ready:
    """What a standby says once it waits.

    Args:
        pss_bytes: memory that it takes; 0 where that is not known.
    """

    pss_bytes: int


class HandOverFailed(Exception):
    """A standby does not become a worker; it is gone, and a plain start takes its place."""


class Standby:
    """One process that waits to be the worker of a local rank.

    Start it in the launcher's main thread: the kernel ends it with the thread that has started it.
    Then look() until `ready` is set, and hand_over() or end() once.

    Args:
        command: of the worker that it is made after.
        seen: what that has imported.
        hurry: the job waits for it.
    """

    def __init__(self, command: WorkerCommand, seen: SeenImports, *, hurry: bool = False) -> None:
        self.command, self.refused, self._is_here = command, "", False
        self.ready: Ready | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._seen, self._hurries = seen, hurry
        self._files, self._beside = seen.files(Signatures()), seen.beside()
        self._begun_s = time.monotonic()
        # When it was told that the job waits, and whether it has answered that.
        self._told_s: float | None = None
        self._has_heard = False
        self._environment: dict[str, str] = {}
        self._socket: socket.socket | None = None

    def start(self) -> None:
        """Start the process.

        Raises:
            OSError: that is not possible.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        with theirs, _file_of(self._seen.to_json()) as plan:
            environment = handover.standby_environment(
                self.command.environment, theirs.fileno(), os.getpid()
            )
            if environment is None:
                raise OSError(f"no path list can name {handover.FOLDER}")
            self._environment = environment
            ours.setblocking(False)
            ours.send(json.dumps({"plan": plan.fileno(), "hurry": self._hurries}).encode())
            # As torch does it (SubprocessHandler): what it signals is the group.
            with signals_held():
                self.process = subprocess.Popen(
                    self.command.argv,
                    env=environment,
                    pass_fds=(theirs.fileno(), plan.fileno()),
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
            message.get("here"), message.get("heard"), message.get("ready")
        ):  # fmt: skip
            self.refused = "the interpreter is not what the launcher has started"
            return
        self._is_here = True
        self._has_heard = self._has_heard or "heard" in message
        if "ready" not in message:
            return
        self.ready = Ready(whole_number(str(message.get("pss_bytes"))) or 0)

    def hurry(self) -> None:
        """The job has stopped, and will soon need it."""
        if self._socket is not None and self.ready is None and self._told_s is None:
            self._told_s = time.monotonic()
            with suppress(OSError):
                self._socket.send(json.dumps({"hurry": True}).encode())

    def hand_over(
        self,
        worker: WorkerCommand,
        descriptors: Sequence[tuple[int, int]],
        files: Signatures | None = None,
    ) -> subprocess.Popen[bytes]:
        """Have it become a worker, also while it still imports.

        Args:
            worker: the command that it runs.
            descriptors: (1 or 2, what that shall be in it), for those that are not the launcher's.
            files: as they are now; None to look at each.

        Returns:
            The process, which runs the script from now on.

        Raises:
            HandOverFailed: why it does not. It has run nothing of the script, and is gone.
        """
        why = (
            self._wait_here()
            or self._changed(files)
            or handover.why_not_for(self.command, worker)
            or self._wait_heard()
        )
        is_early = self.ready is None
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
            answer = self._message()
            if answer == {"heard": self.process.pid}:
                # It was told to hurry just as it was ready.
                answer = self._message()
            if answer != {"taken": self.process.pid}:
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

    def _wait_here(self) -> str:
        """Why it cannot be used; it runs by now, if it does at all."""
        # All of them have begun together, and are waited for together.
        until_s = self._begun_s + _HERE_S
        while not (why := self.look()) and not self._is_here:
            if not self._has_message(until_s):
                return "it had not begun"
        return why

    def _wait_heard(self) -> str:
        """Why it cannot be used; it goes on from import to import, or has made them all."""
        self.hurry()
        until_s = HAND_OVER_S + (time.monotonic() if self._told_s is None else self._told_s)
        while not (why := self.look()) and not self._has_heard and self.ready is None:
            if not self._has_message(until_s):
                return "one of its imports does not end"
        return why

    def _has_message(self, until_s: float) -> bool:
        poll = select.poll()
        poll.register(self._message_socket, select.POLLIN)
        return bool(poll.poll(max(0.0, until_s - time.monotonic()) * 1e3))

    def _changed(self, files: Signatures | None) -> str:
        now = self._seen.files(Signatures() if files is None else files)
        changed = sorted(file for file in now if now[file] != self._files[file])
        others = sorted(file for file, was in self._seen.own.items() if now[file] != was)
        if changed or others:
            return f"{(changed or others)[0]} has changed"
        if more := sorted(self._seen.beside() - self._beside):
            return f"there is another {more[0]} beside the script"
        return ""

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

    @property
    def _message_socket(self) -> socket.socket:
        assert self._socket is not None
        return self._socket

    def _message(self) -> dict[str, Any]:
        plain = parse_json(self._message_socket.recv(_MAX_MESSAGE_BYTES))
        if not isinstance(plain, dict):
            raise ValueError("not an object")
        return plain


def _file_of(data: bytes) -> BinaryIO:
    """A file without a name, read from its beginning by whoever inherits it."""
    stream = os.fdopen(os.memfd_create("relkit-standby-plan"), "r+b")
    stream.write(data)
    stream.seek(0)
    return stream
