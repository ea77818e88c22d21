"""The mixture of experts against transformers' Mixtral, its loss, and its dispatch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from relkit.trainer.config.config import ModelConfig
from relkit.trainer.core.model import GPT, MLP
from relkit.trainer.core.moe import MoELayer, RunExperts, run_here, set_aux_loss_scale
from tests.trainer import hf_weights
from tests.trainer.core.test_model import LLAMA, check_against, randomise, small


@pytest.fixture(autouse=True)
def unit_scale() -> Iterator[None]:
    set_aux_loss_scale(1.0)
    yield
    set_aux_loss_scale(1.0)


def layer_of(config: ModelConfig, seed: int = 0) -> MoELayer:
    torch.manual_seed(seed)
    layer = MoELayer(config, MLP)
    nn.init.normal_(layer.router.weight, std=1.0)
    return layer


def test_logits_equal_mixtral() -> None:
    from transformers import MixtralConfig, MixtralForCausalLM

    config = small(
        **LLAMA,
        group_query_attention=True,
        num_query_groups=2,
        num_moe_experts=4,
        moe_router_topk=2,
        ffn_hidden_size=64,
    )
    theirs = MixtralForCausalLM(
        MixtralConfig(
            vocab_size=96,
            hidden_size=48,
            intermediate_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=24,
            rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=None,
            tie_word_embeddings=False,
        )
    ).eval()
    randomise(theirs)
    ours = GPT(config)
    check_against(theirs, ours, hf_weights.from_llama(theirs.state_dict(), config))


def test_one_expert_is_the_dense_model() -> None:
    config = small(num_moe_experts=1, moe_router_topk=1)
    layer = layer_of(config)
    hidden = torch.randn(2, 5, 48)
    assert_close(layer(hidden), layer.experts["0"](hidden), rtol=1e-6, atol=1e-6)


def test_every_token_is_served_however_lopsided_the_choice() -> None:
    config = small(num_moe_experts=4, moe_router_topk=2)
    layer = layer_of(config)
    with torch.no_grad():
        layer.router.weight.zero_()
        layer.router.weight[1:3, 0] = torch.tensor([5.0, 4.0])
    hidden = torch.randn(3, 7, 48)
    hidden[..., 0] = hidden[..., 0].abs() + 1
    scores, numbers, counts = layer.router(hidden.view(-1, 48))
    assert counts.tolist() == [0, 21, 21, 0]
    assert numbers[:, 0].unique().tolist() == [1]
    first, second = (layer.experts[e](hidden.view(-1, 48)) for e in ("1", "2"))
    expected = scores[:, :1] * first + scores[:, 1:] * second
    output = layer(hidden)
    assert_close(output, expected.view_as(hidden), rtol=1e-5, atol=1e-6)
    output.sum().backward()
    # An expert without tokens has a gradient too, of zeros: others in its group may wait for it.
    for number in ("0", "3"):
        for parameter in layer.experts[number].parameters():
            assert parameter.grad is not None
            assert not parameter.grad.any()


def test_balance_loss_is_one_times_its_weight_when_balanced_and_e_at_worst() -> None:
    config = small(num_moe_experts=4, moe_router_topk=1, moe_aux_loss_coeff=0.5)
    router = layer_of(config).router
    even = torch.eye(4).repeat(5, 1) * 50
    assert_close(router._balance_loss(even, torch.tensor([5, 5, 5, 5])), torch.tensor(0.5))
    one_sided = torch.zeros(20, 4)
    one_sided[:, 2] = 50
    assert_close(router._balance_loss(one_sided, torch.tensor([0, 0, 20, 0])), torch.tensor(2.0))


@pytest.mark.parametrize("scale", [1.0, 256.0])
def test_balance_loss_adds_its_own_gradient_and_nothing_else(scale: float) -> None:
    options: dict[str, object] = {"num_moe_experts": 4, "moe_router_topk": 2}
    plain = layer_of(small(**options))
    balanced = layer_of(small(**options, moe_aux_loss_coeff=0.1))
    hidden = torch.randn(2, 9, 48)
    outputs = plain(hidden), balanced(hidden)
    assert torch.equal(*outputs)
    set_aux_loss_scale(scale)
    for output in outputs:
        output.square().mean().backward()
    with torch.no_grad():
        counts = balanced.router(hidden.view(-1, 48))[2]
    logits = hidden.view(-1, 48) @ balanced.router.weight.T
    (alone,) = torch.autograd.grad(
        balanced.router._balance_loss(logits, counts), balanced.router.weight
    )
    assert plain.router.weight.grad is not None
    assert_close(
        balanced.router.weight.grad,
        plain.router.weight.grad + scale * alone,
        rtol=1e-5,
        atol=1e-6,
    )
    for theirs, ours in zip(plain.experts.parameters(), balanced.experts.parameters(), strict=True):
        assert theirs.grad is not None
        assert ours.grad is not None
        assert torch.equal(theirs.grad, ours.grad)


def test_parts_of_a_micro_batch_add_up_to_its_balance_loss() -> None:
    config = small(num_moe_experts=4, moe_router_topk=2, moe_aux_loss_coeff=0.1)
    router = layer_of(config).router
    hidden = torch.randn(18, 48)
    counts = router(hidden)[2]
    whole = router._balance_loss(hidden @ router.weight.T, counts)
    router.gather_counts = lambda _part: counts.float()
    parts = [
        router._balance_loss(part @ router.weight.T, router(part)[2]) for part in hidden.chunk(2)
    ]
    assert_close(parts[0] + parts[1], whole)


def test_a_dispatch_may_send_rows_elsewhere() -> None:
    config = small(num_moe_experts=4, moe_router_topk=2)
    layer = layer_of(config)
    hidden = torch.randn(2, 9, 48)
    expected = layer(hidden)

    def in_two_lots(rows: Tensor, counts: Tensor, run: RunExperts) -> Tensor:
        """As if two ranks had sent the rows: each expert gets them in two pieces."""
        assert rows.shape == (36, 48)
        assert int(counts.sum()) == 36
        pieces = torch.split(rows, counts.tolist())
        halves: list[Sequence[Tensor]] = [piece.tensor_split(2) for piece in pieces]
        outputs = []
        for lot in range(2):
            mine = [half[lot] for half in halves]
            lengths = [len(piece) for piece in mine]
            outputs.append(torch.split(run(torch.cat(mine), lengths), lengths))
        return torch.cat(
            [torch.cat((outputs[0][expert], outputs[1][expert])) for expert in range(4)]
        )

    layer.dispatch = in_two_lots
    assert_close(layer(hidden), expected, rtol=1e-5, atol=1e-6)
    layer.dispatch = run_here
    assert torch.equal(layer(hidden), expected)


def test_choice_is_made_in_fp32_under_autocast() -> None:
    config = small(num_moe_experts=4, moe_router_topk=2, compute_dtype="bfloat16")
    model = GPT(config)
    seen: list[Tensor] = []
    for module in model.modules():
        if isinstance(module, MoELayer):
            module.router.register_forward_hook(lambda *call: seen.append(call[2][0]))
    logits = model(torch.randint(0, 96, (2, 24)))
    assert [scores.dtype for scores in seen] == [torch.float32] * 3
    logits.float().mean().backward()
    assert all(p.grad is not None for p in model.parameters())
