"""relkit data preprocess: text to a .bin/.idx pair, with the flags of Megatron's tool."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from relkit.commands.shared.options import finish
from relkit.commands.shared.progress import progress_bar
from relkit.errors import UsageProblem
from relkit.log_lines import say_progress

if TYPE_CHECKING:
    from relkit.data.preprocess import Job, PreprocessResult

# Kept apart from relkit.data, so that --help imports no numpy.
TOKENIZER_TYPES = (
    "GPT2BPETokenizer",
    "HFTokenizer",
    "TiktokenTokenizer",
    "CharLevelTokenizer",
    "HuggingFaceTokenizer",
    "HFGPT2Tokenizer",
)


@click.command()
@click.option(
    "--input",
    "inputs",
    multiple=True,
    required=True,
    metavar="FILES",
    help="File, glob, folder or list with commas: .jsonl, .json, either with .gz or .zst, "
    ".parquet, or lm_dataformat's archives.",
)
@click.option(
    "--output-prefix",
    required=True,
    metavar="PREFIX",
    help="The data sets become PREFIX_KEY_document.bin and .idx.",
)
@click.option(
    "--json-keys",
    "--jsonl-keys",
    "keys",
    multiple=True,
    metavar="KEY...",
    help="Keys (columns) to encode, a data set each.  [default: text]",
)
@click.option(
    "--tokenizer-type",
    type=click.Choice(TOKENIZER_TYPES),
    required=True,
    help="How text becomes tokens.",
)
@click.option(
    "--vocab-file",
    "--vocab",
    "--tokenizer-model",
    "vocab_file",
    default="",
    metavar="PATH",
    help="vocab.json; tokenizer.json (HFTokenizer); .tiktoken file or name (TiktokenTokenizer).",
)
@click.option("--merge-file", default="", metavar="PATH", help="merges.txt (GPT2BPETokenizer).")
@click.option("--append-eod", is_flag=True, help="End each document with the tokenizer's token.")
@click.option(
    "--eod-token",
    default="",
    metavar="TEXT",
    help="The end-of-document token, if its name is unusual.",
)
@click.option("--ftfy", is_flag=True, help="Have ftfy mend each text first.")
@click.option(
    "--num-docs",
    type=click.IntRange(min=1),
    help="Documents of the input, if known: progress is then counted in them.",
)
@click.option(
    "--dataset-impl",
    type=click.Choice(("mmap", "lazy", "cached")),
    default="mmap",
    show_default=True,
    help="The kind of data set: mmap is the only one that is written.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="Processes that encode; with Spark, "
    "its local cores.  [default: as many as there are cores]",
)
@click.option(
    "--engine",
    type=click.Choice(("local", "spark")),
    default="local",
    show_default=True,
    help="What runs the workers.",
)
@click.option(
    "--master",
    default="",
    metavar="URL",
    help="Spark's master.  [default: spark-submit's, else local, with --workers cores]",
)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="With Spark: how many parts the input is split into.  [default: by size]",
)
@click.option(
    "--log-interval",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="Documents between two progress lines on stderr, where that is no terminal.",
)
@click.option("--force", "-f", is_flag=True, help="Replace existing data sets.")
@click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON.")
@click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document.")
@click.argument("more_keys", nargs=-1, metavar="[KEY]...")
def preprocess(
    inputs: tuple[str, ...],
    output_prefix: str,
    keys: tuple[str, ...],
    tokenizer_type: str,
    vocab_file: str,
    merge_file: str,
    append_eod: bool,
    eod_token: str,
    ftfy: bool,
    num_docs: int | None,
    dataset_impl: str,
    workers: int | None,
    engine: str,
    master: str,
    partitions: int | None,
    log_interval: int,
    force: bool,
    fmt: str | None,
    more_keys: tuple[str, ...],
) -> int:
    """Encode text files into token data sets, byte for byte as Megatron's tool does.

    \b
    Examples:
      relkit data preprocess --input alpaca.parquet --output-prefix data/alpaca \\
        --tokenizer-type GPT2BPETokenizer --vocab-file vocab.json --merge-file merges.txt \\
        --append-eod --workers 8
      relkit data preprocess --input 'web-*.jsonl.gz' --output-prefix data/web --engine spark \\
        --tokenizer-type HFTokenizer --vocab-file tokenizer.json --append-eod
    """
    from relkit.data.preprocess import Job
    from relkit.data.report import made_report
    from relkit.data.tokenizer import ALIASES, TokenizerSpec

    if more_keys and not keys:
        raise UsageProblem(f"{more_keys[0]!r} belongs to no option")
    if engine != "spark" and (master or partitions):
        raise UsageProblem("--master and --partitions are Spark's: add --engine spark")
    if dataset_impl != "mmap":
        raise UsageProblem(
            f"--dataset-impl {dataset_impl} is not written: its loaders are gone from Megatron",
            next_step="Leave it out; GPT-NeoX reads what is written with data_impl mmap.",
        )
    kind = ALIASES.get(tokenizer_type, tokenizer_type)
    job = Job(
        inputs=inputs,
        output_prefix=output_prefix,
        tokenizer=TokenizerSpec(kind, vocab_file, merge_file, eod_token),
        keys=(*keys, *more_keys) or ("text",),
        is_eod_appended=append_eod,
        is_repaired=ftfy,
        workers=workers or len(os.sched_getaffinity(0)),
        is_forced=force,
    )
    # The temporary files go with us, whoever ends us.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    started = time.time()
    with _progress(log_interval, num_docs) as tell:
        result = _run(job, engine, master, partitions, tell)
    report = made_report(
        result.made,
        argv=sys.argv,
        started=started,
        input_bytes=result.input_bytes,
        duration_s=result.duration_s,
    )
    return finish(report, fmt, None, False)


def _run(
    job: Job,
    engine: str,
    master: str,
    partitions: int | None,
    tell: Callable[[int, int, int], None],
) -> PreprocessResult:
    if engine == "spark":
        from relkit.data.spark import preprocess as run_spark

        return run_spark(job, master=master, partitions=partitions, progress=tell)
    from relkit.data.preprocess import preprocess as run_local

    return run_local(job, tell)


@contextmanager
def _progress(log_interval: int, num_docs: int | None) -> Iterator[Callable[[int, int, int], None]]:
    """A bar on a terminal; Megatron's lines elsewhere."""
    started = time.monotonic()
    said = 0
    with progress_bar("encoding") as bar:

        def tell(done: int, total: int, documents: int) -> None:
            nonlocal said
            elapsed_s = max(time.monotonic() - started, 1e-9)
            rates = f"{documents / elapsed_s:.0f} docs/s, {done / 1e6 / elapsed_s:.1f} MB/s"
            if num_docs:
                done, total = min(documents, num_docs), num_docs
            bar(done, total, f"{documents} ({rates})")
            if not sys.stderr.isatty() and documents // log_interval > said:
                said = documents // log_interval
                of_all = f" of {num_docs}" if num_docs else ""
                say_progress(f"Processed {documents}{of_all} documents ({rates}).")

        yield tell
