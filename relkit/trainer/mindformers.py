"""The functions of MindFormers' tutorial on dynamic graph parallelism, over relkit's trainer.

Names and arguments are those of the page, so that its script runs with other imports;
docs/migration/mindformers.md has what else changes in it. As on the page, the functions know of
each other without being told: there is one run in a process.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

from relkit.errors import RelkitError, UsageProblem
from relkit.trainer.config.config import (
    DatasetConfig,
    ModelConfig,
    OptimizerConfig,
    TrainerConfig,
    TrainingConfig,
)
from relkit.trainer.core import rng
from relkit.trainer.core.build import build_model
from relkit.trainer.core.model import GPT
from relkit.trainer.core.optimizer import Optimizer, build_optimizer
from relkit.trainer.core.parameters import ParamInfo
from relkit.trainer.core.trainer import Trainer
from relkit.trainer.data.samples import Datasets, GPTDataset, build_datasets
from relkit.trainer.megatron.flags import parse_flags
from relkit.trainer.run.job import Job, join_job
from relkit.trainer.run.loop import train_in


class _ThisRun:
    """What the page's functions know of each other."""

    sections: SimpleNamespace | None = None
    config: TrainerConfig | None = None
    job: Job | None = None
    data: Datasets | None = None
    left = ExitStack()


class Network(NamedTuple):
    """This rank's part of the model, which `get_model` makes."""

    chunks: list[GPT]
    infos: dict[str, ParamInfo]

    def trainable_params(self) -> list[ParamInfo]:
        """What each parameter is: its name in the whole model, and more."""
        return list(self.infos.values())


def init_configs_from_yaml(file_path: str) -> SimpleNamespace:
    """The sections of a YAML file by their names there; each key acts, or is refused by name."""

    def warn(sentence: str) -> None:
        if os.environ.get("RANK", "0") == "0":
            print(f"relkit: {sentence}", file=sys.stderr, flush=True)

    try:
        config = parse_flags(["--config_path", str(file_path)], warn=warn)
    except RelkitError as error:
        error.__notes__ = [f"next: {error.next_step}"]  # under a traceback, from Python 3.11 on
        raise
    sections = {f"{name}_config": getattr(config, name) for name in config.__dataclass_fields__}
    _ThisRun.config, _ThisRun.sections = config, SimpleNamespace(**sections)
    return _ThisRun.sections


def initialize_model_parallel(
    tensor_model_parallel_size: int | None = None,
    pipeline_model_parallel_size: int | None = None,
    virtual_pipeline_model_parallel_size: int | None = None,
    expert_model_parallel_size: int | None = None,
) -> None:
    """Join the job, and make this rank's groups; a degree that is None is the file's."""
    degrees = {name: value for name, value in locals().items() if value is not None}
    config = _loaded()
    _ThisRun.config = config = replace(config, parallel=replace(config.parallel, **degrees))
    _ThisRun.job = _ThisRun.left.enter_context(join_job(config))
    atexit.register(_ThisRun.left.close)


def get_data_parallel_world_size() -> int:
    """How many ranks see other samples."""
    return _joined().mesh.data.size


class GPTModel(GPT):
    """The page's GPT; `get_model` takes this rank's stage and part out of it."""

    def __init__(
        self,
        config: ModelConfig,
        num_tokentypes: int = 0,
        parallel_output: bool = True,
        pre_process: bool = True,
        post_process: bool = True,
    ) -> None:
        _refuse_others(model_config=config)
        if num_tokentypes or not parallel_output:
            raise UsageProblem(
                f"GPTModel: num_tokentypes is {num_tokentypes}, parallel_output {parallel_output}",
                next_step="Leave them out: relkit has only 0 and True.",
            )
        super().__init__(config, vocab_rows=config.padded_vocab_size(_joined().mesh.tensor.size))
        self.embedding = self.embedding if pre_process else None
        self.output_layer = self.output_layer if post_process else None


def get_model(model_provider_func: Callable[..., GPT], training_config: TrainingConfig) -> Network:
    """This rank's part of the model that the function gives."""
    _refuse_others(training_config=training_config)
    mesh = _joined().mesh
    rng.seed_all(training_config.seed, mesh)
    ends = {"pre_process": mesh.is_first_stage, "post_process": mesh.is_last_stage}
    return Network(*build_model(_loaded(), mesh, lambda *_, **__: model_provider_func(**ends)))


def get_optimizer(
    optimizer_config: OptimizerConfig,
    training_config: TrainingConfig,
    params: Iterable[Mapping[str, Any]],
    network: Network,
    grad_allreduce_op: str = "mean",
) -> Optimizer:
    """The optimizer of groups of parameters, of which some decay by one weight, others do not."""
    _refuse_others(optimizer_config=optimizer_config, training_config=training_config)
    weights = {p.name: float(group["weight_decay"]) for group in params for p in group["params"]}
    decays = set(weights.values()) - {0.0}
    names = {info.name for info in network.infos.values()}
    if names != weights.keys() or len(decays) > 1:
        raise UsageProblem(
            f"get_optimizer: {len(weights)} parameters are in groups, with decays {sorted(decays)};"
            f" the network has {len(names)}, and relkit one decay for all",
            next_step="Make the groups as the page's set_weight_decay does.",
        )
    config, job = _loaded(), _joined()
    _ThisRun.config = config = replace(
        config,
        training=replace(config.training, loss_reduction=grad_allreduce_op),
        optimizer=replace(config.optimizer, weight_decay=max(decays, default=0.0)),
    )
    infos = {name: replace(i, decay=weights[i.name] > 0) for name, i in network.infos.items()}
    return build_optimizer(network.chunks, infos, config, job.mesh, replicas=job.replicas)


def get_dataset(dataset_config: DatasetConfig) -> tuple[GPTDataset, GPTDataset | None]:
    """Samples to train on, and those to validate on (None without `eval_interval`)."""
    _refuse_others(dataset_config=dataset_config)
    data = build_datasets(_loaded(), data_parallel_size=get_data_parallel_world_size())
    _ThisRun.data = data
    return data.train, data.valid


def train(
    optimizer: Optimizer,
    train_data: GPTDataset,
    training_config: TrainingConfig,
    val_data: GPTDataset | None = None,
    metrics: None = None,
    evaluation: None = None,
) -> None:
    """The whole run; the optimizer, which has its network, is in the TrainOneStepCell's place."""
    _refuse_others(training_config=training_config)
    with _ThisRun.left:
        if metrics or evaluation or not (_ThisRun.data and _ThisRun.data.train is train_data):
            raise UsageProblem(
                "train: relkit trains on what get_dataset gives, and tells the loss, nothing else",
                next_step="Give None for metrics and evaluation; eval_interval is in the YAML.",
            )
        job, data = _joined(), replace(_ThisRun.data, valid=val_data)
        train_in(job, Trainer(_loaded(), job.mesh, hooks=job.hooks, optimizer=optimizer), data)


def _loaded() -> TrainerConfig:
    if _ThisRun.config is None:
        raise UsageProblem("no configuration yet", next_step="Call init_configs_from_yaml first.")
    return _ThisRun.config


def _joined() -> Job:
    if _ThisRun.job is None:
        raise UsageProblem("no groups yet", next_step="Call initialize_model_parallel first.")
    return _ThisRun.job


def _refuse_others(**sections: object) -> None:
    """A section acts on all functions alike, so none may differ from the file's."""
    for name, section in sections.items():
        if section != getattr(_ThisRun.sections, name, None):
            sentence = f"{name} is not the one that init_configs_from_yaml gave"
            raise UsageProblem(sentence, next_step="Change the YAML file instead.")
