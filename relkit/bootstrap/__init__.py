"""What the launcher has workers run before their own code, so that no edit is needed there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / "worker"


def bootstrap_environment(base: Mapping[str, str]) -> dict[str, str]:
    """The variables to add to a worker's environment so that it reports pauses of its own.

    Its garbage collections and its waits for a torch DataLoader then are marks in the recorder of
    the hook; without the hook nothing is reported.

    Args:
        base: the environment that the worker would get otherwise.

    Returns:
        The additions; none where `base` has RELKIT_BOOTSTRAP=0, or no path list can name the
        folder.
    """
    folder = str(FOLDER)
    if base.get("RELKIT_BOOTSTRAP") == "0" or os.pathsep in folder or not FOLDER.is_dir():
        return {}
    present = base.get("PYTHONPATH", "")
    if folder in present.split(os.pathsep):
        return {}
    # An empty entry means the working directory: none may appear where the variable was empty.
    return {"PYTHONPATH": folder + os.pathsep + present if present else folder}
