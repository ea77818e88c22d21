"""What is saved is what megatron-core's model takes: names, shapes, and the logits of them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch

from tests.trainer.checkpointing.checkpoint_run import Run, config_of
from tests.trainer.checkpointing.megatron_logits import TOKENS
from tests.trainer.layouts import ALONE

MODELS = ("gpt2", "llama", "experts")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By model: what megatron-core found, and our logits."""
    folder = tmp_path_factory.mktemp("saved")
    paths, ours = [], {}
    for model in MODELS:
        run = Run(config_of(ALONE, model))
        run.steps(1)
        paths.append(str(run.save(folder / model) / "mp_rank_00" / "model_optim_rng.pt"))
        with torch.no_grad():
            ours[model] = run.chunks[0].eval()(TOKENS)
    child = subprocess.run(
        [sys.executable, "-m", "tests.trainer.checkpointing.megatron_logits", *paths],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    found = json.loads(child.stdout.splitlines()[-1])
    return {name: (one, ours[name]) for name, one in zip(MODELS, found, strict=True)}


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("model", MODELS)
def test_names_and_shapes_are_megatron_cores(seen: dict[str, Any], model: str) -> None:
    assert seen[model][0]["differing"] == []


@pytest.mark.long
@pytest.mark.timeout(120)
@pytest.mark.parametrize("model", ["gpt2", "llama"])
def test_megatron_core_computes_the_same_logits(seen: dict[str, Any], model: str) -> None:
    found, ours = seen[model]
    assert torch.allclose(torch.tensor(found["logits"]), ours, rtol=1e-5, atol=1e-5)
