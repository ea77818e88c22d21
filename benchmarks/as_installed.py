"""relkit's own files as pip leaves them: compiled.

A checkout's are not where PYTHONDONTWRITEBYTECODE is set, as in many containers: each command would
compile hundreds of modules anew, and its peers, which pip has installed, would not.
"""

from __future__ import annotations

import compileall
from importlib.util import find_spec
from pathlib import Path


def compile_relkit() -> None:
    """Compile what has changed since it was compiled last."""
    for package in ("relkit", "relkit.commands"):
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        compileall.compile_dir(Path(spec.origin).parent, quiet=1)
