"""The trainer starts from a release that was made of its own files."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from relkit.checkpoint.convert import folders
from relkit.checkpoint.convert.cuts import Degrees
from relkit.errors import BadInputFile
from relkit.trainer.checkpointing import checkpoint
from relkit.trainer.megatron import names
from tests.trainer.checkpointing.checkpoint_run import Run
from tests.trainer.layouts import ALONE, LAYOUTS, Layout
from tests.trainer.processes import Place, run_ranks

pytestmark = pytest.mark.timeout(500)
RANKS = 2


def cases() -> list[tuple[Layout, str]]:
    wanted = (ALONE, *(each for each in LAYOUTS if each.ranks == RANKS and each.goes_on))
    return [(layout, model) for layout in wanted for model in layout.models]


def again(run: Run, folder: Path, degrees: Degrees) -> list[str]:
    """Names of what differs once a run has lost its weights, and started from its release."""
    before = [{name: v.clone() for name, v in names.parameters(c).items()} for c in run.chunks]
    run.save(folder / "saved")
    if dist.get_rank() == 0:
        whole = folders.read_megatron(folder / "saved")
        rows = run.config.model.make_vocab_size_divisible_by
        folders.write_release(whole, folder / "release", degrees, rows)
    dist.barrier()
    for chunk in run.chunks:
        for value in names.parameters(chunk).values():
            value.zero_()
    checkpoint.load_release(
        folder / "release",
        chunks=run.chunks,
        optimizer=run.optimizer,
        config=run.config,
        mesh=run.mesh,
    )
    assert run.optimizer.steps == 0
    return [
        name
        for chunk, kept in zip(run.chunks, before, strict=True)
        for name, value in names.parameters(chunk).items()
        if not torch.equal(value, kept[name])
    ]


def job(place: Place) -> None:
    for layout, model in cases():
        with place.world(f"{layout.name} {model}", layout.ranks) as taking_part:
            if not taking_part:
                continue
            run = Run(layout.config(model))
            parallel = layout.parallel
            degrees = Degrees(
                parallel.tensor_model_parallel_size,
                parallel.pipeline_model_parallel_size,
                parallel.virtual_pipeline_model_parallel_size or 1,
                parallel.expert_model_parallel_size,
            )
            wrong = again(run, place.folder / f"{layout.name} {model}", degrees)
            (place.folder / f"{layout.name} {model} {place.rank}.wrong").write_text(
                "\n".join(wrong)
            )


def test_groups_of_queries_that_megatron_has_not_set_are_those_of_heads(tmp_path: Path) -> None:
    expected = {**dict.fromkeys(names.MUST_AGREE), "num_attention_heads": 4, "num_query_groups": 4}
    saved = {"num_query_groups": 1, "num_attention_heads": 4}
    names.refuse_other({**saved, "group_query_attention": False}, expected, tmp_path)
    with pytest.raises(BadInputFile, match="num_query_groups 1"):
        names.refuse_other({**saved, "group_query_attention": True}, expected, tmp_path)


def test_a_run_starts_from_the_weights_of_a_release(tmp_path: Path) -> None:
    run_ranks(job, RANKS, tmp_path, deadline_s=300)
    for layout, model in cases():
        for rank in range(layout.ranks):
            assert (tmp_path / f"{layout.name} {model} {rank}.wrong").read_text() == ""
