"""A run of megatron-core's model, optimizer and scheduler, with files as Megatron's training has.

What Megatron-LM's checkpointing does around megatron-core (which is not on PyPI) is retold here:
`generate_state_dict`, `get_checkpoint_name`, `load_model_state_dict`, the random streams.
"""

from __future__ import annotations

import contextlib
import random
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relkit.trainer.data.samples import MicroBatch
from tests.trainer import megatron_core

TRACKER = "latest_checkpointed_iteration.txt"
State = dict[str, dict[str, Tensor]]


class MegatronRun:
    """This process's part of it.

    Args:
        args: what relkit saves of its configuration, by Megatron's names.
    """

    def __init__(self, args: Namespace) -> None:
        from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
        from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
        from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed

        self.args, self.step = args, 0
        megatron_core.start(args)
        model_parallel_cuda_manual_seed(args.seed, force_reset_rng=True)
        self.models = megatron_core.models(args)
        self.wrapped = megatron_core.distributed(args, self.models)
        config = OptimizerConfig(
            optimizer="adam",
            lr=args.lr,
            min_lr=args.min_lr,
            weight_decay=args.weight_decay,
            adam_beta1=args.adam_beta1,
            adam_beta2=args.adam_beta2,
            adam_eps=args.adam_eps,
            clip_grad=args.clip_grad,
            bf16=args.bf16,
            fp16=args.fp16,
            params_dtype=self.models[0].config.params_dtype,
            use_distributed_optimizer=args.use_distributed_optimizer,
            initial_loss_scale=2.0**12,
            loss_scale_window=1000.0,
        )
        self.optimizer = get_megatron_optimizer(config, self.wrapped)
        samples = args.global_batch_size
        self.scheduler = OptimizerParamScheduler(
            self.optimizer,
            init_lr=0.0,
            max_lr=args.lr,
            min_lr=args.min_lr,
            lr_warmup_steps=args.warmup_samples,
            lr_decay_steps=args.train_iters * samples,
            lr_decay_style=args.lr_decay_style,
            start_wd=args.weight_decay,
            end_wd=args.weight_decay,
            wd_incr_steps=args.train_iters * samples,
            wd_incr_style="constant",
        )

    @property
    def chained(self) -> list[Any]:
        """megatron-core's optimizers: dense, and of experts where they are spread over ranks."""
        chained: list[Any] = self.optimizer.chained_optimizers
        return chained

    def step_with(self, seed: int) -> None:
        """One update with made-up gradients, the same on every data-parallel rank."""
        for model in self.models:
            for name, parameter in model.named_parameters():
                generator = torch.Generator().manual_seed(hash_of(name, seed))
                drawn = torch.randn(parameter.shape, generator=generator)
                parameter.main_grad.copy_(drawn * self.chained[0].get_loss_scale())
        self.optimizer.step()
        self.scheduler.step(self.args.global_batch_size)
        self.step += 1

    def losses(self, batches: Sequence[MicroBatch]) -> float:
        """One step on this rank's micro-batches; the sum of their losses, 0 but on a last stage."""
        from megatron.core.distributed import finalize_model_grads
        from megatron.core.pipeline_parallel import get_forward_backward_func

        for model, wrapped in zip(self.models, self.wrapped, strict=True):
            model.config.grad_scale_func = self.optimizer.scale_loss
            model.config.finalize_model_grads_func = finalize_model_grads
            wrapped.zero_grad_buffer()
        self.optimizer.zero_grad()
        seen = get_forward_backward_func()(
            forward_step_func=_forward_step,
            data_iterator=[iter(batches) for _ in self.wrapped],
            model=self.wrapped,
            num_microbatches=len(batches),
            seq_length=batches[0].tokens.shape[1],
            micro_batch_size=batches[0].tokens.shape[0],
            forward_only=False,
        )
        self.optimizer.step()
        self.scheduler.step(self.args.global_batch_size)
        self.step += 1
        return sum(float(loss) for loss in seen)

    def save(self, folder: Path) -> None:
        """As Megatron's save_checkpoint with --ckpt-format torch."""
        from megatron.core import parallel_state
        from megatron.core.rerun_state_machine import RerunMode
        from megatron.core.transformer.enums import AttnBackend

        place = self._place(folder, self.step)
        if self.args.use_distributed_optimizer:
            if parallel_state.get_expert_data_parallel_rank() == 0:
                place.mkdir(parents=True, exist_ok=True)
            torch.distributed.barrier()
            self.optimizer.save_parameter_state(str(place / "distrib_optim.pt"))
        if parallel_state.get_expert_data_parallel_rank() == 0:
            place.mkdir(parents=True, exist_ok=True)
            state: dict[str, Any] = {
                "args": Namespace(
                    **{**vars(self.args), "attention_backend": AttnBackend.auto},
                    iteration=self.step,
                    consumed_train_samples=self.step * self.args.global_batch_size,
                    consumed_valid_samples=0,
                ),
                "checkpoint_version": 3.0,
                "iteration": self.step,
                "num_floating_point_operations_so_far": 0,
                "optimizer": self.optimizer.state_dict(),
                "opt_param_scheduler": self.scheduler.state_dict(),
                "rng_state": [streams()],
                "rerun_state_machine": {"mode": RerunMode.DISABLED},
            }
            for key, model in zip(self._keys(), self.models, strict=True):
                state[key] = model.state_dict_for_save_checkpoint()
            torch.save(state, place / "model_optim_rng.pt")
        (folder / TRACKER).write_text(str(self.step))
        torch.distributed.barrier()

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """As Megatron's load_checkpoint, with the same checks."""
        step = int((folder / TRACKER).read_text())
        place = self._place(folder, step)
        state = torch.load(place / "model_optim_rng.pt", weights_only=False)
        for key, model in zip(self._keys(), self.models, strict=True):
            found = model.load_state_dict(state[key], strict=False)
            assert not found.unexpected_keys
            assert all(name.endswith("_extra_state") for name in found.missing_keys)
        self.optimizer.load_state_dict(state["optimizer"])
        if self.args.use_distributed_optimizer:
            with with_steps():
                self.optimizer.load_parameter_state(str(place / "distrib_optim.pt"))
            for optimizer in self.chained:
                for held in optimizer.optimizer.state.values():
                    held["step"] = held["step"].clone()  # or each parameter counts it on for all
        self.scheduler.load_state_dict(state["opt_param_scheduler"])
        restore(state["rng_state"][0])
        self.step = state["iteration"]

    def states(self) -> State:
        """By a parameter's name here: its fp32 weight and moments, of it what this rank has."""
        named = [dict(model.named_parameters()) for model in self.models]
        found: State = {}
        for number, of_chunk in enumerate(named):
            for name, parameter in of_chunk.items():
                for optimizer in self.chained:
                    held = self._held(optimizer, parameter)
                    if held is not None:
                        found[f"{number}/{name}"] = held
        return found

    def _held(self, optimizer: Any, parameter: Any) -> dict[str, Tensor] | None:  # noqa: ANN401
        if self.args.use_distributed_optimizer:
            if parameter not in optimizer.model_param_gbuf_map:
                return None
            if parameter not in optimizer.model_param_group_index_map:
                return None
            tensors = optimizer._get_main_param_and_optimizer_states(parameter)
            part = optimizer._get_model_param_range_map(parameter)["param"]
            return {**tensors, "part": torch.tensor([part.start, part.end])}
        main = getattr(parameter, "main_param", parameter)
        if main not in optimizer.optimizer.state:
            return None
        return {"param": main.detach(), **optimizer.optimizer.state[main]}

    def _keys(self) -> list[str]:
        count = len(self.models)
        return ["model"] if count == 1 else [f"model{number}" for number in range(count)]

    def _place(self, folder: Path, step: int) -> Path:
        from megatron.core import parallel_state as here

        name = f"mp_rank_{here.get_tensor_model_parallel_rank():02d}"
        if here.get_pipeline_model_parallel_world_size() > 1:
            name += f"_{here.get_pipeline_model_parallel_rank():03d}"
        if here.get_expert_model_parallel_world_size() > 1:
            name += f"_{here.get_expert_model_parallel_rank():03d}"
        return folder / f"iter_{step:07d}" / name


def _forward_step(batches: Iterator[MicroBatch], model: Any) -> tuple[Tensor, Any]:  # noqa: ANN401
    """What Megatron's pretrain_gpt.py has under this name."""
    batch = next(batches)
    length = batch.tokens.shape[1]
    hidden = torch.tril(torch.ones(1, 1, length, length)) < 0.5
    positions = torch.arange(length).expand_as(batch.tokens)

    def loss(per_token: Tensor) -> tuple[Tensor, Tensor]:
        mean = (per_token.float() * batch.loss_mask).sum() / batch.loss_mask.sum()
        return mean, mean.detach().clone()

    return model(batch.tokens, positions, hidden, labels=batch.labels), loss


@contextlib.contextmanager
def with_steps() -> Iterator[None]:
    """Let torch's Adam keep its steps while the flat state is loaded.

    Those of Transformer Engine and Apex keep none by parameter. With torch's, megatron-core 0.16.1
    asks the file for them, and so cannot read what it has written itself.
    """
    from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

    inner = DistributedOptimizer._set_main_param_and_optimizer_states

    def outer(self: Any, parameter: Any, tensors: dict[str, Tensor]) -> None:  # noqa: ANN401
        held = self._get_main_param_and_optimizer_states(parameter)
        inner(self, parameter, {**tensors, "step": held["step"]})

    DistributedOptimizer._set_main_param_and_optimizer_states = outer
    try:
        yield
    finally:
        DistributedOptimizer._set_main_param_and_optimizer_states = inner


def hash_of(name: str, seed: int) -> int:
    """A number for a name, the same in every process."""
    return sum((n + 1) * ord(c) for n, c in enumerate(name)) * 1000 + seed


def streams() -> dict[str, Any]:
    """Megatron's get_rng_state."""
    import megatron.core.tensor_parallel as tensor_parallel

    return {
        "random_rng_state": random.getstate(),
        "np_rng_state": np.random.get_state(),
        "torch_rng_state": torch.get_rng_state(),
        "cuda_rng_state": torch.cuda.get_rng_state(),
        "rng_tracker_states": tensor_parallel.get_cuda_rng_tracker().get_states(),
    }


def restore(state: Mapping[str, Any]) -> None:
    """What Megatron's load_checkpoint does with it."""
    import megatron.core.tensor_parallel as tensor_parallel

    random.setstate(state["random_rng_state"])
    np.random.set_state(state["np_rng_state"])
    torch.set_rng_state(state["torch_rng_state"])
    torch.cuda.set_rng_state(state["cuda_rng_state"])
    assert state["rng_tracker_states"]
    tensor_parallel.get_cuda_rng_tracker().set_states(state["rng_tracker_states"])
