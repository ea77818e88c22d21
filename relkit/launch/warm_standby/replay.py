"""The imports that a worker was seen to make, made again in a standby.

It needs nothing but the standard library, and is loaded without relkit.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Refused(BaseException):
    """This process would not be what a new one is. No library takes it for an error of its own."""


class Replay:
    """A finder that lets through what the worker found, and counts as one of relkit's own.

    Args:
        plan: as SeenImports.to_json writes it.
        notes: the module relkit_import_notes.
        breathe: called for each module that is looked for.
    """

    def __init__(
        self,
        plan: dict[str, Any],
        notes: Any,  # noqa: ANN401
        breathe: Callable[[], None],
    ) -> None:
        self._plan, self._notes, self._breathe = plan, notes, breathe
        self._environment = dict(os.environ)
        self._packages = notes.installed_folders()
        self._places: dict[str, list[str]] = plan["places"]
        self._asked: set[str] = set()
        self._origins: dict[str, str] = {}

    def run(self) -> None:
        """Make them.

        Raises:
            Refused: something is not as it was in the worker.
        """
        path: list[str] = self._plan["path"]
        has_folder = path != sys.path
        if has_folder and path[1:] != sys.path:
            raise Refused("sys.path is not the one that the worker had")
        if has_folder:
            sys.path.insert(0, path[0])
        sys.meta_path.insert(0, self)  # type: ignore[arg-type]
        thresholds = gc.get_threshold()
        # Nearly all that imports make stays. torch takes 2.8 CPU s with it, and 2.2 without. By its
        # threshold, as an import may switch it off itself.
        gc.set_threshold(0)
        try:
            self._import()
        except Exception as error:
            raise Refused(f"an import has failed with {type(error).__name__}") from error
        finally:
            if gc.get_threshold()[0] == 0:
                gc.set_threshold(*thresholds)
            sys.meta_path.remove(self)  # type: ignore[arg-type]
            if has_folder:
                with suppress(ValueError):
                    sys.path.remove(path[0])
                # Files may come until the script runs.
                sys.path_importer_cache.pop(path[0], None)

    def _import(self) -> None:
        for name in self._plan["imports"]:
            # What has been looked for and is not there has failed in the worker as well.
            if name not in sys.modules and name not in self._asked:
                __import__(name)
        if self._plan["later"] and self._plan["later"] == self._notes.state(
            self._environment, self._origins
        ):
            __import__(self._notes.LATER)

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """As the finders behind this one, where that is what the worker has found."""
        self._breathe()
        self._asked.add(name)
        place = self._places.get(name)
        if place is None:
            raise Refused(f"an import asks for {name}, for which none of the worker's did")
        if place[0] == "own":
            raise Refused(f"an installed package asks for {name}, which is the script's own")
        spec = self._notes.found_behind(self, name, path, target)
        place_now: tuple[str, str] = self._notes.place_of(spec, self._packages)
        if place[0] != "had" and place_now != tuple(place):
            raise Refused(f"{name} is not found where the worker has found it")
        if place_now[0] == "installed":
            self._origins[name] = place_now[1]
        return spec
