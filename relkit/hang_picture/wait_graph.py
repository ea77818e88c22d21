"""Who waits for whom, as a drawing that fits a page: ranks in the same situation are one node."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from relkit.hang.model import Culprit
from relkit.hang.waits import Wait, sinks
from relkit.hang.words import torch_name
from relkit.hang_picture.model import WaitGraph, WaitNode
from relkit.ranks import RankSet

MAX_NODES = 16
MAX_LAYERS = 8
MAX_LINES = 4
_FOLDED_LAYERS = 4
_DURATION = re.compile(r" for \d+\.\d s")

Alike = Callable[[int], Hashable]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The waits of a job, from both ends.

    Args:
        waits: all of them; ages_s: the longest that a rank has been in each, None: not known.
        of: by rank, the numbers of the waits that it is in.
        for_whom: by rank, the numbers of the waits that wait for it.
        layers: by rank, how many steps away from somebody who waits for nobody.
        culprits: by rank, what it did; others: by rank, what those do that are in no wait.
    """

    waits: Sequence[Wait]
    ages_s: Sequence[float | None]
    of: Mapping[int, Sequence[int]]
    for_whom: Mapping[int, Sequence[int]]
    layers: Mapping[int, int]
    culprits: Mapping[int, Culprit]
    others: Mapping[int, str]

    def exactly(self, rank: int) -> Hashable:
        """Equal for ranks that are in the same operations, wait for the same, and do the same."""
        culprit = self.culprits.get(rank)
        said = _DURATION.sub("", culprit.sentence) if culprit else self.others.get(rank, "")
        category = culprit.category.value if culprit else ""
        return self.layers[rank], category, said, tuple(self.of.get(rank, ()))

    def by_sort(self, rank: int) -> Hashable:
        """Equal for ranks that are in operations of one sort, as far away."""
        culprit = self.culprits.get(rank)
        sorts = tuple(sorted({_sort(self.waits[number]) for number in self.of.get(rank, ())}))
        return (
            min(self.layers[rank], _FOLDED_LAYERS),
            culprit.category.value if culprit else "",
            sorts,
        )

    def by_layer(self, rank: int) -> Hashable:
        """Equal for all ranks that are as far away, whatever they are in."""
        return min(self.layers[rank], _FOLDED_LAYERS), rank in self.culprits


def wait_graph(
    waits: Sequence[Wait],
    ages_s: Sequence[float | None],
    culprits: Sequence[Culprit],
    others: Mapping[int, str],
) -> WaitGraph:
    """The graph, with at most MAX_NODES nodes in MAX_LAYERS layers.

    Args:
        waits: all waits of the job; ages_s: of each, the longest that a rank has been in it.
        culprits: the ranks at fault.
        others: what each rank does that is in no wait, in a few words.
    """
    waiting = _waiting(waits, ages_s, culprits, others)
    ways: tuple[Alike, ...] = (waiting.exactly, waiting.by_sort, waiting.by_layer)
    deep = max(waiting.layers.values(), default=0) >= MAX_LAYERS
    for way in ways[1:] if deep else ways:
        classes = _classes(waiting.layers, way)
        if len(classes) <= MAX_NODES:
            break
    nodes = [_node(ranks, waiting) for ranks in classes]
    order = sorted(
        range(len(nodes)),
        key=lambda i: (nodes[i].layer, not nodes[i].culprit, -nodes[i].count, classes[i][0]),
    )
    place = {rank: at for at, i in enumerate(order) for rank in classes[i]}
    return WaitGraph(
        tuple(nodes[i] for i in order),
        _edges(waits, place),
        is_folded=way != waiting.exactly,
    )


def _waiting(
    waits: Sequence[Wait],
    ages_s: Sequence[float | None],
    culprits: Sequence[Culprit],
    others: Mapping[int, str],
) -> _Waiting:
    of: dict[int, list[int]] = {}
    for_whom: dict[int, list[int]] = {}
    for number, wait in enumerate(waits):
        for rank in wait.waiters:
            of.setdefault(rank, []).append(number)
        for rank in wait.missing:
            for_whom.setdefault(rank, []).append(number)
    first: dict[int, Culprit] = {}
    for culprit in culprits:
        first.setdefault(culprit.rank, culprit)
    everyone = sorted({*of, *for_whom, *first, *others})
    layers = _layers(everyone, waits, of, for_whom, first)
    return _Waiting(waits, ages_s, of, for_whom, layers, first, others)


def _layers(
    everyone: Sequence[int],
    waits: Sequence[Wait],
    of: Mapping[int, Sequence[int]],
    for_whom: Mapping[int, Sequence[int]],
    culprits: Mapping[int, Culprit],
) -> dict[int, int]:
    """0 for who is at fault or waits for nobody; 1 for who waits for one of these; and so on."""
    ends = [
        rank
        for rank in everyone
        if rank in culprits or not any(waits[number].missing for number in of.get(rank, ()))
    ]
    layers = _distances(ends, waits, for_whom)
    if len(layers) < len(everyone):
        # Rings of which nobody is at fault, and who waits for these.
        rings = [rank for ring in sinks(waits) for rank in ring if rank not in layers]
        layers |= {
            rank: layer
            for rank, layer in _distances(rings, waits, for_whom).items()
            if rank not in layers
        }
    return {rank: layers.get(rank, 0) for rank in everyone}


def _distances(
    ends: Iterable[int], waits: Sequence[Wait], for_whom: Mapping[int, Sequence[int]]
) -> dict[int, int]:
    layers = dict.fromkeys(ends, 0)
    newest, seen = list(layers), set[int]()
    while newest:
        reached: list[int] = []
        for rank in newest:
            for number in for_whom.get(rank, ()):
                if number in seen:
                    continue
                seen.add(number)
                for waiter in waits[number].waiters:
                    if waiter not in layers:
                        layers[waiter] = layers[rank] + 1
                        reached.append(waiter)
        newest = reached
    return layers


def _classes(ranks: Iterable[int], alike: Alike) -> list[list[int]]:
    classes: dict[Hashable, list[int]] = {}
    for rank in ranks:
        classes.setdefault(alike(rank), []).append(rank)
    return list(classes.values())


def _sort(wait: Wait) -> str:
    if wait.transfer is not None:
        return f"{wait.transfer.op.name} {'from' if wait.transfer.receives else 'to'} a peer"
    if wait.group is not None:
        name = torch_name(wait.group.members[next(iter(wait.waiters))].ops[wait.seq].name)
        return f"{name} of a group of {wait.group.size}"
    return wait.what


def _node(ranks: Sequence[int], waiting: _Waiting) -> WaitNode:
    is_culprit = ranks[0] in waiting.culprits
    if is_culprit:
        sentences = [waiting.culprits[rank].sentence for rank in ranks]
        lines = list({_DURATION.sub("", sentence): sentence for sentence in sentences}.values())
    else:
        numbers = dict.fromkeys(n for rank in ranks for n in waiting.of.get(rank, ()))
        lines = _wait_lines(list(numbers), waiting)
        outside = [waiting.others.get(rank, "") for rank in ranks if rank not in waiting.of]
        lines += [line for line in dict.fromkeys(outside) if line]
    if len(lines) > MAX_LINES:
        lines = [*lines[: MAX_LINES - 1], f"and {len(lines) - MAX_LINES + 1:,} more"]
    return WaitNode(
        ranks=RankSet.of(ranks).fold(),
        count=len(ranks),
        layer=min(waiting.layers[rank] for rank in ranks),
        culprit=is_culprit,
        lines=tuple(lines),
    )


def _wait_lines(numbers: Sequence[int], waiting: _Waiting) -> list[str]:
    """What these ranks are in; where that is too much, the sorts of it."""
    if len(numbers) <= MAX_LINES - 1:
        return [f"in {waiting.waits[n].what}{_for(waiting.ages_s[n])}" for n in numbers]
    sorts: dict[str, list[int]] = {}
    for number in numbers:
        sorts.setdefault(_sort(waiting.waits[number]), []).append(number)
    lines = []
    for sort, those in list(sorts.items())[: MAX_LINES - 1]:
        ages = [age for n in those if (age := waiting.ages_s[n]) is not None]
        lines.append(f"in {sort}, {len(those):,} in all{_for(max(ages, default=None))}")
    if len(sorts) > len(lines):
        lines.append(f"and in {len(sorts) - len(lines)} other sorts of operations")
    return lines


def _for(age_s: float | None) -> str:
    return f", {age_s:.1f} s" if age_s else ""


def _edges(waits: Sequence[Wait], place: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    edges: set[tuple[int, int]] = set()
    for wait in waits:
        sources = {place[rank] for rank in wait.waiters}
        targets = {place[rank] for rank in wait.missing}
        # A node that waits for another one like it shows that only where it holds several ranks.
        edges |= {(source, target) for source in sources for target in targets if source != target}
    return tuple(sorted(edges))
