"""The first weights, and how a parameter is cut into the parts that ranks hold.

Every parameter is drawn from a stream of its own, named by the seed and the parameter, as a whole,
and then cut. So the weights have the same bits under every layout.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.mesh import Mesh
from relkit.trainer.core.parameters import ParamInfo

# What closes a branch of the residual stream: drawn smaller the deeper the model is (GPT-2).
CLOSING_LAYERS = ("linear_proj.weight", "linear_fc2.weight")


def shard(full: Tensor, info: ParamInfo, tp_rank: int, tp_size: int) -> Tensor:
    """One tensor rank's part of a whole parameter, in memory of its own (or `full` if uncut).

    Args:
        full: of shape `info.full_shape`, or a state of that shape (an optimizer's moment).
        tp_rank: 0 to tp_size - 1.
        tp_size: tensor degree; it divides the cut dimension's `info.parts` blocks.
    """
    if info.dim is None or tp_size == 1:
        return full
    blocks = full.chunk(info.parts, info.dim)
    return torch.cat([block.chunk(tp_size, info.dim)[tp_rank] for block in blocks], info.dim)


def initialise(
    model: nn.Module,
    infos: Mapping[str, ParamInfo],
    config: TrainerConfig,
    mesh: Mesh,
    seed: int,
) -> None:
    """Fill a model chunk with its first weights, in place; one whole parameter at a time.

    Matrices are normal with `init_method_std`, those that close a residual branch with that over
    sqrt(2 x num_layers); norms are 1, biases 0.

    Args:
        model: cut by `parallelize`, with storage.
        infos: what `parallelize` returned.
        seed: of the whole job, the same on all ranks.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            info = infos[name]
            whole = first_values(info, config, seed)
            parameter.copy_(shard(whole, info, mesh.tensor.rank, mesh.tensor.size))


def first_values(info: ParamInfo, config: TrainerConfig, seed: int) -> Tensor:
    """A whole parameter's first values, fp32 in main memory.

    The words of the vocabulary come before the rows that pad it, so that they are the same however
    far the tensor degree makes it grow.
    """
    if info.name.endswith(".bias"):
        return torch.zeros(info.full_shape)
    if len(info.full_shape) == 1:
        return torch.ones(info.full_shape)
    std = config.model.init_method_std
    if info.name.endswith(CLOSING_LAYERS):
        std /= math.sqrt(2 * config.model.num_layers)
    key = hashlib.sha256(f"{seed} {info.name}".encode()).digest()
    # Numpy's streams, unlike torch's, do not depend on the processor's vector instructions.
    stream = np.random.Generator(np.random.Philox(key=int.from_bytes(key[:16], "little")))
    values = np.empty(info.full_shape, dtype=np.float32)
    stream.standard_normal(dtype=np.float32, out=values)
    return torch.from_numpy(values).mul_(std)
