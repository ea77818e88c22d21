"""Values by dotted name, wherever they come from, made into one checked TrainerConfig."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from relkit.errors import UsageProblem
from relkit.trainer.config.config import (
    DatasetConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    TrainerConfig,
    TrainingConfig,
)

Values = dict[str, Any]
"""Field -> value, e.g. {"model.num_layers": 24}."""

Warn = Callable[[str], None]
"""Takes one sentence for the person who starts the run."""

SECTIONS: Mapping[str, type[Any]] = {
    "training": TrainingConfig,
    "model": ModelConfig,
    "parallel": ParallelConfig,
    "dataset": DatasetConfig,
    "optimizer": OptimizerConfig,
}
FIELDS: Mapping[str, Any] = {
    f"{section}.{name}": kind
    for section, owner in SECTIONS.items()
    for name, kind in typing.get_type_hints(owner).items()
}
"""Every field that a run can set, with its type."""

OPTIMIZER_ALIASES = {
    "Came": "CAME",
    "mint.AdamW": "AdamW",
    "SpeedAdamW": "AdamW",
}


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that looks most like this one."""
    return difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]


def coerce(field: str, value: object, called: str) -> object:
    """A value as its field has it: numbers in strings (YAML's 1e-4) and lists are understood.

    Args:
        field: e.g. "model.num_layers"; value: as read.
        called: the user's name for it, for the error.

    Raises:
        UsageProblem: the value is of another type.
    """
    kind = FIELDS[field]
    if isinstance(kind, types.UnionType):
        if value is None:
            return None
        (kind,) = (part for part in typing.get_args(kind) if part is not type(None))
    wanted = "a list of numbers"
    if typing.get_origin(kind) is tuple:
        if isinstance(value, list | tuple):
            numbers = [_number(item) for item in value]
            if None not in numbers:
                return tuple(numbers)
    elif kind is float:
        wanted, number = "a number", _number(value)
        if number is not None:
            return number
    elif kind is int:
        wanted, number = "a whole number", _number(value)
        if number is not None and number.is_integer():
            return int(number)
    else:
        wanted = "True or False" if kind is bool else "text"
        if isinstance(value, kind):
            return value
    raise UsageProblem(f"{called} is {value!r}; it must be {wanted}", next_step="Correct it.")


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def optimizer_type(value: object, warn: Warn) -> object:
    """The optimizer's name here; other names of the tutorial are taken with a warning."""
    if isinstance(value, str) and value in OPTIMIZER_ALIASES:
        warn(f"optimizer {value} is {OPTIMIZER_ALIASES[value]} here")
        return OPTIMIZER_ALIASES[value]
    return value


def build(values: Values, flags: Mapping[str, str]) -> TrainerConfig:
    """The configuration of a run.

    Args:
        values: all that was given, in its fields' types; what is absent has its default.
        flags: field -> command-line flag, to name what is missing in both ways.

    Raises:
        UsageProblem: something is missing or cannot be; the sentence names it.
    """
    for first, second in _EITHER:
        if values.get(first) and values.get(second):
            raise UsageProblem(
                f"both {_yaml_name(first)} and {_yaml_name(second)} are given",
                next_step="Give one of the two: each decides what the other is.",
            )
    made: dict[str, Any] = {}
    for section, owner in SECTIONS.items():
        given = {
            name: values[f"{section}.{name}"]
            for name in owner.__dataclass_fields__
            if f"{section}.{name}" in values
        }
        for spec in dataclasses.fields(owner):
            if spec.default is dataclasses.MISSING and spec.name not in given:
                field = f"{section}.{spec.name}"
                raise UsageProblem(
                    f"{_yaml_name(field)} is not given",
                    next_step=f"Set it in the YAML file, or give {flags[field]}.",
                )
        made[section] = owner(**given)
    return TrainerConfig(**made)


def override(under: Values, over: Values) -> Values:
    """Both together; where they differ, or two fields say the same, the second one holds."""
    dropped = {
        other for pair in _EITHER for field in pair if over.get(field) for other in pair
    } - over.keys()
    return {key: value for key, value in under.items() if key not in dropped} | over


_EITHER = (
    ("dataset.global_batch_size", "dataset.micro_batch_num"),
    ("optimizer.warmup_fraction", "optimizer.warmup_steps"),
)


def _yaml_name(field: str) -> str:
    return field.replace(".", "_config.", 1)
