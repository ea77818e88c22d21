"""The errors that relkit expects: each carries an exit code and says what to do next."""

from __future__ import annotations

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


class DeadlineExceeded(RelkitError):
    """relkit's own time limit ran out."""

    exit_code = EXIT_TIMEOUT
    next_step = "Give it longer with --timeout."


class MissingExtra(RelkitError):
    """An optional package that this command needs is not installed."""

    next_step = "Install it: pip install 'relkit[torch]' (or your site's own torch build)."


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
