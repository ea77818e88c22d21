"""How much arithmetic a step is, and how much this machine can do: the two parts of MFU."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from relkit.trainer.config.config import ModelConfig, TrainerConfig
from relkit.trainer.core.collectives import all_reduce
from relkit.trainer.core.mesh import Mesh
from relkit.trainer.kernels.gemm import linear

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
MEASURE_S = 0.05


def flops_per_token(config: ModelConfig) -> float:
    """Floating-point operations of a forward and a backward pass for one token.

    Counted as Megatron does: matrix products only, twice as many backward as forward, causal
    attention at half, the head over the padded vocabulary, of experts only those that a token
    visits.
    """
    hidden, heads = config.hidden_size, config.num_attention_heads
    projections = hidden * config.head_size * (2 * heads + 2 * config.query_groups)
    matrices = 3 if config.activation == "swiglu" else 2
    visited = 1 if config.num_moe_experts is None else config.moe_router_topk
    mlp = matrices * hidden * config.ffn_size * visited
    attention = heads * config.head_size * config.seq_length  # two products, of which half counts
    head = hidden * config.padded_vocab_size(1)
    return 3 * 2 * (config.num_layers * (projections + mlp + attention) + head)


def peak_flops(config: TrainerConfig, mesh: Mesh) -> float:
    """Operations a second of all ranks together in large matrix products, measured at once.

    Every rank must call it; it takes about a tenth of a second.
    """
    dtype = DTYPES[config.model.compute_dtype]
    size = 8192 if mesh.device.type == "cuda" else 512
    left = torch.ones(size, size, dtype=dtype, device=mesh.device)
    _product(left)
    all_reduce(torch.zeros(1, device=mesh.device), mesh.world)  # all measure at the same time
    times_s: list[float] = []
    while sum(times_s) < MEASURE_S:
        started_s = time.perf_counter()
        _product(left)
        times_s.append(time.perf_counter() - started_s)
    # The quickest of them: another process may have had the core meanwhile.
    peak = torch.tensor(2 * size**3 / min(times_s), dtype=torch.float64, device=mesh.device)
    return float(all_reduce(peak, mesh.world))


def _product(left: Tensor) -> None:
    # As the model's layers do it: a library's plain product may take another, slower way.
    linear(left, left)
    if left.is_cuda:
        torch.cuda.synchronize()
