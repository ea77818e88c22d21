"""How finished steps go from each node to node 0: a ring of notes a node in the job's store."""

from __future__ import annotations

from collections.abc import Sequence

from relkit.errors import BadDump
from relkit.launch.job.exchange import Mailbox
from relkit.launch.straggler.edge_reports import EdgeReports
from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.host_load import HostLoad
from relkit.straggler.step_record import StepRecord
from relkit.straggler.transport import step_codec

# Notes of a node that are kept in the store: so long may node 0 be busy without a loss.
RING = 16
_MAX_TROUBLES = 20


class StepSender:
    """Of a node that does not score.

    Args:
        mailbox: to node 0; host: this node's name.
    """

    def __init__(self, mailbox: Mailbox, host: str) -> None:
        self._mailbox, self._host = mailbox, host
        self._number = 0

    def send(
        self,
        records: Sequence[StepRecord],
        notes: Sequence[str],
        sent: Sequence[EdgeTraffic] = (),
        load: HostLoad | None = None,
    ) -> None:
        """Leave a note, if there is anything new.

        Args:
            records: of this node's ranks; notes: what was not seen; sent: to other hosts; load: of
                this one, None = not known.
        """
        if not records and not sent and self._number:
            return
        note = step_codec.Note(self._number, tuple(records), tuple(notes), tuple(sent), load=load)
        key = f"steps/{self._mailbox.node}/{self._number % RING}"
        self._mailbox.put(key, step_codec.encode(note, self._host))
        self._number += 1


class StepReceiver:
    """Of node 0. `node_of` and `host_of` have what is known of each rank so far, `edges` what was
    sent between hosts, and `loads` who has the cores of each.

    Args:
        mailbox: to all nodes; world_size: ranks in the job.
    """

    def __init__(self, mailbox: Mailbox, world_size: int) -> None:
        self._mailbox, self._world_size = mailbox, world_size
        self._expected = [0] * mailbox.nodes
        self._notes: dict[int, tuple[str, ...]] = {}
        self._troubles: list[str] = []
        self.node_of: dict[int, int] = {}
        self.host_of: dict[int, str] = {}
        self.edges = EdgeReports()
        self.loads: dict[str, HostLoad] = {}

    def take(self, records: Sequence[StepRecord], node: int) -> None:
        """Note whose these steps are."""
        for record in records:
            self.node_of[record.rank] = node
            self.host_of[record.rank] = record.host

    def receive(self) -> tuple[StepRecord, ...]:
        """The steps that other nodes have sent since the last call."""
        records: list[StepRecord] = []
        for node in range(1, self._mailbox.nodes):
            for _ in range(RING):
                note = self._next(node)
                if note is None:
                    break
                self.take(note.records, node)
                self.edges.add(note.host, note.sent)
                if note.load is not None:
                    self.loads[note.host] = note.load
                records += note.records
        return tuple(records)

    def notes(self) -> tuple[str, ...]:
        """What was not seen on other nodes, or on the way from there."""
        return (*(note for notes in self._notes.values() for note in notes), *self._troubles)

    def _next(self, node: int) -> step_codec.Note | None:
        """The oldest note of a node that was not read yet."""
        expected = self._expected[node]
        key = f"steps/{node}/{expected % RING}"
        data = self._mailbox.get(key)
        if data is None:
            return None
        # Taken out, or each look would fetch it once more.
        self._mailbox.remove(key)
        try:
            note = step_codec.decode(data, self._world_size)
        except BadDump as error:
            self._expected[node] = expected + 1
            self._trouble(f"node {node}: {error}")
            return None
        if note.number < expected:
            return None
        if lost := note.number - expected:
            self._trouble(f"node {node}: {lost} notes came too fast to be read")
        self._expected[node] = note.number + 1
        self._notes[node] = note.notes
        return note

    def _trouble(self, sentence: str) -> None:
        if len(self._troubles) < _MAX_TROUBLES and sentence not in self._troubles:
            self._troubles.append(sentence)
