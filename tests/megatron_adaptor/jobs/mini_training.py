"""A stand-in for Megatron-LM's `megatron.training.training`, over megatron-core from PyPI.

The functions that relkit.megatron_adaptor changes have Megatron-LM's names, arguments and order of
calls; the code is not taken from it.
"""

from __future__ import annotations

import inspect
import os
import random
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from tests.megatron_adaptor.jobs import mini_checkpointing
from tests.megatron_adaptor.jobs.mini_checkpointing import (
    get_args,
    load_checkpoint,
    save_checkpoint,
)
from tests.trainer import megatron_core

SEQUENCE, VOCABULARY = 16, 64


def install() -> None:
    """Put both modules where Megatron-LM's are."""
    import megatron

    package = ModuleType("megatron.training")
    package.training = sys.modules[__name__]  # type: ignore[attr-defined]
    package.checkpointing = mini_checkpointing  # type: ignore[attr-defined]
    sys.modules["megatron.training"] = megatron.training = package
    sys.modules["megatron.training.training"] = sys.modules[__name__]
    sys.modules["megatron.training.checkpointing"] = mini_checkpointing


def num_floating_point_operations(args: Namespace, batch_size: int) -> float:
    """As Megatron's; any number that grows."""
    return 6.0 * float(args.hidden_size) * batch_size


def initialize(args: Namespace) -> None:
    """What Megatron's initialize_megatron makes."""
    from megatron.core import parallel_state
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

    parallel_state.initialize_model_parallel(
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        expert_model_parallel_size=args.expert_model_parallel_size,
        num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
    )
    args.data_parallel_size = parallel_state.get_data_parallel_world_size()
    init_num_microbatches_calculator(
        dist.get_rank(), None, args.global_batch_size, args.micro_batch_size,
        args.data_parallel_size, False,
    )  # fmt: skip
    seed = 1234 + 100 * parallel_state.get_pipeline_model_parallel_rank()
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    forced = {"force_reset_rng": True}
    taken = inspect.signature(model_parallel_cuda_manual_seed).parameters
    model_parallel_cuda_manual_seed(seed, **{k: v for k, v in forced.items() if k in taken})


def _model(args: Namespace) -> list[Any]:
    from megatron.core import parallel_state
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.module import Float16Module

    if args.num_experts:
        from megatron.core.transformer.moe import moe_utils

        # Without Transformer Engine, the router of 0.16.1 asks for a name that it lacks.
        moe_utils.te_general_gemm = getattr(moe_utils, "te_general_gemm", None)
    config = megatron_core.configuration(args, hidden_dropout=0.1, attention_dropout=0.1)
    model: Any = GPTModel(
        config,
        get_gpt_layer_local_spec(args.num_experts, normalization=args.normalization),
        VOCABULARY,
        SEQUENCE,
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
        position_embedding_type="learned_absolute",
        share_embeddings_and_output_weights=True,
    )
    half = args.bf16 or args.fp16
    if half:
        model = Float16Module(config, model)
    settings = DistributedDataParallelConfig(
        use_distributed_optimizer=args.use_distributed_optimizer,
        num_distributed_optimizer_instances=args.num_distributed_optimizer_instances,
        grad_reduce_in_fp32=half,
        bucket_size=4000 if args.use_distributed_optimizer else None,
    )
    return [DistributedDataParallel(config, settings, model)]


def setup_model_and_optimizer(
    model_provider_func: Callable[[Namespace], list[Any]],
    model_type: Any,  # noqa: ANN401
    checkpointing_context: dict[str, Any] | None = None,
) -> tuple[list[Any], Any, Any]:
    """As Megatron's."""
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

    args = get_args()
    model = model_provider_func(args)
    config = OptimizerConfig(
        optimizer="adam", lr=1e-2, min_lr=1e-4, weight_decay=0.01, clip_grad=1.0, bf16=args.bf16,
        fp16=args.fp16, params_dtype=model[0].config.params_dtype, initial_loss_scale=2.0**36,
        use_distributed_optimizer=args.use_distributed_optimizer, hysteresis=1,
    )  # fmt: skip
    optimizer = get_megatron_optimizer(config, model)
    samples = args.global_batch_size
    scheduler = OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=1e-2, min_lr=1e-4, lr_warmup_steps=2 * samples,
        lr_decay_steps=50 * samples, lr_decay_style="cosine", start_wd=0.01, end_wd=0.01,
        wd_incr_steps=50 * samples, wd_incr_style="constant",
    )  # fmt: skip
    args.iteration, args.num_floating_point_operations_so_far = 0, 0
    if args.load is not None:
        args.iteration, args.num_floating_point_operations_so_far = load_checkpoint(
            model, optimizer, scheduler, checkpointing_context=checkpointing_context
        )
    return model, optimizer, scheduler


def _batches(args: Namespace) -> Iterator[torch.Tensor]:
    """This rank's micro-batches from where training stands; a sample follows from its number."""
    from megatron.core import parallel_state

    place, size = parallel_state.get_data_parallel_rank(), args.micro_batch_size
    first = args.consumed_train_samples
    while True:
        numbers = range(first + place * size, first + (place + 1) * size)
        drawn = [
            torch.randint(
                VOCABULARY, (SEQUENCE + 1,), generator=torch.Generator().manual_seed(number)
            )
            for number in numbers
        ]
        yield torch.stack(drawn)
        first += args.data_parallel_size * size


def forward_step(batches: Iterator[torch.Tensor], model: Any) -> tuple[torch.Tensor, Any]:  # noqa: ANN401
    """As in Megatron's pretrain_gpt.py."""
    batch = next(batches)
    hidden = torch.tril(torch.ones(1, 1, SEQUENCE, SEQUENCE)) < 0.5
    positions = torch.arange(SEQUENCE).expand(len(batch), SEQUENCE)

    def loss(per_token: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        mean = per_token.float().mean()
        return mean, {"lm loss": mean.detach().clone()}

    return model(batch[:, :-1], positions, hidden, labels=batch[:, 1:]), loss


def train_step(
    forward_step_func: Callable[..., Any],
    data_iterator: Iterator[torch.Tensor],
    model: Sequence[Any],
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    config: Any,  # noqa: ANN401
) -> float | None:
    """As Megatron's; gives the loss on the last stage."""
    from megatron.core.num_microbatches_calculator import get_num_microbatches
    from megatron.core.pipeline_parallel import get_forward_backward_func

    args = get_args()
    model[0].zero_grad_buffer()
    optimizer.zero_grad()
    seen = get_forward_backward_func()(
        forward_step_func=forward_step_func, data_iterator=data_iterator, model=list(model),
        num_microbatches=get_num_microbatches(), seq_length=SEQUENCE,
        micro_batch_size=args.micro_batch_size, forward_only=False,
    )  # fmt: skip
    successful, _, _ = optimizer.step()
    reached = torch.tensor([float(successful)])
    dist.all_reduce(reached, op=dist.ReduceOp.MIN)
    if reached.item():
        increment = get_num_microbatches() * args.micro_batch_size * args.data_parallel_size
        opt_param_scheduler.step(increment=increment)
    return sum(float(one["lm loss"]) for one in seen) / len(seen) if seen else None


def checkpoint_and_decide_exit(
    model: Sequence[Any],
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    iteration: int,
    num_floating_point_operations_so_far: float,
    checkpointing_context: dict[str, Any] | None,
    train_data_iterator: Any,  # noqa: ANN401
) -> bool:
    """As Megatron's."""
    args = get_args()
    if args.save and args.save_interval and iteration % args.save_interval == 0:
        save_checkpoint(
            iteration, model, optimizer, opt_param_scheduler, num_floating_point_operations_so_far
        )
    return False


def train(
    forward_step_func: Callable[..., Any],
    model: Sequence[Any],
    optimizer: Any,  # noqa: ANN401
    opt_param_scheduler: Any,  # noqa: ANN401
    train_data_iterator: Iterator[torch.Tensor],
    config: Any,  # noqa: ANN401
) -> int:
    """As Megatron's."""
    from megatron.core.distributed import finalize_model_grads
    from megatron.core.num_microbatches_calculator import get_num_microbatches

    args = get_args()
    model[0].train()
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    iteration: int = args.iteration
    flops: float = args.num_floating_point_operations_so_far
    while iteration < args.train_iters:
        args.curr_iteration = iteration
        loss = train_step(
            forward_step_func, train_data_iterator, model, optimizer, opt_param_scheduler, config
        )
        iteration += 1
        samples = args.data_parallel_size * args.micro_batch_size * get_num_microbatches()
        args.consumed_train_samples += samples
        flops += num_floating_point_operations(args, samples)
        if loss is not None:
            rank = dist.get_rank()
            sys.stdout.write(f"iteration {iteration} rank {rank} loss {loss.hex()}\n")
            sys.stdout.flush()
        if checkpoint_and_decide_exit(
            model, optimizer, opt_param_scheduler, iteration, flops, None, train_data_iterator
        ):
            break
        victim = f"{dist.get_rank()}:{iteration}" == os.environ.get("KILL")
        if victim and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
    return iteration


def pretrain(args: Namespace) -> list[Any]:
    """As Megatron's; gives the model."""
    vars(get_args()).update(vars(args))
    args = get_args()
    initialize(args)
    model, optimizer, scheduler = setup_model_and_optimizer(_model, None)
    train(forward_step, model, optimizer, scheduler, _batches(args), model[0].config)
    return model
