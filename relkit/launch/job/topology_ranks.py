"""Ranks in the order of a topology file where torch gives out the numbers (c10d).

torch numbers the nodes of each meeting by their addresses, in the launcher that completes it, and
all others read that from its state of the rendezvous. Here each node puts its place in the file
into that state when it comes, and whoever completes a meeting numbers the nodes by their places.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.distributed.elastic.rendezvous.api import RendezvousHandler

from relkit.errors import UsageProblem
from relkit.launch.job.service import Job, Service
from relkit.launch.job.settings import Log
from relkit.text.whole_number import whole_number
from relkit.topology import Topology, crossings, rank_order

# Of torch's state: an attribute that it keeps and does not read.
_ATTRIBUTE = "relkit_topology"
_UNNAMED = "-"
# What is called here; a torch without them gives out its own order.
_HOOKS = ("_add_to_participants", "_mark_rendezvous_complete")
_SHOWN = 16
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands in its topology file.

    Args:
        position: in the order of ranks of all nodes in the file; None: the file does not name it.
        file: a digest of that order, by which nodes see that they have different files.
        name: of the node, as the file has it where it does.
    """

    position: int | None
    file: str
    name: str

    def encode(self) -> str:
        """As it travels."""
        position = _UNNAMED if self.position is None else str(self.position)
        return f"{position} {self.file} {self.name}"


def decode(text: object) -> Place | None:
    """The place that a node has put down; None for anything else."""
    words = text.split(" ") if isinstance(text, str) else []
    if len(words) != 3 or len(words[2]) > _LONGEST_NAME or not words[2].isprintable():
        return None
    position = whole_number(words[0])
    if position is None and words[0] != _UNNAMED:
        return None
    return Place(position, words[1][:16], words[2])


def place_of(topology: Topology, names: Sequence[str], node: str) -> Place:
    """This node's place.

    Args:
        topology: more nodes than those of the job do no harm.
        names: those of the file that mean this host, at most one.
        node: what to call it where there is none.
    """
    order = rank_order(topology).nodes
    digest = hashlib.sha256("\n".join(order).encode()).hexdigest()[:12]
    return Place(order.index(names[0]), digest, names[0]) if names else Place(None, digest, node)


def in_order(keys: Sequence[str], places: Mapping[str, Place]) -> list[str]:
    """Sort the nodes of a meeting; those whose place is not known come last.

    Args:
        keys: of the nodes, in torch's order, which decides between equal places.
        places: key -> place; of nodes without the option there is none.
    """

    def position(key: str) -> float:
        place = places.get(key)
        at = None if place is None else place.position
        return float("inf") if at is None else at

    return sorted(keys, key=position)


class TopologyRanks(Service):
    """One node's part in the numbering.

    Args:
        topology: of the file; file: what to call it.
        place: of this node.
        log: writes one line to the terminal.
    """

    def __init__(self, topology: Topology, file: str, place: Place, log: Log) -> None:
        self._topology, self._file, self._place, self._log = topology, file, place, log
        self._handler: Any = None
        # Subject -> line, so that a restart repeats nothing.
        self._said: dict[str, str] = {}

    def job_begins(self, job: Job) -> None:
        """See Service."""
        self.attach(job.rendezvous)

    def attach(self, handler: RendezvousHandler) -> None:
        """Number the nodes of all meetings from now on.

        Args:
            handler: of this job, before its first meeting.

        Raises:
            UsageProblem: this torch's rendezvous does not let us.
        """
        executor: Any = getattr(handler, "_op_executor", None)
        if not all(hasattr(executor, name) for name in _HOOKS):
            raise UsageProblem(
                f"--topology cannot order ranks in a rendezvous of kind {handler.get_backend()}",
                next_step="Write --rdzv-backend c10d, or --master-addr HOST with --nnodes N.",
            )
        self._handler = handler
        add, complete = (getattr(executor, name) for name in _HOOKS)
        executor._add_to_participants = partial(self._add, executor, add)
        executor._mark_rendezvous_complete = partial(self._complete, executor, complete)
        self._handler.next_rendezvous = partial(self._meet, handler.next_rendezvous)

    def _add(self, executor: Any, by_torch: Any) -> None:  # noqa: ANN401
        # Before torch's own, which completes the meeting where this node is the last to come.
        state = executor._state
        texts = {**_texts(state), repr(executor._node): self._place.encode()}
        setattr(state, _ATTRIBUTE, texts)
        by_torch()

    def _complete(self, executor: Any, by_torch: Any) -> None:  # noqa: ANN401
        by_torch()
        state = executor._state
        nodes = {repr(node): node for node in sorted(state.participants)}
        texts = _texts(state)
        # Of nodes that are gone, nothing is kept.
        setattr(state, _ATTRIBUTE, {key: texts[key] for key in nodes if key in texts})
        for rank, key in enumerate(in_order(list(nodes), _places(texts))):
            state.participants[nodes[key]] = rank

    def _meet(self, by_torch: Any) -> Any:  # noqa: ANN401
        info = by_torch()
        state = self._handler._state_holder.state
        # Others may have begun the next meeting already: then there is nothing to tell of this.
        if state.complete and self._handler._this_node in state.participants:
            self._tell(state)
        return info

    def _tell(self, state: Any) -> None:  # noqa: ANN401
        """Say which number this node has; one node tells the order of all."""
        by_torch = [repr(node) for node in sorted(state.participants)]
        ranks = {repr(node): rank for node, rank in state.participants.items()}
        keys, places = sorted(ranks, key=ranks.__getitem__), _places(_texts(state))
        own = repr(self._handler._this_node)
        if keys != in_order(by_torch, places):
            self._say(
                "order",
                f"the ranks are not in the order of {self._file}: a launcher without --topology"
                " gave them out; start all of them with it",
            )
            return
        self._say("number", f"this is node {ranks[own]} of {len(keys)}, by {self._file}")
        if own != next((key for key in keys if key in places), ""):
            return
        names = {key: places[key].name if key in places else key for key in keys}
        order = [names[key] for key in keys]
        more = f" ... ({len(order)} nodes)" if len(order) > _SHOWN else ""
        before = crossings(self._topology, [names[key] for key in by_torch])
        after = crossings(self._topology, order)
        self._say(
            "order",
            f"order of nodes: {' '.join(order[:_SHOWN])}{more}; switch crossings between"
            f" neighbours: {after.asw} (torch's order: {before.asw}), of them between upper"
            f" switches: {after.psw} (torch's order: {before.psw})",
        )
        for key in keys:
            self._warn(places.get(key), names[key])

    def _warn(self, place: Place | None, name: str) -> None:
        if place is None:
            why = f"node {name} was started without --topology; its ranks come last"
        elif place.position is None:
            why = f"{self._file} does not name node {name}; its ranks come last"
        elif place.file != self._place.file:
            why = f"the topology file of node {name} is not that of this node"
        else:
            return
        self._say(f"node {name}", f"warning: {why}")

    def _say(self, subject: str, line: str) -> None:
        if self._said.get(subject) != line:
            self._said[subject] = line
            self._log(line)


def _texts(state: Any) -> dict[str, str]:  # noqa: ANN401
    texts = getattr(state, _ATTRIBUTE, None)
    return dict(texts) if isinstance(texts, dict) else {}


def _places(texts: Mapping[str, str]) -> dict[str, Place]:
    decoded = {key: decode(text) for key, text in texts.items()}
    return {key: place for key, place in decoded.items() if place is not None}
