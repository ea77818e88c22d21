"""The first workers of a node: they import what their script will while the launcher imports torch.

torchrun imports torch, and then starts workers, which import it again. Here both happen at the same
time. The workers are warm standbys (see warm_standby): they take over as soon as torch starts them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from relkit.bootstrap import bootstrap_environment
from relkit.launch.job.folder import preload_environment
from relkit.launch.job.socket_folder import SOCKET_DIR, may_serve
from relkit.launch.options import OwnOption
from relkit.launch.plain_command import PlainCommand, plain_command
from relkit.launch.warm_standby.handover import WorkerCommand, is_python
from relkit.launch.warm_standby.standby import First, Standby, Target
from relkit.net.operator_secret import SECRET

_THREADS = "OMP_NUM_THREADS"
_ASYNC_ERRORS = "TORCH_NCCL_ASYNC_ERROR_HANDLING"


class FirstWorkers:
    """Call begin() in the main thread before torch is imported, then taken(), and end() at last."""

    def __init__(self) -> None:
        self._standbys: dict[int, Standby] = {}

    def begin(self, argv: Sequence[str], own: Sequence[OwnOption], prefix: str) -> None:
        """Start one for each worker, where the command line says plainly what they will run.

        Args:
            argv, own, prefix: see plain_command.
        """
        command = plain_command(argv, own, os.environ, prefix)
        if command is None or not (command.is_module or os.path.isfile(command.name)):  # noqa: PTH113
            return
        program = os.environ.get("PYTHON_EXEC", sys.executable)
        if not is_python(program):
            return
        target = Target(command.name, command.is_module)
        first = First(writes_here=command.writes_here)
        environment = {**os.environ, **_added(program, has_hook=command.has_hook)}
        for local_rank, worker in first_commands(program, command, environment).items():
            standby = self._standbys[local_rank] = Standby(worker, target, first=first)
            try:
                standby.start()
            except (OSError, ValueError):
                # Whatever it is, a plain start will meet it too, and torch will say so.
                self.end()
                return

    @property
    def are_importing(self) -> bool:
        """There are some, and they are as busy as this process."""
        return bool(self._standbys)

    def taken(self) -> Mapping[int, Standby]:
        """Local rank -> its standby, in the caller's hands from now on."""
        standbys, self._standbys = self._standbys, {}
        return standbys

    def end(self) -> None:
        """End those that nobody has taken."""
        for standby in self.taken().values():
            standby.end()


def first_commands(
    program: str, command: PlainCommand, environment: Mapping[str, str]
) -> dict[int, WorkerCommand]:
    """Local rank -> how torch will start its worker (torch.distributed.run.config_from_args, 2.13).

    Where it does so in another way after all, the worker is started anew. In a job of several nodes
    RANK is set but empty, as the rank is not known until the nodes have met.

    Args:
        program: the interpreter; command: what it runs.
        environment: of this process, with what the launcher adds to that of its workers.
    """
    module = ("-m",) if command.is_module else ()
    argv = (program, "-u", *module, command.name, *command.arguments)
    count = str(command.processes)
    threads = {_THREADS: "1"} if command.processes > 1 else {}
    common = {**threads, _ASYNC_ERRORS: "1", **environment}
    # It would be there to be read in /proc as long as the worker runs.
    common.pop(SECRET, None)
    common["LOCAL_WORLD_SIZE"] = count
    if command.is_one_node:
        common["WORLD_SIZE"] = count
    return {
        local_rank: WorkerCommand(
            argv,
            {
                **common,
                "LOCAL_RANK": str(local_rank),
                "RANK": str(local_rank) if command.is_one_node else "",
            },
        )
        for local_rank in range(command.processes)
    }


def _added(program: str, *, has_hook: bool) -> dict[str, str]:
    """What the launcher will add, with the values that are given anew at each start left open."""
    hook = preload_environment(program) if has_hook else {}
    sockets = {SOCKET_DIR: os.sep} if may_serve() else {}
    if not hook and not sockets:
        return {}
    launcher = {"RELKIT_LAUNCHER_PID": str(os.getpid())} if hook else {}
    return {**hook, **bootstrap_environment(os.environ), **sockets, **launcher}
