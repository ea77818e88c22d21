"""The tables of keys and flags: each name leads to a field that exists, and has one meaning."""

from __future__ import annotations

from collections import Counter

import pytest

from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.config.flag_table import FLAG_OF, FLAGS, IGNORED, Flag
from relkit.trainer.config.presets import PRESETS
from relkit.trainer.config.values import FIELDS, Values, build, coerce
from relkit.trainer.config.yaml_file import DEFAULTS as YAML_DEFAULTS
from relkit.trainer.config.yaml_keys import RENAMED, TRANSLATED
from relkit.trainer.megatron.flags import DEFAULTS as FLAG_DEFAULTS
from relkit.trainer.megatron.flags import parse_flags, parser

SAMPLES: dict[object, object] = {int: "2", float: "0.25", str: "text"}
# Values that their section would refuse, or that need another flag.
NEED = {
    "--normalization": "RMSNorm",
    "--initial-loss-scale": "8.0",
    "--lr-decay-style": "constant",
    "--distributed-backend": "gloo",
    "--tokenizer-type": "CharLevelTokenizer",
}
SHAPE = ["--num-layers", "2", "--hidden-size", "8", "--num-attention-heads", "2"]
PLAIN = [*SHAPE, "--train-iters", "9", "--vocab-size", "64", "--seq-length", "2"]


def test_every_name_leads_to_a_field() -> None:
    fields = {flag.field for flag in FLAGS}
    fields |= {field for keys in RENAMED.values() for field in keys.values()}
    fields |= YAML_DEFAULTS.keys() | FLAG_DEFAULTS.keys()
    fields |= {field for shape in PRESETS.values() for field in shape}
    assert fields <= FIELDS.keys()


def test_no_name_has_two_meanings() -> None:
    flags = Counter(name for action in parser()._actions for name in action.option_strings)
    assert [name for name, count in flags.items() if count > 1] == []
    assert not set(IGNORED) & {flag.name for flag in FLAGS}
    for section, keys in RENAMED.items():
        own = {field.partition(".")[2] for field in FIELDS if field.startswith(section[:-6])}
        assert not own & keys.keys(), section
        assert not keys.keys() & {key for name, key in TRANSLATED if name == section}, section


@pytest.mark.parametrize("flag", FLAGS, ids=[flag.name for flag in FLAGS])
def test_each_flag_sets_its_field(flag: Flag) -> None:
    value = NEED.get(flag.name, SAMPLES.get(flag.kind))
    line = [flag.name] if value is None else [flag.name, str(value)]
    if "virtual" in flag.name:
        line += ["--pipeline-model-parallel-size", "2"]
    config = parse_flags([*PLAIN, *line], warn=lambda sentence: None)
    section, _, name = flag.field.partition(".")
    found = getattr(getattr(config, section), name)
    assert found == (flag.constant if value is None else coerce(flag.field, value, flag.name))


def test_the_defaults_alone_make_a_run() -> None:
    needed: Values = {
        "model.num_layers": 1,
        "model.hidden_size": 8,
        "model.num_attention_heads": 1,
        "training.training_iters": 1,
    }
    for defaults in (YAML_DEFAULTS, FLAG_DEFAULTS):
        assert isinstance(build({**needed, **defaults}, FLAG_OF), TrainerConfig)
