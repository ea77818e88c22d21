"""relkit launch: torchrun, with hang detection and a verdict."""

from __future__ import annotations

import gc
import os
import sys
from argparse import Namespace
from pathlib import Path

import click

from relkit import faults
from relkit.commands.launch_parts import hang_options as shared
from relkit.commands.launch_parts.network_options import (
    OWN as NETWORK_OPTIONS,
)
from relkit.commands.launch_parts.network_options import (
    check_network_options,
    network_check,
    network_options,
    order_ranks,
)
from relkit.commands.launch_parts.peer_options import OWN as PEER_OPTIONS
from relkit.commands.launch_parts.peer_options import meet, nodes_option
from relkit.commands.launch_parts.replica_options import OWN as REPLICA_OPTIONS
from relkit.commands.launch_parts.replica_options import (
    check_replicas,
    replica_host,
    replica_options,
)
from relkit.commands.launch_parts.spare_options import OWN as SPARE_OPTIONS
from relkit.commands.launch_parts.spare_options import spare_options, spare_settings, spares_of
from relkit.commands.shared.options import FiniteRange, seconds_option
from relkit.errors import MissingExtra, UsageProblem
from relkit.faults.slow_faults import SLOW_FAULTS
from relkit.launch.job.on_hang import OnHang
from relkit.launch.options import OwnOption, check, check_script, program, split
from relkit.launch.quick_imports import quick_imports
from relkit.launch.torchrun_help import TorchrunOption, torchrun_options
from relkit.straggler.transport.control_settings import Control, Mode
from relkit.ttp.actions import Limits

_OWN = (
    OwnOption(("--hang-timeout", "--hang_timeout")),
    OwnOption(("--timeline-path", "--timeline_path")),
    OwnOption(("--on-hang", "--on_hang")),
    OwnOption(("--on-hang-netcheck", "--on_hang_netcheck"), takes_value=False),
    OwnOption(("--no-hook", "--no_hook"), takes_value=False),
    OwnOption(("--no-warm-standby", "--no_warm_standby"), takes_value=False),
    OwnOption(("--inject",), repeatable=True),
    OwnOption(("--secret-file", "--secret_file")),
    OwnOption(("--straggler",)),
    OwnOption(("--straggler-min-slowdown", "--straggler_min_slowdown")),
    OwnOption(("--ttp-timeout", "--ttp_timeout")),
    OwnOption(("--ttp-heartbeat", "--ttp_heartbeat")),
    OwnOption(("--flash-keep", "--flash_keep")),
    OwnOption(("--flash-max-mb-per-s", "--flash_max_mb_per_s")),
    OwnOption(("--flash-timeout", "--flash_timeout")),
    *PEER_OPTIONS,
    *NETWORK_OPTIONS,
    *SPARE_OPTIONS,
    *REPLICA_OPTIONS,
)
_PARSED = "relkit.launch.torchrun"


class LaunchCommand(click.Command):
    """Takes torchrun's options as torchrun's parser reads them, beside the ones declared here."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Hand Click its own options; keep what torchrun's parser made of the others."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        if args[:1] in (["-h"], ["--help"]):
            return super().parse_args(ctx, ["--help"])
        parts = split(args, _OWN)
        if parts.wants_help:
            return super().parse_args(ctx, ["--help"])
        check(parts.torchrun, args)
        ctx.meta[_PARSED] = parts.torchrun, tuple(args)
        return super().parse_args(ctx, list(parts.own))

    def format_usage(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The line that torchrun's users know."""
        formatter.write_usage(
            ctx.command_path, "[torchrun options] [relkit options] SCRIPT [script options]"
        )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """All options of the torchrun that is installed."""
        try:
            options = torchrun_options()
        except MissingExtra as error:
            with formatter.section("torchrun options"):
                formatter.write_text(f"{error} {error.next_step}")
            return
        rows = [(_spelled(option), option.help) for option in options if option.help]
        with formatter.section("torchrun options (all apply, with torchrun's meaning)"):
            formatter.write_dl(rows)


def _spelled(option: TorchrunOption) -> str:
    # torchrun spells each option twice; the second, with underscores, would only double the page.
    return " ".join([", ".join(f for f in option.flags if "_" not in f), option.value]).rstrip()


@click.command(cls=LaunchCommand)
@shared.hang_timeout("LAUNCH")
@shared.timeline_path("LAUNCH")
@shared.on_hang((OnHang.REPORT, OnHang.SAVE, OnHang.RESTART, OnHang.ABORT), OnHang.SAVE)
@click.option(
    "--on-hang-netcheck",
    is_flag=True,
    help="Before acting on a hang, measure the links between the nodes of the suspects and of the "
    "ranks that wait for them, from launcher to launcher over TCP. It takes 10 s at most.",
)
@click.option(
    "--no-hook",
    is_flag=True,
    help="Preload nothing into the job: hangs are then looked for in PyTorch's flight recorder.",
)
@click.option(
    "--no-warm-standby",
    is_flag=True,
    help="With --max-restarts, each worker has a process beside it that repeats the imports it was "
    "seen to make, waits, and takes over at a restart. None is made for imports that follow other "
    "work of the script, or where memory is short; one is discarded if a file or a variable has "
    "changed. This option leaves them out. The first start is torchrun's in any case.",
)
@click.option(
    "--inject",
    multiple=True,
    metavar="FAULT",
    help="Inject a fault, to see relkit find it: NAME:rank=R:step=S with NAME one of "
    f"{', '.join(faults.FAULTS)}; or one that lasts, as slow-compute:rank=R:step=S:share=0.1: "
    f"{', '.join(SLOW_FAULTS)}. Only scripts that call relkit.faults react to it.",
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="PATH",
    envvar=["RELKIT_LAUNCH_SECRET_FILE", "RELKIT_SECRET_FILE"],
    help="A secret of 16 bytes or more that all launchers of the job have, in a file of mode 0600: "
    "nobody else can then speak for them in the rendezvous store. RELKIT_SECRET in the environment "
    "does as well. Under Slurm, name a file that all nodes see; see the last example.",
)
@click.option(
    "--straggler",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.WARN.value,
    show_default=True,
    envvar="RELKIT_LAUNCH_STRAGGLER",
    help="Look for ranks and links that make the job slow: warn says who, exclude also has that "
    "node leave an elastic job. `relkit straggler tune` changes it while the job runs.",
)
@click.option(
    "--straggler-min-slowdown",
    type=FiniteRange(0.01, 10.0),
    default=Control().min_slowdown,
    show_default=True,
    metavar="SHARE",
    envvar="RELKIT_LAUNCH_STRAGGLER_MIN_SLOWDOWN",
    help="The smallest slowdown to report: 0.04 = 4 % slower than its peers.",
)
@seconds_option(
    "--ttp-timeout",
    1.0,
    Limits().overall_s,
    "How long survivors of a fault may take to save the last committed step (scripts under "
    "try-to-persist only).",
    envvar=["RELKIT_LAUNCH_TTP_TIMEOUT", "TTP_OT"],
)
@seconds_option(
    "--ttp-heartbeat",
    0.2,
    Limits().heartbeat_s,
    "Time between two heartbeats of a rank under try-to-persist; three missed ones are a fault.",
)
@click.option(
    "--flash-keep",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    metavar="N",
    help="When a rank dies, the job hangs or the launcher is ended, write the newest checkpoint "
    "that all ranks have in memory to disk, and keep the newest N of these. 0: do not write it.",
)
@click.option(
    "--flash-max-mb-per-s",
    type=FiniteRange(min=0.0),
    default=0.0,
    show_default=True,
    metavar="MB/S",
    help="Write such a checkpoint no faster than this on each node; 0: as fast as the disk is.",
)
@seconds_option(
    "--flash-timeout",
    1.0,
    600.0,
    "How long writing such a checkpoint may take; after that, the one before stays the newest.",
)
@nodes_option
@spare_options
@replica_options
@network_options
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
    options, typed = ctx.meta[_PARSED]
    action = OnHang(on_hang)
    asked = faults.parse_all(inject)
    if action is OnHang.RESTART:
        _check_restart(options, no_hook)
    check_network_options(ctx)
    check_script(options)
    where = meet(options, typed, nodes, spares_of(ctx))
    check_replicas(ctx, options)
    spares = spare_settings(ctx, options)
    secret = take_secret(secret_file, os.environ)
    os.environ.update(faults.to_environment(asked))

    # Only here: these import torch, which --help and bad usage must not wait for.
    with quick_imports():
        from relkit.commands.launch_parts.run_ends import accounts_into, persist_host, slot_host
        from relkit.commands.shared.incident import choose_timeline, log, monitor_into
        from relkit.launch.flash_checkpoint.persist_round import PersistSettings
        from relkit.launch.job.folder import JobFolder
        from relkit.launch.job.settings import MonitorSettings
        from relkit.launch.job.socket_folder import SocketFolder
        from relkit.launch.job_run import run_job
        from relkit.launch.straggler.straggler_thread import Stragglers
    # What is imported stays. Later collections, which stop every thread, need not look at it.
    gc.freeze()

    if where:
        log(where)
    ranks = order_ranks(ctx, options, log)
    folder = choose_timeline(timeline_path)
    settings = MonitorSettings(
        hang_timeout, action, tuple(sys.argv), on_hang_netcheck=on_hang_netcheck
    )
    monitor = monitor_into(folder, settings)
    sockets = SocketFolder(log)
    recorders = JobFolder(not no_hook, log, program(options), sockets.without_hook)
    log(f"hang timeout {hang_timeout:g} s, then {action}; timeline folder {folder}")
    try:
        network = network_check(ctx, options, folder, log)
        persist = persist_host(Limits(overall_s=ttp_timeout, heartbeat_s=ttp_heartbeat), folder)
        stragglers = Stragglers(
            Control(Mode(straggler), straggler_min_slowdown),
            folder,
            log,
            min_nodes=int(options.nnodes.partition(":")[0]),
        )
        slots = slot_host(
            PersistSettings(flash_keep, flash_max_mb_per_s, flash_timeout), folder,
            replica_host(ctx, flash_timeout, folder),
        )  # fmt: skip
        return run_job(
            options, monitor, recorders.prepare, log, network, persist, stragglers, secret, slots,
            accounts_into(folder), warm_standby=not no_warm_standby, spares=spares,
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
