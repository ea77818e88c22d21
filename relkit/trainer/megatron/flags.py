"""Megatron's command line as a TrainerConfig, alone or over a YAML file.

Source: the flags of the MindSpeed migration guide, and Megatron-LM core_r0.12's arguments.py for
the ones around them. Defaults are Megatron's, but the first loss scale: relkit starts at the
tutorial's 4096, where Megatron starts at 2^32 and skips the first steps.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from relkit.errors import UsageProblem
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.config.dataset_files import with_dataset_files
from relkit.trainer.config.flag_table import FLAG_OF, FLAGS, IGNORED
from relkit.trainer.config.presets import preset
from relkit.trainer.config.values import (
    Values,
    Warn,
    build,
    coerce,
    nearest,
    optimizer_type,
    override,
)
from relkit.trainer.config.yaml_file import settled, yaml_values

DEFAULTS: Values = {
    # Its fused kernel, which it takes wherever layers have biases, is the tanh approximation.
    "model.gelu_tanh": True,
    "training.loss_scale_hysteresis": 2,
    "training.log_interval": 100,
    "training.eval_interval": 1000,
    "training.eval_iters": 100,
}
"""What Megatron takes where a flag is absent and relkit's own default is another."""

_OPTIMIZERS = {"adam": "AdamW", "sgd": "SGD"}
_POSITIONS = {"learned_absolute": "absolute", "absolute": "absolute", "rope": "rope"}
_NO_VALUE = -1


class _Parser(argparse.ArgumentParser):
    """Raises what argparse would print before it exits."""

    def error(self, message: str) -> NoReturn:
        advice = "See --help for all flags."
        if "expected" in message and "argument" in message:
            advice = 'A bash array is passed on whole by "${NAME[@]}"; $NAME is its first word.'
        raise UsageProblem(message.removeprefix("argument "), next_step=advice)


def parse_flags(argv: Sequence[str], *, warn: Warn) -> TrainerConfig:
    """The configuration that a command line asks for.

    Args:
        argv: without the program's name. --config_path names a YAML file, which all other flags
            go before; --run_cmd holds flags in one string, which the others go before.
        warn: gets one sentence for each flag or key that has no effect, and for each doubt.

    Raises:
        UsageProblem: an unknown flag (the nearest known one is named), a value that cannot be.
        BadInputFile: a file that the flags name cannot be read.
    """
    given = _parse(argv, warn)
    run_cmd = given.pop("run_cmd", "")
    if run_cmd:
        given = _parse(shlex.split(run_cmd), warn) | given
    config_path, model_type = given.pop("config_path", ""), given.pop("model_type", "gpt_config")
    under = dict(DEFAULTS)
    if config_path:
        under = yaml_values(Path(config_path), model_section=model_type, warn=warn)
    values = override(under, _values(given, under, warn))
    if config_path:
        values = settled(values)
    return build(with_dataset_files(values), FLAG_OF)


def parser() -> argparse.ArgumentParser:
    """All flags, in groups by what they are about."""
    made = _Parser(
        prog="pretrain_gpt.py",
        description="Pretrain a GPT: Megatron's flags, MindFormers' YAML, or both.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    group = made.add_argument_group("configuration file")
    group.add_argument("--config_path", "--config-path", help="MindFormers' YAML")
    group.add_argument("--model_type", "--model-type", help="section of the model [gpt_config]")
    group.add_argument("--run_cmd", "--run-cmd", help="flags in one string")
    group.add_argument("--preset", help="7B, 13B or 70B: a shape that other flags change")
    groups: dict[str, Any] = {}
    for flag in FLAGS:
        title = flag.field.partition(".")[0]
        if title not in groups:
            groups[title] = made.add_argument_group(title)
        options: dict[str, Any] = (
            {"action": "store_const", "const": flag.constant}
            if flag.kind is None
            else {"type": flag.kind, "metavar": flag.kind.__name__.upper()}
        )
        groups[title].add_argument(flag.name, dest=flag.name, help=flag.help, **options)
    add = made.add_argument_group("flags that are translated").add_argument
    add("--data-path", nargs="*", help="prefix of a .bin/.idx pair, or a folder with one pair")
    add("--load", help="folder of checkpoints to go on from")
    add("--log-interval", type=int, nargs="?", const=_NO_VALUE, help="steps between two lines")
    add("--optimizer", help="adam, sgd, CAME (or the tutorial's names)")
    add("--adam-beta1", type=float, help="decay of the first moment")
    add("--adam-beta2", type=float, help="decay of the second moment")
    add("--loss-scale", type=float, help="as --initial-loss-scale")
    add("--position-embedding-type", choices=_POSITIONS, help="learned_absolute or rope")
    add("--num-layers-per-virtual-pipeline-stage", type=int, help="layers of a model chunk")
    add("--transformer-impl", help="local, which is the only one")
    add("--ckpt-format", choices=("torch",), help="torch, which is the only one")
    add("--dataloader-type", choices=("single",), help="single, which is the only one")
    add("--context-parallel-size", type=int, choices=(1,), help="1: relkit has none")
    for name in IGNORED:
        made.add_argument(name, dest=name, action="store_true", help=argparse.SUPPRESS)
    return made


def _parse(argv: Sequence[str], warn: Warn) -> dict[str, Any]:
    made = parser()
    words = [word for word in argv if word.strip(" \t") != "\\"]
    if len(words) < len(argv):
        warn(
            "a lone backslash is left out: in the script, a space follows the one that ends a line"
        )
    given, unknown = made.parse_known_args(words)
    if unknown:
        known = [name for action in made._actions for name in action.option_strings]
        name = next((word for word in unknown if word.startswith("-")), "").partition("=")[0]
        if not name:
            raise UsageProblem(f"{unknown[0]!r} follows no flag that takes it")
        raise UsageProblem(
            f"unknown flag {name}; the nearest known one is {nearest(name, known)}",
            next_step="Correct or remove it; --help lists all flags.",
        )
    return vars(given)


def _values(given: dict[str, Any], under: Values, warn: Warn) -> Values:
    """Fields by what the flags say; `under` is what they go before."""
    values = preset(given["preset"]) if "preset" in given else {}
    if given.get("--fp16") and given.get("--bf16"):
        raise UsageProblem("--fp16 and --bf16 exclude each other", next_step="Give one of them.")
    for flag in FLAGS:
        if flag.name in given:
            values[flag.field] = coerce(flag.field, given[flag.name], flag.name)
    for name in sorted(given.keys() & set(IGNORED)):
        warn(f"{name} has no effect here")
    if "data_path" in given:
        values["dataset.data_path"] = _data_path(given["data_path"])
    if "load" in given:
        values |= {"training.load": given["load"], "training.resume_training": True}
    if "log_interval" in given:
        values["training.log_interval"] = _log_interval(given["log_interval"], warn)
    if "optimizer" in given:
        name = given["optimizer"]
        values["optimizer.optimizer_type"] = _OPTIMIZERS.get(name) or optimizer_type(name, warn)
    if given.keys() & {"adam_beta1", "adam_beta2"}:
        first, second = under.get("optimizer.betas", (0.9, 0.999))[:2]
        values["optimizer.betas"] = (
            given.get("adam_beta1", first),
            given.get("adam_beta2", second),
        )
    if "loss_scale" in given:
        warn("--loss-scale is the first scale here, and changes from there")
        values["training.loss_scale"] = given["loss_scale"]
    if "position_embedding_type" in given:
        kind = _POSITIONS[given["position_embedding_type"]]
        values["model.position_embedding_type"] = kind
    if "num_layers_per_virtual_pipeline_stage" in given:
        stages = _virtual_stages(given["num_layers_per_virtual_pipeline_stage"], under | values)
        values["parallel.virtual_pipeline_model_parallel_size"] = stages
    if values.get("model.add_bias_linear") is False:
        # Without a bias Megatron has nothing to fuse, and takes the GELU of torch.
        values.setdefault("model.gelu_tanh", False)
    if given.get("transformer_impl", "local") != "local":
        warn(f"--transformer-impl {given['transformer_impl']} has no effect here: it is local")
    return values


def _data_path(words: list[str]) -> str:
    prefixes = words[1::2] if len(words) == 2 else words
    if len(prefixes) != 1:
        raise UsageProblem(
            f"--data-path has {len(words)} words; relkit reads one data set",
            next_step="Join several with `relkit data merge`, and name the result's prefix.",
        )
    return prefixes[0]


def _log_interval(value: int, warn: Warn) -> int:
    if value != _NO_VALUE:
        return value
    default: int = DEFAULTS["training.log_interval"]
    warn(
        f"--log-interval has no value, so it is {default}; if it comes from a bash array, the"
        ' flags after it in the array are lost: write "${OUTPUT_ARGS[@]}"'
    )
    return default


def _virtual_stages(layers_of_a_chunk: int, values: Values) -> int:
    layers = values.get("model.num_layers", 0)
    stages = values.get("parallel.pipeline_model_parallel_size", 1)
    if layers_of_a_chunk < 1 or layers % (stages * layers_of_a_chunk):
        raise UsageProblem(
            f"{layers} layers over {stages} pipeline stages are not made of chunks of"
            f" --num-layers-per-virtual-pipeline-stage {layers_of_a_chunk}"
        )
    return int(layers // (stages * layers_of_a_chunk))
