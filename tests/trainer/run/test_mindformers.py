"""The tutorial's script on relkit's trainer: the numbers of the trainer's own run, and refusals."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from relkit.errors import UsageProblem
from relkit.trainer import mindformers
from relkit.trainer.megatron.flags import parse_flags
from relkit.trainer.run.loop import pretrain
from tests.ports import free_port
from tests.trainer.processes import Place, run_ranks
from tests.trainer.run.test_loop import losses_of, write_data

SCRIPT = Path(__file__).parents[3] / "examples" / "mindformers_gpt.py"
LAYOUTS: dict[str, tuple[int, dict[str, Any]]] = {
    "DP2": (2, {}),
    "TP2": (2, {"tensor_model_parallel_size": 2, "sequence_parallel": True}),
    "PP2": (2, {"pipeline_model_parallel_size": 2}),
    "TP2 PP2": (4, {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2}),
    "VPP2": (
        2,
        {"pipeline_model_parallel_size": 2, "virtual_pipeline_model_parallel_size": 2},
    ),
}


def document(folder: Path, output: str, parallel: dict[str, Any]) -> dict[str, Any]:
    """The page's file with a small model, and its parallel section as asked."""
    return {
        "training_config": {
            "seed": 42,
            "output_dir": str(folder / output),
            "training_iters": 3,
            "log_interval": 1,
            "save_interval": None,
            "eval_interval": 2,
            "eval_iters": 1,
            "grad_clip_kwargs": {"grad_clip_type": "ClipGlobalNorm", "clip_value": 1.0},
            "loss_reduction": "mean",
            "loss_func_kwargs": {"loss_func_type": "VocabParallelCrossEntropy"},
            "use_distributed_optimizer": True,
        },
        "parallel_config": parallel,
        "model_config": {
            "params_dtype": "float32",
            "compute_dtype": "bfloat16",
            "position_embedding_type": "rope",
            "untie_embeddings_and_output_weights": False,
            "num_layers": 4,
            "hidden_size": 32,
            "ffn_hidden_size": 64,
            "num_attention_heads": 4,
            "hidden_dropout": 0.1,
            "vocab_size": 128,
            "seq_length": 16,
        },
        "dataset_config": {
            "batch_size": 1,
            "micro_batch_num": 4,
            "dataset_dir": str(folder / "sonnets"),
            "split": "90,5,5",
            "shuffle": False,
        },
        "optimizer_config": {
            "optimizer_type": "AdamW",
            "betas": [0.9, 0.95],
            "eps": "1.e-8",
            "learning_rate": "1.e-2",
            "weight_decay": "1.e-1",
            "learning_rate_scheduler_kwargs": {
                "warmup_steps": 2,
                "decay_steps": 20,
                "use_cosine": True,
                "end_learning_rate": "1.25e-7",
            },
        },
    }


def write(folder: Path, output: str, parallel: dict[str, Any]) -> Path:
    path = folder / f"{output}.yaml"
    path.write_text(yaml.safe_dump(document(folder, output, parallel)))
    return path


def script_and_trainer(place: Place) -> None:
    os.environ["RANK"] = str(place.rank)
    for name, (ranks, _) in LAYOUTS.items():
        config = str(place.folder / f"page {name}.yaml")
        with place.world(f"page {name}", ranks) as taking_part:
            if taking_part:
                sys.argv = [str(SCRIPT), "--config_path", config]
                runpy.run_path(str(SCRIPT), run_name="__main__")
        own = parse_flags(
            ["--config_path", str(place.folder / f"own {name}.yaml")], warn=lambda _: None
        )
        with place.world(f"own {name}", ranks) as taking_part:
            if taking_part:
                assert pretrain(own) == 0


@pytest.mark.timeout(170)
def test_the_tutorials_script_has_the_losses_of_the_trainers_own_run(tmp_path: Path) -> None:
    write_data(tmp_path)
    for name, (_, parallel) in LAYOUTS.items():
        write(tmp_path, f"page {name}", parallel)
        write(tmp_path, f"own {name}", parallel)
    run_ranks(script_and_trainer, 4, tmp_path, deadline_s=150)
    for name, (ranks, _) in LAYOUTS.items():
        for rank in range(ranks):
            losses = losses_of(tmp_path / f"page {name}", rank)
            assert sorted(losses) == [1, 2, 3]
            assert losses == losses_of(tmp_path / f"own {name}", rank), name


@pytest.mark.job
@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("launcher", ["relkit launch", "torchrun"])
def test_the_script_under_a_launcher(tmp_path: Path, launcher: str) -> None:
    write_data(tmp_path)
    config = write(tmp_path, "out", {"tensor_model_parallel_size": 2})
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / launcher.split()[0]),
            *launcher.split()[1:],
            "--nproc-per-node=2",
            f"--master-port={free_port()}",
            str(SCRIPT),
            "--config_path",
            str(config),
        ],
        cwd=tmp_path,
        env={**os.environ, "RELKIT_LAUNCH_TIMELINE_PATH": "timeline"},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(losses_of(tmp_path / "out")) == 3
    assert "terminate called" not in done.stderr


@pytest.fixture
def sections(tmp_path: Path) -> Iterator[SimpleNamespace]:
    """What the page's script has before it makes its model, in one process."""
    write_data(tmp_path)
    made = mindformers.init_configs_from_yaml(str(write(tmp_path, "out", {})))
    mindformers.initialize_model_parallel(tensor_model_parallel_size=1)
    yield made
    mindformers._ThisRun.left.close()


def network_of(sections: SimpleNamespace) -> mindformers.Network:
    return mindformers.get_model(
        lambda pre_process, post_process: mindformers.GPTModel(
            sections.model_config, pre_process=pre_process, post_process=post_process
        ),
        sections.training_config,
    )


def test_groups_of_parameters_decay_as_they_say(sections: SimpleNamespace) -> None:
    network = network_of(sections)
    matrices = [p for p in network.trainable_params() if "embedding" in p.name]
    others = [p for p in network.trainable_params() if "embedding" not in p.name]
    groups = [{"params": matrices, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}]
    optimizer = mindformers.get_optimizer(
        sections.optimizer_config, sections.training_config, groups, network, "sum"
    )
    assert optimizer.config.optimizer.weight_decay == 0.5
    assert optimizer.config.training.loss_reduction == "sum"
    assert [name for name, info in optimizer.infos.items() if info.decay] == [
        "embedding.word_embeddings.weight"
    ]


def test_what_the_functions_do_not_have_is_refused_by_name(sections: SimpleNamespace) -> None:
    other = replace(sections.model_config, num_layers=2)
    with pytest.raises(UsageProblem, match="model_config is not the one") as met:
        mindformers.GPTModel(other)
    assert "YAML" in met.value.next_step
    with pytest.raises(UsageProblem, match="num_tokentypes is 2"):
        mindformers.GPTModel(sections.model_config, num_tokentypes=2)
    network = network_of(sections)
    parameters = network.trainable_params()
    optimizer, training = sections.optimizer_config, sections.training_config
    for groups in (
        [{"params": parameters[1:], "weight_decay": 0.1}],
        [
            {"params": parameters[:1], "weight_decay": 0.1},
            {"params": parameters[1:], "weight_decay": 0.2},
        ],
    ):
        with pytest.raises(UsageProblem, match="get_optimizer: "):
            mindformers.get_optimizer(optimizer, training, groups, network)
    whole = [{"params": parameters, "weight_decay": 0.0}]
    made = mindformers.get_optimizer(optimizer, training, whole, network)
    train_data, _ = mindformers.get_dataset(sections.dataset_config)
    with pytest.raises(UsageProblem, match="tells the loss"):
        mindformers.train(made, train_data, training, None, {"perplexity": 1}, None)  # type: ignore[arg-type]


def test_the_page_in_order_or_the_missing_call_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mindformers._ThisRun, "config", None)
    monkeypatch.setattr(mindformers._ThisRun, "job", None)
    with pytest.raises(UsageProblem) as met:
        mindformers.initialize_model_parallel()
    assert met.value.next_step == "Call init_configs_from_yaml first."
    with pytest.raises(UsageProblem, match="no groups yet"):
        mindformers.get_data_parallel_world_size()


def test_a_model_of_ones_own_is_a_part_of_the_run(sections: SimpleNamespace) -> None:
    class Own(mindformers.GPTModel):
        """Doubles what the page's `construct`, here `forward`, gives."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    network = mindformers.get_model(
        lambda pre_process, post_process: Own(sections.model_config), sections.training_config
    )
    assert type(network.chunks[0]) is Own
