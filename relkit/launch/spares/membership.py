"""Which nodes are in the job since they met last, and which of them are gone (pure).

It travels with torch's state of the rendezvous, so that all nodes, and those that come later, know
the same. Nodes have the names that torch gives them there, and one for people.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace

from relkit.launch.job.node_name import is_node_name
from relkit.text.foreign_json import parse_object
from relkit.text.printable import printable_line

MAX_REASON = 200
_MAX_NODES = 65_536
_NO_REASON = "it left without a word"


@dataclass(frozen=True, slots=True)
class Membership:
    """What all nodes know of each other; keys are torch's descriptions of nodes.

    Args:
        round: of the rendezvous in which the members met; -1: none has been completed.
        members: key -> name, of the nodes that met then.
        gone: key -> why, of members that have left since, or are dead.
        names: key -> name, of all nodes that have come, spares as well.
        host: key of the node whose launcher has the rendezvous store; "": none, or not known yet.
        restarts: that the job has used.
        failed: key of the node whose worker failed first since they met; "": none has.
        row_of, row: how many failures in a row began on that node, before this meeting.
        changes: what was different at this meeting from the one before, one sentence each.
    """

    round: int = -1
    members: Mapping[str, str] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    restarts: int = 0
    failed: str = ""
    row_of: str = ""
    row: int = 0
    changes: tuple[str, ...] = ()

    @property
    def expected(self) -> frozenset[str]:
        """Members that will come when the nodes meet again."""
        return frozenset(self.members.keys() - self.gone.keys())

    @property
    def lost(self) -> dict[str, str]:
        """name -> why it is gone, of members."""
        return {self.members[key]: why for key, why in self.gone.items() if key in self.members}

    def named(self, key: str, name: str) -> Membership:
        """With the name of a node that has come."""
        return (
            self if self.names.get(key) == name else replace(self, names={**self.names, key: name})
        )

    def hosted_by(self, key: str) -> Membership:
        """With the host of the store."""
        return self if self.host == key else replace(self, host=key)

    def without(self, key: str, why: str) -> Membership:
        """With a member that is gone; the first reason counts.

        Args:
            why: in a few words, for people.
        """
        if key not in self.expected:
            return self
        return replace(self, gone={**self.gone, key: printable_line(why)[:MAX_REASON]})

    def restarted(self, restarts: int) -> Membership:
        """With as many restarts as any node knows of."""
        return self if restarts <= self.restarts else replace(self, restarts=restarts)

    def failed_first(self, key: str, *, anew: bool = False) -> Membership:
        """A worker of a member failed; only the first one counts, the others have lost it.

        Once a member is gone, whoever fails has lost that one.

        Args:
            anew: what failed there before is too long ago to be counted.
        """
        if self.failed or self.gone or key not in self.members:
            return self
        if anew and self.row_of == key:
            return replace(self, failed=key, row_of="", row=0)
        return replace(self, failed=key)

    def failures_in_a_row(self, key: str) -> int:
        """How many failures of the job, up to the present one, have begun on a node."""
        if not key or self.failed != key:
            return 0
        return 1 + (self.row if self.row_of == key else 0)

    def met(self, round_: int, present: Collection[str], keep: Collection[str]) -> Membership:
        """After a meeting.

        Args:
            round_: of the rendezvous; present: who is in it now.
            keep: whose names are still of use: those who are present, and those who wait.
        """
        members = {key: self.names.get(key, key) for key in sorted(present)}
        names = {key: name for key, name in self.names.items() if key in keep}
        row_of, row = self.row_of, self.row
        # Where a node died, it is not known which worker would have failed without that.
        if self.failed and not self.gone:
            row_of, row = self.failed, self.failures_in_a_row(self.failed)
        return Membership(
            round=round_,
            members=members,
            names=names,
            host=self.host,
            restarts=self.restarts,
            row_of=row_of,
            row=row,
            changes=self._changes_to(members),
        )

    def _changes_to(self, members: Mapping[str, str]) -> tuple[str, ...]:
        if self.round < 0:
            return ()
        lost = [key for key in self.members if key not in members]
        new = [name for key, name in members.items() if key not in self.members]
        changes = []
        for key in lost:
            who, why = self.members[key], self.gone.get(key, _NO_REASON)
            if new:
                changes.append(f"node {new.pop(0)} takes the place of node {who} ({why})")
            else:
                changes.append(f"the job goes on without node {who} ({why})")
        changes += [f"node {name} joins the job" for name in new]
        return tuple(changes)

    def encode(self) -> str:
        """For torch's state."""
        return json.dumps(asdict(self))


def decode(text: object) -> Membership:
    """Out of torch's state; an empty one where nothing of use is there.

    Args:
        text: what the state holds; anybody may have written it where there is no secret.
    """
    try:
        plain = parse_object(text if isinstance(text, str) else "")
    except ValueError:
        return Membership()
    round_, restarts, row = (_whole(plain.get(name)) for name in ("round", "restarts", "row"))
    host, failed, row_of = (_text(plain.get(name)) for name in ("host", "failed", "row_of"))
    changes = plain.get("changes")
    if round_ is None or restarts is None or row is None or not isinstance(changes, list):
        return Membership()
    return Membership(
        round=round_,
        members=_texts(plain.get("members"), are_names=True),
        gone=_texts(plain.get("gone")),
        names=_texts(plain.get("names"), are_names=True),
        host=host,
        restarts=restarts,
        failed=failed,
        row_of=row_of,
        row=row,
        changes=tuple(printable_line(line)[:500] for line in changes if isinstance(line, str)),
    )


def _whole(plain: object) -> int | None:
    return plain if isinstance(plain, int) and not isinstance(plain, bool) else None


def _text(plain: object) -> str:
    return plain if isinstance(plain, str) else ""


def _texts(plain: object, *, are_names: bool = False) -> dict[str, str]:
    if not isinstance(plain, dict) or len(plain) > _MAX_NODES:
        return {}
    return {
        key: printable_line(value)[:MAX_REASON]
        for key, value in plain.items()
        if isinstance(value, str) and (not are_names or is_node_name(value))
    }
