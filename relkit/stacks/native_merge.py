"""The native reader of dump files (librelkit_merge.so), through ctypes."""

from __future__ import annotations

from relkit.stacks.folder import Scanner


def native_scanner() -> Scanner | None:
    """The scanner, or None where the library is not built."""
    return None
