"""Finds the preload library that was built with this relkit."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

from relkit.errors import HookUnavailable

LIBRARY = "librelkit_hook.so"


def hook_library() -> Path:
    """The absolute path of librelkit_hook.so; RELKIT_HOOK_LIBRARY overrides it.

    Raises:
        HookUnavailable: it is not there (not built, or a wrong override).
    """
    override = os.environ.get("RELKIT_HOOK_LIBRARY")
    if override:
        path = Path(override)
        if not path.is_absolute() or not path.is_file():
            raise HookUnavailable(
                f"RELKIT_HOOK_LIBRARY={override} is not the absolute path of a file",
                next_step="Unset RELKIT_HOOK_LIBRARY, or give it the path of librelkit_hook.so.",
            )
        return path
    resource = resources.files("relkit") / "_lib" / LIBRARY
    with resources.as_file(resource) as path:
        if path.is_file():
            return path.resolve()
    raise HookUnavailable(f"{LIBRARY} was not built with this relkit")
