"""Where the launchers of a job meet, and whether it is here."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from relkit.errors import UsageProblem
from relkit.text.whole_number import whole_number

# Below the ports that Linux gives to outgoing connections (32768 and up), which could be in use.
_FIRST_PORT, _PORTS = 20_000, 9_000
_TORCHRUNS_PORT = 29_400


class NoRendezvousHost(UsageProblem):
    """A job of several nodes, and it is not known where they meet."""

    next_step = (
        "Add --rdzv-backend c10d --rdzv-endpoint HOST:29400 (the same on all nodes), "
        "or --nodes hosts.txt."
    )


@dataclass(frozen=True, slots=True)
class RendezvousHost:
    """What a scheduler or a file of nodes says.

    Args:
        source: who said it, for people: `Slurm step 4711.0`.
        job_id: the same on all nodes, and no other job's; "" where nobody said it.
        host: where the rendezvous store is to be: the first node.
        port: of the store; 0: one that follows from the job's id, or else torchrun's own.
        is_first: this is that node; None where nobody said it.
        nodes: how many there are; 0 where nobody said it.
    """

    source: str
    job_id: str
    host: str
    port: int = 0
    is_first: bool | None = None
    nodes: int = 0

    @property
    def endpoint(self) -> str:
        """`host:port`, with brackets around an IPv6 address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port or self._port_of_job()}"

    def _port_of_job(self) -> int:
        if not self.job_id:
            return _TORCHRUNS_PORT
        return _FIRST_PORT + zlib.crc32(self.job_id.encode(errors="replace")) % _PORTS


def number(text: str | None) -> int | None:
    """A whole number from the environment, 0 or more; None for anything else."""
    return whole_number(text, 999_999_999)


def is_zero(text: str | None) -> bool | None:
    """Whether it is the number 0; None for what is no number."""
    value = number(text)
    return None if value is None else value == 0
