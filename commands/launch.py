"""relkit launch: torchrun, with hang detection and a verdict."""

from __future__ import annotations

import gc
import os
import sys
from argparse import Namespace
from pathlib import Path

import click

from relkit import faults
from relkit.commands.launch_parts.launch_options import FIRST, GROUPS
from relkit.commands.launch_parts.network_options import (
    check_network_options,
    network_check,
    order_ranks,
)
from relkit.commands.launch_parts.peer_options import meet
from relkit.commands.launch_parts.replica_options import check_replicas, replica_host
from relkit.commands.launch_parts.spare_options import spare_settings, spares_of
from relkit.commands.launch_parts.torchrun_command import PARSED, TorchrunCommand
from relkit.config.apply import files_of
from relkit.errors import UsageProblem
from relkit.launch.job.on_hang import OnHang
from relkit.launch.options import check_script, is_left_open, program, unused_job_id
from relkit.launch.peers.local_address import settle_local_address
from relkit.launch.quick_imports import quick_imports
from relkit.log_lines import say as log
from relkit.straggler.transport.control_settings import Control, Mode
from relkit.ttp.actions import Limits


@click.command(cls=TorchrunCommand, first=FIRST, groups=GROUPS)
@click.pass_context
def launch(
    ctx: click.Context,
    hang_timeout: float,
    timeline_path: Path | None,
    on_hang: str,
    on_hang_netcheck: bool,
    no_hook: bool,
    no_warm_standby: bool,
    inject: tuple[str, ...],
    secret_file: Path | None,
    straggler: str,
    straggler_min_slowdown: float,
    ttp_timeout: float,
    ttp_heartbeat: float,
    flash_keep: int,
    flash_max_mb_per_s: float,
    flash_timeout: float,
    nodes: str | None,
) -> int:
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
    action = OnHang(on_hang)
    asked = faults.parse_all(inject)
    if action is OnHang.RESTART:
        _check_restart(options, no_hook)
    check_network_options(ctx)
    check_script(options)
    left_open = is_left_open(options, typed)
    where = meet(options, typed, nodes, spares_of(ctx))
    unnamed = settle_local_address(options, left_open, spares_of(ctx))
    check_replicas(ctx, options)
    spares = spare_settings(ctx, options)
    secret = take_secret(secret_file, os.environ)
    os.environ.update(faults.to_environment(asked))

    # Only here: these import torch, which --help and bad usage must not wait for.
    with quick_imports():
        from relkit.commands.launch_parts.run_ends import accounts_into, persist_host, slot_host
        from relkit.commands.shared.incident import choose_timeline, monitor_into
        from relkit.launch.flash_checkpoint.persist_round import PersistSettings
        from relkit.launch.job.folder import JobFolder
        from relkit.launch.job.settings import MonitorSettings
        from relkit.launch.job.socket_folder import SocketFolder
        from relkit.launch.job_run import run_job
        from relkit.launch.straggler.straggler_thread import Stragglers
    # What is imported stays. Later collections, which stop every thread, need not look at it.
    gc.freeze()

    if files := ", ".join(map(str, files_of(ctx))):
        log(f"options from {files} apply")
    for line in filter(None, (where, unnamed, unused_job_id(options))):
        log(line)
    ranks = order_ranks(ctx, options, log)
    folder = choose_timeline(timeline_path)
    settings = MonitorSettings(
        hang_timeout, action, tuple(sys.argv), on_hang_netcheck=on_hang_netcheck
    )
    monitor, page = monitor_into(folder, settings)
    sockets = SocketFolder(log)
    recorders = JobFolder(not no_hook, log, program(options), sockets.without_hook)
    log(f"hang timeout {hang_timeout:g} s, then {action}; timeline folder {folder}")
    try:
        network = network_check(ctx, options, folder, log)
        persist = persist_host(
            Limits(overall_s=ttp_timeout, heartbeat_s=ttp_heartbeat), folder, page
        )
        stragglers = Stragglers(
            Control(Mode(straggler), straggler_min_slowdown),
            folder,
            log,
            min_nodes=int(options.nnodes.partition(":")[0]),
        )
        slots = slot_host(
            PersistSettings(flash_keep, flash_max_mb_per_s, flash_timeout), folder,
            replica_host(ctx, flash_timeout, folder), page,
        )  # fmt: skip
        return run_job(
            options, monitor, recorders.prepare, log, network, persist, stragglers, secret, slots,
            accounts_into(folder, page), warm_standby=not no_warm_standby, spares=spares,
            ranks=ranks,
            sockets=sockets,
        )  # fmt: skip
    finally:
        sockets.remove()
        recorders.remove()


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
