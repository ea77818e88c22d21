"""The imports of a script, made before it runs: installed packages only, nothing from beside it.

It needs nothing but the standard library, and is loaded without relkit.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import site
import sys
import sysconfig
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


class Refused(BaseException):
    """This process would not be what a new one is. No library takes it for an error of its own."""


class Locator:
    """Where a module comes from, without importing any.

    Args:
        folder: that stands first on the path when the script runs.
    """

    def __init__(self, folder: str, script_imports: Any) -> None:  # noqa: ANN401
        self._folder, self._script_imports = folder, script_imports
        names = ("stdlib", "platstdlib", "purelib", "platlib")
        folders = {sysconfig.get_path(name) for name in names}
        with suppress(AttributeError):
            folders.update(site.getsitepackages())
        if site.ENABLE_USER_SITE:
            folders.add(site.getusersitepackages())
        real = {os.path.realpath(each) for each in folders if each}
        self._installed = tuple(f"{each}{os.sep}" for each in real)

    def __call__(self, module: str) -> Any:  # noqa: ANN401
        """As `Locate` of script_imports."""
        where, located = self._script_imports.Where, self._script_imports.Located
        top = module.partition(".")[0]
        if top in sys.builtin_module_names or top in sys.stdlib_module_names:
            return located(where.INSTALLED)
        spec = own_spec(top, self._folder) or self._spec(top)
        if spec is None:
            return located(where.ABSENT)
        if own_spec(top, self._folder) is None and (self._is_installed(spec) or top == "relkit"):
            return located(where.INSTALLED)
        spec = self._inner(spec, module)
        if spec is None:
            return located(where.ABSENT)
        return located(where.OWN, spec.origin if spec.has_location and spec.origin else "")

    def main_module(self, module: str) -> tuple[str, str]:
        """The file that `python -m module` runs, and the package that it is in."""
        top = module.partition(".")[0]
        spec = own_spec(top, self._folder) or self._spec(top)
        spec = spec and self._inner(spec, module)
        if spec and spec.submodule_search_locations is not None:
            module += ".__main__"
            spec = self._inner(spec, f"{spec.name}.__main__", above=spec.name)
        if not spec or not spec.origin:
            raise Refused(f"the source of {module} is not found")
        return spec.origin, module.rpartition(".")[0]

    def _spec(self, top: str) -> Any:  # noqa: ANN401
        try:
            return importlib.util.find_spec(top)
        except (ImportError, ValueError, AttributeError):
            return None

    def _inner(self, spec: Any, module: str, above: str = "") -> Any:  # noqa: ANN401
        """The spec of a module below that of a package, found without importing either."""
        name = above or module.partition(".")[0]
        for part in module[len(name) + 1 :].split(".") if module != name else []:
            name += f".{part}"
            places = spec.submodule_search_locations
            if places is None:
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, list(places))
            if spec is None:
                return None
        return spec

    def _is_installed(self, spec: Any) -> bool:  # noqa: ANN401
        places = list(spec.submodule_search_locations or ()) or [spec.origin or ""]
        return all(os.path.realpath(each).startswith(self._installed) for each in places)


def own_spec(top: str, folder: str) -> Any:  # noqa: ANN401
    """The spec of a module that stands beside the script; None where there is none.

    A folder without `__init__.py` is none: what is installed goes before it.
    """
    spec = importlib.machinery.PathFinder.find_spec(top, [folder])
    return spec if spec is not None and spec.origin is not None else None


def read_source(path: str) -> bytes:
    """The bytes of a source."""
    with open(path, "rb") as stream:  # noqa: PTH123
        return stream.read(8 << 20)


class own_modules_refused:
    """The folder of the script stands first on the path, as it will, and nothing comes from it.

    Args:
        folder: of the script.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        sys.path.insert(0, self._folder)
        sys.meta_path.insert(0, self)

    def __exit__(self, *_error: object) -> None:
        sys.meta_path.remove(self)
        with suppress(ValueError):
            sys.path.remove(self._folder)
        sys.path_importer_cache.pop(self._folder, None)

    def find_spec(self, name: str, path: object = None, _target: object = None) -> None:
        """Asked for every module before it is imported."""
        is_stdlib = name in sys.builtin_module_names or name in sys.stdlib_module_names
        if path is None and not is_stdlib and own_spec(name, self._folder) is not None:
            raise Refused(f"an installed package looks for {name}, which stands beside the script")


def make_imports(steps: Sequence[Any], variable: type) -> None:
    """Make the imports of a plan, and leave the environment as they leave it.

    Args:
        steps: of the plan; variable: the class of those that set one.
    """
    before: dict[str, str | None] = {}
    try:
        for step in steps:
            if isinstance(step, variable):
                name: str = step.name  # type: ignore[attr-defined]
                before.setdefault(name, os.environ.get(name))
                if not (step.is_default and name in os.environ):  # type: ignore[attr-defined]
                    os.environ[name] = step.value  # type: ignore[attr-defined]
            else:
                __import__(step.module, {}, {}, list(step.names))
    except ImportError:
        # The script may be ready for that, or fail of it as it would without a standby.
        return
    except Exception as error:
        raise Refused(f"an import has failed with {type(error).__name__}") from error
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
