"""The errors that relkit expects: each carries an exit code and says what to do next."""

from __future__ import annotations

import errno
import os
from pathlib import Path

EXIT_OK = 0
EXIT_PROBLEM = 1
EXIT_USAGE = 2
EXIT_UNKNOWN = 3
EXIT_CONVICTED = 5
EXIT_TIMEOUT = 124
EXIT_INTERRUPTED = 130


class RelkitError(Exception):
    """Something relkit could not do; shown as two lines, never as a traceback.

    Args:
        message: what went wrong, in one sentence.
        next_step: what the person at the terminal can do about it; replaces the class's own.
    """

    exit_code = EXIT_UNKNOWN
    next_step = ""

    def __init__(self, message: str, *, next_step: str | None = None) -> None:
        super().__init__(message)
        if next_step is not None:
            self.next_step = next_step


class SystemProblem(RelkitError):
    """The operating system refused what a command had not expected to be refused."""

    next_step = "Correct that and try again; RELKIT_DEBUG=1 shows where it happened."

    @classmethod
    def of(cls, error: OSError) -> SystemProblem:
        """The same in one sentence, with the file, and the line of the program that met it."""
        # Only here: no command that succeeds needs it.
        import traceback

        what = error.strerror or str(error) or type(error).__name__
        named = [os.fsdecode(name) for name in (error.filename, error.filename2) if _is_path(name)]
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if f"{os.sep}relkit{os.sep}" in frame.filename]
        at = f" (at {Path(ours[-1].filename).name}:{ours[-1].lineno})" if ours else ""
        step = None
        if isinstance(error, PermissionError):
            step = "Run it as the user who may do that, or name another file or folder."
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            step = "Free space there, or name another folder."
        elif error.errno in (errno.EMFILE, errno.ENFILE):
            step = "Raise the limit of open files (ulimit -n)."
        return cls(": ".join([" -> ".join(named), what] if named else [what]) + at, next_step=step)


def _is_path(name: object) -> bool:
    return isinstance(name, (str, bytes)) and bool(name)


class UsageProblem(RelkitError):
    """The command line asks for something that cannot be."""

    exit_code = EXIT_USAGE
    next_step = "See the command's --help for an example."


class ConfigProblem(UsageProblem):
    """A file of settings is no TOML, or names what is no option."""

    next_step = "Mend that line; relkit COMMAND --help lists the options."


class HookUnavailable(RelkitError):
    """The native hook is not built, or cannot be loaded on this host."""

    next_step = "Run `relkit doctor`; in a checkout, `pip install .` builds the hook."


class CaptureFailed(RelkitError):
    """No engine could read the stacks of a process."""

    next_step = "Run `relkit doctor` on that host: it tests ptrace rights and every stack engine."


class BadDump(RelkitError):
    """A .stacktrace file is truncated, hostile, or not one at all."""

    next_step = "Leave the file out, or capture that rank again with `relkit stacks dump`."


class NoSuchProcess(RelkitError):
    """The process to look at does not exist (any more)."""

    next_step = "Check the pid; `relkit stacks dump --job ID` finds the ranks of a job by itself."


class UnwritablePath(RelkitError):
    """A folder or file that relkit must write cannot be written."""

    next_step = "Name another folder with --timeline-path (or -o)."


class OccupiedDump(RelkitError):
    """A dump of another process has the name that a new one would get."""

    next_step = (
        "Name another folder with -o. `relkit stacks dump` without --pid finds each job's ranks, "
        "and leaves out their helpers."
    )


class DeadlineExceeded(RelkitError):
    """relkit's own time limit ran out."""

    exit_code = EXIT_TIMEOUT
    next_step = "Give it longer with --timeout."


class MissingExtra(RelkitError):
    """An optional package that this command needs is not installed."""

    next_step = "Install your site's torch build, or: pip install torch"


class BadBundle(RelkitError):
    """A saved check is truncated, hostile, or not one at all."""

    next_step = "Name a folder that `relkit netcheck -o FOLDER` wrote."


class BadInputFile(RelkitError):
    """A file that the user named cannot be read, or is not what it should be."""

    next_step = "Correct the file, or name another one."


class NoLinkHardware(RelkitError):
    """This host has no links that relkit can measure, or no tool to measure them with.

    Args:
        message: what is missing, in a few words.
        looked_for: every file and program that was looked for and not found.
    """

    next_step = "Run it on a host with such hardware, or name the tool with --tool."

    def __init__(self, message: str, *, looked_for: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.looked_for = looked_for


class ToolMissing(RelkitError):
    """A program that this command needs is not installed on this host."""

    next_step = "Install it, or choose another way."
