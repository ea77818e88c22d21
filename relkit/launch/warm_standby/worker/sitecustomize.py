"""Runs in a standby before its own code: imports what that will import, and waits for its rank.

A standby is started with the very command of a worker. What stands here holds it before its script
is read; once it has its rank, Python goes on and runs the script as in any other process.

It needs nothing but the standard library, imports no relkit (the worker may have another one), and
gives way to all other files of this name first, as those run before the script as well.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_VARIABLE = "RELKIT_STANDBY"
_HELD = "held"
_FILES = ("interrupts", "captured_output", "fresh_start", "replay", "standby_process")
_NOTES = "relkit_import_notes"


def _give_way() -> None:
    here = __file__.rpartition(os.sep)[0]
    sys.path[:] = [entry for entry in sys.path if entry != here]
    mine = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError as error:
        if error.name != "sitecustomize" or mine is None:
            raise
        sys.modules["sitecustomize"] = mine


def _file(name: str) -> str:
    room = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120
    if name == _NOTES:
        relkit = os.path.dirname(os.path.dirname(room))  # noqa: PTH120
        room = os.path.join(relkit, "bootstrap", "worker")  # noqa: PTH118
    return os.path.join(room, name + ".py")  # noqa: PTH118


def _loaded() -> dict[str, Any]:
    from importlib.util import module_from_spec, spec_from_file_location

    loaded = {}
    for name in (*_FILES, _NOTES):
        spec = spec_from_file_location(f"relkit_standby_{name}", _file(name))
        if spec is None or spec.loader is None:
            os._exit(1)
        loaded[name] = sys.modules[spec.name] = module_from_spec(spec)
        spec.loader.exec_module(loaded[name])
    return loaded


def _hold(descriptor: int) -> None:
    try:
        modules = _loaded()
    except BaseException:  # noqa: BLE001  Python would print it, and go on to the script
        os._exit(1)
    with modules["interrupts"].dropped_interrupts_end():
        try:
            _give_way()
        except KeyboardInterrupt:
            modules["interrupts"].end_by_interrupt()
        finally:
            # Whatever another file of this name raises: Python prints it, and goes on.
            modules["standby_process"].become_a_worker(descriptor, modules)
            for name in modules:
                del sys.modules[f"relkit_standby_{name}"]


def _begin() -> None:
    descriptor, _, launcher = os.environ.get(_VARIABLE, "").partition(":")
    if not descriptor.isdecimal():
        # What a standby starts inherits the variable, and is none.
        _give_way()
        return
    if launcher != str(os.getppid()):
        # Its launcher has ended, and nobody would end it.
        os._exit(1)
    os.environ[_VARIABLE] = _HELD
    _hold(int(descriptor))


_begin()
