"""The optimizer: against torch's own, in every form, and over ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from relkit.errors import BadInputFile
from relkit.trainer.config.config import OptimizerConfig, TrainerConfig
from relkit.trainer.core.build import build_model, loss_function
from relkit.trainer.core.flat_buffer import ALIGNMENT, Bucket, FlatBuffer, Span, plan
from relkit.trainer.core.mesh import Group, build_mesh
from relkit.trainer.core.model import GPT
from relkit.trainer.core.optimizer import Optimizer, build_optimizer
from relkit.trainer.core.pipeline import run_step
from tests.trainer.layouts import ALONE, LAYOUTS, Layout, micro_batches
from tests.trainer.processes import Place, long_ones_run, run_ranks

RATE = 1e-2
STEPS = 3
# Large enough that an element whose gradient weight decay almost cancels does not hang on one bit.
EPS = 1e-3


def configured(training: dict[str, Any] | None = None, **optimizer: Any) -> TrainerConfig:  # noqa: ANN401
    config = ALONE.config("gpt2", OptimizerConfig(**optimizer))
    return replace(config, training=replace(config.training, **(training or {})))


def made(config: TrainerConfig) -> tuple[GPT, Optimizer]:
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    chunks, infos = build_model(config, mesh)
    return chunks[0], build_optimizer(chunks, infos, config, mesh)


def put_gradients(model: nn.Module, step: int, factor: float = 1.0) -> None:
    generator = torch.Generator().manual_seed(step)
    for parameter in model.parameters():
        assert parameter.grad is not None
        drawn = torch.randn(parameter.shape, generator=generator)
        parameter.grad.copy_(drawn * parameter.shape[-1] ** -0.5 * factor)


def stepped(config: TrainerConfig, factor: float = 1.0) -> dict[str, Tensor]:
    """The parameters after some steps."""
    model, optimizer = made(config)
    for step in range(STEPS):
        optimizer.zero_grad()
        put_gradients(model, step, factor)
        optimizer.reduce_gradients()
        optimizer.update(optimizer.prepare(factor), RATE)
        optimizer.gather_parameters()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def torch_stepped(
    config: TrainerConfig, make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer]
) -> dict[str, Tensor]:
    """The same with an optimizer and the clipping of torch."""
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    model = build_model(config, mesh)[0][0]
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    vectors = [parameter for parameter in model.parameters() if parameter.dim() <= 1]
    optimizer = make([{"params": matrices}, {"params": vectors, "weight_decay": 0.0}])
    for step in range(STEPS):
        for parameter in model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        put_gradients(model, step)
        if config.training.grad_clip_type == "GradClipByValue":
            nn.utils.clip_grad_value_(model.parameters(), config.training.clip_value)
        elif config.training.clip_value:
            nn.utils.clip_grad_norm_(model.parameters(), config.training.clip_value)
        optimizer.step()
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def assert_close(got: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert got.keys() == wanted.keys()
    for name, tensor in wanted.items():
        torch.testing.assert_close(got[name], tensor, rtol=1e-5, atol=1e-7, msg=name)


TORCH: dict[str, Callable[[list[dict[str, Any]]], torch.optim.Optimizer]] = {
    "AdamW": lambda g: torch.optim.AdamW(g, lr=RATE, betas=(0.9, 0.95), eps=EPS, weight_decay=0.1),
    "Adam": lambda g: torch.optim.Adam(g, lr=RATE, betas=(0.9, 0.95), eps=EPS, weight_decay=0.1),
    "SGD": lambda g: torch.optim.SGD(g, lr=RATE, momentum=0.8, weight_decay=0.1),
}
CLIPPING = [
    {"clip_value": 0.0},
    {"clip_value": 0.5},
    {"grad_clip_type": "GradClipByValue", "clip_value": 0.1},
]


@pytest.mark.parametrize("clipping", CLIPPING, ids=["none", "norm", "value"])
@pytest.mark.parametrize("name", TORCH)
def test_steps_are_those_of_torch(name: str, clipping: dict[str, Any]) -> None:
    config = configured(
        clipping, optimizer_type=name, betas=(0.9, 0.95), eps=EPS, momentum=0.8, weight_decay=0.1
    )
    assert_close(stepped(config), torch_stepped(config, TORCH[name]))


@pytest.mark.parametrize("name", [*TORCH, "CAME"])
@pytest.mark.parametrize("clipping", CLIPPING, ids=["none", "norm", "value"])
def test_a_loss_scale_changes_no_step(name: str, clipping: dict[str, Any]) -> None:
    config = configured(clipping, optimizer_type=name)
    scaled = stepped(config, factor=4096.0)
    assert_close(scaled, stepped(config))


@pytest.mark.parametrize("name", [*TORCH, "CAME"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_leaves_everything_as_it_is(name: str, bad: float) -> None:
    model, optimizer = made(configured(optimizer_type=name))
    put_gradients(model, 0)
    optimizer.update(optimizer.prepare(), RATE)
    before = optimizer.full_state()
    last = next(iter(model.parameters()))
    assert last.grad is not None
    last.grad.view(-1)[3] = bad
    facts = optimizer.prepare()
    assert not facts.finite
    optimizer.update(facts, RATE)
    assert digest(optimizer.full_state()) == digest(before)
    assert optimizer.steps == 1


def came_step(value: Tensor, gradients: list[Tensor], betas: tuple[float, ...]) -> Tensor:
    """The paper's algorithm for one matrix, written down in float64 with whole matrices."""
    value, momentum = value.double(), torch.zeros(value.shape, dtype=torch.float64)
    square = [torch.zeros(size, dtype=torch.float64) for size in value.shape]
    trust = [torch.zeros(size, dtype=torch.float64) for size in value.shape]

    def mix(kept: list[Tensor], new: Tensor, beta: float) -> Tensor:
        kept[0] = beta * kept[0] + (1 - beta) * new.mean(1)
        kept[1] = beta * kept[1] + (1 - beta) * new.mean(0)
        return kept[0][:, None] * kept[1][None, :] / kept[0].mean()

    for gradient in gradients:
        step = gradient.double() / mix(square, gradient.double() ** 2 + 1e-30, betas[1]).sqrt()
        step = step / max(1.0, float((step**2).mean().sqrt()))
        momentum = betas[0] * momentum + (1 - betas[0]) * step
        confidence = mix(trust, (step - momentum) ** 2 + 1e-16, betas[2])
        value = value * (1 - RATE * 0.1) - RATE * momentum / confidence.sqrt()
    return value


def test_came_is_the_papers() -> None:
    config = configured(
        {"clip_value": 0.0}, optimizer_type="CAME", betas=(0.9, 0.99, 0.999), weight_decay=0.1
    )
    model, optimizer = made(config)
    name = "decoder.layers.1.mlp.linear_fc1.weight"
    matrix = model.get_parameter(name)
    first, gradients = matrix.detach().clone(), []
    for step in range(STEPS):
        put_gradients(model, step)
        assert matrix.grad is not None
        gradients.append(matrix.grad.clone())
        optimizer.update(optimizer.prepare(), RATE)
    wanted = came_step(first, gradients, (0.9, 0.99, 0.999))
    torch.testing.assert_close(matrix.detach().double(), wanted, rtol=1e-4, atol=1e-6)


def test_what_is_loaded_goes_on_as_what_was_saved() -> None:
    for name in (*TORCH, "CAME"):
        config = configured(optimizer_type=name)
        (model, optimizer), (other, restored) = made(config), made(config)
        put_gradients(model, 0)
        optimizer.update(optimizer.prepare(), RATE)
        restored.load_full_state(optimizer.full_state())
        if name == "CAME":  # the plain optimizer's weights come with the model
            other.load_state_dict(model.state_dict())
        for one, its in ((model, optimizer), (other, restored)):
            put_gradients(one, 1)
            its.update(its.prepare(), RATE)
        assert digest(optimizer.full_state()) == digest(restored.full_state()), name


def test_a_state_of_another_model_is_refused() -> None:
    config = configured()
    _, optimizer = made(config)
    state = optimizer.full_state()
    state["buffers"][0]["exp_avg"] = state["buffers"][0]["exp_avg"][:-1]
    with pytest.raises(BadInputFile, match=r"elements of exp_avg in buffer 0; the model has"):
        optimizer.load_full_state(state)
    _, other = made(configured(optimizer_type="SGD"))
    with pytest.raises(BadInputFile, match=r"has no elements of momentum_buffer"):
        other.load_full_state(optimizer.full_state())


def test_the_layout_is_megatrons() -> None:
    layout = plan([("a", (70,), False), ("tied", (3, 5), True), ("b", (10, 10), False)], 2)
    assert layout.spans == (
        Span("b", 0, 100, (10, 10)),
        Span("tied", 128, 143, (3, 5)),
        Span("a", 256, 326, (70,)),
    )
    # The gap before a bucket of its own counts as used: 128, not 100.
    assert layout.buckets == (Bucket(0, 128, 128), Bucket(128, 143, 256), Bucket(256, 326, 384))
    assert layout.size == 384


shapes = st.lists(
    st.tuples(st.integers(1, 300), st.booleans(), st.booleans()), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(shapes, st.integers(1, 9))
def test_every_element_is_in_one_shard_and_one_run(
    drawn: list[tuple[int, bool, bool]], ranks: int
) -> None:
    parameters = [(str(n), (size,), alone) for n, (size, alone, _) in enumerate(drawn)]
    keys = {str(n): key for n, (_, _, key) in enumerate(drawn)}
    layout = plan(parameters, ranks)
    assert sorted(span.name for span in layout.spans) == sorted(keys)
    for span in layout.spans:
        assert span.start % ALIGNMENT == 0
    seen = torch.zeros(layout.size, dtype=torch.int64)
    found: dict[str, set[bool]] = {name: set() for name in keys}
    for rank in range(ranks):
        of_rank = Group(None, tuple(range(ranks)), rank, ranks)
        buffer = FlatBuffer(
            [(name, nn.Parameter(torch.ones(shape)), alone) for name, shape, alone in parameters],
            reduce=of_rank,
            shard=of_rank,
        )
        for number, run, key in buffer.runs(buffer.shards, keys.__getitem__):
            assert layout.buckets[number].start <= run.start < run.stop
            assert run.stop <= layout.buckets[number].end
            seen[run] += 1
            for span in layout.spans:
                if max(span.start, run.start) < min(span.end, run.stop):
                    found[span.name].add(key)
    assert (seen == 1).all()
    assert found == {name: {key} for name, key in keys.items()}


def digest(state: dict[str, Any]) -> str:
    found = hashlib.sha256(str(state["steps"]).encode())
    contents = [content for content in state["buffers"] if content] + list(state["came"].values())
    for content in contents:
        for name, tensor in sorted(content.items()):
            found.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return found.hexdigest()


class Ranks:
    """A run of real steps over ranks."""

    def __init__(self, config: TrainerConfig, replicas: int = 0) -> None:
        self.config, self.step = config, 0
        self.mesh = build_mesh(config.parallel, config.model, backend="gloo")
        self.chunks, self.infos = build_model(config, self.mesh)
        shards = None
        if replicas:
            part = of_part(self.mesh.data, replicas)
            shards = (part, part)
        self.optimizer = build_optimizer(self.chunks, self.infos, config, self.mesh, shards=shards)

    def reduced(self) -> None:
        data = self.mesh.data
        batches = micro_batches(self.step, rank=data.rank, ranks=data.size)
        self.optimizer.zero_grad()
        run_step(
            self.chunks,
            batches,
            loss_function(self.config, self.mesh),
            self.mesh,
            self.config,
            grad_scale=1 / (len(batches) * data.size),
        )
        self.optimizer.reduce_gradients()
        self.step += 1

    def steps(self, count: int) -> list[str]:
        norms = []
        for _ in range(count):
            self.reduced()
            facts = self.optimizer.prepare()
            norms.append(facts.grad_norm.hex())
            self.optimizer.update(facts, RATE)
            self.optimizer.gather_parameters()
        return norms

    def weights(self) -> str:
        found = hashlib.sha256()
        for chunk in self.chunks:
            for parameter in chunk.parameters():
                found.update(parameter.detach().numpy().tobytes())
        return found.hexdigest()


def of_part(data: Group, replicas: int) -> Group:
    """This rank's replica group: the data ranks cut into equal parts, each with all shards."""
    size = data.size // replicas
    mine = data
    for start in range(0, data.size, size):
        ranks = data.ranks[start : start + size]
        group = dist.new_group(list(ranks))
        if data.rank in range(start, start + size):
            assert isinstance(group, dist.ProcessGroup)
            mine = Group(group, ranks, data.rank - start, size)
    return mine


NORM_LAYOUTS = [layout for layout in LAYOUTS if layout.ranks <= 4]
DISTRIBUTED = {"use_distributed_optimizer": True}


def all_forms(place: Place) -> None:
    on_ranks(place, NORM_LAYOUTS, {"plain": 0, "distributed": 0, "replicas": 2})


def sharded(place: Place) -> None:
    on_ranks(place, (), {"distributed": 0})


def on_ranks(place: Place, layouts: Iterable[Layout], forms: Mapping[str, int]) -> None:
    seen: dict[str, Any] = {"norms": {}}
    for layout in layouts:
        with place.world(layout.name, layout.ranks) as inside:
            if inside:
                run = Ranks(layout.config(layout.models[-1]))
                run.reduced()
                seen["norms"][layout.name] = run.optimizer.prepare().grad_norm
    distributed = configured(DISTRIBUTED)
    with place.world("forms", 4):
        for name, replicas in forms.items():
            run = Ranks(configured() if name == "plain" else distributed, replicas)
            norms = run.steps(STEPS)
            state = run.optimizer.full_state()
            assert (state["buffers"][0] is None) == (place.rank > 0)
            seen[name] = [norms, run.weights(), digest(state) if place.rank == 0 else ""]
            elements = sum(m.numel() for m in run.optimizer.moments[0]["exp_avg"])
            seen[f"{name} elements"] = elements
        if place.rank == 0:
            torch.save(state, place.folder / "state.pt")
        # Whoever has left its world can still make the step.
        run.reduced()
        facts = run.optimizer.prepare()
    run.optimizer.update(facts, RATE)
    with place.world("two", 2) as inside:
        if inside:
            fewer = Ranks(distributed)
            fewer.optimizer.load_full_state(torch.load(place.folder / "state.pt"))
            state = fewer.optimizer.full_state()
            seen["loaded"] = digest(state) if place.rank == 0 else ""
            fewer.step = STEPS
            seen["norms of two"] = fewer.steps(1)
    torch.save(seen, place.folder / f"{place.rank}.pt")


@pytest.fixture(scope="module")
def ranks(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> list[dict[str, Any]]:
    """What each of four ranks has seen."""
    folder: Path = tmp_path_factory.mktemp("optimizer")
    run_ranks(all_forms if long_ones_run(request) else sharded, 4, folder, deadline_s=120)
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(4)]


@pytest.mark.long
@pytest.mark.timeout(150)
def test_all_forms_have_the_same_bits(ranks: list[dict[str, Any]]) -> None:
    for seen in ranks:
        assert seen["plain"] == seen["distributed"] == seen["replicas"]
        assert seen["plain"][:2] == ranks[0]["plain"][:2], "ranks agree"
        whole = seen["plain elements"]
        assert seen["distributed elements"] * 4 == seen["replicas elements"] * 2 == whole


@pytest.mark.long
@pytest.mark.timeout(150)
@pytest.mark.parametrize("layout", NORM_LAYOUTS, ids=lambda layout: layout.name)
def test_the_norm_counts_every_parameter_once(ranks: list[dict[str, Any]], layout: Any) -> None:  # noqa: ANN401
    alone = Ranks(ALONE.config(layout.models[-1]))
    alone.reduced()
    wanted = alone.optimizer.prepare().grad_norm
    parameters = [p.grad for c in alone.chunks for p in c.parameters() if p.grad is not None]
    assert wanted == pytest.approx(nn.utils.get_total_norm(parameters).item(), rel=1e-5)
    for seen in ranks[: layout.ranks]:
        assert seen["norms"][layout.name] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.timeout(150)
def test_a_state_is_the_same_on_fewer_ranks(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["loaded"] == ranks[0]["distributed"][2]
    alone = Ranks(configured())
    norms = [float.fromhex(norm) for norm in alone.steps(STEPS + 1)]
    assert float.fromhex(ranks[1]["norms of two"][0]) == pytest.approx(norms[-1], rel=1e-4)
