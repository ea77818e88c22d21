"""Every layout resumes as if undisturbed; on another data-parallel size the state is the same."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relkit.checkpoint import iteration_folder as files
from relkit.errors import BadInputFile, UnwritablePath
from tests.trainer.checkpointing.checkpoint_run import Run, config_of
from tests.trainer.layouts import ALONE, LAYOUTS, Layout
from tests.trainer.processes import Place, long_ones_run, run_ranks

NAMED = {layout.name: layout for layout in LAYOUTS}
QUICK = (NAMED["TP2"], NAMED["PP2"])
SHARDED = "DP2 with distributed optimizer"
EXPERTS = "EP2 with distributed optimizer"
RESIZED = [
    (SHARDED, replace(ALONE, name="1 rank", distributed_optimizer=True)),
    (SHARDED, Layout("4 ranks", 4, distributed_optimizer=True)),
    (SHARDED, Layout("2 ranks, plain", 2)),
    ("DP2", Layout("4 ranks, from plain", 4, distributed_optimizer=True)),
    (EXPERTS, replace(NAMED["EP2"], name="2 ranks with experts", distributed_optimizer=True)),
    (EXPERTS, replace(NAMED["EP2"], name="2 ranks with experts, plain")),
    ("EP2", replace(NAMED[EXPERTS], name="4 ranks with experts")),
]


def tell(place: Place, what: str, seen: dict[str, Any]) -> None:
    (place.folder / f"{what}-{place.rank}.json").write_text(json.dumps(seen))


def saved(place: Place, layout: Layout) -> Path:
    return place.folder / f"saved {layout.name}"


def resumed_run(place: Place, layout: Layout) -> None:
    config = config_of(layout, layout.models[-1])
    run = Run(config)
    run.steps(1)
    run.save(saved(place, layout))
    state = run.optimizer.full_state() and run.state_digest()
    going_on = [run.steps(1), run.digest()]
    resumed = Run(config)
    resumed.load(saved(place, layout))
    again = [resumed.steps(1), resumed.digest()]
    first = resumed.mesh.data.rank == 0
    tell(place, layout.name, {"on": going_on, "again": again, "state": state, "first": first})


def resized_run(place: Place, source: Layout, layout: Layout) -> None:
    run = Run(config_of(layout, source.models[-1]))
    run.load(saved(place, source))
    state = run.state_digest()
    loss = run.steps(1)
    tell(place, layout.name, {"state": state, "first": run.mesh.data.rank == 0, "loss": loss})


def refused_runs(place: Place) -> None:
    seen: dict[str, Any] = {}
    run = Run(config_of(NAMED["PP2"], "gpt2"))
    try:
        run.load(saved(place, NAMED["TP2"]))
    except BadInputFile as error:
        seen["degrees"] = str(error)
    folder = place.folder / "failing"
    run.steps(1)
    run.save(folder)
    run.steps(1)
    if place.rank == 1:
        run.progress = replace(run.progress, rng=Unwritable())
    try:
        run.save(folder)
    except UnwritablePath as error:
        seen["disk"] = str(error)
    seen["left"] = sorted(path.name for path in folder.iterdir())
    tell(place, "refused", seen)


class Unwritable:
    """In the place of random streams: fails while this rank's content is put together."""

    def to_plain(self) -> None:
        raise UnwritablePath("rank 1 has no space")


def two_layouts(place: Place) -> None:
    few_layouts(place, QUICK)


def few_layouts(place: Place, layouts: Iterable[Layout]) -> None:
    for layout in layouts:
        with place.world(layout.name, layout.ranks) as taking_part:
            if taking_part:
                resumed_run(place, layout)
    with place.world("refused", 2) as taking_part:
        if taking_part:
            refused_runs(place)


def every_layout(place: Place) -> None:
    few_layouts(place, LAYOUTS)
    for source, layout in RESIZED:
        with place.world(layout.name, layout.ranks) as taking_part:
            if taking_part:
                resized_run(place, NAMED[source], layout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    made = tmp_path_factory.mktemp("checkpoints")
    if long_ones_run(request):
        run_ranks(every_layout, 8, made, deadline_s=240)
    else:
        run_ranks(two_layouts, 2, made, deadline_s=240)
    return made


def told(folder: Path, what: str, ranks: int) -> list[dict[str, Any]]:
    return [json.loads((folder / f"{what}-{rank}.json").read_text()) for rank in range(ranks)]


# The first test to run waits for all layouts.
pytestmark = pytest.mark.timeout(260)


@pytest.mark.parametrize(
    "layout",
    [pytest.param(e, id=e.name, marks=() if e in QUICK else pytest.mark.long) for e in LAYOUTS],
)
def test_a_resumed_run_is_the_undisturbed_one_bit_for_bit(folder: Path, layout: Layout) -> None:
    for rank, seen in enumerate(told(folder, layout.name, layout.ranks)):
        assert seen["again"] == seen["on"], rank


@pytest.mark.long
@pytest.mark.parametrize(("source", "layout"), RESIZED, ids=[to.name for _, to in RESIZED])
def test_another_data_parallel_size_has_the_same_state(
    folder: Path, source: str, layout: Layout
) -> None:
    before = [seen for seen in told(folder, source, NAMED[source].ranks) if seen["first"]]
    after = [seen for seen in told(folder, layout.name, layout.ranks) if seen["first"]]
    assert [seen["state"] for seen in after] == [seen["state"] for seen in before]


def places(folder: Path, name: str) -> list[str]:
    iteration = folder / f"saved {name}" / "iter_0000001"
    return sorted(path.name for path in iteration.glob("mp_rank_*"))


def test_each_place_has_a_folder_with_megatrons_name(folder: Path) -> None:
    assert places(folder, "TP2") == ["mp_rank_00", "mp_rank_01"]
    assert places(folder, "PP2") == ["mp_rank_00_000", "mp_rank_00_001"]


@pytest.mark.long
def test_each_place_of_every_layout_has_megatrons_name(folder: Path) -> None:
    assert places(folder, "DP2") == ["mp_rank_00"]
    assert places(folder, "EP2") == ["mp_rank_00_000", "mp_rank_00_001"]
    assert len(places(folder, "TP2xPP2xDP2")) == 4
    assert "mp_rank_01_001_001" in places(folder, "all at once")


def test_other_degrees_are_refused_on_every_rank(folder: Path) -> None:
    for seen in told(folder, "refused", 2):
        assert "tensor_model_parallel_size 2, and this run has 1" in seen["degrees"]


def test_a_failure_on_one_rank_is_raised_on_all_and_leaves_nothing(folder: Path) -> None:
    for seen in told(folder, "refused", 2):
        assert seen["disk"] == "rank 1 has no space"
        assert seen["left"] == ["iter_0000001", files.TRACKER]
