"""What a user waits for, as whole commands, with their peers in turn: `make bench`.

    make bench                                    all, half an hour; writes docs/benchmarks.md
    make bench BENCH_ARGS="--quick"               a few minutes
    python benchmarks/bench.py --only help launch
    python benchmarks/bench.py --viewer DIR       also the original viewer (see merge.py)

Each time is that of a process from its start to its end (a launch: to the first step's line), so it
has the interpreter's start and all imports in it; relkit is compiled first, as pip leaves it.
Medians over rounds, and the least and the most.
"""

from __future__ import annotations

import argparse
import datetime
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from benchmarks.as_installed import compile_relkit
from benchmarks.stacks.capture import hung_job
from benchmarks.stacks.diverse_files import write_diverse_files
from relkit.cli import cli
from relkit.output import table
from relkit.process.bounded_child import find_tool

_ROOT = Path(__file__).resolve().parent.parent
_PAGE = _ROOT / "docs" / "benchmarks.md"
_BEGIN, _END = "<!-- make bench: begin -->", "<!-- make bench: end -->"
_BIN = Path(sys.executable).parent
_LIMIT_S = 600.0
_TITLES = ("what", "median", "rounds", "peer", "median", "rounds", "peer over relkit")

Timed = Callable[[], float]


@dataclass(slots=True)
class Case:
    """One thing that a user waits for.

    Args:
        name: what; ours: seconds of one run; peer: what does the same, and its seconds.
    """

    name: str
    ours: Timed
    peer_name: str = ""
    peer: Timed | None = None
    walls_s: list[float] = field(default_factory=list)
    peer_walls_s: list[float] = field(default_factory=list)

    def go(self, first_peer: bool) -> None:
        """One round; who goes first alternates, so that a machine that warms up favours neither."""
        if self.peer is not None and first_peer:
            self.peer_walls_s.append(self.peer())
        self.walls_s.append(self.ours())
        if self.peer is not None and not first_peer:
            self.peer_walls_s.append(self.peer())

    def row(self) -> tuple[str, ...]:
        """Its line in the table."""
        cells = (self.name, *_seconds(self.walls_s), self.peer_name, *_seconds(self.peer_walls_s))
        ratio = ""
        if self.peer_walls_s:
            quotient = statistics.median(self.peer_walls_s) / statistics.median(self.walls_s)
            ratio = f"{quotient:.2f}"
        return (*cells, ratio)


def _seconds(walls_s: Sequence[float]) -> tuple[str, str]:
    if not walls_s:
        return "", ""
    return (
        f"{statistics.median(walls_s):.2f} s",
        f"{min(walls_s):.2f} to {max(walls_s):.2f}",
    )


def whole(*command: str) -> Timed:
    """Seconds of a command from start to end."""

    def run() -> float:
        began = time.perf_counter()
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_S, check=False, cwd=_ROOT
        )
        took_s = time.perf_counter() - began
        # 1 is a finding, and also how Python ends after an error that nobody caught.
        if done.returncode not in (0, 1) or "Traceback" in done.stderr:
            raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        return took_s

    return run


def until_line(word: str, *command: str) -> Timed:
    """Seconds from the start of a command to its first line with this word, not to its end."""

    def run() -> float:
        began = time.perf_counter()
        took_s = 0.0
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=_ROOT
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not took_s and word in line:
                    took_s = time.perf_counter() - began
        if not took_s:
            raise SystemExit(f"{' '.join(command)} printed no line with {word!r}")
        return took_s

    return run


def _commands(group: click.Group, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            found += _commands(command, (*path, name))
        elif command is not None:
            found.append((*path, name))
    return found


def help_cases() -> list[Case]:
    """--help of every command; torchrun's beside that of launch."""
    cases = []
    for path in _commands(cli, ()):
        case = Case(f"relkit {' '.join(path)} --help", whole(str(_BIN / "relkit"), *path, "--help"))
        if path == ("launch",):
            case.peer_name = "torchrun --help"
            case.peer = whole(str(_BIN / "torchrun"), "--help")
        cases.append(case)
    return cases


def launch_cases() -> list[Case]:
    """Two ranks of the example, to the line of its first step."""
    job = ["--standalone", "--nproc-per-node", "2", str(_ROOT / "examples" / "train.py")]
    job += ["--steps", "3", "--log-every", "1"]
    ours = until_line("step", str(_BIN / "relkit"), "launch", *job)
    peer = until_line("step", str(_BIN / "torchrun"), *job)
    return [Case("relkit launch, to the first step", ours, "torchrun", peer)]


def merge_cases(folder: Path, ranks: int, viewer: Path | None) -> list[Case]:
    """Diverse files to all texts and pictures."""
    dumps, output = folder / "dumps", folder / "merged"
    dumps.mkdir()
    size = write_diverse_files(dumps, ranks)
    name = f"relkit stacks merge, {ranks:,} files of {size / ranks / 1e3:.0f} kB"
    command = [str(_BIN / "relkit"), "stacks", "merge", str(dumps), "-o", str(output)]
    case = Case(name, whole(*command))
    if viewer is not None:
        code = "import sys; sys.path.insert(0, sys.argv[1]); "
        code += "from py_xpu_timer.stack_viewer import StackViewer; StackViewer(sys.argv[2])"
        case.peer_name = "original viewer"
        case.peer = whole(sys.executable, "-c", code, str(viewer), str(dumps))
    return [case]


def tables(options: argparse.Namespace) -> list[Case]:
    """All that was asked for, measured."""
    cases: list[Case] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "help" in options.only:
            cases += help_cases()
        if "launch" in options.only:
            cases += launch_cases()
        if "merge" in options.only:
            cases += merge_cases(folder, 256 if options.quick else 4096, options.viewer)
        for number in range(options.rounds):
            for case in cases:
                case.go(first_peer=bool(number % 2))
        if "capture" in options.only:
            cases += capture_cases(folder, options.rounds)
    return cases


def capture_cases(folder: Path, rounds: int) -> list[Case]:
    """A hung rank, looked at by a process that starts anew each time, as a user's command does."""
    py_spy = find_tool("py-spy")
    library = folder / "heartbeat.so"
    source = str(_ROOT / "benchmarks" / "stacks" / "heartbeat.c")
    compiler = shutil.which("cc") or "gcc"
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-pthread", "-o", str(library), source],
        check=True,
        timeout=_LIMIT_S,
    )
    with hung_job(2, folder, library) as targets:
        pid, output = str(targets[0].pid), str(folder / "captured")
        command = [str(_BIN / "relkit"), "stacks", "dump", "--pid", pid, "-o", output]
        case = Case("relkit stacks dump, one hung rank", whole(*command))
        if py_spy is not None:
            case.peer_name = "py-spy dump --native"
            case.peer = whole(py_spy, "dump", "--native", "--pid", pid)
        for number in range(rounds):
            case.go(first_peer=bool(number % 2))
    return [case]


def page_section(cases: Sequence[Case], command: str, machine: str) -> str:
    """The part of the benchmarks page that `make bench` writes."""
    today = datetime.datetime.now(datetime.timezone.utc).date()
    loads = " ".join(f"{load:.1f}" for load in os.getloadavg())
    lines = [f"`{command}`, {today}, class {machine}; load average at the end {loads}.", ""]
    lines += ["| " + " | ".join(_TITLES) + " |", "|" + "---|" * len(_TITLES)]
    lines += ["| " + " | ".join(row) + " |" for row in page_rows(cases)]
    return "\n".join(lines)


def page_rows(cases: Sequence[Case]) -> list[tuple[str, ...]]:
    """The rows of the page: every --help without a peer shares one, as they are all alike."""
    alike = [case for case in cases if case.name.endswith(" --help") and case.peer is None]
    rows = [case.row() for case in cases if case not in alike]
    if alike:
        medians = [statistics.median(case.walls_s) for case in alike]
        walls = [wall for case in alike for wall in case.walls_s]
        name = f"relkit ... --help, {len(alike)} other commands"
        spread = f"{min(walls):.2f} to {max(walls):.2f}"
        rows.insert(0, (name, f"{statistics.median(medians):.2f} s", spread, "", "", "", ""))
    return rows


def main() -> None:
    """Print the table; with --write put it into the benchmarks page."""
    kinds = ("help", "launch", "merge", "capture")
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="3 rounds, 256 files to merge")
    parser.add_argument("--rounds", type=int, default=0, help="of each (9; 3 with --quick)")
    parser.add_argument("--only", nargs="+", choices=kinds, default=kinds)
    parser.add_argument("--viewer", type=Path, help="folder of the original viewer, to compare")
    parser.add_argument("--machine", default="A", help="class of this machine (A)")
    parser.add_argument("--write", action="store_true", help="into docs/benchmarks.md")
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 9)
    compile_relkit()
    cases = tables(options)
    print(table([case.row() for case in cases], _TITLES))
    if options.write:
        words = [word for word in sys.argv[1:] if word != "--write"]
        section = page_section(
            cases, " ".join(["python benchmarks/bench.py", *words]), options.machine
        )
        before, _, rest = _PAGE.read_text().partition(_BEGIN)
        _, _, after = rest.partition(_END)
        _PAGE.write_text(f"{before}{_BEGIN}\n{section}\n{_END}{after}")


if __name__ == "__main__":
    main()
