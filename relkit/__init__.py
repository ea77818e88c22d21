"""relkit: which node, link or rank of a distributed training job is broken, and how we know.

    import relkit

    for number, batch in enumerate(loader):
        relkit.step(number)

A training script needs nothing of this. Where it calls relkit.step(), steps are exact instead of
inferred; relkit.input_wait() goes around the wait for a batch that no torch DataLoader serves.
relkit.protect(model=..., optimizer=...).restore() keeps the loop in memory at every step.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

# Looked up on first use, so that `relkit --help` loads neither ctypes nor anything else for them.
_MARKS = {"step": "mark_step", "input_wait": "input_wait"}
_PROTECT = "protect"


def __getattr__(name: str) -> Any:  # noqa: ANN401  whatever is looked up
    if name == _PROTECT:
        from relkit.flash_checkpoint.protection.loop import protect

        return protect
    if name not in _MARKS:
        raise AttributeError(f"module 'relkit' has no attribute {name!r}")
    from relkit.hook import marks

    return getattr(marks, _MARKS[name])
