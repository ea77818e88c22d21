"""Ranks of tests that start sooner: nothing of them is compiled, so no compiler is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

_FOLDER = str(Path(__file__).parent)


def eager(base: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python runs this folder's sitecustomize.

    Args:
        base: the environment without it.
    """
    present = base.get("PYTHONPATH", "")
    return {**base, "PYTHONPATH": f"{_FOLDER}{os.pathsep}{present}" if present else _FOLDER}
