"""How the ranks of a job tell each other what they have: through torch's store, as JSON."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from relkit.errors import RelkitError, UsageProblem
from relkit.foreign_json import parse_json

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_made = itertools.count()


@dataclass(slots=True)
class Ranks:
    """All ranks of a job; each makes its objects of this class in the same order.

    Args:
        rank, world_size: of this process.
        store: of the job; None where it is alone.
    """

    rank: int
    world_size: int
    store: Store | None
    name: int = field(default_factory=lambda: next(_made))
    _round: int = 0

    def all_gather(self, value: Any) -> list[Any]:  # noqa: ANN401
        """What each rank has passed, in order of ranks. Every rank must call it.

        Args:
            value: of JSON's types.

        Raises:
            RelkitError: not all ranks have answered within the store's timeout.
        """
        if self.store is None or self.world_size == 1:
            return [value]
        self._round += 1
        key = f"relkit-flash/{self.name}/{self._round}"
        try:
            self.store.set(f"{key}/{self.rank}", json.dumps(value))
            if self.rank == 0:
                # One reads, so that the store is asked a number of times that grows with the ranks
                # and not with their square.
                told = [
                    parse_json(self.store.get(f"{key}/{rank}")) for rank in range(self.world_size)
                ]
                self.store.set(f"{key}/all", json.dumps(told))
            everyone: list[Any] = parse_json(self.store.get(f"{key}/all"))
        except (RuntimeError, OSError, ValueError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise RelkitError(
                f"the ranks cannot agree on a checkpoint: {first}",
                next_step="Every rank must call load_checkpoint().",
            ) from error
        return everyone


def ranks_of_job() -> Ranks:
    """The ranks of torch's default process group; one alone where there is none.

    Raises:
        UsageProblem: the launcher has started several ranks, and they have not met yet.
    """
    if dist.is_available() and dist.is_initialized():
        store = dist.distributed_c10d._get_default_store()
        return Ranks(dist.get_rank(), dist.get_world_size(), store)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageProblem(
            "the ranks have not met yet",
            next_step="Call torch.distributed.init_process_group() before.",
        )
    return Ranks(0, 1, None)
