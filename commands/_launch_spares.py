"""The options of `relkit launch` for nodes that are lost: spares, and how long to wait for one."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace

import click

from relkit.commands._decorated import Decorated, with_options
from relkit.commands._finite import FiniteRange
from relkit.commands._kept_options import KeptOptions
from relkit.errors import UsageProblem
from relkit.launch.options import OwnOption
from relkit.launch.spares.settings import (
    HEARTBEAT_S,
    HEARTBEATS_OF_TORCH,
    MAX_OFTEN,
    SpareSettings,
)

OWN = (
    OwnOption(("--spares",)),
    OwnOption(("--replacement-timeout", "--replacement_timeout")),
    OwnOption(("--node-restarts", "--node_restarts")),
)
_KEPT = KeptOptions("spares")
_STATIC = "static"


# Kept in the context, not handed to the command: it takes them as one SpareSettings.
_OPTIONS = (
    _KEPT.option("--spares", type=click.IntRange(min=0, max=65_536), default=0, show_default=True,
                 metavar="K",
                 help="Start K launchers more than --nnodes says, with the same command: they wait "
                 "with warm processes, and one takes the place of a node that dies, is cut off or "
                 "leaves. Needs --rdzv-backend c10d (or no endpoint at all) and --max-restarts."),
    _KEPT.option("--replacement-timeout", type=FiniteRange(min=1.0), metavar="SECONDS",
                 help="How long a job that is short of nodes waits for a spare or a new launcher. "
                 "[default: torch's join_timeout, 600]"),
    _KEPT.option("--node-restarts", type=click.IntRange(min=0), default=3, show_default=True,
                 metavar="N",
                 help="A node on which N failures in a row have begun leaves the job, if another "
                 "can take its place or --nnodes MIN:MAX allows one less; 0: it stays."),
)  # fmt: skip


def spare_options(function: Decorated) -> Decorated:
    """--spares and what belongs to it."""
    return with_options(function, _OPTIONS)


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
    settings = SpareSettings(spares, timeout_s, asked["node_restarts"])
    flag = "--spares" if spares else "--replacement-timeout"
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
    low, _, high = options.nnodes.partition(":")
    is_on = options.rdzv_backend != _STATIC and (settings.is_asked or int(low) < int(high or low))
    if is_on and int(high or low) + spares <= MAX_OFTEN:
        _set_heartbeats(options)
    return replace(settings, is_on=is_on)


def _set_heartbeats(options: Namespace) -> None:
    wanted = {
        "keep_alive_interval": HEARTBEAT_S,
        "keep_alive_max_attempt": HEARTBEATS_OF_TORCH,
    }
    if not any(name in options.rdzv_conf for name in wanted):
        added = [f"{name}={value}" for name, value in wanted.items()]
        options.rdzv_conf = ",".join(filter(None, (options.rdzv_conf, *added)))
