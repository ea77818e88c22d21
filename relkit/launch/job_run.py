"""The run of a whole job under torch's own launcher, with our agent in it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import torch.distributed.launcher.api as launcher_api
from torch._C import _DistError as DistError
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

from relkit.errors import EXIT_PROBLEM, RelkitError, UsageProblem
from relkit.launch.elastic.agent import JobAgent
from relkit.launch.elastic.asked import asked
from relkit.launch.elastic.setup import AgentSetup
from relkit.launch.job.bounded_calls import BoundedCalls, NoAnswer
from relkit.launch.job.leaves_job import LeavesJob
from relkit.launch.job.looks import Looks
from relkit.launch.job.rendezvous import keep_alive_as_asked
from relkit.launch.job.sealed_rendezvous import ForeignState
from relkit.launch.job.service import Service
from relkit.launch.job.session_key import SecretMismatch
from relkit.launch.job.settings import Log
from relkit.log_lines import say_as_it_is

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
def _made_by(agent: Callable[..., LocalElasticAgent]) -> Iterator[None]:
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


def run_job(options: argparse.Namespace, setup: AgentSetup, log: Log) -> int:
    """Run a job as torchrun would, with services beside it.

    Args:
        options: what torchrun's parser returned.
        setup: what the agent works with; its services are closed at the end.
        log: writes one line to the terminal.

    Returns:
        the exit code: 0 the job succeeded, 1 a worker failed, 128 + n ended by signal n; or what a
        service says, as try-to-persist: 75 where the last step was saved, 76 where it was refused,
        77 where saving failed.

    Raises:
        RelkitError: what a service has ended the job with, as JobAborted, or the run on this node,
            as NodeFailedCheck.
        UsageProblem: torch does not accept an option's value.
        RendezvousFailed: the nodes did not find each other.
        StoreLost: they did, and then the host of the rendezvous ended.
        SecretMismatch: not all of them have the same secret.
    """
    made: list[JobAgent] = []
    looks, has_succeeded = Looks(log), False

    def agent(*arguments: Any, **named: Any) -> JobAgent:  # noqa: ANN401  as torch calls it
        made.append(JobAgent(setup, log, looks, *arguments, **named))
        return made[-1]

    try:
        with _made_by(agent), _interruptible_connect():
            record(torchrun)(options)
        has_succeeded = True
    except ChildFailedError as error:
        say_as_it_is(str(error))
        return _exit_code(made) or EXIT_PROBLEM
    except LeavesJob as left:
        raise left.why from None
    except SignalException as error:
        return _exit_code(made) or 128 + int(error.sigval)
    except ForeignState as error:
        raise SecretMismatch(f"this node cannot join the job: {error}") from error
    except (RendezvousError, DistError) as error:
        endpoint = options.rdzv_endpoint or f"{options.master_addr}:{options.master_port}"
        if made and made[-1].started:
            code = _exit_code(made)
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
        _close(setup.services, looks)
        _leave(made, looks, has_succeeded=has_succeeded)
    return 0


def _close(services: Sequence[Service], looks: Looks) -> None:
    """Have each leave nothing, also where the launcher is asked again to end meanwhile."""
    for service in services:
        with suppress(SignalException):
            for _ in asked([service], lambda each: each.close(), looks):
                pass


def _leave(made: Sequence[JobAgent], looks: Looks, *, has_succeeded: bool) -> None:
    # A signal that comes now changes nothing any more: the job has ended.
    with suppress(SignalException):
        for agent in made:
            leave = partial(agent.leave, has_succeeded=has_succeeded)
            looks.take("the end of the watch", leave, None)


def _exit_code(made: Sequence[JobAgent]) -> int:
    """What a service says of a job that has not succeeded; 0 for nothing."""
    return made[-1].exit_code() if made else 0
