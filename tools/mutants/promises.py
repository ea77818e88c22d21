"""Promises that are broken by name."""

from __future__ import annotations
from pathlib import Path
from tools.mutants.model import Break


def promises(root: Path) -> list[Break]:
    return []
