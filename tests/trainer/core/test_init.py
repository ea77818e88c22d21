"""Weights have the same bits under every layout; cutting and joining are each other's inverse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from relkit.trainer.config.config import ModelConfig, ParallelConfig, TrainerConfig, TrainingConfig
from relkit.trainer.core.build import build_model
from relkit.trainer.core.init import first_values, shard
from relkit.trainer.core.mesh import Group, Mesh
from relkit.trainer.core.parameters import ParamInfo

MODEL = ModelConfig(
    num_layers=4, hidden_size=32, num_attention_heads=4, vocab_size=85, seq_length=16,
    make_vocab_size_divisible_by=32,
)  # fmt: skip
EXPERTS = replace(
    MODEL,
    num_moe_experts=4,
    activation="swiglu",
    normalization="RMSNorm",
    untie_embeddings_and_output_weights=True,
)


def group(rank: int, size: int) -> Group:
    """A group that only knows its place; nothing here communicates."""
    return Group(None, tuple(range(size)), rank, size)


def places(config: TrainerConfig) -> Iterator[Mesh]:
    """The mesh of each (tensor, pipeline, expert) rank."""
    degrees = config.parallel
    alone = group(0, 1)
    for pipeline in range(degrees.pipeline_model_parallel_size):
        for expert in range(degrees.expert_model_parallel_size):
            for tensor in range(degrees.tensor_model_parallel_size):
                yield Mesh(
                    world=alone,
                    tensor=group(tensor, degrees.tensor_model_parallel_size),
                    pipeline=group(pipeline, degrees.pipeline_model_parallel_size),
                    data=alone,
                    expert=group(expert, degrees.expert_model_parallel_size),
                    expert_data=alone,
                    embedding=alone,
                    device=torch.device("cpu"),
                )


def unshard(pieces: Sequence[Tensor], info: ParamInfo) -> Tensor:
    """The whole parameter from the tensor ranks' parts, given in their order."""
    if info.dim is None or len(pieces) == 1:
        return pieces[0]
    blocks = [piece.chunk(info.parts, info.dim) for piece in pieces]
    return torch.cat([part for block in zip(*blocks, strict=True) for part in block], info.dim)


def whole_weights(config: TrainerConfig) -> dict[str, Tensor]:
    """What all ranks hold together, joined; every copy of a weight must be the same."""
    pieces: dict[tuple[str, str], dict[int, Tensor]] = {}
    infos: dict[tuple[str, str], ParamInfo] = {}
    for mesh in places(config):
        chunks, of_rank = build_model(config, mesh)
        for chunk in chunks:
            for key, parameter in chunk.named_parameters():
                info = of_rank[key]
                infos[info.name, key] = info
                held = pieces.setdefault((info.name, key), {})
                already = held.setdefault(mesh.tensor.rank, parameter.detach())
                assert torch.equal(already, parameter)
    joined: dict[str, Tensor] = {}
    for where, held in pieces.items():
        whole = unshard([held[rank] for rank in sorted(held)], infos[where])
        assert tuple(whole.shape) == infos[where].full_shape
        assert torch.equal(joined.setdefault(where[0], whole), whole), "a tied copy differs"
    return joined


def trainer(model: ModelConfig, parallel: ParallelConfig, seed: int = 1234) -> TrainerConfig:
    training = TrainingConfig(training_iters=1, seed=seed)
    return TrainerConfig(training=training, model=model, parallel=parallel)


@pytest.mark.parametrize(
    "parallel",
    [
        ParallelConfig(tensor_model_parallel_size=2),
        ParallelConfig(tensor_model_parallel_size=4, sequence_parallel=True),
        ParallelConfig(pipeline_model_parallel_size=2),
        ParallelConfig(pipeline_model_parallel_size=2, virtual_pipeline_model_parallel_size=2),
        ParallelConfig(expert_model_parallel_size=4),
        ParallelConfig(
            tensor_model_parallel_size=2,
            pipeline_model_parallel_size=4,
            expert_model_parallel_size=2,
        ),
    ],
    ids=["TP2", "SP4", "PP2", "PP2 virtual", "EP4", "TP2xPP4xEP2"],
)
@pytest.mark.parametrize("model", [MODEL, EXPERTS], ids=["dense", "experts"])
def test_weights_have_the_same_bits_under_every_layout(
    model: ModelConfig, parallel: ParallelConfig
) -> None:
    if model.num_moe_experts is None:
        parallel = replace(parallel, expert_model_parallel_size=1)
    wanted = whole_weights(trainer(model, ParallelConfig()))
    got = whole_weights(trainer(model, parallel))
    assert got.keys() == wanted.keys()
    for name, weight in got.items():
        # More tensor ranks may pad the vocabulary further; its words come first.
        rows = min(len(weight), len(wanted[name]))
        assert torch.equal(weight[:rows], wanted[name][:rows]), name


def test_another_seed_and_another_name_are_other_numbers() -> None:
    config = trainer(MODEL, ParallelConfig())
    info = ParamInfo("decoder.layers.0.self_attention.linear_qkv.weight", (96, 32))
    values = first_values(info, config, 1)
    assert torch.equal(values, first_values(info, config, 1))
    assert not torch.equal(values, first_values(info, config, 2))
    other = replace(info, name="decoder.layers.1.self_attention.linear_qkv.weight")
    assert not torch.equal(values, first_values(other, config, 1))


def test_spread_of_the_first_weights() -> None:
    config = trainer(MODEL, ParallelConfig())
    plain = first_values(ParamInfo("embedding.word_embeddings.weight", (512, 512)), config, 1)
    assert plain.std().item() == pytest.approx(0.02, rel=0.01)
    assert plain.mean().item() == pytest.approx(0.0, abs=1e-4)
    name = "decoder.layers.3.mlp.linear_fc2.weight"
    closing = first_values(ParamInfo(name, (512, 512)), config, 1)
    assert closing.std().item() == pytest.approx(0.02 / 8**0.5, rel=0.01)
    norm = first_values(ParamInfo("decoder.final_layernorm.weight", (32,)), config, 1)
    bias = first_values(ParamInfo("decoder.final_layernorm.bias", (32,)), config, 1)
    assert norm.eq(1).all()
    assert bias.eq(0).all()


@given(
    size=st.sampled_from([1, 2, 3, 4]),
    parts=st.sampled_from([1, 2, 3]),
    each=st.integers(1, 3),
    other=st.integers(1, 3),
    dim=st.sampled_from([None, 0, 1]),
)
def test_cutting_and_joining_are_inverse(
    size: int, parts: int, each: int, other: int, dim: int | None
) -> None:
    along = size * parts * each
    shape = (other, along) if dim == 1 else (along, other)
    full = torch.arange(along * other).view(shape)
    info = ParamInfo("x.weight", shape, dim=dim, parts=parts)
    pieces = [shard(full, info, rank, size) for rank in range(size)]
    if dim is not None:
        assert all(piece.shape[dim] == along // size for piece in pieces)
    assert torch.equal(unshard(pieces, info), full)


def test_each_rank_gets_its_piece_of_every_block() -> None:
    gate_and_up = torch.tensor([0, 1, 2, 3, 10, 11, 12, 13])
    info = ParamInfo("mlp.linear_fc1.bias", (8,), dim=0, parts=2)
    assert shard(gate_and_up, info, 0, 2).tolist() == [0, 1, 10, 11]
    assert shard(gate_and_up, info, 1, 2).tolist() == [2, 3, 12, 13]
