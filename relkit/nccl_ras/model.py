"""What NCCL's RAS says of a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RasRank:
    """One rank of a communicator that has answered.

    Args:
        rank: in the communicator.
        host: address, as text; pid: of its process, as that process sees it, -1 where not known.
        launched: collectives launched so far, by the name that NCCL gives them (`AllReduce`).
        state: where it stands, in a word: running, starting, ending, aborted.
        error: the number of an asynchronous error (ncclResult_t); 0 for none.
    """

    rank: int
    host: str
    pid: int
    launched: Mapping[str, int]
    state: str = "running"
    error: int = 0

    @property
    def total(self) -> int:
        """Collectives of all kinds."""
        return sum(self.launched.values())


@dataclass(frozen=True, slots=True)
class MissingRank:
    """One rank of a communicator of which RAS has no counts.

    Args:
        rank, host, pid: as above.
        unresponsive: its process did not answer; else it answered, and is no member any more.
        dead: the others' RAS has given it up.
    """

    rank: int
    host: str
    pid: int
    unresponsive: bool
    dead: bool


@dataclass(frozen=True, slots=True)
class RasCommunicator:
    """One communicator.

    Args:
        name: the same on all ranks; size: ranks that it has.
        ranks, missing: those of which there are counts, and the others.
    """

    name: str
    size: int
    ranks: tuple[RasRank, ...]
    missing: tuple[MissingRank, ...] = ()

    @property
    def members(self) -> tuple[RasRank | MissingRank, ...]:
        """All that are known, with counts or without."""
        return (*self.ranks, *self.missing)

    @property
    def lowest(self) -> int:
        """Collectives that all ranks of which there are counts have launched."""
        return min((rank.total for rank in self.ranks), default=0)


@dataclass(frozen=True, slots=True)
class RasAnswer:
    """One answer.

    Args:
        version: of the NCCL that answered.
        communicators: of the whole job.
        timeouts: processes on the way that did not answer in time.
    """

    version: str
    communicators: tuple[RasCommunicator, ...]
    timeouts: int = 0
