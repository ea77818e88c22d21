"""Shards on several ranks: the plain path's bits, their memory, copies that stand in, the audit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from relkit.trainer.checkpointing import checkpoint
from relkit.trainer.checkpointing.audit import audit, fingerprint
from relkit.trainer.checkpointing.optimizer_shards import gathered_state, group_name, transfers
from relkit.trainer.config.config import ParallelConfig, TrainerConfig
from relkit.trainer.core.build import build_model, loss_function
from relkit.trainer.core.mesh import Group, build_mesh
from relkit.trainer.core.optimizer import Optimizer, build_optimizer
from relkit.trainer.core.pipeline import run_step
from relkit.trainer.core.progress import Progress
from relkit.ttp.handlers import NotFinite, SaveRequest
from relkit.ttp.plan import GroupPlan, SavePlan, Survivor, make_plan
from relkit.ttp.replicas import ReplicaMap, bytes_per_parameter, replica_map
from tests.trainer.layouts import Layout, micro_batches
from tests.trainer.processes import Place, long_ones_run, run_ranks

RATE = 1e-2
STEPS = 3
OF_RANK = 2


@dataclass(frozen=True)
class Case:
    """A layout, how its optimizer is made, and who is dead when it is saved."""

    name: str
    layout: Layout
    copies: int = 2
    dead: tuple[int, ...] = ()
    clip: str = "ClipGlobalNorm"


def layout(ranks: int, model: str = "gpt2", **degrees: Any) -> Layout:  # noqa: ANN401
    return Layout("", ranks, ParallelConfig(**degrees), True, (model,))


EP2 = layout(4, "experts", expert_model_parallel_size=2)
CASES = (
    Case("DP2", layout(2), dead=(0,)),
    Case("DP3", layout(3), dead=(1,)),
    Case("DP3, three copies", layout(3), copies=3, dead=(0, 2)),
    Case("DP4", layout(4), dead=(0, 1)),
    Case("DP4, clipped by value", layout(4), clip="GradClipByValue", dead=(3,)),
    Case("experts on all", layout(2, "experts"), dead=(1,)),
    Case("TP2", layout(4, tensor_model_parallel_size=2), dead=(0, 3)),
    Case("PP2", layout(4, pipeline_model_parallel_size=2), dead=(1, 2)),
    Case("EP2", EP2, dead=(0,)),
    Case("EP2, another", EP2, dead=(3,)),
)
QUICK = (CASES[0], CASES[2])


def each(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """A test of each; of all but the quick ones a long one."""
    marked = [
        pytest.param(case, id=case.name, marks=() if case in QUICK else pytest.mark.long)
        for case in cases
    ]
    return pytest.mark.parametrize("case", marked)


class Steps:
    """This rank's part of a run."""

    def __init__(self, case: Case, *, copies: int) -> None:
        config = case.layout.config(case.layout.models[0])
        training = replace(
            config.training,
            grad_clip_type=case.clip,
            clip_value=0.05,
        )
        dataset = replace(config.dataset, global_batch_size=None, micro_batch_num=OF_RANK)
        self.config: TrainerConfig = replace(config, training=training, dataset=dataset)
        self.mesh = build_mesh(config.parallel, config.model, backend="gloo")
        self.chunks, self.infos = build_model(self.config, self.mesh)
        self.maps = (
            self.map(self.mesh.data, copies),
            self.map(self.mesh.expert_data, copies, expert=self.mesh.expert.size > 1),
        )
        self.optimizer: Optimizer = build_optimizer(
            self.chunks,
            self.infos,
            self.config,
            self.mesh,
            replicas=self.maps if copies else None,
        )
        self.facts: list[str] = []
        self.step = 0

    def map(self, group: Group, copies: int, *, expert: bool = False) -> ReplicaMap:
        return replica_map(
            group_name(self.mesh, expert=expert), group.ranks, copies=min(copies or 1, group.size)
        )

    def up_to_the_update(self) -> None:
        data = self.mesh.data
        batches = micro_batches(self.step * data.size + data.rank, rank=0, ranks=2)[:OF_RANK]
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

    def steps(self, count: int, *, gather: bool = True) -> None:
        for _ in range(count):
            self.up_to_the_update()
            facts = self.optimizer.prepare()
            self.facts.append(facts.grad_norm.hex())
            self.optimizer.update(facts, RATE)
            self.step += 1
            if gather:
                self.optimizer.gather_parameters()

    def content(self, state: dict[str, Any]) -> dict[str, Any]:
        progress = Progress(step=self.step, rng=_Plain())
        return checkpoint.contents(
            self.chunks, self.optimizer, state, progress, self.config, self.mesh
        )


class _Plain:
    """In the place of random streams, which no step here draws from."""

    def to_plain(self) -> dict[str, Any]:
        return {"rng_tracker_states": {}}


def equal(one: Any, other: Any) -> bool:  # noqa: ANN401
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def all_maps(run: Steps) -> list[ReplicaMap]:
    """As the controller knows them: of every group, each once."""
    found: list[Any] = [None] * run.mesh.world.size
    mine = run.maps if run.mesh.expert.size > 1 else run.maps[:1]
    torch.distributed.all_gather_object(found, mine)
    return list({each.name: each for maps in found for each in maps}.values())


def request_for(run: Steps, maps: list[ReplicaMap], dead: tuple[int, ...]) -> SaveRequest | None:
    """What the controller tells this rank when those are dead; None to whoever takes no part."""
    alive = [rank for rank in range(run.mesh.world.size) if rank not in dead]
    plan = make_plan([Survivor(rank, run.step) for rank in alive], maps)
    assert isinstance(plan, SavePlan), plan
    group = torch.distributed.new_group(list(plan.ranks))
    me = run.mesh.world.global_rank
    if me not in plan.ranks:
        return None
    raw = group._get_backend(torch.device("cpu")) if len(plan.ranks) > 1 else None
    return SaveRequest(run.step, Path(), plan, me, raw, plan.ranks)


def every_case(place: Place) -> None:
    on_ranks(place, CASES)


def on_two(place: Place) -> None:
    on_ranks(place, QUICK)


def on_ranks(place: Place, cases: Sequence[Case]) -> None:
    torch.set_num_threads(1)
    seen: dict[str, Any] = {}
    for case in cases:
        with place.world(case.name, case.layout.ranks) as inside:
            if not inside:
                continue
            plain, copied = Steps(case, copies=0), Steps(case, copies=case.copies)
            plain.steps(STEPS)
            copied.steps(STEPS - 1)
            maps = all_maps(copied)
            # The last step's weights are not gathered: every rank has only those it updated.
            copied.steps(1, gather=False)
            facts: dict[str, Any] = {"norms": plain.facts == copied.facts}
            wanted = plain.content(plain.optimizer.full_state())
            request = request_for(copied, maps, case.dead)
            state = None if request is None else gathered_state(copied.optimizer, request)
            facts["writes"] = (
                None
                if state is None
                else group_name(copied.mesh, expert=copied.mesh.expert.size > 1)
            )
            if state is not None:
                # Whoever writes in a normal save is the first of its group; compare with that one.
                got = copied.content(state)
                torch.save(got, place.folder / f"{case.name} {facts['writes']} got.pt")
            if plain.mesh.expert_data.rank == 0:
                name = group_name(plain.mesh, expert=plain.mesh.expert.size > 1)
                torch.save(wanted, place.folder / f"{case.name} {name} wanted.pt")
            copied.optimizer.gather_parameters()
            facts["weights"] = all(
                torch.equal(one, other)
                for a, b in zip(plain.chunks, copied.chunks, strict=True)
                for one, other in zip(a.parameters(), b.parameters(), strict=True)
            )
            facts["bytes"] = measured_bytes(copied.optimizer)
            facts["differences"] = len(audit(copied.optimizer))
            seen[case.name] = facts
    with place.world("bad", 4) as inside:
        if inside:
            seen.update(corrupted(place))
    torch.save(seen, place.folder / f"{place.rank}.pt")


def corrupted(place: Place) -> dict[str, Any]:
    """One bit of a moment, then one of a weight, then a NaN."""
    run = Steps(CASES[3], copies=2)
    run.steps(1)
    found: dict[str, Any] = {}
    maps = all_maps(run)
    moment = run.optimizer.moments[0]["exp_avg"][0]
    if place.rank == 1:
        moment.view(torch.int32)[5] ^= 1
    found["moment"] = [str(each) for each in audit(run.optimizer)]
    if place.rank == 1:
        moment.view(torch.int32)[5] ^= 1
        run.optimizer.buffers[0].parameters.view(torch.int32)[3] ^= 1 << 20
    found["weight"] = [str(each) for each in audit(run.optimizer)]
    if place.rank == 1:
        run.optimizer.buffers[0].parameters.view(torch.int32)[3] ^= 1 << 20
    if place.rank == 3:
        run.optimizer.copied[0][1]["exp_avg_sq"][0][7] = float("nan")
    request = request_for(run, maps, (1,))
    found["refusal"] = ""
    try:
        written = None if request is None else gathered_state(run.optimizer, request)
        assert written is None
    except NotFinite as error:
        found["refusal"] = str(error)
    return found


def measured_bytes(optimizer: Optimizer) -> float:
    """Of a parameter: its value, its gradient, and the moments of all shards held."""
    kept = [*optimizer.moments, *(of for copies in optimizer.copied for of in copies.values())]
    moments = [tensor for of in kept for tensors in of.values() for tensor in tensors]
    flat = [tensor for b in optimizer.buffers for tensor in (b.parameters, b.gradients)]
    total = sum(tensor.numel() * tensor.element_size() for tensor in (*moments, *flat))
    return total / sum(buffer.layout.size for buffer in optimizer.buffers)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    made: Path = tmp_path_factory.mktemp("replicated")
    run_ranks(every_case if long_ones_run(request) else on_two, 4, made, deadline_s=120)
    return made


def facts_of(folder: Path, case: Case) -> list[dict[str, Any]]:
    loaded = [torch.load(folder / f"{rank}.pt") for rank in range(case.layout.ranks)]
    return [facts[case.name] for facts in loaded]


@pytest.mark.timeout(150)
@each(CASES)
def test_copies_change_no_bit(folder: Path, case: Case) -> None:
    for facts in facts_of(folder, case):
        assert facts["norms"]
        assert facts["weights"]
        assert facts["differences"] == 0


@pytest.mark.timeout(150)
@each(CASES)
def test_survivors_write_what_all_would_have_written(folder: Path, case: Case) -> None:
    written = [facts["writes"] for facts in facts_of(folder, case) if facts["writes"]]
    wanted = sorted(folder.glob(f"{case.name} tp* wanted.pt"))
    assert len(set(written)) == len(written) == len(wanted)
    for path in wanted:
        got = torch.load(path.with_name(path.name.replace("wanted", "got")), weights_only=False)
        whole = torch.load(path, weights_only=False)
        for content in (*got.values(), *whole.values()):
            content.pop("args", None) if isinstance(content, dict) else None
        assert equal(got, whole), path.name


@pytest.mark.timeout(150)
@each(case for case in CASES if "EP2" not in case.name)  # which has groups of two sizes
def test_memory_is_what_the_formula_says(folder: Path, case: Case) -> None:
    size = case.layout.ranks // (2 if case.name in ("TP2", "PP2") else 1)
    said = bytes_per_parameter(size, case.copies)
    for facts in facts_of(folder, case):
        assert facts["bytes"] == pytest.approx(said, rel=0.02)


@pytest.mark.timeout(150)
def test_the_audit_names_who_differs(folder: Path) -> None:
    for rank in range(4):
        seen = torch.load(folder / f"{rank}.pt")
        (moment,) = seen["moment"]
        assert "exp_avg of shard 1" in moment
        assert "between ranks 1, 3, and no third copy says which" in moment
        (weight,) = seen["weight"]
        assert "param of shard 0" in weight
        assert "differs on rank 1 from the other copies" in weight


@pytest.mark.timeout(150)
def test_a_state_that_is_not_finite_is_refused_by_name(folder: Path) -> None:
    said = [torch.load(folder / f"{rank}.pt")["refusal"] for rank in range(4)]
    assert [sentence for sentence in said if sentence] == [
        "exp_avg_sq of shard 1 of group tp0 pp0 is not finite"
    ]


def test_a_fingerprint_sees_every_single_change() -> None:
    tensor = torch.randn(70_000)
    before = fingerprint(tensor)
    for place in (0, 1, 4095, 69_999):
        for bit in (0, 13, 31):
            tensor.view(torch.int32)[place] ^= -(1 << 31) if bit == 31 else 1 << bit
            assert fingerprint(tensor) != before
            tensor.view(torch.int32)[place] ^= -(1 << 31) if bit == 31 else 1 << bit
    assert fingerprint(tensor) == before


def test_dense_weights_go_to_every_expert_place() -> None:
    plan = SavePlan(
        3,
        (),
        (),
        (
            GroupPlan("tp0 pp0", (0, 1, 2, 1), 0),
            GroupPlan("tp0 pp0 ep0", (2, 2), 2),
            GroupPlan("tp0 pp0 ep1", (1, 1), 1),
        ),
    )
    found = transfers(plan)
    dense = [each for each in found if each.experts is False]
    assert {(each.writer, each.moments) for each in dense} == {(2, True), (1, False)}
    assert [each.holder for each in dense if each.writer == 2] == [0, 1, 2, 1]
    assert all(each.moments for each in found if each.experts)
