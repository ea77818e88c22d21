"""From the name of a channel to the channel."""

from __future__ import annotations

from relkit.errors import UsageProblem
from relkit.fleet.channel import Channel
from relkit.fleet.local import LocalCarrier
from relkit.fleet.processes import ProcessChannel

KINDS = ("local", "ssh", "slurm", "kubectl", "command")


def open_channel(
    kind: str,
    *,
    ssh_args: str = "",
    relkit: str = "",
    command: str = "",
    fanout: int = 64,
    node_limit_s: float = 30.0,
) -> Channel:
    """A channel that is not started yet.

    Args:
        kind: one of KINDS.
        ssh_args: options for ssh, as in a shell.
        relkit: the relkit command on the nodes; "" for the running one's path, else `relkit`.
        command: prefix for "command"; `{node}` stands for the name, e.g. "ip netns exec {node}".
        fanout: how many nodes may be starting at the same time.
        node_limit_s: how long one node may take to answer.

    Raises:
        UsageProblem: no such kind, or an option that does not fit.
    """
    if kind == "local":
        return ProcessChannel(LocalCarrier(relkit), fanout=fanout, node_limit_s=node_limit_s)
    raise UsageProblem(f"no channel is called {kind!r}; there are {', '.join(KINDS)}")
