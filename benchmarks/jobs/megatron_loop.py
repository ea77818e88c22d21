"""megatron-core's GPT, its DDP and its schedule, data-parallel on CPU.

`pip install megatron-core`. Its optimizer needs a GPU, so torch's AdamW takes its gradients. One
rank may get more sequences a step than the others.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.jobs.trainer_options import parse

_LENGTH, _VOCABULARY, _BATCH, _WIDTH = 32, 256, 10, 64


def _on_cpu(zeros: Callable[..., torch.Tensor], *shape: Any, **options: Any) -> torch.Tensor:  # noqa: ANN401
    return zeros(*shape, **{**options, "device": "cpu"})


def _model() -> Any:  # noqa: ANN401
    from megatron.core.distributed import (
        DistributedDataParallel,
        DistributedDataParallelConfig,
        finalize_model_grads,
    )
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(
        num_layers=2, hidden_size=_WIDTH, num_attention_heads=2, use_cpu_initialization=True,
        bias_dropout_fusion=False, bias_activation_fusion=False, masked_softmax_fusion=False,
        gradient_accumulation_fusion=False, apply_rope_fusion=False, persist_layer_norm=False,
        attention_dropout=0.0, hidden_dropout=0.0,
    )  # fmt: skip
    model = GPTModel(config, get_gpt_layer_local_spec(), _VOCABULARY, _LENGTH)
    wrapped = DistributedDataParallel(
        config, DistributedDataParallelConfig(overlap_grad_reduce=True), model
    )
    config.no_sync_func = wrapped.no_sync
    config.finalize_model_grads_func = finalize_model_grads
    return wrapped


def _batches(size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    while True:
        tokens = torch.randint(_VOCABULARY, (size, _LENGTH + 1))
        yield tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def _loss(output: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    loss = output.float().mean()
    return loss, {"loss": loss.detach()}


def _forward_step(data: Any, model: Any) -> Any:  # noqa: ANN401
    tokens, labels = next(data)
    places = torch.arange(_LENGTH).expand_as(tokens)
    mask = torch.ones(1, 1, _LENGTH, _LENGTH, dtype=torch.bool).triu(1)
    return model(tokens, places, mask, labels=labels), partial(_loss)


def main() -> None:
    """Run the job."""
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.pipeline_parallel import get_forward_backward_func

    options = parse(__doc__ or "", _BATCH)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(1, 1)
    # It asks for the GPU in places that do no arithmetic.
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    torch.zeros = partial(_on_cpu, torch.zeros)
    tensor_parallel.get_cuda_rng_tracker().fork = contextlib.nullcontext
    data, model = _batches(options.sequences), _model()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    run = get_forward_backward_func()
    for step in range(options.steps):
        model.zero_grad_buffer()
        losses = run(
            forward_step_func=_forward_step, data_iterator=data, model=[model],
            num_microbatches=1, seq_length=_LENGTH, micro_batch_size=options.sequences,
            forward_only=False,
        )  # fmt: skip
        for parameter in parameters:
            parameter.grad = parameter.main_grad
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if step % 50 == 0 and dist.get_rank() == 0:
            print(f"iteration {step}: loss {losses[0]['loss'].item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main()
