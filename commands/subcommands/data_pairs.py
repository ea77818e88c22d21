"""relkit data inspect, merge and verify: what is done with .bin/.idx pairs that exist."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from relkit.commands.shared.options import finish, report_options
from relkit.commands.shared.progress import progress_bar


def bare(prefix: str) -> str:
    """The prefix, also of a path that ends in .bin or .idx."""
    return prefix.removesuffix(".bin").removesuffix(".idx")


@click.command()
@click.argument("prefixes", nargs=-1, required=True, metavar="PREFIX...")
@click.option(
    "--show",
    type=click.IntRange(min=0),
    default=0,
    help="Show this many tokens from the beginning.",
)
@report_options
def inspect(
    prefixes: tuple[str, ...], show: int, fmt: str | None, output: Path | None, force: bool
) -> int:
    """Say what token data sets hold.

    \b
    Examples:
      relkit data inspect data/alpaca_text_document
      relkit data inspect data/*.idx --show 20 --json
    """
    from relkit.data.indexed import IndexedDataset
    from relkit.data.inspect import facts
    from relkit.data.report import inspect_report

    started = time.time()
    rows = [facts(IndexedDataset(bare(prefix)), show) for prefix in prefixes]
    return finish(inspect_report(rows, argv=sys.argv, started=started), fmt, output, force)


@click.command()
@click.argument("prefixes", nargs=-1, required=True, metavar="PREFIX...")
@click.option("--output-prefix", required=True, metavar="PREFIX", help="The data set to write.")
@click.option("--force", "-f", is_flag=True, help="Replace an existing data set.")
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
def merge(prefixes: tuple[str, ...], output_prefix: str, force: bool, fmt: str | None) -> int:
    """Write several token data sets as one, their documents in the order given.

    \b
    Examples:
      relkit data merge part_0_text_document part_1_text_document --output-prefix all
    """
    from relkit.data.merge import merge as merge_pairs
    from relkit.data.preprocess import made, refuse_existing
    from relkit.data.report import made_report

    started = time.time()
    target = bare(output_prefix)
    if not force:
        refuse_existing([target])
    with progress_bar("merging") as tell:
        merge_pairs([bare(prefix) for prefix in prefixes], target, tell)
    report = made_report(made([target]), argv=sys.argv, started=started)
    return finish(report, fmt, None, False)


@click.command()
@click.argument("prefixes", nargs=-1, required=True, metavar="PREFIX...")
@click.option("--vocab-size", type=click.IntRange(min=1), help="Every token must be below this.")
@click.option("--eod", type=click.IntRange(min=0), help="The token that must end each document.")
@report_options
def verify(
    prefixes: tuple[str, ...],
    vocab_size: int | None,
    eod: int | None,
    fmt: str | None,
    output: Path | None,
    force: bool,
) -> int:
    """Read token data sets whole, and say whether index, tokens and vocabulary agree.

    \b
    Examples:
      relkit data verify data/alpaca_text_document --vocab-size 50257 --eod 50256
    """
    from relkit.data.report import verify_report
    from relkit.data.verify import Verified
    from relkit.data.verify import verify as verify_pair
    from relkit.errors import BadInputFile

    started = time.time()
    results: dict[str, Verified | BadInputFile] = {}
    for prefix in map(bare, prefixes):
        with progress_bar(prefix) as tell:
            try:
                results[prefix] = verify_pair(prefix, vocab_size=vocab_size, eod=eod, progress=tell)
            except BadInputFile as error:
                results[prefix] = error
    return finish(verify_report(results, argv=sys.argv, started=started), fmt, output, force)
