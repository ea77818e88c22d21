"""megatron-core's own model, buffers and optimizer on a CPU, for tests that hold ours against it.

It asks for CUDA in places that do no arithmetic; `on_cpu` makes them mean the CPU. For a process
that does nothing else.
"""

from __future__ import annotations

import contextlib
from argparse import Namespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

HALF = {torch.bfloat16: "BFloat16Tensor", torch.float16: "HalfTensor"}


class _Here(TorchFunctionMode):
    """Makes tensors in main memory that are asked for on 'cuda'."""

    def __torch_function__(  # type: ignore[no-untyped-def]
        self,
        function,  # noqa: ANN001
        types,  # noqa: ANN001
        args=(),  # noqa: ANN001
        kwargs=None,  # noqa: ANN001
    ) -> Any:  # noqa: ANN401
        named = dict(kwargs or {})
        if str(named.get("device")).startswith("cuda"):
            named["device"] = torch.device("cpu")
        return function(*args, **named)


class _Stream:
    """A stream, or an event in one, where all is done when it is called."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def wait_stream(self, _: object) -> None:
        """Done already."""

    def wait_event(self, _: object) -> None:
        """Done already."""

    def synchronize(self) -> None:
        """Done already."""


def on_cpu() -> None:
    """Let 'cuda' mean the CPU for what megatron-core asks of it, from now on."""
    import megatron.core.tensor_parallel as tensor_parallel
    import megatron.core.tensor_parallel.random as random
    from torch._dynamo.trace_rules import get_torch_obj_rule_map

    get_torch_obj_rule_map()  # before functions are replaced that it looks up
    cpu = torch.device("cpu")
    here: Any = torch.cuda
    here.current_device = lambda: cpu
    here.set_device = lambda *_: None
    here.synchronize = lambda *_: None
    here.get_rng_state = lambda *_: torch.get_rng_state()
    here.set_rng_state = lambda state, *_: torch.set_rng_state(state)
    here.manual_seed = lambda seed: torch.manual_seed(seed)
    here.Stream = here.Event = _Stream
    here.stream = lambda _: contextlib.nullcontext()
    here.current_stream = here.default_stream = lambda *_: _Stream()
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    tensor: Any = torch.Tensor
    tensor.cuda = lambda self, *_, **__: self
    plain_type = tensor.type

    def cuda_type(self: torch.Tensor, *arguments: Any) -> Any:  # noqa: ANN401
        if arguments:
            return plain_type(self, *arguments)
        return f"torch.cuda.{HALF.get(self.dtype, 'FloatTensor')}"

    tensor.type = cuda_type
    _Here().__enter__()  # type: ignore[no-untyped-call]
    tensor_parallel.get_cuda_rng_tracker().fork = contextlib.nullcontext


def start(args: Namespace) -> None:
    """Make megatron-core's groups of the degrees in saved arguments; torch's world is there."""
    from megatron.core import parallel_state

    if parallel_state.model_parallel_is_initialized():
        parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        args.virtual_pipeline_model_parallel_size,
        expert_model_parallel_size=args.expert_model_parallel_size,
        create_gloo_process_groups=torch.distributed.get_backend() == "gloo",
    )


def configuration(args: Namespace, **more: Any) -> Any:  # noqa: ANN401
    """The TransformerConfig of saved arguments; without Apex, it has no sequence parallelism."""
    from megatron.core.transformer.transformer_config import TransformerConfig

    dtype = torch.bfloat16 if args.bf16 else torch.float16 if args.fp16 else torch.float32
    virtual = args.virtual_pipeline_model_parallel_size
    return TransformerConfig(
        num_layers=args.num_layers,
        hidden_size=args.hidden_size,
        ffn_hidden_size=args.ffn_hidden_size,
        num_attention_heads=args.num_attention_heads,
        num_query_groups=args.num_query_groups,
        normalization=args.normalization,
        layernorm_epsilon=args.norm_epsilon,
        gated_linear_unit=args.swiglu,
        activation_func=torch.nn.functional.silu if args.swiglu else torch.nn.functional.gelu,
        add_bias_linear=args.add_bias_linear,
        num_moe_experts=args.num_experts,
        moe_router_topk=args.moe_router_topk,
        tensor_model_parallel_size=args.tensor_model_parallel_size,
        pipeline_model_parallel_size=args.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=virtual,
        expert_model_parallel_size=args.expert_model_parallel_size,
        # As Megatron's arguments set them: two stages take each other's tensors for their own else.
        overlap_p2p_comm=bool(virtual),
        batch_p2p_comm=not virtual,
        pipeline_dtype=dtype,
        params_dtype=dtype,
        bf16=args.bf16,
        fp16=args.fp16,
        use_cpu_initialization=True,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
        **{"hidden_dropout": 0.0, "attention_dropout": 0.0, **more},
    )


def models(args: Namespace) -> list[Any]:
    """This rank's chunks of the GPTModel of saved arguments."""
    from megatron.core import parallel_state
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel

    config = configuration(args)
    virtual = args.virtual_pipeline_model_parallel_size
    made = []
    for number in range(virtual or 1):
        stage = number if virtual else None
        first = parallel_state.is_pipeline_first_stage(ignore_virtual=False, vp_stage=stage)
        last = parallel_state.is_pipeline_last_stage(ignore_virtual=False, vp_stage=stage)
        made.append(
            GPTModel(
                config,
                get_gpt_layer_local_spec(args.num_experts, normalization=args.normalization),
                args.padded_vocab_size,
                args.max_position_embeddings,
                pre_process=first,
                post_process=last,
                position_embedding_type=args.position_embedding_type,
                rotary_base=args.rotary_base,
                share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
                vp_stage=stage,
            )
        )
    return made


def distributed(args: Namespace, chunks: list[Any]) -> list[Any]:
    """Chunks in megatron-core's DistributedDataParallel, as Megatron's training makes them."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig

    half = args.bf16 or args.fp16
    if half:
        from megatron.core.transformer.module import Float16Module

        chunks = [Float16Module(chunk.config, chunk) for chunk in chunks]
    return [
        DistributedDataParallel(
            chunk.config,
            DistributedDataParallelConfig(
                use_distributed_optimizer=args.use_distributed_optimizer,
                grad_reduce_in_fp32=half,
            ),
            chunk,
            disable_bucketing=number > 0,
        )
        for number, chunk in enumerate(chunks)
    ]
