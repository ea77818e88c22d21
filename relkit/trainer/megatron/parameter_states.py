"""Where each parameter's state stands in the files, in today's layout and in relkit's first one.

Layout 2 is megatron-core's own. The first one, of files without a number, had linear_qkv before
linear_proj, and experts apart from all else even where they were not spread over ranks. Megatron's
own files have no number either; but they have no "relkit" entry at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from relkit.errors import BadInputFile
from relkit.trainer.core.flat_buffer import Layout, plan
from relkit.trainer.core.optimizer import Optimizer

LAYOUT = 2

State = Mapping[str, Any]
Named = Mapping[str, Mapping[str, Tensor]]
"""By a parameter's name in the run: "param" and its moments."""


def is_old(model: Mapping[str, Any]) -> bool:
    """Whether files are in the first layout, given the content of model_optim_rng.pt.

    Raises:
        BadInputFile: a later relkit's layout.
    """
    if "relkit" not in model:
        return False
    layout = model["relkit"].get("layout", 1)
    if layout > LAYOUT:
        raise BadInputFile(
            f"its optimizer state is in layout {layout}, and this relkit knows up to {LAYOUT}",
            next_step="Load it with the relkit that wrote it, or a later one.",
        )
    return bool(layout < LAYOUT)


def kinds(optimizer: Optimizer) -> list[bool]:
    """Dense (False) and, where experts are spread over ranks, experts (True)."""
    return sorted({expert for _, expert in optimizer.places})


def places(optimizer: Optimizer, *, old: bool) -> list[tuple[bool, Layout]]:
    """Of each buffer in the files, in order: whether it is of experts, and where all lies in it."""
    if not old:
        return [
            (expert, buffer.layout)
            for buffer, (_, expert) in zip(optimizer.buffers, optimizer.places, strict=True)
        ]
    laid_out = []
    for chunk in optimizer.chunks:
        shapes = {name: tuple(value.shape) for name, value in chunk.named_parameters()}
        for expert in (False, True):
            of_kind = [name for name in shapes if (".experts." in name) is expert]
            laid = [
                (name, shapes[name], optimizer.is_shared(optimizer.infos[name]))
                for name in _qkv_first(of_kind)
            ]
            if laid:
                laid_out.append((expert, plan(laid, 1)))
    return laid_out


def _qkv_first(names: Iterable[str]) -> list[str]:
    ordered: list[str] = []
    kept: list[str] = []
    for name in names:
        if ".linear_proj." in name:
            kept.append(name)
            continue
        if ".linear_qkv." not in name:
            ordered += kept
            kept = []
        ordered.append(name)
    return ordered + kept


def named(optimizer: Optimizer, state: State) -> Named:
    """Parts of `Optimizer.full_state` by parameter; empty where another rank's file has them."""
    return {
        name: {key: flat[start:end].view(shape) for key, flat in (content or {}).items()}
        for buffer, content in zip(optimizer.buffers, state["buffers"], strict=True)
        for name, start, end, shape in buffer.layout.unpadded_spans()
    }


def assembled(optimizer: Optimizer, named: Named) -> list[dict[str, Tensor]]:
    """`full_state`'s "buffers" of what `named` gives, or of the same found by other means."""
    contents = []
    for buffer in optimizer.buffers:
        kept = ("param", *optimizer.moments[0])
        content = {key: torch.zeros(buffer.layout.unpadded_size) for key in kept}
        for name, start, end, _ in buffer.layout.unpadded_spans():
            for key, flat in content.items():
                flat[start:end] = named[name][key].flatten()
        contents.append(content)
    return contents
