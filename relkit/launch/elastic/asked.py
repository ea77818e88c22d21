"""Asks services one after the other: one that fails is nothing to the job, nor to the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from torch.distributed.elastic.multiprocessing import SignalException

from relkit.launch.job.looks import Looks
from relkit.launch.job.service import Service
from relkit.launch.job.settings import JobAborted

Answer = TypeVar("Answer")


def asked(
    services: Iterable[Service], ask: Callable[[Service], Answer], looks: Looks
) -> Iterator[tuple[Service, Answer]]:
    """Ask each when its turn comes; of those that fail there is no answer.

    Args:
        looks: says, once in a while, that one has failed.

    Raises:
        SignalException, JobAborted: so the launcher, or the job, is ended on purpose.
    """
    for service in services:
        try:
            answer = ask(service)
        except (SignalException, JobAborted):
            raise
        except Exception as error:  # noqa: BLE001  whatever it is, the job must not end of it
            looks.say(type(service).__name__, error)
        else:
            yield service, answer
