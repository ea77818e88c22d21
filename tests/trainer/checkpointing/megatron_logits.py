"""megatron-core's own GPT takes a saved iteration; prints what it found, as JSON.

    python -m tests.trainer.checkpointing.megatron_logits mp_rank_00/model_optim_rng.pt ...

Its layers assume a GPU in two places that do no arithmetic; both are replaced here.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from argparse import Namespace
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

TOKENS = torch.arange(24).view(2, 12)


def megatrons_model(args: Namespace) -> Any:  # noqa: ANN401
    """A GPTModel of the saved arguments."""
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.transformer.transformer_config import TransformerConfig

    config = TransformerConfig(
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
        hidden_dropout=0.0,
        attention_dropout=0.0,
        params_dtype=args.params_dtype,
        use_cpu_initialization=True,
        bias_dropout_fusion=False,
        bias_activation_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        apply_rope_fusion=False,
        persist_layer_norm=False,
    )
    return GPTModel(
        config,
        get_gpt_layer_local_spec(args.num_experts, normalization=args.normalization),
        args.padded_vocab_size,
        args.max_position_embeddings,
        position_embedding_type=args.position_embedding_type,
        rotary_base=args.rotary_base,
        share_embeddings_and_output_weights=not args.untie_embeddings_and_output_weights,
    )


def look_at(path: str) -> dict[str, Any]:
    """Names that only one of the two has, and megatron-core's logits (None with experts)."""
    saved = torch.load(path, weights_only=False)  # as Megatron does
    model = megatrons_model(saved["args"])
    theirs = {n: t.shape for n, t in model.state_dict().items() if not n.endswith("_extra_state")}
    ours = {name: tensor.shape for name, tensor in saved["model"].items()}
    differing = sorted(n for n in {*theirs, *ours} if theirs.get(n) != ours.get(n))
    model.load_state_dict(saved["model"], strict=False)
    model.eval()
    logits = None
    if saved["args"].num_experts is None:
        hidden = torch.tril(torch.ones(1, 1, 12, 12)) < 0.5
        positions = torch.arange(12).expand(2, 12)
        with torch.no_grad():
            logits = model(TOKENS, positions, hidden).tolist()
    return {"differing": differing, "logits": logits}


def main(paths: list[str]) -> None:
    """Look at every file."""
    import megatron.core.tensor_parallel as tensor_parallel
    from megatron.core import parallel_state

    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel(1, 1)
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment,return-value]
    tensor_parallel.get_cuda_rng_tracker().fork = contextlib.nullcontext
    print(json.dumps([look_at(path) for path in paths]))
    dist.destroy_process_group()


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main(sys.argv[1:])
