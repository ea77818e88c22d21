"""Pretrain a GPT with relkit's trainer: Megatron's flags, MindFormers' YAML, or both together.

    relkit launch --nproc-per-node 2 examples/pretrain_gpt.py --config_path examples/gpt_tiny.yaml

`examples/pretrain_single.sh` starts it as Megatron's users do. See docs/trainer.md.
"""

from __future__ import annotations

import os
import sys

from relkit.errors import RelkitError
from relkit.trainer.megatron.flags import parse_flags
from relkit.trainer.run.loop import pretrain


def say(sentence: str) -> None:
    """One line for the person at the terminal; all ranks read the same flags, so one says it."""
    if os.environ.get("RANK", "0") == "0":
        print(f"pretrain_gpt: {sentence}", file=sys.stderr, flush=True)


def main() -> int:
    """Read the command line, train; the exit code says how it went."""
    try:
        config = parse_flags(sys.argv[1:], warn=say)
    except RelkitError as error:
        say(f"{error}\n  next: {error.next_step}")
        return error.exit_code
    return pretrain(config)


if __name__ == "__main__":
    sys.exit(main())
