"""A state with a NaN in it is not worth saving: it would only be resumed from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from relkit.ttp.handlers import NotFinite


def refuse_not_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    """Check floating-point tensors.

    Args:
        tensors: by name; what: they are of, for the sentence.

    Raises:
        NotFinite: names the first tensor with a NaN or an infinity.
    """
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise NotFinite(f"{name} of {what} is not finite")
