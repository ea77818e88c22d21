"""relkit data: token data sets, made from text, looked into, merged and checked."""

from __future__ import annotations

import click

from relkit.command_group import CommandGroup
from relkit.commands.subcommands.data_pairs import inspect, merge, verify
from relkit.commands.subcommands.data_preprocess import preprocess


@click.group(cls=CommandGroup)
def data() -> None:
    """Make token data sets from text; inspect, merge and verify them.

    \b
    Examples:
      relkit data preprocess --input alpaca.parquet --output-prefix data/alpaca \\
        --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt \\
        --append-eod --workers 8
      relkit data verify data/alpaca_text_document --vocab-size 50257
    """


for command in (preprocess, inspect, merge, verify):
    data.add_command(command)
