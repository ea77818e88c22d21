"""relkit launch: torchrun, with hang detection and a verdict."""

from __future__ import annotations

import gc
import os
from argparse import Namespace
from typing import Any

import click

from relkit import faults
from relkit.commands.launch_parts.launch_options import FIRST, GROUPS
from relkit.commands.launch_parts.network_options import (
    check_network_options,
    order_ranks,
)
from relkit.commands.launch_parts.peer_options import meet
from relkit.commands.launch_parts.replica_options import check_replicas
from relkit.commands.launch_parts.spare_options import spare_settings, spares_of
from relkit.commands.launch_parts.told_options import check_told
from relkit.commands.launch_parts.torchrun_command import PARSED, TorchrunCommand
from relkit.config.apply import files_of
from relkit.errors import UsageProblem
from relkit.launch.job.on_hang import OnHang
from relkit.launch.options import check_script, is_left_open, unused_job_id
from relkit.launch.peers.local_address import settle_local_address
from relkit.launch.quick_imports import quick_imports
from relkit.log_lines import say as log


@click.command(cls=TorchrunCommand, first=FIRST, groups=GROUPS)
@click.pass_context
def launch(ctx: click.Context, /, **asked: Any) -> int:  # noqa: ANN401  what Click has read
    """Run a training job like torchrun, with hang detection and a verdict.

    Takes every torchrun option. When the job hangs, all ranks on all nodes are captured, and
    the rank at fault is named, with its stack. Healthy workers are never stopped.

    \b
    Examples:
      relkit launch --nproc-per-node 8 train.py --lr 1e-4
      srun --ntasks-per-node 1 relkit launch --nnodes 4 --nproc-per-node 8 train.py
      relkit launch --nodes hosts.txt --nproc-per-node 8 train.py
      relkit launch --nnodes 2 --rdzv-backend c10d --rdzv-endpoint host0:29400 \\
          --nproc-per-node 8 --hang-timeout 120 train.py
      relkit launch --nproc-per-node 4 --hang-timeout 10 \\
          --inject hang:rank=2:step=5 examples/train.py
      relkit launch --network-check --nnodes 7:8 --rdzv-backend c10d \\
          --rdzv-endpoint host0:29400 --nproc-per-node 8 train.py
      (umask 077; head -c 32 /dev/urandom | base64 > ~/.relkit-secret)
      srun --ntasks-per-node 1 relkit launch --secret-file ~/.relkit-secret \\
          --nnodes 2 --nproc-per-node 8 train.py
    """
    # --help does not wait for it.
    from relkit.net.operator_secret import take_secret

    options: Namespace
    options, typed = ctx.meta[PARSED]
    faulty = faults.parse_all(asked["inject"])
    if asked["on_hang"] == OnHang.RESTART:
        _check_restart(options, asked["no_hook"])
    check_network_options(ctx)
    check_told(ctx)
    check_script(options)
    left_open = is_left_open(options, typed)
    where = meet(options, typed, asked["nodes"], spares_of(ctx))
    unnamed = settle_local_address(options, left_open, spares_of(ctx))
    check_replicas(ctx, options)
    spares = spare_settings(ctx, options)
    secret = take_secret(asked["secret_file"], os.environ)
    os.environ.update(faults.to_environment(faulty))

    # Only here: these import torch, which --help and bad usage must not wait for.
    with quick_imports():
        from relkit.commands.launch_parts.services import launch_setup
        from relkit.commands.shared.incident import choose_timeline
        from relkit.launch.job_run import run_job
    # What is imported stays. Later collections, which stop every thread, need not look at it.
    gc.freeze()

    if files := ", ".join(map(str, files_of(ctx))):
        log(f"options from {files} apply")
    for line in filter(None, (where, unnamed, unused_job_id(options))):
        log(line)
    ranks = order_ranks(ctx, options, log)
    folder = choose_timeline(asked["timeline_path"])
    with launch_setup(ctx, options, folder, spares=spares, ranks=ranks, secret=secret) as setup:
        return run_job(options, setup, log)


def _check_restart(options: Namespace, no_hook: bool) -> None:
    from relkit.launch.job.socket_folder import WANTED, may_serve

    if options.max_restarts < 1:
        raise UsageProblem(
            "--on-hang restart has no restart to use: --max-restarts is 0",
            next_step="Add --max-restarts 3 (a restart after a hang counts as one).",
        )
    if no_hook and not may_serve():
        raise UsageProblem(
            f"--on-hang restart needs hangs to be detected: --no-hook and {WANTED}=0 turn that off",
            next_step=f"Leave out one of the two: without {WANTED}=0, PyTorch's flight recorder "
            "is read.",
        )
