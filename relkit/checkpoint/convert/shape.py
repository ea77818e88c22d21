"""What a model is, apart from its weights: by Megatron's arguments."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relkit.errors import BadInputFile

GELU, GELU_TANH, SWIGLU = "gelu", "gelu_tanh", "swiglu"


@dataclass(frozen=True, slots=True)
class Attention:
    """A layer's.

    Args:
        heads, groups, head_size: sizes; groups: of queries.
        rotary_base: of rotary positions; None: they are learned.
    """

    heads: int
    groups: int
    head_size: int
    rotary_base: float | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """A GPT.

    Args:
        layers, hidden, ffn, positions: sizes.
        rms: RMSNorm; else LayerNorm; eps: its epsilon.
        activation: one of GELU, GELU_TANH, SWIGLU.
        bias: whether linear layers add one; tied: whether the output is the embedding.
        experts: how many, of which `top` serve a token; 0 for a dense model.
        vocabulary: tokens, without the rows that pad the embedding; 0 if that is not known.
    """

    layers: int
    hidden: int
    ffn: int
    positions: int
    attention: Attention
    rms: bool
    eps: float
    activation: str
    bias: bool
    tied: bool
    experts: int = 0
    top: int = 2
    vocabulary: int = 0


# Of Megatron's arguments, what the weights would mean something else with.
_REFUSED = {
    "rotary_interleaved": False,
    "apply_residual_connection_post_layernorm": False,
    "layernorm_zero_centered_gamma": False,
    "apply_layernorm_1p": False,
    "multi_latent_attention": False,
    "qk_layernorm": False,
    "squared_relu": False,
    "use_rope_scaling": False,
    "moe_shared_expert_intermediate_size": None,
    "mtp_num_layers": None,
    "rotary_percent": 1.0,
}


def of_arguments(args: Mapping[str, Any]) -> Shape:
    """The model of saved arguments, relkit's or Megatron's.

    Raises:
        BadInputFile: it is one that no form here has; says by which argument.
    """
    for name, usual in _REFUSED.items():
        if args.get(name, usual) not in (usual, None):
            raise BadInputFile(f"a model with {name} {args[name]} is not converted")
    if args["position_embedding_type"] not in ("learned_absolute", "rope"):
        raise BadInputFile(f"positions are {args['position_embedding_type']}: not converted")
    heads, activation = int(args["num_attention_heads"]), SWIGLU
    if not args["swiglu"]:
        # Megatron's fused GELU is the tanh form.
        tanh = args.get("openai_gelu", False) or args.get("bias_gelu_fusion", False)
        activation = GELU_TANH if tanh else GELU
    rope = args["position_embedding_type"] == "rope"
    # Until it has made a step, Megatron's own program has the flag's default of groups there.
    alone = args.get("group_query_attention") is False
    eps = args.get("norm_epsilon", args.get("layernorm_epsilon", 1e-5))
    ours = args.get("tokenizer_type") != "NullTokenizer" and args.get("vocab_size")
    return Shape(
        layers=int(args["num_layers"]),
        hidden=int(args["hidden_size"]),
        ffn=int(args["ffn_hidden_size"]),
        positions=int(args["max_position_embeddings"]),
        attention=Attention(
            heads,
            heads if alone else int(args.get("num_query_groups") or heads),
            int(args.get("kv_channels") or args["hidden_size"] // heads),
            float(args.get("rotary_base", 10000)) if rope else None,
        ),
        rms=args["normalization"] == "RMSNorm",
        eps=float(eps),
        activation=activation,
        bias=bool(args["add_bias_linear"]),
        tied=not args["untie_embeddings_and_output_weights"],
        experts=int(args.get("num_experts") or 0),
        top=int(args.get("moe_router_topk") or 2),
        vocabulary=int(ours or 0),
    )


def to_arguments(shape: Shape, degrees: Mapping[str, int | None], padded: int) -> Namespace:
    """Megatron's arguments of a model.

    Args:
        degrees: by Megatron's names; padded: rows of the embedding.
    """
    attention = shape.attention
    rope = attention.rotary_base is not None
    return Namespace(
        num_layers=shape.layers,
        hidden_size=shape.hidden,
        ffn_hidden_size=shape.ffn,
        num_attention_heads=attention.heads,
        group_query_attention=attention.groups != attention.heads,
        num_query_groups=attention.groups,
        kv_channels=attention.head_size,
        max_position_embeddings=shape.positions,
        add_position_embedding=not rope,
        position_embedding_type="rope" if rope else "learned_absolute",
        rotary_base=int(attention.rotary_base or 10000),
        rotary_interleaved=False,
        normalization="RMSNorm" if shape.rms else "LayerNorm",
        norm_epsilon=shape.eps,
        layernorm_epsilon=shape.eps,
        swiglu=shape.activation == SWIGLU,
        openai_gelu=shape.activation == GELU_TANH,
        bias_gelu_fusion=False,
        add_bias_linear=shape.bias,
        untie_embeddings_and_output_weights=not shape.tied,
        num_experts=shape.experts or None,
        moe_router_topk=shape.top,
        vocab_size=shape.vocabulary or None,
        padded_vocab_size=padded,
        **degrees,
    )
