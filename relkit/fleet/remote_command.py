"""The command that starts an agent elsewhere: fixed text, whatever shell it meets there."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

NOT_THERE = 127
"""Exit code of a shell, and of our script, when relkit is missing on the node."""

# $1 is the relkit that runs here ("" if the user named another), the rest is the command itself.
_SCRIPT = (
    'mine=$1; shift; if [ -n "$mine" ] && [ -x "$mine" ]; then shift; exec "$mine" "$@"; fi; '
    'command -v "$1" >/dev/null 2>&1 || { echo "relkit-is-missing $1" >&2; exit 127; }; exec "$@"'
)


def running_relkit() -> str:
    """The path of the relkit command that belongs to this interpreter; "" where there is none."""
    for path in (Path(sys.argv[0]), Path(sys.executable).with_name("relkit")):
        if path.name == "relkit" and path.is_file():
            return str(path.absolute())
    return ""


def local_words(relkit: str) -> list[str]:
    """relkit as a command on this machine: as the user named it, else the one that runs."""
    return shlex.split(relkit) or [sys.executable, "-m", "relkit"]


def remote_words(relkit: str, arguments: list[str]) -> list[str]:
    """relkit elsewhere, as an argument list: the running one's path if there, else by name.

    Args:
        relkit: the command as the user named it; "" for the default.
        arguments: what follows it.
    """
    mine = "" if relkit else running_relkit()
    words = shlex.split(relkit) or ["relkit"]
    return ["sh", "-c", _SCRIPT, "relkit-agent", mine, *words, *arguments]


def missing(complaint: str, code: int) -> bool:
    """Whether this is how a missing relkit shows."""
    return "relkit-is-missing" in complaint or code == NOT_THERE


MISSING = "relkit is not installed there: install it, or name it with --relkit PATH"
