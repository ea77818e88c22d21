"""The model against transformers' GPT-2 and Llama, and what it promises those who cut it up."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from relkit.trainer.config.config import ModelConfig
from relkit.trainer.core.model import GPT, MLP, SelfAttention, TransformerLayer, rotate
from tests.trainer import hf_weights

LLAMA = {
    "position_embedding_type": "rope",
    "normalization": "RMSNorm",
    "activation": "swiglu",
    "add_bias_linear": False,
    "untie_embeddings_and_output_weights": True,
}


def small(**changes: object) -> ModelConfig:
    shape: dict[str, object] = {
        "num_layers": 3,
        "hidden_size": 48,
        "num_attention_heads": 4,
        "vocab_size": 96,
        "make_vocab_size_divisible_by": 32,
        "seq_length": 24,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    }
    return ModelConfig(**(shape | changes))  # type: ignore[arg-type]


def seeded(config: ModelConfig, seed: int = 0) -> GPT:
    torch.manual_seed(seed)
    return GPT(config)


def tokens(config: ModelConfig, samples: int = 2, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, config.vocab_size, (samples, config.seq_length), generator=generator)


def randomise(model: nn.Module) -> None:
    """Norms and biases too: at their usual ones and zeros, a swapped pair would not show."""
    torch.manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            centre = 1.0 if parameter.ndim == 1 and name.endswith("weight") else 0.0
            parameter.normal_(centre, 0.1)


def check_against(theirs: nn.Module, ours: GPT, weights: dict[str, Tensor]) -> None:
    hf_weights.load(ours, weights)
    numbers = tokens(ours.config)
    expected = theirs(numbers, use_cache=False).logits
    logits = ours(numbers)
    assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    assert expected.std() > 0.1
    # One gradient that has come through everything.
    expected.logsumexp(-1).mean().backward()
    logits.logsumexp(-1).mean().backward()
    assert ours.embedding is not None
    their_gradient = theirs.get_input_embeddings().weight.grad  # type: ignore[operator]
    assert_close(ours.embedding.word_embeddings.weight.grad, their_gradient, rtol=1e-4, atol=1e-7)


def test_logits_equal_gpt2() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = small(gelu_tanh=True)
    theirs = GPT2LMHeadModel(
        GPT2Config(
            vocab_size=96,
            bos_token_id=0,
            eos_token_id=0,
            n_positions=24,
            n_embd=48,
            n_layer=3,
            n_head=4,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
        )
    ).eval()
    randomise(theirs)
    check_against(theirs, GPT(config), hf_weights.from_gpt2(theirs.state_dict(), config))


@pytest.mark.parametrize("groups", [4, 2, 1])
def test_logits_equal_llama(groups: int) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = small(
        **LLAMA,
        group_query_attention=groups < 4,
        num_query_groups=groups if groups < 4 else None,
        rotary_base=5000.0,
        layernorm_epsilon=1e-6,
    )
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=96,
            hidden_size=48,
            intermediate_size=config.ffn_size,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=groups,
            max_position_embeddings=24,
            rms_norm_eps=1e-6,
            rope_parameters={"rope_type": "default", "rope_theta": 5000.0},
            tie_word_embeddings=False,
        )
    ).eval()
    randomise(theirs)
    check_against(theirs, GPT(config), hf_weights.from_llama(theirs.state_dict(), config))


def test_parameters_have_megatron_core_names() -> None:
    layer = {
        "input_layernorm",
        "self_attention.linear_qkv",
        "self_attention.linear_proj",
        "pre_mlp_layernorm",
        "mlp.linear_fc1",
        "mlp.linear_fc2",
    }
    whole = {f"decoder.layers.{n}.{part}" for n in range(3) for part in layer}
    both = {f"{name}.{kind}" for name in whole for kind in ("weight", "bias")}
    both |= {"decoder.final_layernorm.weight", "decoder.final_layernorm.bias"}
    both |= {"embedding.word_embeddings.weight", "embedding.position_embeddings.weight"}
    assert {name for name, _ in GPT(small()).named_parameters()} == both
    untied = GPT(small(untie_embeddings_and_output_weights=True))
    assert {name for name, _ in untied.named_parameters()} == both | {"output_layer.weight"}


@pytest.mark.parametrize("options", [{}, LLAMA], ids=["absolute", "rope"])
def test_stages_cut_out_of_it_give_the_same_logits(options: dict[str, object]) -> None:
    config = small(**options)
    whole = seeded(config)
    first, last = copy.deepcopy(whole), copy.deepcopy(whole)
    assert last.embedding is not None
    assert last.output_layer is not None
    if last.output_layer.weight is None:
        last.output_layer.weight = nn.Parameter(last.embedding.word_embeddings.weight)
    last.embedding = first.output_layer = first.decoder.final_layernorm = None
    del first.decoder.layers["2"], last.decoder.layers["0"], last.decoder.layers["1"]
    numbers = tokens(config)
    between = first(numbers)
    assert between.shape == (2, config.seq_length, config.hidden_size)
    assert torch.equal(last(between), whole(numbers))


def test_a_slice_of_whole_groups_is_a_working_attention() -> None:
    config = small(**LLAMA, group_query_attention=True, num_query_groups=2)
    whole = SelfAttention(config)
    hidden = torch.randn(2, config.seq_length, config.hidden_size)
    parts = torch.zeros_like(hidden)
    for rows, columns in zip(
        whole.linear_qkv.weight.chunk(2), whole.linear_proj.weight.chunk(2, dim=1), strict=True
    ):
        half = SelfAttention(config)
        half.linear_qkv.weight = nn.Parameter(rows)
        half.linear_proj.weight = nn.Parameter(columns)
        parts += half(hidden)
    assert_close(parts, whole(hidden), rtol=1e-5, atol=1e-6)


def test_groups_are_the_same_for_a_torch_that_knows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SelfAttention(small(**LLAMA, group_query_attention=True, num_query_groups=2))
    hidden = torch.randn(2, 24, 48)
    in_groups = whole(hidden)
    monkeypatch.setattr("relkit.trainer.core.model._KNOWS_GROUPS", False)
    assert_close(whole(hidden), in_groups, rtol=1e-5, atol=1e-6)


def test_no_token_sees_a_later_one() -> None:
    config = small(**LLAMA)
    model = seeded(config)
    before = tokens(config)
    after = before.clone()
    after[:, 10:] = (after[:, 10:] + 1) % config.vocab_size
    assert_close(model(before)[:, :10], model(after)[:, :10], rtol=1e-6, atol=1e-6)
    assert not torch.allclose(model(before)[:, 10:], model(after)[:, 10:])


def test_interleaved_rotation_turns_neighbours_as_complex_numbers() -> None:
    x = torch.randn(2, 9, 3, 2, 8, dtype=torch.float64)
    pairs = torch.view_as_complex(x.view(2, 9, 3, 2, 4, 2))
    angles = torch.outer(torch.arange(9.0), 100.0 ** -(torch.arange(4.0) / 4))
    turned = pairs * torch.polar(torch.ones_like(angles), angles)[:, None, None, :]
    expected = torch.view_as_real(turned).flatten(-2)
    assert_close(rotate(x, 100.0, True), expected, rtol=1e-5, atol=1e-6)
    halves = torch.cat((x[..., 0::2], x[..., 1::2]), dim=-1)
    expected_halves = torch.cat((expected[..., 0::2], expected[..., 1::2]), dim=-1)
    assert_close(rotate(halves, 100.0, False), expected_halves, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_lower_precision_computes_in_it_and_keeps_parameters_and_residuals_in_fp32(
    dtype: str,
) -> None:
    config = small(**LLAMA, compute_dtype=dtype)
    model = seeded(config)
    exact = seeded(small(**LLAMA))
    seen: list[torch.dtype] = []
    layer = model.decoder.layers["0"]
    assert isinstance(layer, TransformerLayer)
    assert isinstance(layer.mlp, MLP)
    layer.mlp.linear_fc1.register_forward_hook(lambda *call: seen.append(call[2].dtype))
    layer.register_forward_hook(lambda *call: seen.append(call[2].dtype))
    numbers = tokens(config)
    logits = model(numbers)
    assert seen == [getattr(torch, dtype), torch.float32]
    assert_close(logits.float(), exact(numbers), rtol=0.05, atol=0.05)
    logits.float().mean().backward()
    assert all(
        p.dtype == torch.float32 and p.grad is not None and p.grad.dtype == torch.float32
        for p in model.parameters()
    )


def test_dropout_acts_in_training_only_and_follows_the_seed() -> None:
    config = small(hidden_dropout=0.2, attention_dropout=0.2)
    model = seeded(config)
    numbers = tokens(config)

    def logits(seed: int) -> Tensor:
        torch.manual_seed(seed)
        result: Tensor = model(numbers)
        return result

    assert torch.equal(logits(3), logits(3))
    assert not torch.equal(logits(3), logits(4))
    model.eval()
    assert torch.equal(logits(3), logits(4))


def test_is_built_on_the_meta_device_without_memory() -> None:
    with torch.device("meta"):
        model = GPT(small(**LLAMA), vocab_rows=10**9)
    assert model.output_layer is not None
    assert model.output_layer.weight is not None
    assert model.output_layer.weight.shape == (10**9, 48)
    assert all(p.is_meta for p in model.parameters())
    assert not list(model.buffers())


def test_a_short_sample_is_welcome_and_starts_at_position_0() -> None:
    config = small()
    model = seeded(config)
    numbers = tokens(config)
    assert_close(model(numbers[:, :5]), model(numbers)[:, :5], rtol=1e-5, atol=1e-5)
    assert model(numbers[:1, :1]).isfinite().all()
