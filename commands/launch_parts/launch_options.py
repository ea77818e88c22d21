"""The options of `relkit launch`, in the groups of its `--help`."""

from __future__ import annotations

from pathlib import Path

import click

from relkit import faults
from relkit.commands.launch_parts.hang_options import hang_timeout, on_hang, timeline_path
from relkit.commands.launch_parts.network_options import NETWORK_CHECK, TOPOLOGY
from relkit.commands.launch_parts.option_groups import group
from relkit.commands.launch_parts.peer_options import nodes_option
from relkit.commands.launch_parts.replica_options import REPLICAS
from relkit.commands.launch_parts.spare_options import SPARES
from relkit.commands.launch_parts.told_options import TOLD
from relkit.commands.shared.options import FiniteRange, seconds_option
from relkit.faults.slow_faults import SLOW_FAULTS
from relkit.launch.job.on_hang import OnHang
from relkit.straggler.transport.control_settings import Control, Mode
from relkit.ttp.actions import Limits

# What most jobs need, of relkit's options and of torchrun's.
FIRST = (
    "--nproc-per-node",
    "--nnodes",
    "--nodes",
    "--max-restarts",
    "--hang-timeout",
    "--on-hang",
    "--timeline-path",
    "--network-check",
    "--spares",
    "--flash-keep",
)
GROUPS = (
    group(
        "Hangs",
        hang_timeout("LAUNCH"),
        on_hang((OnHang.REPORT, OnHang.SAVE, OnHang.RESTART, OnHang.ABORT), OnHang.SAVE),
        click.option(
            "--on-hang-netcheck",
            is_flag=True,
            help="Before acting on a hang, measure the links between the nodes of the "
            "suspects and of the ranks that wait for them, from launcher to launcher "
            "over TCP. It takes 10 s at most.",
        ),
        timeline_path("LAUNCH"),
        click.option(
            "--no-hook",
            is_flag=True,
            help="Preload nothing into the job: hangs are then looked for in PyTorch's flight "
            "recorder.",
        ),
        click.option(
            "--inject",
            multiple=True,
            metavar="FAULT",
            help="Inject a fault, to see relkit find it: NAME:rank=R:step=S with NAME one of "
            f"{', '.join(faults.FAULTS)}; or one that lasts, as "
            f"slow-compute:rank=R:step=S:share=0.1: {', '.join(SLOW_FAULTS)}. Only "
            "scripts that call relkit.faults react to it.",
        ),
    ),
    group(
        "Stragglers",
        click.option(
            "--straggler",
            type=click.Choice([mode.value for mode in Mode]),
            default=Mode.WARN.value,
            show_default=True,
            envvar="RELKIT_LAUNCH_STRAGGLER",
            help="Look for ranks and links that make the job slow: warn says who, exclude "
            "also has that node leave an elastic job. `relkit straggler tune` changes it "
            "while the job runs.",
        ),
        click.option(
            "--straggler-min-slowdown",
            type=FiniteRange(0.01, 10.0),
            default=Control().min_slowdown,
            show_default=True,
            metavar="SHARE",
            envvar="RELKIT_LAUNCH_STRAGGLER_MIN_SLOWDOWN",
            help="The smallest slowdown to report: 0.04 = 4 % slower than its peers.",
        ),
    ),
    group(
        "Checkpoints",
        click.option(
            "--flash-keep",
            type=click.IntRange(min=0),
            default=2,
            show_default=True,
            metavar="N",
            help="When a rank dies, the job hangs or the launcher is ended, write the newest "
            "checkpoint that all ranks have in memory to disk, and keep the newest N of "
            "these. 0: do not write it.",
        ),
        seconds_option(
            "--flash-timeout",
            1.0,
            600.0,
            "How long writing what --flash-keep keeps may take; after that, the checkpoint before "
            "stays the newest.",
        ),
        click.option(
            "--flash-max-mb-per-s",
            type=FiniteRange(min=0.0),
            default=0.0,
            show_default=True,
            metavar="MB/S",
            help="Write what --flash-keep keeps no faster than this on each node; 0: as fast as "
            "the disk is.",
        ),
        *REPLICAS,
        seconds_option(
            "--ttp-timeout",
            1.0,
            Limits().overall_s,
            "How long survivors of a fault may take to save the last committed step (scripts under "
            "try-to-persist only).",
            envvar=["RELKIT_LAUNCH_TTP_TIMEOUT", "TTP_OT"],
        ),
        seconds_option(
            "--ttp-heartbeat",
            0.2,
            Limits().heartbeat_s,
            "Time between two heartbeats of a rank under try-to-persist; three missed ones are a "
            "fault.",
        ),
    ),
    group(
        "Network",
        *NETWORK_CHECK,
    ),
    group(
        "Metrics and notification",
        *TOLD,
    ),
    group(
        "Nodes and restarts",
        nodes_option,
        *SPARES,
        *TOPOLOGY,
        click.option(
            "--no-warm-standby",
            is_flag=True,
            help="With --max-restarts, each worker has a process beside it that repeats the "
            "imports it was seen to make, waits, and takes over at a restart. None is "
            "made for imports that follow other work of the script, or where memory is "
            "short; one is discarded if a file or a variable has changed. This option "
            "leaves them out. The first start is torchrun's in any case.",
        ),
        click.option(
            "--no-history",
            is_flag=True,
            help="Keep nothing of this job in the history of this host (relkit history), and do "
            "not say which of its nodes were named before.",
        ),
        click.option(
            "--secret-file",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="PATH",
            envvar=["RELKIT_LAUNCH_SECRET_FILE", "RELKIT_SECRET_FILE"],
            help="A secret of 16 bytes or more that all launchers of the job have, in a file "
            "of mode 0600: nobody else can then speak for them in the rendezvous store. "
            "RELKIT_SECRET in the environment does as well. Under Slurm, name a file "
            "that all nodes see; see the last example.",
        ),
    ),
)
