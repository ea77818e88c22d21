"""What runs beside a job of `relkit launch`: its services, in their order, from its options."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from relkit.commands.launch_parts.network_options import netcheck_service
from relkit.commands.launch_parts.replica_options import replica_host
from relkit.commands.launch_parts.run_ends import (
    accounts_into,
    checkpoints_of,
    persist_host,
    slot_host,
)
from relkit.commands.launch_parts.told_options import (
    incident_service,
    metrics_service,
    traced_calls_service,
)
from relkit.commands.shared.incident import monitor_into
from relkit.commands.shared.incident_page import IncidentPage
from relkit.launch.accounting.listener import AccountedPhases, OtherServices
from relkit.launch.elastic.setup import AgentSetup
from relkit.launch.flash_checkpoint.persist_plan import SavedStep
from relkit.launch.flash_checkpoint.persist_round import PersistSettings
from relkit.launch.flash_checkpoint.service import FlashService
from relkit.launch.flash_checkpoint.slot_host import SlotHost
from relkit.launch.hang.service import HangService, SeenWorkers
from relkit.launch.history.keeper import HistoryKeeper
from relkit.launch.history.service import HistoryService
from relkit.launch.job.folder import JobFolder
from relkit.launch.job.node_name import node_name
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import MonitorSettings
from relkit.launch.job.socket_folder import SocketFolder
from relkit.launch.job.topology_ranks import TopologyRanks
from relkit.launch.metrics.sources import Sources, ToldIncidents
from relkit.launch.options import program
from relkit.launch.recovery.persist_host import PersistHost
from relkit.launch.recovery.service import RecoveryService
from relkit.launch.spares.service import SpareService
from relkit.launch.spares.settings import SpareSettings
from relkit.launch.spares.spare_rendezvous import SpareRendezvous
from relkit.launch.straggler.service import StragglerService
from relkit.launch.straggler.straggler_thread import Stragglers
from relkit.launch.warm_standby.service import StandbyService
from relkit.launch.warm_standby.standbys import Standbys
from relkit.log_lines import say as log
from relkit.net.operator_secret import OperatorSecret
from relkit.straggler.transport.control_settings import Control, Mode
from relkit.ttp.actions import Limits


@contextmanager
def launch_setup(
    ctx: click.Context,
    options: Namespace,
    folder: Path,
    *,
    spares: SpareSettings,
    ranks: TopologyRanks | None,
    secret: OperatorSecret | None,
) -> Iterator[AgentSetup]:
    """What the agent works with; the folders of it are gone at the end of the block.

    Args:
        ctx: of `relkit launch`; options: torchrun's.
        folder: the timeline folder.
        spares: what to do about nodes that are lost.
        ranks: gives the nodes their numbers; None where torch does.
        secret: the operator's; None where there is none.
    """
    asked, sockets = ctx.params, SocketFolder(log)
    settings = MonitorSettings(
        asked["hang_timeout"], OnHang(asked["on_hang"]), tuple(sys.argv),
        on_hang_netcheck=asked["on_hang_netcheck"],
    )  # fmt: skip
    told = ToldIncidents()
    incidents = incident_service(ctx, log, told)
    monitor, page = monitor_into(folder, settings, tell=incidents.tell)
    recorders = JobFolder(not asked["no_hook"], log, program(options), sockets.without_hook)
    log(
        f"hang timeout {settings.hang_timeout_s:g} s, then {settings.on_hang};"
        f" timeline folder {folder}"
    )
    history = None if asked["no_history"] else HistoryKeeper(folder, log)
    try:
        meeting = SpareRendezvous(spares, log, node_name())
        check = netcheck_service(
            ctx, options, folder, log, lambda: meeting.may_replace, incidents.tell_check
        )
        limits = Limits(overall_s=asked["ttp_timeout"], heartbeat_s=asked["ttp_heartbeat"])
        persist = persist_host(limits, folder, page)
        stragglers = _stragglers(asked, options, folder)
        accounts = accounts_into(folder, page, *([history.hear] if history else []))
        standbys = Standbys(_has_standbys(asked, options), log, accounts.standby)
        hang = HangService(monitor, sockets, stragglers.other_leaves, log)
        slots = _slots(ctx, folder, page)
        sources = Sources(
            accounts.records_now,
            lambda: monitor.judged_hung,
            lambda: stragglers.standing,
            hang.recorder_of,
            lambda: checkpoints_of(slots),
            told,
        )
        # Asked in this order: who decides on nodes; standbys, which hurry while the others are
        # captured; who leads workers through a fault, before who may stop them; then whoever writes
        # for long at the end; and last those that tell others of all that, or keep it.
        services = (
            SeenWorkers(sockets),
            traced_calls_service(ctx, log),
            ranks,
            check,
            SpareService(meeting, stragglers, log),
            StandbyService(standbys, sockets, lambda: accounts.is_working, hang.discount_kills),
            None if persist is None else RecoveryService(persist, monitor.action),
            hang,
            StragglerService(stragglers),
            FlashService(slots, lambda: _saved_by(persist)),
            metrics_service(ctx, folder, log, sources),
            incidents,
            None if history is None else HistoryService(history),
        )
        others = OtherServices(
            stragglers.other_leaves, lambda: _saved_by(persist), lambda: standbys.used
        )
        phases = AccountedPhases(accounts, monitor, others)
        yield AgentSetup(tuple(filter(None, services)), recorders.prepare, phases, secret)
    finally:
        if history is not None:
            history.close()
        sockets.remove()
        recorders.remove()


def _stragglers(asked: dict[str, Any], options: Namespace, folder: Path) -> Stragglers:
    wanted = Control(Mode(asked["straggler"]), asked["straggler_min_slowdown"])
    return Stragglers(wanted, folder, log, min_nodes=int(options.nnodes.partition(":")[0]))


def _has_standbys(asked: dict[str, Any], options: Namespace) -> bool:
    has_restart = options.max_restarts > 0 and not options.no_python
    return has_restart and not asked["no_warm_standby"]


def _slots(ctx: click.Context, folder: Path, page: IncidentPage) -> SlotHost:
    asked = ctx.params
    timeout_s = asked["flash_timeout"]
    settings = PersistSettings(asked["flash_keep"], asked["flash_max_mb_per_s"], timeout_s)
    return slot_host(settings, folder, replica_host(ctx, timeout_s, folder), page)


def _saved_by(persist: PersistHost | None) -> SavedStep | None:
    """What try-to-persist has saved after a fault of this attempt."""
    outcome = None if persist is None else persist.outcome
    if outcome is None or outcome.step < 0:
        return None
    return SavedStep(outcome.step, outcome.folder)
