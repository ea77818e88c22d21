"""Stands in for torch's compiler in ranks of tests, which compile nothing.

At their first use, torch.optim asks it to leave them alone, and DDP which mode it is in. Importing
it for these answers is 1.8 s of a rank's 5 s of CPU. Torch's modules that run are the real ones,
and what else is asked of this one is an AttributeError.

What `import torch` registers in Python for the compiler's tracing of shapes is left out as well,
which is 0.5 of its 1.9 s (`no_shapes.py`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

_Function = Callable[..., Any]


def _disable(function: _Function | None = None, *_: object, **_options: object) -> _Function:
    return function if function is not None else lambda given: given


def _module(name: str, **contents: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module
    return module


_module(
    "torch._dynamo",
    disable=_disable,
    graph_break=lambda: None,
    config=_module("torch._dynamo.config", error_on_nested_fx_trace=True),
    utils=_module("torch._dynamo.utils", get_optimize_ddp_mode=lambda: "ddp_optimizer"),
    trace_rules=_module("torch._dynamo.trace_rules", clear_lru_cache=lambda: None),
)


class _NoShapes:
    """Finds this folder's file in the place of torch's."""

    @staticmethod
    def find_spec(
        name: str, _: Sequence[str] | None, __: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torch._meta_registrations":
            return None
        return spec_from_file_location(name, Path(__file__).with_name("no_shapes.py"))


sys.meta_path.insert(0, _NoShapes)
