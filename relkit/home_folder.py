"""The user's home folder, for users who have one."""

from __future__ import annotations

from pathlib import Path


def home_folder() -> Path | None:
    """Where ~ is; None for a user without HOME and without an entry in the password file."""
    try:
        return Path.home()
    except RuntimeError:
        return None
