"""From the merged tree to the boxes of a picture: ordered, bounded, interpreter chains folded."""

from __future__ import annotations

from dataclasses import dataclass, field

from relkit.ranks import RankSet
from relkit.reports.drawing.markup import NAME_LIMIT
from relkit.reports.drawing.palette import END_FUNC, ROLE_FUNC, STATE_FUNC, is_cpython
from relkit.stacks.tree import StackTree, TreeNode

MAX_LEAVES = 480
"""Stacks drawn one by one; more would be narrower than a finger on a wide screen."""

NODES_BUDGET_BYTES = 1_300_000
_BOX_BYTES = 420
_COMMON_SHARE = 10
_LISTED_BYTES = 200_000

# Among equally rare ones: odd process states, then threads in the order in which people ask.
_TOP_ORDER = {
    name: i
    for i, name in enumerate(
        ("main", "autograd", "communication", "loader", "compute", "watchdog", "other")
    )
}


def _top_order(node: TreeNode, everyone: bool) -> int:
    if node.func == STATE_FUNC:
        return 10 if everyone else -1
    return _TOP_ORDER.get(node.source, 8) if node.func == ROLE_FUNC else 9


@dataclass(slots=True)
class Box:
    """One box of the picture.

    Args:
        kind: "frame", "fold" (stands for a chain of interpreter frames), "inner" (one of that
            chain, hidden while folded) or "more" (stands for stacks that are not drawn).
        parent: index of the box above, -1 for the outermost.
        node: the tree's node; of a "more" box the node whose children it stands for.
        ranks, size, threads: who is here, and how many; of a "more" box the union and the sum.
        hidden: not drawn until its chain is unfolded.
        count: frames in the chain, or stacks that a "more" box stands for.
        absent: nobody here was read; the merge names such ranks with the root `State@absent`.
        listed: what a "more" or "fold" box stands for, one line each.
        children: indices, in drawing order.
    """

    kind: str
    parent: int
    node: TreeNode | None
    ranks: RankSet
    threads: int = 0
    size: int = 0
    hidden: bool = False
    count: int = 0
    absent: bool = False
    listed: tuple[str, ...] = ()
    children: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Flat:
    """The tree as parallel lists in preorder.

    Args:
        nodes, parents, children: the tree, -1 for no parent; the last of `children` are the roots.
        sizes: ranks of each; rarest: of the smallest stack through it; stacks: how many these are.
        leaves: the nodes without children, in drawing order.
    """

    nodes: list[TreeNode]
    parents: list[int]
    children: list[list[int]]
    sizes: list[int]
    rarest: list[int]
    stacks: list[int]
    leaves: list[int]


def boxes(tree: StackTree) -> list[Box]:
    """All boxes in preorder: parents first, suspects (the rarest rank sets) to the left."""
    flat = _flatten(tree)
    kept = _within_bounds(flat)
    chains = _chains(flat, kept) if tree.view != "py" else {}
    drawn = _build(flat, kept, chains)
    for box in drawn:
        box.size = len(box.ranks)
        at_top = box.parent < 0 and box.node is not None
        box.absent = at_top and box.size > 0 and not box.ranks & tree.present
    return drawn


def _flatten(tree: StackTree) -> _Flat:
    nodes: list[TreeNode] = []
    parents: list[int] = []
    with_own_leaf: list[int] = []
    pending = [(root, -1) for root in reversed(tree.roots)]
    while pending:
        node, parent = pending.pop()
        # Down to where the stacks part: most frames have one child.
        while True:
            nodes.append(node)
            parents.append(parent)
            parent = len(parents) - 1
            if node.ends or len(node.children) != 1:
                break
            (node,) = node.children
        pending += [(child, parent) for child in node.children[::-1]]
        if node.ends and node.children and (end := _own_end(node)):
            with_own_leaf.append(parent)
            pending.append((end, parent))
    sizes = [len(node.ranks) for node in nodes]
    # Ranks of which nothing was read come before even the rarest that were.
    roots = [i for i, parent in enumerate(parents) if parent < 0]
    unread = {i for i in roots if not nodes[i].ranks & tree.present}
    rarest = [
        0 if i in unread else sizes[i] if node.ends or not node.children else 1 << 62
        for i, node in enumerate(nodes)
    ]
    stacks = [1 if node.ends or not node.children else 0 for node in nodes]
    for i in with_own_leaf:
        stacks[i] = 0
    children: list[list[int]] = [[] for _ in nodes]
    for i in range(len(nodes) - 1, -1, -1):
        parent = parents[i]
        if parent >= 0:
            if rarest[i] < rarest[parent]:
                rarest[parent] = rarest[i]
            stacks[parent] += stacks[i]
            children[parent].append(i)

    present = len(tree.present)

    def order(i: int) -> tuple[int, int, int, str, str]:
        node = nodes[i]
        return rarest[i], _top_order(node, sizes[i] >= present), sizes[i], node.func, node.source

    for family in children:
        if len(family) > 1:
            family.sort(key=order)
    roots.sort(key=order)
    leaves: list[int] = []
    walk = roots[::-1]
    while walk:
        i = walk.pop()
        while len(children[i]) == 1:
            (i,) = children[i]
        if not children[i]:
            leaves.append(i)
        walk += children[i][::-1]
    children.append(roots)
    return _Flat(nodes, parents, children, sizes, rarest, stacks, leaves)


def _own_end(node: TreeNode) -> TreeNode | None:
    """A leaf for the ranks that stop in a frame while others go on from it: none may vanish."""
    only_here = node.ranks - RankSet.union(child.ranks for child in node.children)
    if not only_here:
        return None
    return TreeNode(END_FUNC, node.source, only_here, len(only_here), True)


def _within_bounds(flat: _Flat) -> set[int]:
    """The nodes to draw: the paths of the rarest stacks first, and some of the commonest."""
    by_rarity = sorted(flat.leaves, key=lambda i: flat.sizes[i])
    if len(by_rarity) > MAX_LEAVES:
        common = MAX_LEAVES // _COMMON_SHARE
        by_rarity = by_rarity[-common:][::-1] + by_rarity[: MAX_LEAVES - common]
    elif len(by_rarity) > _COMMON_SHARE:
        # The budget in bytes may still run out: what most ranks do must be there to compare with.
        by_rarity = [by_rarity[-1], *by_rarity[:-1]]
    kept: set[int] = set()
    left = NODES_BUDGET_BYTES
    for leaf in by_rarity:
        path = []
        i = leaf
        while i >= 0 and i not in kept:
            path.append(i)
            i = flat.parents[i]
        for i in reversed(path):
            left -= _cost(flat.nodes[i])
            if left < 0:
                return kept
            kept.add(i)
    return kept


def _cost(node: TreeNode) -> int:
    # Every name stands twice (title and data) and may grow by escapes.
    text = min(len(node.func), NAME_LIMIT) + min(len(node.source), NAME_LIMIT)
    ranks = 2 * min(256, 4 * node.ranks.interval_count + 8)
    return _BOX_BYTES + 2 * (text * (1 if node.func.isascii() else 3) + ranks)


def _chains(flat: _Flat, kept: set[int]) -> dict[int, list[int]]:
    """Runs of two or more interpreter frames without a branch, by their first node."""
    internal = {i for i in kept if is_cpython(flat.nodes[i].func, flat.nodes[i].source)}

    def goes_on(i: int) -> bool:
        only = flat.children[i]
        return len(only) == 1 and not flat.nodes[i].ends and only[0] in internal

    chains: dict[int, list[int]] = {}
    for i in sorted(internal):
        parent = flat.parents[i]
        if parent in internal and goes_on(parent):
            continue
        run = [i]
        while goes_on(run[-1]):
            run.append(flat.children[run[-1]][0])
        if len(run) > 1:
            chains[i] = run
    return chains


def _build(flat: _Flat, kept: set[int], chains: dict[int, list[int]]) -> list[Box]:
    in_chain = {i for run in chains.values() for i in run}
    out: list[Box] = []

    def add(box: Box) -> int:
        out.append(box)
        if box.parent >= 0:
            out[box.parent].children.append(len(out) - 1)
        return len(out) - 1

    # A negative number asks for the "more" box of that node's children (~n is never negative n).
    pending: list[tuple[int, int]] = []

    def ask(i: int, parent: int) -> None:
        wanted = [child for child in flat.children[i] if child in kept]
        if len(wanted) < len(flat.children[i]):
            pending.append((~i if i >= 0 else -len(flat.nodes) - 1, parent))
        pending.extend((child, parent) for child in reversed(wanted))

    ask(-1, -1)
    while pending:
        i, parent = pending.pop()
        if i < 0:
            owner = -1 if i < -len(flat.nodes) else ~i
            add(_more(flat, kept, owner, parent))
            continue
        node = flat.nodes[i]
        if i in chains:
            run = chains[i]
            names = tuple(flat.nodes[j].func for j in run)
            parent = add(
                Box(
                    "fold",
                    parent,
                    flat.nodes[run[-1]],
                    node.ranks,
                    node.threads,
                    count=len(run),
                    listed=names,
                )
            )
        inner = i in in_chain
        me = add(
            Box("inner" if inner else "frame", parent, node, node.ranks, node.threads, hidden=inner)
        )
        ask(i, me)
    _share_listings(out)
    return out


def _more(flat: _Flat, kept: set[int], owner: int, parent: int) -> Box:
    left_out = [child for child in flat.children[owner] if child not in kept]
    listed = [(flat.nodes[child], flat.sizes[child]) for child in left_out[:2000]]
    names = tuple(f"{node.func}@{node.source}  ({size} ranks)" for node, size in listed)
    return Box(
        "more",
        parent,
        flat.nodes[owner] if owner >= 0 else None,
        RankSet.union(flat.nodes[child].ranks for child in left_out),
        sum(flat.nodes[child].threads for child in left_out),
        count=sum(flat.stacks[child] for child in left_out),
        listed=names,
    )


def _share_listings(out: list[Box]) -> None:
    """Cut the lists of the "more" boxes so that all together stay within their budget."""
    listing = [box for box in out if box.kind == "more"]
    if not listing:
        return
    each = max(200, _LISTED_BYTES // len(listing))
    for box in listing:
        used, lines = 0, []
        for name in box.listed:
            line = name if len(name) <= 160 else f"{name[:100]}…{name[-59:]}"
            used += len(line.encode(errors="replace")) + 8
            if used > each:
                break
            lines.append(line)
        box.listed = tuple(lines)
