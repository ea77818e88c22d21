"""megatron-core beside benchmarks/training/trainer.py: its GPT, DDP and schedule on a CPU.

Its optimizer asks for CUDA, so torch's AdamW takes the gradients of its buffer; fusions that need
its own kernels are off, and GELU is that of erf, as in the two others.
"""

from __future__ import annotations

import os
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, distributed

from benchmarks.training.trainer_peer import Batch
from tests.ports import free_port


def make_step(
    layers: int, width: int, heads: int, vocab: int, batches: Iterator[Batch]
) -> Callable[[int], float]:
    """The training step: given its number, it returns the loss of its batch."""
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.pipeline_parallel import get_forward_backward_func

    from tests.trainer import megatron_core

    warnings.simplefilter("ignore")
    if not distributed.is_initialized():
        # It has no way without a process group.
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        distributed.init_process_group("gloo", rank=0, world_size=1)
    first, _ = next(batches)
    samples, length = first.shape
    args = arguments(layers, width, heads, vocab, length)
    megatron_core.on_cpu()
    megatron_core.start(args)
    (model,) = megatron_core.distributed(args, megatron_core.models(args))
    model.config.no_sync_func = model.no_sync
    model.config.finalize_model_grads_func = finalize_model_grads
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": 0.1},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ],
        lr=1e-3,
        betas=(0.9, 0.95),
    )
    places = torch.arange(length).expand(samples, length)
    mask = torch.ones(1, 1, length, length, dtype=torch.bool).triu(1)

    def forward(data: Iterator[Batch], chunk: Any) -> Any:  # noqa: ANN401
        tokens, labels = next(data)
        return chunk(tokens, places, mask, labels=labels), mean

    run = get_forward_backward_func()

    def step(number: int) -> float:
        model.zero_grad_buffer()
        losses = run(
            forward_step_func=forward,
            data_iterator=batches,
            model=[model],
            num_microbatches=1,
            seq_length=length,
            micro_batch_size=samples,
            forward_only=False,
        )
        for parameter in parameters:
            parameter.grad = parameter.main_grad
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return float(losses[0]["loss"])

    return step


def mean(output: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of a batch."""
    loss = output.float().mean()
    return loss, {"loss": loss.detach()}


def arguments(layers: int, width: int, heads: int, vocab: int, length: int) -> Namespace:
    """As megatron-core's loop would have them of its command line."""
    return Namespace(
        num_layers=layers, hidden_size=width, ffn_hidden_size=4 * width,
        num_attention_heads=heads, num_query_groups=heads, normalization="LayerNorm",
        norm_epsilon=1e-5, swiglu=False, add_bias_linear=True, num_experts=None,
        moe_router_topk=2, tensor_model_parallel_size=1, pipeline_model_parallel_size=1,
        virtual_pipeline_model_parallel_size=None, expert_model_parallel_size=1, bf16=False,
        fp16=False, padded_vocab_size=vocab, max_position_embeddings=length,
        position_embedding_type="learned_absolute", rotary_base=10000,
        untie_embeddings_and_output_weights=False, use_distributed_optimizer=False,
    )  # fmt: skip
