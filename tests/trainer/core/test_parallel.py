"""A model that is cut over ranks computes what the whole one does: logits and every gradient."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from relkit.checkpoint import rng_state
from relkit.trainer.config.config import ModelConfig, ParallelConfig, TrainerConfig, TrainingConfig
from relkit.trainer.core import rng
from relkit.trainer.core.collectives import all_gather, all_reduce
from relkit.trainer.core.expert_parallel import expert_dispatch
from relkit.trainer.core.init import shard
from relkit.trainer.core.mesh import Mesh, build_mesh
from relkit.trainer.core.model import GPT
from relkit.trainer.core.moe import set_aux_loss_scale
from relkit.trainer.core.parallel import finish_gradients, parallelize
from relkit.trainer.core.tensor_parallel import vocab_parallel_cross_entropy
from tests.trainer.processes import Place, long_ones_run, run_ranks

pytestmark = pytest.mark.timeout(120)
Results = list[dict[str, dict[str, float]]]

RANKS = 4
TOLERANCE = 1e-5
# Rounding to bfloat16 is 2^-8 of a number; a whole model's sums of it come this close.
ROUGH_TOLERANCE = 5e-2

GPT2 = ModelConfig(
    num_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    seq_length=12,
    vocab_size=96,
    make_vocab_size_divisible_by=8,
    hidden_dropout=0.0,
    attention_dropout=0.0,
)
LLAMA = replace(
    GPT2,
    num_attention_heads=8,
    group_query_attention=True,
    num_query_groups=4,
    position_embedding_type="rope",
    normalization="RMSNorm",
    activation="swiglu",
    add_bias_linear=False,
    untie_embeddings_and_output_weights=True,
)
EXPERTS = replace(GPT2, num_moe_experts=4, moe_aux_loss_coeff=0.5, activation="swiglu")


@dataclass(frozen=True)
class Case:
    """A model, and how the four ranks share it."""

    name: str
    model: ModelConfig
    tensor: int = 1
    expert: int = 1
    sequence: bool = False

    @property
    def config(self) -> TrainerConfig:
        parallel = ParallelConfig(
            tensor_model_parallel_size=self.tensor,
            expert_model_parallel_size=self.expert,
            sequence_parallel=self.sequence,
        )
        training = TrainingConfig(training_iters=1)
        return TrainerConfig(training=training, model=self.model, parallel=parallel)


CASES = [
    Case("gpt2 TP2", GPT2, 2),
    Case("gpt2 SP4", GPT2, 4, sequence=True),
    Case("llama TP4", LLAMA, 4),
    Case("llama SP2", LLAMA, 2, sequence=True),
    Case("experts TP2", EXPERTS, 2),
    Case("experts SP4", EXPERTS, 4, sequence=True),
    Case("experts EP4", EXPERTS, expert=4),
    Case("experts TP2xEP2", EXPERTS, 2, expert=2),
    Case("experts SP2xEP2", EXPERTS, 2, expert=2, sequence=True),
    Case("gpt2 SP2 bfloat16", replace(GPT2, compute_dtype="bfloat16"), 2, sequence=True),
]


def samples(mesh: Mesh, config: TrainerConfig) -> tuple[Tensor, Tensor]:
    """Tokens and labels of this data-parallel rank, three samples."""
    generator = torch.Generator().manual_seed(mesh.data.rank)
    size = (3, config.model.seq_length + 1)
    numbers = torch.randint(config.model.vocab_size, size, generator=generator)
    return numbers[:, :-1], numbers[:, 1:]


def whole_model(config: TrainerConfig) -> GPT:
    """The same on every rank; no bias of zeros and no norm of ones, whose faults would not show."""
    torch.manual_seed(1)
    model = GPT(config.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape))
    return model


def relative_error(got: Tensor, wanted: Tensor) -> float:
    assert got.shape == wanted.shape, (got.shape, wanted.shape)
    return float((got - wanted).abs().max() / wanted.abs().max().clamp(min=1e-9))


def compare(case: Case) -> dict[str, float]:
    """How far logits, loss and gradients are from the whole model's, in parts of their largest."""
    config = case.config
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    tokens, labels = samples(mesh, config)
    whole = whole_model(config)
    part = copy.deepcopy(whole)
    infos = parallelize(part, mesh, config)

    whole_logits = whole(tokens)
    whole_loss = functional.cross_entropy(whole_logits.flatten(0, 1).float(), labels.flatten())
    torch.autograd.backward(whole_loss)
    logits = part(tokens)
    loss = vocab_parallel_cross_entropy(logits, labels, mesh.tensor).mean()
    torch.autograd.backward(loss)
    finish_gradients([part], infos, mesh)

    errors = {
        "logits": relative_error(all_gather(logits.detach(), mesh.tensor, 2), whole_logits),
        "loss": relative_error(loss, whole_loss),
    }
    for name, parameter in whole.named_parameters():
        wanted = parameter.grad
        assert wanted is not None
        if ".experts." in name:
            # An expert also learns from the tokens that other ranks sent to it.
            all_reduce(wanted, mesh.expert)
        if name in infos:
            got = part.get_parameter(name).grad
            assert got is not None
            piece = shard(wanted, infos[name], mesh.tensor.rank, mesh.tensor.size)
            errors[name] = relative_error(got, piece)
    return errors


def check_vocabulary_loss() -> dict[str, float]:
    config = Case("", GPT2, RANKS).config
    group = build_mesh(config.parallel, config.model, backend="gloo").tensor
    errors = {}
    generator = torch.Generator().manual_seed(3)
    for name, scale, dtype, real in (
        ("plain", 1.0, torch.float32, 32),
        ("large", 1e4, torch.float32, 32),
        ("bfloat16", 4.0, torch.bfloat16, 32),
        ("padded", 1.0, torch.float32, 21),
    ):
        logits = (torch.randn(3, 5, 32, generator=generator) * scale).to(dtype)
        # With 21 real rows the third rank has some of them, and the fourth has none.
        logits[..., real:] = float("-inf")
        labels = torch.randint(real, (3, 5), generator=generator)
        weights = torch.rand(3, 5, generator=generator)
        whole = logits.clone().requires_grad_()
        wanted = functional.cross_entropy(
            whole.float().flatten(0, 1), labels.flatten(), reduction="none"
        ).view(3, 5)
        torch.autograd.backward((wanted * weights).sum())
        part = logits.chunk(RANKS, -1)[group.rank].clone().requires_grad_()
        got = vocab_parallel_cross_entropy(part, labels, group)
        assert got.dtype == torch.float32
        torch.autograd.backward((got * weights).sum())
        assert whole.grad is not None
        assert part.grad is not None
        errors[f"{name} loss"] = relative_error(got, wanted)
        errors[f"{name} gradient"] = float(
            (part.grad - whole.grad.chunk(RANKS, -1)[group.rank]).abs().max()
        )
    return errors


def check_dispatch() -> dict[str, float]:
    """Rows come back from the experts they were sent to, however few or many there are."""
    config = Case("", EXPERTS, expert=RANKS).config
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    experts = 8
    dispatch = expert_dispatch(mesh.expert, mesh.tensor)
    me = mesh.expert.rank
    all_counts = {
        "even": [[2] * experts] * RANKS,
        "all to one expert": [[0, 0, 0, 5, 0, 0, 0, 0]] * RANKS,
        "one rank without rows": [[0] * experts, [1] * experts, [3] * experts, [0] * experts],
        "no rows at all": [[0] * experts] * RANKS,
        "ragged": [[(3 * rank + 5 * e) % 4 for e in range(experts)] for rank in range(RANKS)],
    }
    errors = {}
    for name, of_ranks in all_counts.items():
        counts = torch.tensor(of_ranks[me])
        numbers = torch.arange(experts).repeat_interleave(counts).unsqueeze(1)
        rows = torch.randn(len(numbers), 3).requires_grad_()

        def run(rows: Tensor, counts: object, name: str = name) -> Tensor:
            expected = [sum(c[2 * me + e] for c in all_counts[name]) for e in range(2)]
            assert counts == expected, (counts, expected)
            mine = torch.arange(2 * me, 2 * me + 2).repeat_interleave(torch.tensor(expected))
            return rows * (mine.unsqueeze(1) + 1)

        outputs = dispatch(rows, counts, run)
        weights = torch.rand(outputs.shape)
        torch.autograd.backward((outputs * weights).sum())
        assert rows.grad is not None
        errors[name] = float(
            torch.cat([outputs - rows * (numbers + 1), rows.grad - weights * (numbers + 1)])
            .abs()
            .sum()
        )
    return errors


def check_dropout(*, sequence: bool) -> dict[str, float]:
    """What tensor ranks share stays the same on both; what they do not has masks of its own."""
    model = replace(GPT2, hidden_dropout=0.5, attention_dropout=0.5)
    config = Case("", model, 2, sequence=sequence).config
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    part = whole_model(config)
    parallelize(part, mesh, config)
    rng.seed_all(1, mesh)
    seen: list[Tensor] = []
    layer = part.decoder.layers["0"]
    layer.register_forward_hook(lambda _, given, output: seen.append(output.detach()))
    part.train()(samples(mesh, config)[0])
    state = rng_state.capture()
    ones = torch.ones(3, 2, 12, 8)
    heads = layer.get_submodule("self_attention.core_attention")(ones, ones, ones)

    def differs(tensor: Tensor) -> float:
        first, second = all_gather(tensor.unsqueeze(0), mesh.tensor, 0)
        return float((first != second).float().mean())

    return {
        "stream": differs(seen[0]),
        "heads": differs(heads),
        "numbers": differs(torch.tensor(list(state.torch))),
        "region's numbers": differs(torch.tensor(list(state.tracker))),
    }


def everything(place: Place) -> None:
    parts_of_models(place, CASES)


def parts_of_models(place: Place, cases: Iterable[Case] = ()) -> None:
    set_aux_loss_scale(1.0)
    with place.world("all", RANKS):
        seen = {case.name: compare(case) for case in cases}
        seen["vocabulary"] = check_vocabulary_loss()
        seen["dispatch"] = check_dispatch()
        seen["dropout"] = check_dropout(sequence=False)
        seen["dropout SP"] = check_dropout(sequence=True)
    torch.save(seen, place.folder / f"{place.rank}.pt")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Results:
    """What each rank found."""
    folder: Path = tmp_path_factory.mktemp("parallel")
    job = everything if long_ones_run(request) else parts_of_models
    run_ranks(job, RANKS, folder, deadline_s=100)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(RANKS)]


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_cut_model_is_the_whole_one(results: Results, case: Case) -> None:
    tolerance = TOLERANCE if case.model.compute_dtype == "float32" else ROUGH_TOLERANCE
    for rank, of_rank in enumerate(results):
        wrong = {name: error for name, error in of_rank[case.name].items() if not error < tolerance}
        assert not wrong, f"rank {rank}"
    every = {name for of_rank in results for name in of_rank[case.name]}
    assert every == {"logits", "loss"} | {name for name, _ in GPT(case.model).named_parameters()}


def test_the_loss_of_a_cut_vocabulary_is_the_whole_ones(results: Results) -> None:
    for of_rank in results:
        for name, error in of_rank["vocabulary"].items():
            assert error < (1e-2 if name.startswith("bfloat16") else 1e-6), name


def test_rows_come_back_from_their_experts(results: Results) -> None:
    for of_rank in results:
        assert set(of_rank["dispatch"].values()) == {0.0}


def test_tensor_ranks_drop_the_same_of_what_they_share(results: Results) -> None:
    for of_rank in results:
        assert of_rank["dropout"]["stream"] == 0
        assert of_rank["dropout"]["numbers"] == 0
        assert of_rank["dropout"]["heads"] > 0.3
        assert of_rank["dropout"]["region's numbers"] > 0


def test_parts_of_a_sequence_have_masks_of_their_own(results: Results) -> None:
    for of_rank in results:
        assert of_rank["dropout SP"]["stream"] > 0.9
        assert of_rank["dropout SP"]["numbers"] == 0
        assert of_rank["dropout SP"]["heads"] > 0.3
