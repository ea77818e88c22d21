"""What a launcher's agent works with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from relkit.launch.flash_checkpoint.slot_host import SlotHost
from relkit.launch.hang.monitor import Monitor
from relkit.launch.job.settings import Log
from relkit.launch.job.socket_folder import SocketFolder
from relkit.launch.recovery.persist_host import PersistHost
from relkit.launch.straggler.straggler_thread import Stragglers
from relkit.net.operator_secret import OperatorSecret

if TYPE_CHECKING:
    from relkit.launch.netcheck.network_check import NetworkCheck

# Given the job's id and the number of local processes: the job folder, and the variables to add
# to the workers' environment. (None, {}) where the job runs without the hook.
Prepare = Callable[[str, int], tuple[Path | None, dict[str, str]]]


@dataclass(frozen=True, slots=True)
class AgentServices:
    """What an agent works with.

    Args:
        monitor: watches the workers.
        prepare: see Prepare.
        log: writes one line to the terminal.
        network: checks the nodes before workers start; None where that is not asked for.
        persist: has workers under try-to-persist save their last committed step after a fault;
            None where that is off.
        stragglers: looks for slow ranks; None where that is off.
        secret: the operator's; None where there is none.
        slots: keeps what workers save in memory over their restarts, and persists it when the job
            breaks off.
        sockets: of workers that answer where the hook sees nothing.
    """

    monitor: Monitor
    prepare: Prepare
    log: Log
    network: NetworkCheck | None = None
    persist: PersistHost | None = None
    stragglers: Stragglers | None = None
    secret: OperatorSecret | None = None
    slots: SlotHost | None = None
    sockets: SocketFolder | None = None
