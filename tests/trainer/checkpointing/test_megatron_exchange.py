"""Checkpoints both ways: megatron-core's optimizer loads ours, and ours loads megatron-core's."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from relkit.trainer.config.config import ModelConfig, OptimizerConfig, TrainerConfig
from relkit.trainer.data.samples import MicroBatch
from relkit.trainer.megatron import names, parameter_states
from tests.trainer import megatron_core
from tests.trainer.checkpointing.checkpoint_run import Run
from tests.trainer.checkpointing.megatron_run import MegatronRun, State, streams
from tests.trainer.layouts import ALONE, LAYOUTS, Layout, micro_batches
from tests.trainer.processes import Place, long_ones_run, run_ranks

TYPES = ("float32", "bfloat16", "float16")
SCHEDULE = OptimizerConfig(
    learning_rate=1e-2, end_learning_rate=1e-3, warmup_fraction=0.03, lr_decay_style="cosine"
)

# What `Run.steps` updates with.
CONSTANT = replace(SCHEDULE, warmup_fraction=None, lr_decay_style="constant")
STEPS = 3


@dataclass(frozen=True)
class Case:
    """One cell of the table."""

    layout: Layout
    model: str
    dtype: str
    sharded: bool

    @property
    def name(self) -> str:
        form = "sharded" if self.sharded else "plain"
        return f"{self.layout.name} {self.model} {self.dtype} {form}"

    @property
    def quick(self) -> bool:
        return self.layout.ranks == 1

    @property
    def trains(self) -> bool:
        """Whether both take steps. Without a GPU, megatron-core has no experts' layer that runs."""
        return self.dtype == "float32" and self.model != "experts"

    def config(self, schedule: OptimizerConfig = SCHEDULE) -> TrainerConfig:
        layout = replace(self.layout, distributed_optimizer=self.sharded)
        config = layout.config(self.model, schedule)
        # Nothing is padded: Megatron's loss counts the rows that pad the vocabulary, ours does not.
        model: ModelConfig = replace(config.model, compute_dtype=self.dtype, vocab_size=128)
        return replace(config, model=model)


CASES = [
    Case(layout, model, dtype, sharded)
    for layout in (ALONE, *LAYOUTS)
    if not layout.distributed_optimizer or layout.name == "all at once"
    for model in layout.models
    for dtype in (TYPES if layout.ranks == 1 else TYPES[: 1 + (model == layout.models[-1])])
    for sharded in (False, True)
]


def job(place: Place, cases: Iterable[Case]) -> None:
    megatron_core.on_cpu()
    for case in cases:
        with place.world(case.name, case.layout.ranks) as taking_part:
            if taking_part:
                seen: dict[str, Any] = {"there": there(case, place), "back": back(case, place)}
                if case.trains:
                    seen["losses"] = losses(case, place)
                path = place.folder / f"{case.name} {place.rank}.json"
                path.write_text(json.dumps(seen))


def quick(place: Place) -> None:
    job(place, [case for case in CASES if case.quick])


def every(place: Place) -> None:
    job(place, CASES)


def there(case: Case, place: Place) -> list[str]:
    """What differs once megatron-core has loaded what a run of ours has saved."""
    run = Run(case.config())
    run.steps(2)
    if case.dtype == "float16":
        scaler = {"scale": 4096.0, "growth_tracker": 3, "hysteresis_tracker": 1}
        run.progress = replace(run.progress, loss_scaler=scaler)
    folder = place.folder / f"{case.name} ours"
    run.save(folder)
    theirs = MegatronRun(arguments(run))
    theirs.load(folder)
    wrong = differing(whole(run, place, case.name), theirs.states(), run, theirs)
    wrong += ["random"] * (streams_of(streams()) != streams_of(run.progress.rng.to_plain()))
    if case.dtype == "float16" and float(theirs.optimizer.get_loss_scale()) != 4096.0:
        wrong.append("loss scale")
    return wrong


def back(case: Case, place: Place) -> list[str]:
    """What differs once ours has loaded what megatron-core has saved."""
    run = Run(case.config())
    theirs = MegatronRun(arguments(run))
    for seed in range(3):
        theirs.step_with(seed)
    folder = place.folder / f"{case.name} theirs"
    folder.mkdir(exist_ok=True)
    dist.barrier()
    theirs.save(folder)
    expected = streams_of(streams())
    run.load(folder)
    wrong = differing(whole(run, place, f"{case.name} back"), theirs.states(), run, theirs)
    wrong += ["random"] * (streams_of(run.progress.rng.to_plain()) != expected)
    wrong += ["steps"] * (run.optimizer.steps != 3 or run.progress.step != 3)
    if case.dtype == "float16" and run.progress.loss_scaler["scale"] != 4096.0:
        wrong.append("loss scale")
    return wrong


def losses(case: Case, place: Place) -> list[list[float]]:
    """Of steps after ours has saved: ours and megatron-core's; then the other way round."""
    run = Run(case.config(CONSTANT))
    run.steps(2)
    folder = place.folder / f"{case.name} losses"
    run.save(folder / "ours")
    seen = [[float.fromhex(loss) for loss in run.steps(STEPS)]]
    theirs = MegatronRun(arguments(run))
    theirs.load(folder / "ours")
    seen.append([theirs.losses(share(run, theirs)) for _ in range(STEPS)])
    (folder / "theirs").mkdir(exist_ok=True)
    dist.barrier()
    theirs.save(folder / "theirs")
    again = Run(case.config(CONSTANT))
    again.load(folder / "theirs")
    seen.append([theirs.losses(share(run, theirs)) for _ in range(STEPS)])
    seen.append([float.fromhex(loss) for loss in again.steps(STEPS)])
    return seen


def share(run: Run, theirs: MegatronRun) -> list[MicroBatch]:
    """This rank's micro-batches of the next step of a run of megatron-core's."""
    return micro_batches(theirs.step, rank=run.mesh.data.rank, ranks=run.mesh.data.size)


def arguments(run: Run) -> Namespace:
    """Megatron's arguments of a run of ours, as its command line would have set them."""
    args = names.arguments(run.config, run.mesh, run.progress)
    for name in ("iteration", "consumed_train_samples", "consumed_valid_samples"):
        delattr(args, name)
    fraction = run.config.optimizer.warmup_fraction or 0.0
    args.warmup_samples = fraction * (args.train_iters * args.global_batch_size)
    return args


def streams_of(plain: dict[str, Any]) -> list[Any]:
    name, key, *more = plain["np_rng_state"]
    tracked = plain["rng_tracker_states"]["model-parallel-rng"]
    tensors = [plain["torch_rng_state"], plain["cuda_rng_state"], tracked]
    return [
        list(plain["random_rng_state"][1]),
        [name, [int(number) for number in key], *more],
        *(tensor.tolist() for tensor in tensors),
    ]


def whole(run: Run, place: Place, name: str) -> State:
    """By name, a parameter's weight and moments, gathered from all who have the same."""
    state = run.optimizer.full_state()
    mine = {key: dict(held) for key, held in parameter_states.named(run.optimizer, state).items()}
    torch.save(mine, place.folder / f"{name} {place.rank}.state")
    dist.barrier()
    found: State = {}
    for rank in run.mesh.data.ranks:
        held = torch.load(place.folder / f"{name} {rank}.state", weights_only=True)
        found.update({key: moments for key, moments in held.items() if moments})
    return found


def differing(ours: State, theirs: State, run: Run, megatron: MegatronRun) -> list[str]:
    """Names under which the two have not the same bits; all if one has none."""
    wrong = []
    seen = 0
    for number, chunk in enumerate(run.chunks):
        own = [name for name, _ in chunk.named_parameters()]
        for name, local in zip(own, names.parameters(chunk), strict=True):
            held = theirs.get(f"{number}/{local}")
            if held is None:
                continue  # another data-parallel rank's shard
            seen += 1
            part = held.get("part")
            for key in ("param", "exp_avg", "exp_avg_sq"):
                expected = ours[name][key]
                if part is not None:
                    expected = expected.flatten()[part[0] : part[1]]
                if not torch.equal(expected, held[key].view_as(expected)):
                    wrong.append(f"{name} {key}")
            if "step" in held and int(held["step"]) != run.optimizer.steps:
                wrong.append(f"{name} step {held['step']}")
    assert seen
    group = megatron.chained[0].optimizer.param_groups[0]
    expected_rate = megatron.scheduler.get_lr(group)
    if group["lr"] != expected_rate:
        wrong.append("rate")
    return wrong


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    made = tmp_path_factory.mktemp("exchanged")
    if long_ones_run(request):
        run_ranks(every, 8, made, deadline_s=540, compiler=True)
    else:
        run_ranks(quick, 1, made, deadline_s=240, compiler=True)
    return made


# The first test to run waits for all cases.
pytestmark = pytest.mark.timeout(560)


@pytest.mark.parametrize("direction", ["there", "back"])
@pytest.mark.parametrize(
    "case",
    [pytest.param(c, id=c.name, marks=() if c.quick else pytest.mark.long) for c in CASES],
)
def test_every_state_arrives_bit_for_bit(folder: Path, case: Case, direction: str) -> None:
    for rank in range(case.layout.ranks):
        seen = json.loads((folder / f"{case.name} {rank}.json").read_text())
        assert seen[direction] == [], f"rank {rank}"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=c.name, marks=() if c.quick else pytest.mark.long)
        for c in CASES
        if c.trains
    ],
)
def test_the_losses_of_a_resumed_run_go_on(folder: Path, case: Case) -> None:
    for rank in range(case.layout.ranks):
        seen = json.loads((folder / f"{case.name} {rank}.json").read_text())["losses"]
        ours, theirs, undisturbed, resumed = seen
        # Megatron prints seven digits of a loss.
        assert theirs == pytest.approx(ours, rel=5e-7), f"rank {rank}"
        assert resumed == pytest.approx(undisturbed, rel=5e-7), f"rank {rank}"
