"""MindFormers' YAML as a configuration's values: sections, nested keys, null, other names.

Source: the MindFormers tutorial on dynamic graph parallelism. A key that the tutorial does not have
is one of the sections' own fields (`config.py`), or is refused by name.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from relkit.errors import BadInputFile, UsageProblem
from relkit.files.input_file import read_input_text
from relkit.trainer.config.values import FIELDS, Values, Warn, coerce, nearest
from relkit.trainer.config.yaml_keys import MODEL, RENAMED, TRANSLATED, Key

_MAX_BYTES = 16 << 20

DEFAULTS: Values = {
    "model.hidden_dropout": 0.0,
    "model.attention_dropout": 0.0,
    "model.init_method_std": 0.01,
    "dataset.shuffle": False,
    "optimizer.lr_decay_style": "constant",
}
"""What MindFormers takes where a key is absent and relkit's own default is another."""


def yaml_values(path: Path, *, model_section: str, warn: Warn) -> Values:
    """All that a YAML file sets, in its fields' types, over MindFormers' defaults.

    Args:
        path: the file.
        model_section: name of the model's section, "gpt_config" in the tutorial's script;
            "model_config" is taken where it is absent.
        warn: gets one sentence for every key that is set and does nothing here.

    Raises:
        BadInputFile: the file is not there, or not YAML.
        UsageProblem: an unknown key, or a value of another type; both are named.
    """
    document = _read(path)
    values: Values = dict(DEFAULTS)
    model_key = _model_key(document, model_section)
    for title, content in document.items():
        section = MODEL if title == model_key else title
        if section not in RENAMED:
            known = [name for name in RENAMED if name != MODEL] + [model_section, MODEL]
            if title in ("gpt_config", MODEL):
                warn(f"{path.name}: section {title} is not used, because {model_key} is there")
                continue
            raise UsageProblem(
                f"{path}: unknown section {title!r}; the nearest known one is"
                f" {nearest(str(title), known)}",
                next_step=f"Sections are {', '.join(known)}; --model_type names the model's.",
            )
        if content is None:
            continue
        if not isinstance(content, dict):
            raise UsageProblem(f"{path}: section {title} is {content!r}, not keys with values")
        values |= _section(section, str(title), content, warn)
    if "training.loss_scale" in values and values.get("model.compute_dtype") != "float16":
        warn("training_config.loss_scale is 1 here: only compute_dtype float16 needs another")
    return values


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(read_input_text(path, _MAX_BYTES))
    except OSError as error:
        raise BadInputFile(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInputFile(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise BadInputFile(f"{path} has no sections")
    return document


def _model_key(document: Mapping[str, Any], asked: str) -> str:
    return next((name for name in (asked, MODEL, "gpt_config") if name in document), asked)


def _flat(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _section(section: str, title: str, content: Mapping[str, Any], warn: Warn) -> Values:
    keys = dict(_flat(content))
    values: Values = {}
    # A preset is the ground that the other keys change, wherever it stands among them.
    for name in sorted(keys, key=lambda name: name != "preset"):
        key = Key(keys[name], f"{title}.{name}", warn)
        translate = TRANSLATED.get((section, name))
        given = translate(key) if translate else {_field(section, title, name): key.value}
        for field, value in given.items():
            if not field and value is not None:
                raise UsageProblem(f"{key.called} is {value!r}; it must hold keys with values")
            # null is as if the key were absent, where a field cannot be without a value.
            if value is not None or type(None) in typing.get_args(FIELDS.get(field)):
                values[field] = coerce(field, value, key.called)
    return values


def _field(section: str, title: str, key: str) -> str:
    """The field that a key sets; "" for the name of nested keys, which only null can follow."""
    renamed = RENAMED[section]
    if key in renamed:
        return renamed[key]
    owner = section.removesuffix("_config")
    if f"{owner}.{key}" in FIELDS:
        return f"{owner}.{key}"
    known = {field.partition(".")[2] for field in FIELDS if field.startswith(f"{owner}.")}
    known |= renamed.keys() | {name for part, name in TRANSLATED if part == section}
    if any(name.startswith(f"{key}.") for name in known):
        return ""
    home = next((field for field in FIELDS if field.endswith(f".{key}")), None)
    where = (
        f"it belongs in {home.partition('.')[0]}_config"
        if home
        else f"the nearest known one is {nearest(key, known)}"
    )
    raise UsageProblem(f"unknown key {title}.{key}; {where}", next_step="Correct or remove it.")


def settled(values: Values) -> Values:
    """What a YAML file's values, and the flags that go before some, mean together.

    Raises:
        UsageProblem: a checkpoint is named, and not to be resumed from.
    """
    if values.get("training.load") and not values.get("training.resume_training"):
        raise UsageProblem(
            "training_config.load_checkpoint is set, but resume_training is not: relkit loads"
            " weights only together with the state of the run",
            next_step="Set training_config.resume_training to True, or remove load_checkpoint.",
        )
    if values.get("training.save_interval") and not values.get("training.save"):
        # MindFormers writes checkpoints into its output folder, Megatron only where --save says.
        folder = f"{values.get('training.output_dir', './output')}/checkpoint"
        return values | {"training.save": folder}
    return values
