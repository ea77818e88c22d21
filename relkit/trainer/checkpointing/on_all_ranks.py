"""One thing done on every rank, which succeeds everywhere or fails everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch.distributed as dist

from relkit.errors import RelkitError
from relkit.trainer.core.mesh import Mesh

Result = TypeVar("Result")


def on_all_ranks(mesh: Mesh, act: Callable[[], Result]) -> list[Result]:
    """Call `act` on every rank of the world; all must call this.

    Args:
        act: does this rank's part; its result must be picklable, and it must not communicate.

    Returns:
        The results, by rank.

    Raises:
        RelkitError: of this rank, or else of the first that failed: so no rank goes on, or waits,
            while another has given up.
    """
    result: Any = None
    failure: RelkitError | None = None
    try:
        result = act()
    except RelkitError as error:
        failure = error
    outcomes: list[Any] = [(result, failure)]
    if mesh.world.size > 1:
        outcomes = [None] * mesh.world.size
        dist.all_gather_object(outcomes, (result, failure), group=mesh.world.process_group)
    if failure is not None:
        raise failure
    for _, other in outcomes:
        if other is not None:
            raise other
    return [answer for answer, _ in outcomes]
