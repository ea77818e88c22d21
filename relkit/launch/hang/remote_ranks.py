"""The ranks of the other nodes as their newest summaries have them, in arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from relkit.hang.columns.ranks import FlightColumns, RankColumns, digest, process_numbers
from relkit.hang.model import CpuUse, RankView
from relkit.launch.hang.summary import (
    ALIVE,
    FLIGHT,
    HAS_EXIT_CODE,
    HAS_HOOK,
    MAX_HOST_BYTES,
    ROW,
    SET_UP,
    UNHEARD,
    Blocks,
    Rows,
    flight_counts,
)

_PLAIN_FLIGHT = np.dtype(f"V{FLIGHT.itemsize}")


class RemoteRanks:
    """Keeps one row a rank, node after node.

    Args:
        nodes: of the job.
    """

    def __init__(self, nodes: int) -> None:
        # Of each node: how many ranks it has, when its summary came and was made, and its name.
        self._counts = np.zeros(nodes, np.int64)
        self.received_s = np.full(nodes, -np.inf)
        self.at_s = np.full(nodes, np.nan)
        self._hosts = np.zeros(nodes, f"S{MAX_HOST_BYTES}")
        self._digests = np.full(nodes, digest(""), np.uint64)
        self._rows: Rows = np.zeros(0, ROW)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def nodes(self) -> list[int]:
        """Those that have sent a summary."""
        known: list[int] = np.flatnonzero(~np.isnan(self.at_s)).tolist()
        return known

    def take(self, now_s: float, arrived: Sequence[Blocks]) -> None:
        """Summaries have come; one that says nothing new is that of a silent node.

        Args:
            now_s: monotonic time, s.
        """
        fresh = [
            blocks.only(self.at_s[blocks.heads["node"]] != blocks.heads["at_s"])
            for blocks in arrived
        ]
        self._make_room(fresh)
        first = np.cumsum(self._counts) - self._counts
        for each in fresh:
            # Not those that have come once more, later, with another number of ranks.
            blocks = each.only(self._counts[each.heads["node"]] == each.rows.shape[1])
            heads, nodes = blocks.heads, blocks.heads["node"]
            self.received_s[nodes], self.at_s[nodes] = now_s, heads["at_s"]
            self._note_hosts(nodes, heads["host"])
            self._put(first[nodes], blocks.rows)

    def _note_hosts(self, nodes: npt.NDArray[Any], hosts: npt.NDArray[np.bytes_]) -> None:
        # All at once: another host in a node's place is rare, and numpy compares texts slowly.
        if self._hosts[nodes].tobytes() == hosts.tobytes():
            return
        for node, host in zip(nodes.tolist(), hosts.tolist(), strict=True):
            self._hosts[node] = host
            self._digests[node] = digest(_text(host))

    def _put(self, first: npt.NDArray[np.int64], rows: Rows) -> None:
        """Keep a line of rows for each node, from its first place on."""
        ranks = rows.shape[1]
        if not ranks:
            return
        # As plain bytes: numpy copies records field by field. And where all nodes have as many
        # ranks as these, those of a node in one piece.
        counts = self._counts[self._counts > 0]
        at_once = ranks if (counts == ranks).all() else 1
        piece = np.dtype(f"V{at_once * ROW.itemsize}")
        places = first[:, None] // at_once + np.arange(ranks // at_once)
        self._rows.view(piece)[places] = rows.view(piece)

    def _make_room(self, fresh: Sequence[Blocks]) -> None:
        counts = self._counts.copy()
        for blocks in fresh:
            counts[blocks.heads["node"]] = blocks.rows.shape[1]
        if (counts == self._counts).all():
            return
        rows = np.zeros(int(counts.sum()), ROW)
        stays = counts == self._counts
        rows[np.repeat(stays, counts)] = self._rows[np.repeat(stays, self._counts)]
        self._rows, self._counts = rows, counts

    def columns(self, near: RankColumns) -> RankColumns:
        """All of them behind this node's own, for a look at the job.

        Args:
            near: this node's ranks.
        """
        rows = self._rows
        flags = rows["flags"]
        alive = (flags & ALIVE) > 0
        known = alive & ((flags & HAS_HOOK) > 0)
        counts = np.where(known, flight_counts(rows), 0)
        most = int(counts.max(initial=0))
        is_told = np.arange(most) < counts[:, None]
        # As plain bytes: numpy copies records field by field.
        told = rows["flights"][:, :most].view(_PLAIN_FLIGHT)[is_told].view(FLIGHT)
        has_code = (flags & HAS_EXIT_CODE) > 0
        flights = near.flights
        return RankColumns(
            rank=_behind(near.rank, rows["rank"]),
            process=_behind(
                near.process, process_numbers(np.repeat(self._digests, self._counts), rows["pid"])
            ),
            alive=_behind(near.alive, alive),
            state=_behind(near.state, rows["state"]),
            left=_behind(near.left, ~alive & has_code & (rows["exit_code"] == 0)),
            known=_behind(near.known, known),
            unheard=_behind(near.unheard, alive & ((flags & UNHEARD) > 0)),
            set_up=_behind(near.set_up, (flags & SET_UP) > 0),
            started=_behind(near.started, rows["started"]),
            finished=_behind(near.finished, rows["finished"]),
            idle_s=_behind(near.idle_s, rows["idle_s"]),
            used_s=_behind(near.used_s, rows["used_s"]),
            window_s=_behind(near.window_s, rows["window_s"]),
            waited_s=_behind(near.waited_s, rows["waited_s"]),
            flights=FlightColumns(
                _behind(flights.rank, np.repeat(rows["rank"], counts)),
                _behind(flights.key, told["key"]),
                _behind(flights.kind, told["kind"]),
                _behind(flights.age_s, told["age_s"]),
            ),
        )

    def nodes_of(self, ranks: npt.NDArray[np.int64]) -> list[int]:
        """On which nodes these ranks are."""
        nodes = np.repeat(np.arange(len(self._counts)), self._counts)
        return sorted(set(nodes[np.isin(self._rows["rank"], ranks)].tolist()))

    def nodes_with_gone(self) -> list[int]:
        """On which nodes a rank is no longer alive."""
        gone = self._rows["rank"][(self._rows["flags"] & ALIVE) == 0]
        return self.nodes_of(gone) if len(gone) else []

    def node_of(self) -> dict[int, int]:
        """On which node each rank is."""
        nodes = np.repeat(np.arange(len(self._counts)), self._counts)
        return dict(zip(self._rows["rank"].tolist(), nodes.tolist(), strict=True))

    def views(self, node: int) -> Iterator[RankView]:
        """One node's ranks, as far as a summary tells of them."""
        if node >= len(self._counts):
            return
        first, host = int(self._counts[:node].sum()), _text(bytes(self._hosts[node]))
        for row in self._rows[first : first + int(self._counts[node])]:
            flags = int(row["flags"])
            yield RankView(
                int(row["rank"]),
                host,
                int(row["pid"]),
                bool(flags & ALIVE),
                chr(row["state"]).strip("\0"),
                cpu=CpuUse(*(float(row[name]) for name in ("used_s", "window_s", "waited_s"))),
                exit_code=int(row["exit_code"]) if flags & HAS_EXIT_CODE else None,
            )


def _text(host: bytes) -> str:
    return host.decode("utf-8", "replace")


def _behind(near: npt.NDArray[Any], far: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Both in one, as the first has its numbers."""
    return np.concatenate((near, far), dtype=near.dtype, casting="unsafe")
