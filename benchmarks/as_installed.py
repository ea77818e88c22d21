"""relkit's own files as pip leaves them: compiled.

Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each command that is started from a
checkout compiles hundreds of modules anew. The peers beside it, which pip has installed, do not.
"""

from __future__ import annotations

import compileall
from importlib.util import find_spec
from pathlib import Path


def compile_relkit() -> None:
    """Compile all modules that are new or have changed since they were compiled."""
    for package in ("relkit", "relkit.commands"):
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        compileall.compile_dir(Path(spec.origin).parent, quiet=1)
