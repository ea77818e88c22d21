"""Which ranks of a job do equal work, as far as its traces tell; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

_PIPELINE = re.compile(r"(?:^|[^a-z])(?:pipeline|pp|pipe)(?:[^a-z]|$)", re.IGNORECASE)
# Groups of some stages only: the first and the last share their embeddings.
_NO_PIPELINE = re.compile(r"embedding", re.IGNORECASE)
_DATA = re.compile(r"(?:^|[^a-z])(?:data|dp|fsdp|ddp|replicate|shard)(?:[^a-z]|$)", re.IGNORECASE)
# Point to point: who sends to whom depends on the place in a pipeline.
_TO_A_PEER = re.compile(r"^(?:send|recv|irecv|isend|sendrecv)")
Groups = Mapping[str, tuple[int, ...]]


def groups_of(properties: Mapping[str, Any], seen: Groups) -> dict[str, tuple[int, ...]]:
    """Description of each process group of one rank -> its ranks.

    Args:
        properties: of the trace; seen: with its collectives.
    """
    groups = dict(seen)
    told = properties.get("distributedInfo")
    listed = told.get("pg_config") if isinstance(told, dict) else None
    for row in listed if isinstance(listed, list) else []:
        if not isinstance(row, dict):
            continue
        name, ranks = row.get("pg_desc"), row.get("ranks")
        if isinstance(name, str) and isinstance(ranks, list) and ranks:
            members = tuple(rank for rank in ranks if type(rank) is int)
            if len(members) == len(ranks):
                groups[name] = members
    return groups


def role_of(
    rank: int, groups: Groups, transfers: Iterable[tuple[str, int]], devices: str = ""
) -> str:
    """Equal for ranks that do equal work; "" where that cannot be known.

    Ranks of one place in a pipeline, that communicate the same in a step. Where ranks send to each
    other and no group says which stage each one is, those that average their gradients together
    are of one stage; where that is not known either, nobody is compared.

    Args:
        rank: global; groups: it is in; transfers: what it communicates in a usual step, and how
            often; devices: what it runs on: a slower model of a GPU is no straggler.
    """
    listed = tuple(transfers)
    what = f"{listed} {devices}"
    pipelines = [
        (name, ranks)
        for name, ranks in sorted(groups.items())
        if _PIPELINE.search(name) and not _NO_PIPELINE.search(name) and rank in ranks
    ]
    # The longest is the pipeline; others are pairs of neighbours.
    if pipelines:
        ranks = max(pipelines, key=lambda item: len(item[1]))[1]
        return f"stage {ranks.index(rank)} {what}"
    if not any(_TO_A_PEER.match(name) for name, _ in listed):
        return what
    mates = [
        ranks
        for name, ranks in sorted(groups.items())
        if _DATA.search(name) and not _PIPELINE.search(name) and rank in ranks and len(ranks) > 1
    ]
    return f"group {max(mates, key=len)} {what}" if mates else ""
