"""The command of a pod with what relkit launch has to know of its cluster."""

from __future__ import annotations

import re
from collections.abc import Sequence

from relkit.errors import UsageProblem
from relkit.kubernetes.values import Values

RUN_ID = "RUN_ID"
TOPOLOGY_FOLDER = "/etc/relkit/topology"
_LAUNCH = re.compile(r"\brelkit launch\b")


def launch_options(values: Values) -> list[str]:
    """Options that go before the user's own, which win where both say something.

    Args:
        values: of the job.
    """
    options = ["--nnodes", str(values["replicas"])]
    if values["nprocPerNode"]:
        options += ["--nproc-per-node", values["nprocPerNode"]]
    options += ["--max-restarts", str(values["maxRestarts"])]
    if values["spares"]:
        options += ["--spares", str(values["spares"])]
    options += ["--flash-timeout", str(values["flashTimeoutSeconds"])]
    if values["store"]["enabled"]:
        options += [
            "--rdzv-backend", "c10d",
            "--rdzv-endpoint", f"{values['name']}-store:{values['store']['port']}",
            "--rdzv-conf", "is_host=0",
            "--rdzv-id", f"$({RUN_ID})",
        ]  # fmt: skip
    if values["topoMapper"]["enabled"]:
        options += ["--topology", f"{TOPOLOGY_FOLDER}/topology_config"]
    return options


def pod_command(values: Values) -> list[str]:
    """The command with these options behind `relkit launch`, which may stand in a shell's text.

    Raises:
        UsageProblem: it calls no `relkit launch`.
    """
    command, options = values["command"], launch_options(values)
    if not all(isinstance(word, str) for word in command):
        raise UsageProblem("command has words that are no text", next_step="Put them into quotes.")
    if _is_launch(command):
        return [*command[:2], *options, *command[2:]]
    text = " ".join(["relkit launch", *options])
    replaced = [_LAUNCH.sub(lambda _: text, word) for word in command]
    if replaced == command:
        raise UsageProblem(
            "the command calls no relkit launch",
            next_step="Write: command: [relkit, launch, train.py], or a shell with that in it.",
        )
    return replaced


def calls_launch(command: Sequence[str]) -> bool:
    """Whether pod_command() takes it."""
    return _is_launch(command) or any(_LAUNCH.search(word) for word in command)


def _is_launch(command: Sequence[str]) -> bool:
    return list(command[:2]) == ["relkit", "launch"]
