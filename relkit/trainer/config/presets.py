"""The three sizes of GPT that the MindFormers tutorial names, as values of the model's section."""

from __future__ import annotations

from relkit.errors import UsageProblem
from relkit.trainer.config.values import Values, nearest

PRESETS: dict[str, Values] = {
    "7B": {
        "model.num_layers": 32,
        "model.hidden_size": 4096,
        "model.ffn_hidden_size": 11008,
        "model.num_attention_heads": 32,
    },
    "13B": {
        "model.num_layers": 40,
        "model.hidden_size": 5120,
        "model.ffn_hidden_size": 13824,
        "model.num_attention_heads": 40,
    },
    "70B": {
        "model.num_layers": 80,
        "model.hidden_size": 8192,
        "model.ffn_hidden_size": 28672,
        "model.num_attention_heads": 64,
        "model.group_query_attention": True,
        "model.num_query_groups": 8,
    },
}


def preset(name: object) -> Values:
    """The shape of a preset; keys and flags beside it go before it.

    Raises:
        UsageProblem: there is no preset of that name.
    """
    if name not in PRESETS:
        raise UsageProblem(
            f"there is no preset {name!r}; the nearest is {nearest(str(name), PRESETS)}",
            next_step=f"Choose one of {', '.join(PRESETS)}, or give the sizes themselves.",
        )
    return dict(PRESETS[str(name)])
