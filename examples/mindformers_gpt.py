"""MindFormers' tutorial on dynamic graph parallelism, step by step, on relkit's trainer.

    relkit launch --nproc-per-node 2 examples/mindformers_gpt.py \
        --config_path examples/gpt_tiny.yaml

docs/migration/mindformers.md has each line that differs from the page.
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

from relkit.trainer.config.config import ParallelConfig
from relkit.trainer.mindformers import (
    GPTModel,
    get_data_parallel_world_size,
    get_dataset,
    get_model,
    get_optimizer,
    init_configs_from_yaml,
    initialize_model_parallel,
    train,
)

logger = logging.getLogger("mindformers_gpt")


def get_arg_parser() -> argparse.ArgumentParser:
    """get argument parser"""
    parser = argparse.ArgumentParser(description="Train gpt model")
    parser.add_argument("--config_path", default="pretrain_gpt.yaml", help="the config file")
    parser.add_argument("--run_cmd", default="", help="running cmd")
    parser.add_argument("--model_type", default="gpt_config", help="section of the model")
    return parser


args = get_arg_parser().parse_args()
all_config = init_configs_from_yaml(args.config_path)
training_config = all_config.training_config
model_config = all_config.model_config
optimizer_config = all_config.optimizer_config
parallel_config = all_config.parallel_config
dataset_config = all_config.dataset_config


def set_parallel_context(parallel_config: ParallelConfig) -> None:
    initialize_model_parallel(
        tensor_model_parallel_size=parallel_config.tensor_model_parallel_size,
        pipeline_model_parallel_size=parallel_config.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=parallel_config.virtual_pipeline_model_parallel_size,
    )
    logger.info(
        f"dp {get_data_parallel_world_size()} | "
        f"pp {parallel_config.pipeline_model_parallel_size} | "
        f"tp {parallel_config.tensor_model_parallel_size} | "
        f"sp {parallel_config.sequence_parallel} | "
        f"vpp {parallel_config.virtual_pipeline_model_parallel_size}"
    )


set_parallel_context(parallel_config)


def decay_filter(x: Any) -> bool:  # noqa: ANN401 (the page has no types)
    return "norm" not in x.name.lower() and "bias" not in x.name.lower()


def set_weight_decay(params: list[Any], weight_decay: float = 1e-1) -> list[dict[str, Any]]:
    decay_params = list(filter(decay_filter, params))
    other_params = list(filter(lambda x: not decay_filter(x), params))
    group_params = []
    if decay_params:
        group_params.append({"params": decay_params, "weight_decay": weight_decay})
    if other_params:
        group_params.append({"params": other_params, "weight_decay": 0.0})
    return group_params


def model_provider_func(pre_process: bool = True, post_process: bool = True) -> GPTModel:
    return GPTModel(model_config, pre_process=pre_process, post_process=post_process)


network_with_loss = get_model(model_provider_func, training_config)
group_params = set_weight_decay(network_with_loss.trainable_params(), optimizer_config.weight_decay)
optimizer = get_optimizer(
    optimizer_config,
    training_config,
    group_params,
    network_with_loss,
    grad_allreduce_op=training_config.loss_reduction,
)

train_dataset_iterator, val_dataset_iterator = get_dataset(dataset_config)
train(optimizer, train_dataset_iterator, training_config, val_dataset_iterator, None, None)
