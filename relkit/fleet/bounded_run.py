"""A short helper command with a deadline, for what a channel must know before it starts."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from relkit.errors import RelkitError, ToolMissing
from relkit.fleet.exit_reason import how_it_ended


class HelperFailed(RelkitError):
    """A scheduler's own command failed."""

    next_step = "Run that command by hand to see why; relkit needs its output."


def output_of(argv: Sequence[str], timeout_s: float) -> str:
    """The stdout of a command.

    Raises:
        ToolMissing: it is not installed here.
        HelperFailed: it took too long, or ended with an error.
    """
    try:
        done = subprocess.run(
            list(argv), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s
        )
    except OSError as error:
        raise ToolMissing(f"cannot run {argv[0]}: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise HelperFailed(f"`{' '.join(argv)}` did not answer within {timeout_s:g} s") from error
    if done.returncode:
        complaint = done.stderr.decode("utf-8", "replace")
        raise HelperFailed(f"`{' '.join(argv)}` {how_it_ended(done.returncode, complaint)}")
    return done.stdout.decode("utf-8", "replace")
