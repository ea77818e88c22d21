"""The run of a whole job under torch's own launcher, with our agent in it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import torch.distributed.launcher.api as launcher_api
from torch._C import _DistError as DistError
from torch.distributed.elastic.agent.server.api import RunResult
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.elastic.rendezvous.api import (
    RendezvousConnectionError,
    RendezvousError,
    RendezvousHandler,
    RendezvousParameters,
)
from torch.distributed.run import run as torchrun

from relkit.accounting.journal import Journal
from relkit.errors import EXIT_PROBLEM, RelkitError, UsageProblem
from relkit.launch.accounting.accounts import Accounts
from relkit.launch.agent import MonitoredAgent
from relkit.launch.agent_services import AgentServices, Prepare
from relkit.launch.flash_checkpoint.slot_host import SlotHost
from relkit.launch.guarded_agent import GuardedAgent
from relkit.launch.hang.monitor import Monitor
from relkit.launch.job.bounded_calls import BoundedCalls, NoAnswer
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.looks import Looks
from relkit.launch.job.node_name import node_name
from relkit.launch.job.rendezvous import keep_alive_as_asked
from relkit.launch.job.sealed_rendezvous import ForeignState
from relkit.launch.job.session_key import SecretMismatch
from relkit.launch.job.settings import Log
from relkit.launch.job.socket_folder import SocketFolder
from relkit.launch.job.topology_ranks import TopologyRanks
from relkit.launch.recovery.fault_recovery import exit_code
from relkit.launch.recovery.persist_host import PersistHost
from relkit.launch.spares.settings import SpareSettings
from relkit.launch.spares.spare_rendezvous import SpareRendezvous
from relkit.launch.straggler.straggler_thread import Stragglers
from relkit.launch.warm_standby.standbys import Standbys
from relkit.net.operator_secret import OperatorSecret
from relkit.text.printable import printable

if TYPE_CHECKING:
    from relkit.launch.netcheck.network_check import NetworkCheck

# Of torch's read_timeout: it may take that long to connect, and once more for the first answer.
_CONNECT_TIMEOUTS = 2.0


class RendezvousFailed(RelkitError):
    """The nodes of a job did not find each other."""

    next_step = (
        "Check that the endpoint's host is up and reachable, and that all nodes name the same one."
    )


class StoreLost(RelkitError):
    """The rendezvous store has gone while this node's workers ran: the job has ended elsewhere."""

    exit_code = EXIT_PROBLEM
    next_step = "See the last lines of the launcher on that host; this node's workers were ended."


@contextmanager
def _agent_class(agent: type[LocalElasticAgent]) -> Iterator[None]:
    # torch's launch_agent offers no way to pass an agent in, and looks this one name up when it
    # runs. Replacing the name keeps the whole of torchrun's code path, of whichever version is
    # installed, instead of a copy of it.
    original = vars(launcher_api)["LocalElasticAgent"]
    vars(launcher_api)["LocalElasticAgent"] = agent
    try:
        yield
    finally:
        vars(launcher_api)["LocalElasticAgent"] = original


@contextmanager
def _interruptible_connect() -> Iterator[None]:
    # torch's client of a store that accepts its connection and then says nothing handles no signal
    # and keeps no deadline. This name is looked up when torchrun runs, as above.
    registry = vars(launcher_api)["rdzv_registry"]
    original = registry.get_rendezvous_handler

    def connect(parameters: RendezvousParameters) -> RendezvousHandler:
        limit_s = _CONNECT_TIMEOUTS * (parameters.get_as_int("read_timeout", 60) or 60)
        calls = BoundedCalls("relkit-connect")
        try:
            handler: RendezvousHandler = calls.call(original, parameters, timeout_s=limit_s)
        except NoAnswer:
            raise RendezvousConnectionError(
                f"its store has not answered for {limit_s:g} s"
            ) from None
        keep_alive_as_asked(handler, parameters)
        return handler

    registry.get_rendezvous_handler = connect
    try:
        yield
    finally:
        registry.get_rendezvous_handler = original


def _brief(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]


def run_job(
    options: argparse.Namespace,
    monitor: Monitor,
    prepare: Prepare,
    log: Log,
    network: NetworkCheck | None = None,
    persist: PersistHost | None = None,
    stragglers: Stragglers | None = None,
    secret: OperatorSecret | None = None,
    slots: SlotHost | None = None,
    accounts: Accounts | None = None,
    warm_standby: bool = False,
    spares: SpareSettings | None = None,
    ranks: TopologyRanks | None = None,
    sockets: SocketFolder | None = None,
) -> int:
    """Run a job as torchrun would, under the monitor.

    Args:
        options: what torchrun's parser returned.
        prepare: see Prepare.
        log: writes one line to the terminal.
        network, persist, stragglers, secret, slots, sockets: see AgentServices.
        accounts: of this run, not begun.
        warm_standby: keep processes that wait to be workers, where there may be a restart.
        spares: what to do about nodes that are lost.
        ranks: gives the nodes their numbers; None where torch does.

    Returns:
        the exit code: 0 the job succeeded, 1 a worker failed, 128 + n ended by signal n; under
        try-to-persist 75 where the last step was saved, 76 where it was refused, 77 where saving
        failed.

    Raises:
        JobAborted: the job hung, and --on-hang asked for its end.
        NodeFailedCheck, TooFewNodes: the network check ended the job on this node.
        UsageProblem: torch does not accept an option's value.
        RendezvousFailed: the nodes did not find each other.
        StoreLost: they did, and then the host of the rendezvous ended.
        SecretMismatch: not all of them have the same secret.
        NoReplacement: nodes are gone, and nobody took their places.
    """
    made: list[MonitoredAgent] = []
    kept = Accounts(Journal, log) if accounts is None else accounts
    has_standbys = warm_standby and options.max_restarts > 0 and not options.no_python
    waiting = Standbys(has_standbys, log, kept.standby)

    watched = Looks(log)
    places = SpareRendezvous(spares or SpareSettings(), log, node_name())
    if network is not None:
        network.may_replace = lambda: places.may_replace

    class JobAgent(GuardedAgent):
        """The agent of this job; torch makes the instance, so the services come with the class."""

        accounts = kept
        standbys = waiting
        meeting = places
        looks = watched
        services = AgentServices(
            monitor, prepare, log, network, persist, stragglers, secret, slots,
            sockets,
        )  # fmt: skip

        def run(self, role: str = "default") -> RunResult:
            if ranks is not None:
                ranks.attach(self._worker_group.spec.rdzv_handler)
            made.append(self)
            result: RunResult = super().run(role)
            return result

    try:
        with _agent_class(JobAgent), _interruptible_connect():
            record(torchrun)(options)
    except ChildFailedError as error:
        print(printable(str(error)), file=sys.stderr)
        return _saved(made, persist) or EXIT_PROBLEM
    except LeavesJob as left:
        raise left.why from None
    except SignalException as error:
        return _saved(made, persist) or 128 + int(error.sigval)
    except ForeignState as error:
        raise SecretMismatch(f"this node cannot join the job: {error}") from error
    except (RendezvousError, DistError) as error:
        endpoint = options.rdzv_endpoint or f"{options.master_addr}:{options.master_port}"
        if made and made[-1].started:
            code = _saved(made, persist)
            if code:
                return code
            raise StoreLost(
                f"the rendezvous store at {endpoint} has gone: the node that hosts it has left the"
                f" job ({_brief(error)})"
            ) from error
        raise RendezvousFailed(f"no rendezvous at {endpoint}: {_brief(error)}") from error
    except (ValueError, AssertionError) as error:
        if made:
            raise
        # Before the agent runs, this is torch's way to refuse an option's value.
        raise UsageProblem(_brief(error), next_step="See relkit launch --help.") from error
    finally:
        ends = [waiting.close, monitor.close, *(agent.close_links for agent in made)]
        ends += [service.close for service in (stragglers, persist) if service is not None]
        for end in ends:
            watched.take("the end of the watch", end, None)
        if slots is not None:
            with suppress(SignalException):  # asked again to end: the checkpoint before stays
                watched.take("flash checkpoint", slots.close, None)
    _leave_store(made, watched)
    return 0


def _leave_store(made: Sequence[MonitoredAgent], looks: Looks) -> None:
    # A signal that comes now changes nothing any more: the job has succeeded.
    with suppress(SignalException):
        for agent in made:
            looks.take("the end of the watch", agent.leave_store, None)


def _saved(made: Sequence[MonitoredAgent], persist: PersistHost | None) -> int:
    """The exit code by which try-to-persist ended; 0 where there was nothing for it to do."""
    exit_statuses = {rank: end for agent in made for rank, end in agent._exit_statuses.items()}
    return 0 if persist is None else exit_code(persist, exit_statuses)
