"""Stands in for torch's compiler in ranks of tests, which compile nothing.

At their first use, torch.optim asks it to leave them alone, and DDP which mode it is in. Importing
it for these answers is 1.8 s of a rank's 5 s of CPU. Torch's modules that run are the real ones,
and what else is asked of this one is an AttributeError. The trainer's guide is followed without it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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
