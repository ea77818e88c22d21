"""Runs the programs of native/tests/clients against simulated devices, under builds of the hook."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relkit.hook import layout
from relkit.hook.model import HookState, Op
from relkit.hook.reader import read_state, state_files
from relkit.hook.state_file import open_state_file
from tests.native.builds import HookBuild, build_hook
from tests.native.simulated import DOUBLES, build_client, kept_platforms
from tests.patience import PATIENCE
from tests.waiting import eventually

DEADLINE_S = 50.0 * PATIENCE


@dataclass(frozen=True, slots=True)
class Bench:
    """What a test session has built: folders of doubles, hooks and programs.

    Args:
        folder: of the doubles, which other runs use as well; own: for programs.
        builds: by name.
    """

    folder: Path
    own: Path
    builds: dict[str, HookBuild] = field(default_factory=dict)
    programs: dict[tuple[str, str], Path] = field(default_factory=dict)

    @classmethod
    def make(cls, own: Path) -> Bench:
        return cls(kept_platforms(), own)

    def hook(self, name: str) -> HookBuild:
        """The hook that is installed ("plain"), or a build of it, made at its first use."""
        if name not in self.builds:
            self.builds[name] = HookBuild(name) if name == "plain" else build_hook(name)
        return self.builds[name]

    def program(self, build: HookBuild, platform: str) -> Path:
        """A platform's client, compiled for a build of the hook."""
        key = (build.name, platform)
        if key not in self.programs:
            output = self.own / f"{platform}-{build.name}"
            self.programs[key] = build_client(output, self.folder, platform, *build.flags)
        return self.programs[key]


@dataclass(frozen=True, slots=True)
class Client:
    """One running program, and the folder that it records into."""

    process: subprocess.Popen[str]
    recorded: Path
    trace: Path
    errors: Any  # an open file: what it wrote to standard error
    said: list[dict[str, Any]] = field(default_factory=list)

    def listen(self, *, until_up: bool = True) -> list[dict[str, Any]]:
        """What it says until it is up, or until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            words = json.loads(line)
            self.said.append(words)
            if until_up and "up" in words:
                return self.said
        assert not until_up, self.complaint()
        return self.said

    def complaint(self) -> str:
        """How it ended, for a person."""
        self.process.wait(DEADLINE_S)
        self.errors.seek(0)
        return f"exit {self.process.returncode}: {self.errors.read()[-4000:]}"

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> dict[str, Any]:
        """Let it go on to its end, which must be a good one; all that it said, as one."""
        self.go()
        self.listen(until_up=False)
        assert self.process.wait(DEADLINE_S) == 0, self.complaint()
        self.errors.seek(0)
        # The leak finder of a forked child looks for its parent's threads.
        lines = [line for line in self.errors if "was not suspended" not in line]
        assert lines == []
        return {name: value for words in self.said for name, value in words.items()}

    def state(self) -> HookState:
        return read_state(self.recorded / f"{self.process.pid}.rkhook")

    def settled(self) -> HookState:
        """Its state when the poller has seen the end of all that was enqueued."""

        def look() -> HookState | None:
            state = self.state()
            return state if not state.in_flight and state.started == state.finished else None

        found = eventually(look, "all operations are over")
        assert found is not None
        return found

    def all_said(self, kind: str) -> list[dict[str, Any]]:
        return [words for words in self.said if kind in words]

    def traced(self) -> list[tuple[str, int, int, int]]:
        """What the device says that it did: (label, bytes, start_ns, end_ns), by start."""
        rows = [line.split() for line in self.trace.read_text().splitlines()]
        found = [(row[0], int(row[4]), int(row[2]), int(row[3])) for row in rows]
        return sorted(found, key=lambda row: row[2])


@contextlib.contextmanager
def client(
    command: Sequence[str], build: HookBuild, folder: Path, **variables: str
) -> Iterator[Client]:
    """Start a program under the hook; it is dead and reaped at the end."""
    recorded = folder / "job"
    recorded.mkdir(mode=0o700, exist_ok=True)
    name = f"trace-{variables.get('RANK', '0')}"
    environment = build.environment(
        recorded, SIM_DIR=str(folder), SIM_TRACE=str(folder / name), **variables
    )
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):  # fmt: skip
        # A pipe has no deadline: a program that hangs is ended, and so is the wait for its words.
        watchdog = threading.Timer(DEADLINE_S, process.kill)
        watchdog.start()
        try:
            yield Client(process, recorded, folder / name, errors)
        finally:
            watchdog.cancel()
            process.kill()


@contextlib.contextmanager
def ranks(
    program: Path, scene: str, *arguments: str, build: HookBuild, folder: Path, **variables: str
) -> Iterator[list[Client]]:
    """Two ranks of one job, which have said "up"."""
    with contextlib.ExitStack() as stack:
        found = []
        for rank in range(2):
            identity = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
            command = [str(program), scene, str(folder / "id"), *arguments]
            made = client(command, build, folder, **identity, **variables)
            found.append(stack.enter_context(made))
        for each in found:
            each.listen()
        yield found


def device_ops(state: HookState) -> list[Op]:
    """What was timed on the device, in the order in which it was enqueued."""
    return sorted((op for op in state.recent if op.enqueue_ns), key=lambda op: op.enqueue_ns)


def missing_by_file(recorded: Path, libraries: Path, platform: str, leave_out: str) -> list[str]:
    """Names of the platform's rows whose symbol no library of its doubles exports.

    Args:
        leave_out: prefixes of symbols of libraries that the program has not used, by comma.
    """
    exported: set[str] = set()
    for double in DOUBLES[platform]:
        command = ["nm", "-D", "--defined-only", "--without-symbol-versions"]
        command.append(str(libraries / double.soname))
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
        exported |= {line.split()[-1] for line in done.stdout.splitlines()}
    (path,) = state_files(recorded)
    with open_state_file(path) as file:
        count = int(file.header["hook_count"])
        rows = file.rows(int(file.header["hooks_at"]), layout.HOOK, count)
    return [
        bytes(row["name"]).split(b"\0")[0].decode()
        for row in rows
        if bytes(row["platform"]).split(b"\0")[0].decode() == platform
        and (symbol := bytes(row["symbol"]).split(b"\0")[0].decode()) not in exported
        and not symbol.startswith(tuple(leave_out.split(",")))
    ]
