"""How torch will start the workers of a node that has none yet: a spare."""

from __future__ import annotations

import os
from collections.abc import Mapping

from torch.distributed.elastic.agent.server.api import WorkerSpec
from torch.distributed.elastic.utils.api import macros

from relkit.launch.warm_standby.handover import WorkerCommand

_ASYNC_ERRORS = "TORCH_NCCL_ASYNC_ERROR_HANDLING"


def expected_commands(spec: WorkerSpec, extra: Mapping[str, str]) -> dict[int, WorkerCommand]:
    """Local rank -> its command, with the environment as far as it does not depend on the rank.

    Where torch starts them in another way after all, a worker is started anew, and a line says what
    was different.

    Args:
        spec: of the workers; extra: what the launcher adds to their environment.
    """
    environment = {**os.environ, **extra, _ASYNC_ERRORS: os.environ.get(_ASYNC_ERRORS, "1")}
    return {
        local_rank: WorkerCommand(
            (
                str(spec.entrypoint),
                *(str(a) for a in macros.substitute(list(spec.args), str(local_rank))),
            ),
            environment,
        )
        for local_rank in range(spec.local_world_size)
    }
