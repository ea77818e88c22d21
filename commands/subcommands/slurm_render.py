"""relkit slurm render: the script for sbatch."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option(
    "--nodes", type=click.IntRange(min=1), required=True, metavar="N", help="Nodes that train."
)
@click.option(
    "--spares",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="Further nodes that wait to take the place of a lost one.",
)
@click.option(
    "--gpus",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    metavar="N",
    help="GPUs of each node; 0 asks Slurm for none.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    metavar="N",
    help="Workers on each node.  [default: one a GPU, else 1]",
)
@click.option(
    "--time",
    default="",
    metavar="LIMIT",
    help="Time limit as sbatch takes it: 24:00:00.  [default: the partition's]",
)
@click.option(
    "--save-before",
    # sbatch refuses more: the field has 16 bits.
    type=click.IntRange(min=1, max=65535),
    default=300,
    show_default=True,
    metavar="SECONDS",
    help="How long before the limit the job is told to save and to end.",
)
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    metavar="N",
    help="How often workers may be started again between two starts of the job.",
)
@click.option(
    "--max-requeues",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    metavar="N",
    help="How often a job that has saved may go back into the queue; 0: never.",
)
@click.option("--name", default="", metavar="NAME", help="Name of the job.  [default: sbatch's]")
@click.option(
    "--sbatch",
    multiple=True,
    metavar="OPTION",
    help='A further option for sbatch: --sbatch="--partition=gpu". Repeatable.',
)
@click.option(
    "--launch",
    multiple=True,
    metavar="OPTIONS",
    help='Further options for relkit launch: --launch="--flash-keep 3". Repeatable.',
)
@click.option(
    "--relkit",
    default="relkit",
    show_default=True,
    metavar="COMMAND",
    help="How relkit is called on the nodes.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the script there instead of to stdout.",
)
@click.option("--force", "-f", is_flag=True, help="Replace an existing -o file.")
@click.argument("script", nargs=-1, required=True, type=click.UNPROCESSED)
def render(
    nodes: int,
    spares: int,
    gpus: int,
    workers: int | None,
    time: str,
    save_before: int,
    max_restarts: int,
    max_requeues: int,
    name: str,
    sbatch: tuple[str, ...],
    launch: tuple[str, ...],
    relkit: str,
    script: tuple[str, ...],
    output: Path | None,
    force: bool,
) -> int:
    """Print a script for sbatch that runs SCRIPT under relkit launch on each node.

    Before the time limit it has the job saved and ended; where that was done, it puts the job back
    into the queue. Its exit code is that of the launchers. The same options give the same bytes;
    they may stand in relkit.toml under [slurm.render].

    \b
    Examples:
      relkit slurm render --nodes 4 --gpus 8 --time 24:00:00 train.py --lr 1e-4 > job.sh
      relkit slurm render --nodes 4 --spares 2 --sbatch="--partition=gpu" train.py | sbatch
      relkit --config job.toml slurm render -o job.sh train.py
    """
    from relkit.errors import EXIT_OK, UsageProblem
    from relkit.output import emit_text
    from relkit.slurm.job import SlurmJob
    from relkit.slurm.script import render as render_job

    def split(option: str, texts: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(word for text in texts for word in shlex.split(text))
        except ValueError as error:
            raise UsageProblem(f"{option} {' '.join(texts)!r}: {error}") from error

    job = SlurmJob(
        command=script,
        nodes=nodes,
        spares=spares,
        workers=workers or gpus or 1,
        gpus=gpus,
        time=time,
        save_before_s=save_before,
        max_restarts=max_restarts,
        max_requeues=max_requeues,
        name=name,
        sbatch=sbatch,
        launch=split("--launch", launch),
        relkit=split("--relkit", (relkit,)),
    )
    emit_text(render_job(job), output, force=force, mode=0o700)
    return EXIT_OK
