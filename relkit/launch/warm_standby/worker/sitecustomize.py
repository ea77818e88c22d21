"""Runs in a standby before its own code: imports what that will import, and waits for its rank.

A standby is started with the very command of a worker. What stands here holds it before its script
is read; once it has its rank, Python goes on and runs the script as in any other process.

It needs nothing but the standard library, imports no relkit (the worker may have another one), and
gives way to all other files of this name first, as those run before the script as well.
"""

from __future__ import annotations

import os
import sys

_VARIABLE = "RELKIT_STANDBY"
_HELD = "held"


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
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), name + ".py")  # noqa: PTH118, PTH120


def _wait(descriptor: int) -> None:
    loaded = {}
    try:
        from importlib.util import module_from_spec, spec_from_file_location

        for name in ("script_imports", "standby_process"):
            spec = spec_from_file_location(f"relkit_standby_{name}", _file(name))
            if spec is None or spec.loader is None:
                os._exit(1)
            loaded[name] = sys.modules[spec.name] = module_from_spec(spec)
            spec.loader.exec_module(loaded[name])
    except BaseException:  # noqa: BLE001  Python would print it, and go on to the script
        os._exit(1)
    try:
        loaded["standby_process"].become_a_worker(descriptor, loaded["script_imports"])
    finally:
        for name in loaded:
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
    try:
        _give_way()
    finally:
        # Whatever another file of this name raises: Python prints it, and goes on to the script.
        _wait(int(descriptor))


_begin()
