"""Whether two runs of the trainer said and saved the same, to the last bit."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from relkit.checkpoint import iteration_folder
from relkit.checkpoint.torch_file import Unmade
from relkit.trainer.telemetry.events import read_events


def same(one: Any, other: Any, path: str) -> str:  # noqa: ANN401
    """Where two contents differ; "" where they do not."""
    if isinstance(one, torch.Tensor):
        return "" if torch.equal(one, other) else path
    if isinstance(one, np.ndarray):
        return "" if np.array_equal(one, other) else path
    if isinstance(one, Unmade):
        return "" if repr(one) == repr(other) else path
    if isinstance(one, Namespace):
        one, other = vars(one), vars(other)
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return f"{path}: {sorted(one.keys() ^ other.keys())}"
        pairs = [(one[key], other[key], str(key)) for key in one]
    elif isinstance(one, list | tuple):
        if len(one) != len(other):
            return path
        pairs = [(a, b, str(n)) for n, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        return "" if one == other else f"{path}: {one} {other}"
    found = (same(a, b, f"{path}/{name}") for a, b, name in pairs)
    return next((where for where in found if where), "")


def differs(one: Path, other: Path) -> str:
    """Where two iterations differ, their manifests aside; "" where they do not."""
    names = [
        sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
        for root in (one, other)
    ]
    if names[0] != names[1]:
        return f"files {names}"
    for name in names[0]:
        if name.endswith(".pt"):
            loaded = [torch.load(root / name, weights_only=False) for root in (one, other)]
            if where := same(loaded[0], loaded[1], name):
                return where
    return ""


def numbers(folder: Path) -> dict[str, set[str]]:
    """Every number that a run said of a step or an evaluation, in hexadecimal."""
    found: dict[str, set[str]] = {}
    for event in read_events(folder / "out" / "events" / "rank_0.jsonl"):
        if event["event"] == "step":
            value = f"{event['loss'].hex()} {event['grad_norm'].hex()}"
            found.setdefault(f"step {event['step']}", set()).add(value)
        elif event["event"] == "evaluate":
            name = f"{event['split']} {event['step']}"
            found.setdefault(name, set()).add(event["loss"].hex())
    return found


def latest_differs(save: Path, reference: Path) -> str:
    """Whether the checkpoint that a run would resume from is the one of an undisturbed run.

    Args:
        save: the run's checkpoints; reference: those of an undisturbed one.

    Returns:
        What differs; "" where nothing does, or nothing has been saved.
    """
    step = iteration_folder.latest(save)
    if step is None:
        return ""
    iteration = iteration_folder.iteration_name(step)
    where = differs(save / iteration, reference / iteration)
    return f"step {step} differs from an undisturbed save: {where}" if where else ""
