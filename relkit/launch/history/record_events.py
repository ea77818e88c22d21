"""A record of the launcher's journal -> an event of the history; pure."""

from __future__ import annotations

from relkit.accounting.records import Record
from relkit.accounting.records import What as Noted
from relkit.history.model import Event, What


def event_of(record: Record, *, job: str, run: str, host: str) -> Event | None:
    """The event; None for records that are too many or too small for a history.

    Args:
        job, run, host: of Event.
    """
    made = _made(record)
    if made is None:
        return None
    what, text = made
    is_fault = record.what is Noted.FAULT
    return Event(
        record.unix_s,
        what,
        job,
        run,
        host,
        text,
        status=record.name if record.what in (Noted.FAULT, Noted.ENDED) else "",
        ranks=str(record.number) if is_fault and record.number >= 0 else "",
        of_nodes=record.nodes,
        step=record.number if record.what is Noted.SAVED else -1,
        seconds=record.seconds,
    )


def _made(record: Record) -> tuple[What, str] | None:
    match record.what:
        case Noted.ATTEMPT:
            nodes = f"{record.nodes:,} node{'' if record.nodes == 1 else 's'}"
            ranks = f"{record.world_size:,} rank{'' if record.world_size == 1 else 's'} on {nodes}"
            if record.number <= 0:
                return What.START, ranks
            return What.RESTART, f"restart {record.number}: {ranks}"
        case Noted.FAULT:
            return What.INCIDENT, record.text or record.name
        case Noted.SAVED:
            return What.SAVE, f"step {record.number}, by {record.name}"
        case Noted.ENDED:
            return What.END, record.text
        case _:
            return None
