"""Files of relkit's first layout, as the commit before megatron-core's order wrote them."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from relkit.errors import BadInputFile
from relkit.trainer.config.config import TrainerConfig
from tests.trainer.checkpointing.checkpoint_run import Run, config_of
from tests.trainer.layouts import ALONE

OLD = Path(__file__).parent / "old_layout"
SMALL: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 8,
    "ffn_hidden_size": 12,
    "num_attention_heads": 2,
}
SAVED = [(model, form) for model in ("gpt2", "experts") for form in ("sharded", "plain")]


def configured(model: str, form: str) -> TrainerConfig:
    config = config_of(replace(ALONE, distributed_optimizer=form == "sharded"), model)
    experts: dict[str, Any] = {}
    if model == "experts":
        experts = {"num_query_groups": 1, "num_moe_experts": 2}
    return replace(config, model=replace(config.model, **SMALL, **experts))


def digests(run: Run) -> dict[str, dict[str, str]]:
    """Of each parameter and its moments, by name."""
    found = {}
    for buffer, moments in zip(run.optimizer.buffers, run.optimizer.moments, strict=True):
        flat = {"param": buffer.parameters} | {key: parts[0] for key, parts in moments.items()}
        for span in buffer.layout.spans:
            found[span.name] = {
                key: hashlib.sha256(whole[span.start : span.end].numpy().tobytes()).hexdigest()[:16]
                for key, whole in flat.items()
            }
    return found


@pytest.mark.parametrize("loads", ["sharded", "plain"])
@pytest.mark.parametrize(("model", "form"), SAVED)
def test_every_parameter_gets_its_own_state(model: str, form: str, loads: str) -> None:
    saved = OLD / f"{model}-{form}"
    run = Run(configured(model, loads))
    run.load(saved)
    assert digests(run) == json.loads((saved / "expected.json").read_text())
    assert run.optimizer.steps == 2
    assert run.progress.loss_scaler == {"scale": 4096.0, "growth_tracker": 3.0}


def test_a_layout_that_is_not_known_yet_is_refused(tmp_path: Path) -> None:
    run = Run(configured("gpt2", "sharded"))
    run.steps(1)
    path = run.save(tmp_path) / "mp_rank_00" / "model_optim_rng.pt"
    saved = torch.load(path, weights_only=False)
    assert saved["relkit"]["layout"] == 2
    saved["relkit"]["layout"] = 3
    torch.save(saved, path)
    (path.parents[1] / "manifest.json").unlink()
    with pytest.raises(BadInputFile, match="layout 3, and this relkit knows up to 2") as raised:
        run.load(tmp_path)
    assert "a later one" in raised.value.next_step


def test_what_moved_is_not_taken_for_the_new_order(tmp_path: Path) -> None:
    """The old file without its mark would be scrambled: the two orders do differ."""
    shutil.copytree(OLD / "gpt2-sharded", tmp_path / "saved")
    path = tmp_path / "saved/iter_0000002/mp_rank_00/model_optim_rng.pt"
    saved = torch.load(path, weights_only=False)
    saved["relkit"]["layout"] = 2
    torch.save(saved, path)
    (path.parents[1] / "manifest.json").unlink()
    run = Run(configured("gpt2", "sharded"))
    run.load(tmp_path / "saved")
    expected = json.loads((OLD / "gpt2-sharded" / "expected.json").read_text())
    assert {name.split(".")[4] for name in expected if digests(run)[name] != expected[name]} == {
        "linear_qkv",
        "linear_proj",
    }
