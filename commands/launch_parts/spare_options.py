"""The options of `relkit launch` for nodes that are lost: spares, and how long to wait for one."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import click

from relkit.commands.shared.options import FiniteRange, KeptOptions
from relkit.errors import UsageProblem
from relkit.launch.spares.settings import (
    HEARTBEAT_S,
    HEARTBEATS_OF_TORCH,
    MAX_OFTEN,
    SpareSettings,
)

_KEPT = KeptOptions("spares")
_STATIC = "static"


# Kept in the context, not handed to the command: it takes them as one SpareSettings.
SPARES = (
    _KEPT.option("--spares", type=click.IntRange(min=0, max=65_536), default=0, show_default=True,
                 metavar="K",
                 help="Start K launchers more than --nnodes says, with the same command; "
                 "they wait, and one takes the place of a node that dies, is cut off or "
                 "leaves. Needs --rdzv-backend c10d (or no endpoint at all) and --max-restarts."),
    _KEPT.option("--replacement-timeout", type=FiniteRange(min=1.0), metavar="SECONDS",
                 help="How long a job that is short of nodes waits for a spare or a new launcher. "
                 "[default: torch's join_timeout, 600]"),
    _KEPT.option("--node-restarts", type=click.IntRange(min=0), default=3, show_default=True,
                 metavar="N",
                 help="A node on which N failures in a row have begun leaves the job, if another "
                 "can take its place or --nnodes MIN:MAX allows one less; 0: it stays."),
    _KEPT.option("--node-unit", type=click.IntRange(min=1, max=65_536), default=1,
                 show_default=True, metavar="N",
                 help="With --nnodes MIN:MAX the number of nodes is always a multiple of N between "
                 "MIN and MAX. Nodes that are left over wait as spares do, until there are enough "
                 "of them or one of the job's is lost. Needs --rdzv-backend c10d (or no "
                 "endpoint at all)."),
)  # fmt: skip


def spares_of(ctx: click.Context) -> int:
    """--spares."""
    return int(_KEPT.of(ctx)["spares"])


def spare_settings(ctx: click.Context, options: Namespace) -> SpareSettings:
    """What was asked for; torchrun's options are set so that a dead node is seen soon.

    Args:
        options: of torchrun; the place where nodes meet is known.

    Raises:
        UsageProblem: this job cannot have spares.
    """
    asked = _KEPT.of(ctx)
    spares, timeout_s = spares_of(ctx), asked["replacement_timeout"]
    low, _, high = options.nnodes.partition(":")
    is_elastic = int(low) < int(high or low)
    unit = asked["node_unit"]
    options.nnodes = whole_units(options.nnodes, unit)
    settings = SpareSettings(
        spares, timeout_s, asked["node_restarts"], node_unit=unit if is_elastic else 1
    )
    flag = "--spares" if spares else "--replacement-timeout"
    if not spares and timeout_s is None:
        flag = "--node-unit"
    if settings.is_asked and (options.standalone or options.rdzv_backend == _STATIC):
        raise UsageProblem(
            f"{flag} needs a rendezvous that takes other nodes in",
            next_step="Add --rdzv-backend c10d --rdzv-endpoint HOST:29400, the same on all nodes.",
        )
    if spares and options.max_restarts < 1:
        raise UsageProblem(
            "--spares has no restart to use: --max-restarts is 0",
            next_step="Add --max-restarts 3 (the workers that lose a peer are started again).",
        )
    is_on = options.rdzv_backend != _STATIC and (settings.is_asked or is_elastic)
    if is_on and int(high or low) + spares <= MAX_OFTEN:
        _set_heartbeats(options)
    return replace(settings, is_on=is_on)


def whole_units(nnodes: str, unit: int) -> str:
    """--nnodes, with MIN rounded up and MAX rounded down to multiples of the unit.

    Args:
        nnodes: a number or MIN:MAX; unit: --node-unit, nodes.

    Raises:
        UsageProblem: there is no multiple of the unit.
    """
    low, _, high = nnodes.partition(":")
    least, most = -(-int(low) // unit) * unit, int(high or low) // unit * unit
    if least > most:
        raise UsageProblem(
            f"--nnodes {nnodes} allows no multiple of --node-unit {unit}",
            next_step=f"Write --nnodes {least}, or --nnodes {least}:{least + unit}.",
        )
    return f"{least}:{most}" if high else str(least)


def _set_heartbeats(options: Namespace) -> None:
    wanted = {
        "keep_alive_interval": HEARTBEAT_S,
        "keep_alive_max_attempt": HEARTBEATS_OF_TORCH,
    }
    if not any(name in options.rdzv_conf for name in wanted):
        added = [f"{name}={value}" for name, value in wanted.items()]
        options.rdzv_conf = ",".join(filter(None, (options.rdzv_conf, *added)))
