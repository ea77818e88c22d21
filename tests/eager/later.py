"""Parts of torch that are loaded at their first use, and the collector at rest while torch loads.

What runs is torch's own code, and all of it is there. `import torch` brings in 1000 modules, of
which ranks of tests use half; these are a fifth of the CPU that it takes, and looking for garbage
among what has just been made is another.
"""

from __future__ import annotations

import gc
import importlib
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_LATER = frozenset((
    "torch._higher_order_ops",
    "torch.ao",
    "torch.compiler",
    "torch.distributions",
    "torch.export",
    "torch.masked",
    "torch.nn.intrinsic",
    "torch.nn.qat",
    "torch.nn.quantizable",
    "torch.nn.quantized",
    "torch.quantization",
    "torch.quasirandom",
    "torch.testing",
    "torch.utils.data.datapipes.dataframe",
    "torch.utils.data.datapipes.iter",
    "torch.utils.data.datapipes.map",
    "torch.utils.data.graph_settings",
))  # fmt: skip
# Functions that `import torch` takes out of a module without calling them.
_FORWARDED = {"torch._higher_order_ops": ("cond", "while_loop")}
# These import each other, and only in torch's own order do they find what they need.
_BEFORE = {"torch._higher_order_ops": "torch.export", "torch.compiler": "torch.export"}
_loading = threading.RLock()


class _Later(ModuleType):
    """A module whose code runs once something of it is asked for."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        own = vars(self)["__name__"]
        if _is_later(self) and name in _FORWARDED.get(own, ()):
            return _forward(self, name)
        load(self)
        return getattr(self, name)


def _is_later(module: ModuleType) -> bool:
    return type(module) is _Later


def load(module: ModuleType) -> None:
    """Run its code, if that has not been done."""
    with _loading:
        if not _is_later(module):
            return
        first = _BEFORE.get(module.__name__)
        module.__class__ = ModuleType
        if first is not None:
            load(importlib.import_module(first))
        spec = module.__spec__
        assert spec is not None
        assert isinstance(spec.loader, _LaterLoader)
        spec.loader.run(module)


def _forward(module: ModuleType, name: str) -> Callable[..., Any]:
    def call(*args: object, **options: object) -> Any:  # noqa: ANN401
        load(module)
        return getattr(module, name)(*args, **options)

    return call


class _LaterLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = _Later

    def run(self, module: ModuleType) -> None:
        """What exec_module does elsewhere."""
        super().exec_module(module)


class _TorchLoader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        gc.disable()
        try:
            super().exec_module(module)
        finally:
            # What torch has made stays to the end: it need not be looked through again.
            gc.freeze()
            gc.enable()


class _Finder:
    """Finds the parts of torch above, and torch."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, _: ModuleType | None = None
    ) -> ModuleSpec | None:
        loader = _TorchLoader if name == "torch" else _LaterLoader
        if name != "torch" and name not in _LATER:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None and spec.origin is not None:
            spec.loader = loader(name, spec.origin)
        return spec


sys.meta_path.insert(0, _Finder)
