"""Where torch starts a worker, a standby takes its place if there is one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from subprocess import Popen
from typing import Any

import torch.distributed.elastic.multiprocessing.api as processes_api
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler

from relkit.launch.warm_standby.handover import WorkerCommand
from relkit.launch.warm_standby.standbys import Standbys

_NAME = "get_subprocess_handler"


@contextmanager
def standbys_first(standbys: Standbys) -> Iterator[None]:
    """Have workers that torch starts in the block be standbys, as far as these are ready.

    torch looks this one name up for each worker, in all versions that relkit supports; its own
    class still opens the log files, makes the environment and signals the process.
    """

    class StandbyHandler(SubprocessHandler):
        def _popen(self, args: tuple[str, ...], env: dict[str, str]) -> Popen[bytes]:
            files = ((1, self._stdout), (2, self._stderr))
            worker = WorkerCommand(tuple(args), dict(env))
            descriptors = [(number, file.fileno()) for number, file in files if file is not None]
            process = standbys.start(self.local_rank_id, worker, descriptors)
            plain: Popen[bytes] = super()._popen(args, env) if process is None else process
            return plain

    original: Any = vars(processes_api).get(_NAME)
    if original is None or not standbys.is_wanted:
        yield
        return

    def handler(**options: Any) -> SubprocessHandler:  # noqa: ANN401
        return StandbyHandler(**options)

    standbys.begin()
    vars(processes_api)[_NAME] = handler
    try:
        yield
    finally:
        vars(processes_api)[_NAME] = original
