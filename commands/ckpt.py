"""relkit ckpt: what checkpoints there are, on disk and in memory, and whether they are whole."""

from __future__ import annotations

import stat
import sys
import time
from dataclasses import replace
from pathlib import Path

import click

from relkit.command_group import CommandGroup
from relkit.commands.shared.options import NamedPath, finish, report_options
from relkit.log_lines import say, say_report
from relkit.output import shown, table


def _look_into(_ctx: click.Context, _param: click.Parameter, path: Path) -> Path:
    """Refuse what is no folder; what cannot be read is said to be that, and not to be absent."""
    try:
        is_folder = stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise click.BadParameter(f"Directory '{path}' does not exist.") from None
    except OSError:
        # Whatever reads it says why it cannot.
        return path
    if not is_folder:
        raise click.BadParameter(f"Directory '{path}' is a file.")
    return path


_FOLDER = click.argument("path", type=NamedPath(path_type=Path), callback=_look_into)


@click.group(cls=CommandGroup)
def ckpt() -> None:
    """Look into the trainer's checkpoints, and compare them with their checksums.

    \b
    Example:
      relkit ckpt inspect checkpoints
      relkit ckpt verify checkpoints
      relkit ckpt memory my-job
      relkit ckpt convert checkpoints llama --to hf
    """


@ckpt.command()
@_FOLDER
@click.option("--tensors", is_flag=True, help="List the tensors of each file too (needs torch).")
@report_options
def inspect(path: Path, tensors: bool, fmt: str | None, output: Path | None, force: bool) -> int:
    """List the iterations in PATH: degrees, samples consumed, files and sizes.

    PATH is what --save named, or one iteration in it. The iteration that a resumed run starts from
    has a star. Of an iteration with a manifest, only that is read, unless --tensors is given. One
    that Megatron wrote has none: the arguments in its files are read (needs torch).

    \b
    Examples:
      relkit ckpt inspect checkpoints
      relkit ckpt inspect checkpoints/iter_0000010 --tensors
      relkit ckpt inspect checkpoints --json | jq '.iterations[].facts.world_size'
    """
    from relkit.checkpoint.report import HEADER, rows_of
    from relkit.checkpoint.report import inspect as inspected

    started = time.time()
    report = inspected(path, argv=tuple(sys.argv), started=started)
    iterations = report.facts["iterations"]
    if tensors:
        from relkit.checkpoint.tensor_list import tensors_of

        for row in iterations:
            row["tensors"] = tensors_of(Path(row["folder"]))
    if fmt is not None or output is not None:
        report = replace(report, duration_s=time.time() - started)
        return finish(report, fmt or "json", output, force)
    click.echo(table(rows_of(iterations), HEADER))
    for row in iterations if tensors else ():
        click.echo("\n" + shown(row["folder"]))
        cells = [[t["file"], t["name"], t["dtype"], t["shape"]] for t in row["tensors"]]
        click.echo(table(cells, ("file", "tensor", "type", "shape")))
    say_report(report)
    return report.exit_code


@ckpt.command()
@_FOLDER
@report_options
def verify(path: Path, fmt: str | None, output: Path | None, force: bool) -> int:
    """Read every file of the checkpoints in PATH and compare sizes and checksums.

    PATH is what --save named, a folder that relkit.flash_checkpoint saves to, or one iteration or
    checkpoint in it. Exit code 1: something is damaged or missing; 3: an iteration has no manifest
    to compare it with.

    \b
    Examples:
      relkit ckpt verify checkpoints
      relkit ckpt verify checkpoints/iter_0000010
      relkit ckpt verify checkpoints --json | jq .whole
    """
    from relkit.flash_checkpoint.disk_report import verify as verified

    started = time.time()
    report = verified(path, argv=tuple(sys.argv), started=started)
    report = replace(report, duration_s=time.time() - started)
    return finish(report, fmt, output, force)


@ckpt.command()
@click.argument("job")
@report_options
def memory(job: str, fmt: str | None, output: Path | None, force: bool) -> int:
    """List what the ranks of JOB on this host have in memory: slots, steps, ages, whole or torn.

    JOB is the job's id (--rdzv-id), which the launcher prints. Nothing is changed. Exit code 1: a
    slot is refused.

    \b
    Examples:
      relkit ckpt memory my-job
      relkit ckpt memory my-job --json | jq .step
    """
    from relkit.flash_checkpoint.memory_report import HEADER, memory_report, rows_of

    started = time.time()
    report = memory_report(job, argv=tuple(sys.argv), started=started)
    if fmt is not None or output is not None:
        report = replace(report, duration_s=time.time() - started)
        return finish(report, fmt or "json", output, force)
    click.echo(table(rows_of(report), HEADER))
    say_report(report)
    return report.exit_code


@ckpt.command()
@_FOLDER
@click.argument("target", type=NamedPath(path_type=Path))
@click.option("--to", "to", type=click.Choice(["hf", "megatron"]), help="Form of TARGET.")
@click.option(
    "--from",
    "of",
    type=click.Choice(["hf", "megatron"]),
    help="Form of PATH; told by its config.json if left out.",
)
@click.option(
    "--tensor-model-parallel-size",
    "tensor",
    type=click.IntRange(1),
    default=1,
    help="Of the release.",
)
@click.option(
    "--pipeline-model-parallel-size",
    "pipeline",
    type=click.IntRange(1),
    default=1,
    help="Of the release.",
)
@click.option(
    "--virtual-pipeline-model-parallel-size",
    "virtual",
    type=click.IntRange(1),
    default=1,
    help="Of the release: chunks of layers of each pipeline rank.",
)
@click.option(
    "--expert-model-parallel-size",
    "expert",
    type=click.IntRange(1),
    default=1,
    help="Of the release.",
)
@click.option(
    "--make-vocab-size-divisible-by",
    "rows",
    type=click.IntRange(1),
    default=128,
    help="The embedding's rows are padded to it, times the tensor degree.",
)
@click.option(
    "--vocab-size",
    "vocabulary",
    type=click.IntRange(1),
    help="With --to hf: tokens that are kept, where the checkpoint does not say how many it uses.",
)
def convert(
    path: Path,
    target: Path,
    to: str | None,
    of: str | None,
    tensor: int,
    pipeline: int,
    virtual: int,
    expert: int,
    rows: int,
    vocabulary: int | None,
) -> int:
    """Write the weights in PATH into TARGET, in another form or for other degrees (needs torch).

    hf is a folder for transformers' from_pretrained: GPT-2, Llama or Mixtral, in safetensors.
    megatron is --ckpt-format torch: read of relkit's trainer and of Megatron, with any degrees;
    written as a release, weights alone, from which --load starts either of them with the degrees
    that are given here.

    A checkpoint of relkit's trainer needs no conversion to go on in Megatron, nor the other way
    round: the files are the same.

    \b
    Examples:
      relkit ckpt convert checkpoints llama --to hf
      relkit ckpt convert llama start --to megatron --tensor-model-parallel-size 2
      relkit ckpt convert checkpoints wider --to megatron --pipeline-model-parallel-size 4
    """
    from relkit.checkpoint.convert import folders
    from relkit.checkpoint.convert.cuts import Degrees

    of = of or ("hf" if (path / "config.json").is_file() else "megatron")
    to = to or ("megatron" if of == "hf" else "hf")
    if of == to == "hf":
        raise click.UsageError("PATH is hf already; --to megatron is what it can become")
    whole = folders.read_hugging_face(path) if of == "hf" else folders.read_megatron(path)
    if to == "hf":
        folders.write_hugging_face(whole, target, vocabulary)
    else:
        degrees = Degrees(tensor, pipeline, virtual, expert)
        folders.write_release(whole, target, degrees, rows)
    count = sum(value.numel() for value in whole.weights.values())
    say(f"{shown(str(target))}: {len(whole.weights)} tensors, {count:,} numbers, as {to}")
    return 0
