"""Names and settings of transformers' GPT-2, Llama and Mixtral for the weights of a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from relkit.checkpoint.convert.shape import GELU, GELU_TANH, SWIGLU, Attention, Shape
from relkit.errors import BadInputFile

EMBEDDING, OUTPUT = "embedding.word_embeddings.weight", "output_layer.weight"
_GELUS = {GELU: "gelu", GELU_TANH: "gelu_new"}
_OF_GELUS = {"gelu": GELU, "gelu_new": GELU_TANH, "gelu_pytorch_tanh": GELU_TANH}
# In a layer: ours, then theirs. GPT-2 keeps its matrices transposed.
_GPT2 = (
    ("self_attention.linear_proj", "attn.c_proj"),
    ("mlp.linear_fc1", "mlp.c_fc"),
    ("mlp.linear_fc2", "mlp.c_proj"),
)


def family(shape: Shape) -> str:
    """The name of the model's kind: gpt2, llama or mixtral.

    Raises:
        BadInputFile: it is none of them.
    """
    attention, rope = shape.attention, shape.attention.rotary_base is not None
    is_llama = rope and shape.rms and shape.activation == SWIGLU and not shape.bias
    if is_llama:
        return "mixtral" if shape.experts else "llama"
    usual = attention.heads * attention.head_size == shape.hidden
    usual = usual and attention.groups == attention.heads
    is_gpt2 = not rope and not shape.rms and shape.bias and shape.tied and usual
    if is_gpt2 and shape.activation != SWIGLU and not shape.experts:
        return "gpt2"
    raise BadInputFile(
        "the model is neither a GPT-2 (learned positions, LayerNorm, GELU, biases, tied"
        " embeddings) nor a Llama or Mixtral (rotary positions, RMSNorm, SwiGLU, no biases)",
        next_step="Use --to megatron, which keeps any model.",
    )


def settings(shape: Shape, rows: int, dtype: str) -> dict[str, Any]:
    """What config.json says.

    Args:
        rows: of the embedding; dtype: of the weights.
    """
    kind = family(shape)
    common = {"vocab_size": rows, "tie_word_embeddings": shape.tied, "torch_dtype": dtype}
    if kind == "gpt2":
        return {
            **common,
            "architectures": ["GPT2LMHeadModel"],
            "model_type": "gpt2",
            "n_embd": shape.hidden,
            "n_layer": shape.layers,
            "n_head": shape.attention.heads,
            "n_inner": shape.ffn,
            "n_positions": shape.positions,
            "layer_norm_epsilon": shape.eps,
            "activation_function": _GELUS[shape.activation],
        }
    name = kind.capitalize()
    experts = {"num_local_experts": shape.experts, "num_experts_per_tok": shape.top}
    return {
        **common,
        **(experts if shape.experts else {"mlp_bias": False}),
        "architectures": [f"{name}ForCausalLM"],
        "model_type": kind,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.attention.heads,
        "num_key_value_heads": shape.attention.groups,
        "head_dim": shape.attention.head_size,
        "max_position_embeddings": shape.positions,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.attention.rotary_base,
        "hidden_act": "silu",
        "attention_bias": False,
    }


def of_settings(config: Mapping[str, Any]) -> Shape:
    """The model of a config.json.

    Raises:
        BadInputFile: of another kind, or with something that is not converted.
    """
    kind = config.get("model_type")
    if kind == "gpt2":
        return _of_gpt2(config)
    if kind not in ("llama", "mixtral"):
        raise BadInputFile(f"a model_type {kind!r} is not converted: gpt2, llama and mixtral are")
    rope = config.get("rope_parameters") or {}
    scaled = config.get("rope_scaling") or rope.get("rope_type", "default") != "default"
    for name in ("attention_bias", "mlp_bias", "sliding_window"):
        if config.get(name):
            raise BadInputFile(f"a model with {name} {config[name]} is not converted")
    if scaled:
        raise BadInputFile("a model with scaled rotary positions is not converted")
    heads = int(config["num_attention_heads"])
    return Shape(
        layers=int(config["num_hidden_layers"]),
        hidden=int(config["hidden_size"]),
        ffn=int(config["intermediate_size"]),
        positions=int(config["max_position_embeddings"]),
        attention=Attention(
            heads,
            int(config.get("num_key_value_heads") or heads),
            int(config.get("head_dim") or config["hidden_size"] // heads),
            float(config.get("rope_theta") or rope.get("rope_theta") or 10000),
        ),
        rms=True,
        eps=float(config["rms_norm_eps"]),
        activation=SWIGLU,
        bias=False,
        tied=bool(config.get("tie_word_embeddings", False)),
        experts=int(config.get("num_local_experts", 0)) if kind == "mixtral" else 0,
        top=int(config.get("num_experts_per_tok", 2)),
        vocabulary=int(config["vocab_size"]),
    )


def _of_gpt2(config: Mapping[str, Any]) -> Shape:
    hidden, heads = int(config["n_embd"]), int(config["n_head"])
    activation = str(config.get("activation_function", "gelu_new"))
    if activation not in _OF_GELUS:
        raise BadInputFile(f"a GPT-2 with the activation {activation} is not converted")
    return Shape(
        layers=int(config["n_layer"]),
        hidden=hidden,
        ffn=int(config.get("n_inner") or 4 * hidden),
        positions=int(config["n_positions"]),
        attention=Attention(heads, heads, hidden // heads),
        rms=False,
        eps=float(config.get("layer_norm_epsilon", 1e-5)),
        activation=_OF_GELUS[activation],
        bias=True,
        tied=True,
        vocabulary=int(config["vocab_size"]),
    )


def to_theirs(whole: Mapping[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """Weights by transformers' names."""
    pairs = _gpt2(whole, shape) if family(shape) == "gpt2" else _llama(whole, shape)
    return {name: value.contiguous().clone() for name, value in pairs}


def _gpt2(whole: Mapping[str, Tensor], shape: Shape) -> Iterator[tuple[str, Tensor]]:
    yield "transformer.wte.weight", whole[EMBEDDING]
    yield "transformer.wpe.weight", whole["embedding.position_embeddings.weight"]
    for kind in ("weight", "bias"):
        yield f"transformer.ln_f.{kind}", whole[f"decoder.final_layernorm.{kind}"]
        for layer in range(shape.layers):
            ours, theirs = f"decoder.layers.{layer}.", f"transformer.h.{layer}."
            yield f"{theirs}ln_1.{kind}", whole[f"{ours}input_layernorm.{kind}"]
            yield f"{theirs}ln_2.{kind}", whole[f"{ours}pre_mlp_layernorm.{kind}"]
            qkv = ungrouped(whole[f"{ours}self_attention.linear_qkv.{kind}"], shape)
            yield f"{theirs}attn.c_attn.{kind}", torch.cat(qkv).t()
            for our_name, their_name in _GPT2:
                yield f"{theirs}{their_name}.{kind}", whole[f"{ours}{our_name}.{kind}"].t()


def _llama(whole: Mapping[str, Tensor], shape: Shape) -> Iterator[tuple[str, Tensor]]:
    yield "model.embed_tokens.weight", whole[EMBEDDING]
    yield "model.norm.weight", whole["decoder.final_layernorm.weight"]
    if not shape.tied:
        yield "lm_head.weight", whole[OUTPUT]
    for layer in range(shape.layers):
        ours, theirs = f"decoder.layers.{layer}.", f"model.layers.{layer}."
        yield f"{theirs}input_layernorm.weight", whole[f"{ours}input_layernorm.weight"]
        norm = whole[f"{ours}pre_mlp_layernorm.weight"]
        yield f"{theirs}post_attention_layernorm.weight", norm
        qkv = ungrouped(whole[f"{ours}self_attention.linear_qkv.weight"], shape)
        for part, value in zip("qkv", qkv, strict=True):
            yield f"{theirs}self_attn.{part}_proj.weight", value
        yield f"{theirs}self_attn.o_proj.weight", whole[f"{ours}self_attention.linear_proj.weight"]
        if shape.experts:
            gate = f"{theirs}block_sparse_moe.gate.weight"
            yield gate, whole[f"{ours}mlp.router.weight"]
        for our_name, names in _feed_forwards(layer, shape):
            gate_rows, up_rows = whole[f"{our_name}linear_fc1.weight"].chunk(2)
            down = whole[f"{our_name}linear_fc2.weight"]
            yield from zip(names, (gate_rows, up_rows, down), strict=True)


def _feed_forwards(layer: int, shape: Shape) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """Of each of a layer: how its names begin here, and theirs of gate, up and down."""
    ours, theirs = f"decoder.layers.{layer}.mlp.", f"model.layers.{layer}."
    if not shape.experts:
        names = [f"{theirs}mlp.{part}_proj.weight" for part in ("gate", "up", "down")]
        yield ours, (names[0], names[1], names[2])
    for expert in range(shape.experts):
        place = f"{theirs}block_sparse_moe.experts.{expert}."
        local = f"{ours}experts.local_experts.{expert}."
        yield local, (f"{place}w1.weight", f"{place}w3.weight", f"{place}w2.weight")


def to_ours(theirs: Mapping[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    """Weights by megatron-core's names.

    Raises:
        BadInputFile: one is missing.
    """
    if family(shape) == "gpt2" and "wte.weight" in theirs:
        theirs = {f"transformer.{name}": value for name, value in theirs.items()}
    try:
        return (
            _of_gpt2_names(theirs, shape) if family(shape) == "gpt2" else _of_llama(theirs, shape)
        )
    except KeyError as error:
        raise BadInputFile(f"the folder has no weight {error.args[0]}") from error


def _of_gpt2_names(theirs: Mapping[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    ours = {
        EMBEDDING: theirs["transformer.wte.weight"],
        "embedding.position_embeddings.weight": theirs["transformer.wpe.weight"],
    }
    for kind in ("weight", "bias"):
        ours[f"decoder.final_layernorm.{kind}"] = theirs[f"transformer.ln_f.{kind}"]
        for layer in range(shape.layers):
            to, of = f"decoder.layers.{layer}.", f"transformer.h.{layer}."
            ours[f"{to}input_layernorm.{kind}"] = theirs[f"{of}ln_1.{kind}"]
            ours[f"{to}pre_mlp_layernorm.{kind}"] = theirs[f"{of}ln_2.{kind}"]
            qkv = theirs[f"{of}attn.c_attn.{kind}"].t().chunk(3)
            ours[f"{to}self_attention.linear_qkv.{kind}"] = grouped(qkv, shape)
            for our_name, their_name in _GPT2:
                ours[f"{to}{our_name}.{kind}"] = theirs[f"{of}{their_name}.{kind}"].t()
    return ours


def _of_llama(theirs: Mapping[str, Tensor], shape: Shape) -> dict[str, Tensor]:
    ours = {
        EMBEDDING: theirs["model.embed_tokens.weight"],
        "decoder.final_layernorm.weight": theirs["model.norm.weight"],
    }
    if not shape.tied:
        ours[OUTPUT] = theirs["lm_head.weight"]
    for layer in range(shape.layers):
        to, of = f"decoder.layers.{layer}.", f"model.layers.{layer}."
        ours[f"{to}input_layernorm.weight"] = theirs[f"{of}input_layernorm.weight"]
        norm = theirs[f"{of}post_attention_layernorm.weight"]
        ours[f"{to}pre_mlp_layernorm.weight"] = norm
        qkv = [theirs[f"{of}self_attn.{part}_proj.weight"] for part in "qkv"]
        ours[f"{to}self_attention.linear_qkv.weight"] = grouped(qkv, shape)
        ours[f"{to}self_attention.linear_proj.weight"] = theirs[f"{of}self_attn.o_proj.weight"]
        if shape.experts:
            ours[f"{to}mlp.router.weight"] = theirs[f"{of}block_sparse_moe.gate.weight"]
        for our_name, names in _feed_forwards(layer, shape):
            gate, up, down = (theirs[name] for name in names)
            ours[f"{our_name}linear_fc1.weight"] = torch.cat((gate, up))
            ours[f"{our_name}linear_fc2.weight"] = down
    return ours


def grouped(parts: Sequence[Tensor], shape: Shape) -> Tensor:
    """Rows of one matrix (or bias), group by group: its queries, its key, its value."""
    pieces = [part.reshape(shape.attention.groups, -1, *part.shape[1:]) for part in parts]
    return torch.cat(pieces, dim=1).flatten(0, 1)


def ungrouped(rows: Tensor, shape: Shape) -> list[Tensor]:
    """Queries, keys and values of `grouped`."""
    attention = shape.attention
    by_group = rows.reshape(attention.groups, -1, *rows.shape[1:])
    queries = attention.heads // attention.groups * attention.head_size
    sizes = [queries, attention.head_size, attention.head_size]
    return [part.flatten(0, 1) for part in torch.split(by_group, sizes, dim=1)]
