"""Whether this host's own name leads to an address: torch gives it to all ranks to meet there."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnName:
    """The name of this host.

    Args:
        name: as torch takes it.
        problem: why it leads to no address, "" where it does.
    """

    name: str
    problem: str


def own_name(timeout_s: float) -> OwnName:
    """Look the name up, as a rank would.

    Args:
        timeout_s: the longest to wait, s: a name server that is silent takes a resolver half a
            minute.
    """
    answers: list[OwnName] = []

    def look() -> None:
        name = socket.getfqdn()
        try:
            socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            answers.append(OwnName(name, getattr(error, "strerror", None) or str(error)))
        else:
            answers.append(OwnName(name, ""))

    looker = threading.Thread(target=look, name="relkit-own-name", daemon=True)
    looker.start()
    looker.join(timeout_s)
    if answers:
        return answers[0]
    return OwnName(socket.gethostname(), f"no answer within {timeout_s:g} s")
