"""The list of breaks: one module for each area, each with a tuple `BREAKS`."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from tools.mutants.model import Break


def all_breaks() -> Mapping[str, tuple[Break, ...]]:
    """By area, in the order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: importlib.import_module(f"{__name__}.{name}").BREAKS for name in names}
