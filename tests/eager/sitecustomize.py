"""What Python runs first in processes of tests: torch starts sooner, once one of them imports it.

Ranks that compile nothing get stand-ins for the compiler (`no_compiler.py`), and the parts of torch
that they do not use are loaded at their first use (`later.py`). The trainer's guide is followed
without all this. Here nothing is imported, as many of these processes have no need of torch.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


class _AtTorch:
    """Asked for every module that is not yet loaded; steps aside for good when it is torch."""

    @staticmethod
    def find_spec(
        name: str, _: Sequence[str] | None, __: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torch":
            from importlib.util import find_spec

            sys.meta_path.remove(_AtTorch)
            _run("no_compiler")
            _run("later")
            # The list has changed below whoever goes through it.
            return find_spec(name)
        return None


def _run(name: str) -> None:
    """One of this folder's files, which may not be the first of that name on the path."""
    from importlib.util import module_from_spec, spec_from_file_location

    file = f"{__file__.rpartition('/')[0]}/{name}.py"
    spec = spec_from_file_location(f"tests_eager_{name}", file)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(module_from_spec(spec))


sys.meta_path.insert(0, _AtTorch)
