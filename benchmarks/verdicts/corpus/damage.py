"""What becomes of dumps on their way."""

from __future__ import annotations

from pathlib import Path


def damage(path: Path, how: str) -> None:
    """Damage a file.

    Args:
        path: of it; how: `missing`, `truncated` or `empty`.
    """
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_bytes(b"")
