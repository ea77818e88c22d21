"""From the name of a channel to the channel."""

from __future__ import annotations

from relkit.errors import UsageProblem
from relkit.fleet.channel import Channel
from relkit.fleet.command import CommandCarrier
from relkit.fleet.kubectl import KubectlCarrier
from relkit.fleet.local import LocalCarrier
from relkit.fleet.processes import Carrier, ProcessChannel
from relkit.fleet.slurm import SlurmChannel
from relkit.fleet.ssh import SshCarrier

KINDS = ("ssh", "slurm", "kubectl", "command", "local")


def open_channel(
    kind: str,
    *,
    ssh_args: str = "",
    relkit: str = "",
    partition: str = "",
    slurm_args: str = "",
    kubectl_args: str = "",
    command: str = "",
    fanout: int = 64,
    node_limit_s: float = 30.0,
) -> Channel:
    """A channel that is not started yet.

    Args:
        kind: one of KINDS.
        ssh_args, slurm_args, kubectl_args: options for ssh, srun or kubectl, as in a shell.
        relkit: the relkit command on the nodes; "" for the running one's path where it exists
            there, else `relkit`.
        partition: for "slurm" outside a job: where to get the nodes.
        command: prefix for "command"; `{node}` stands for the name, e.g. "ip netns exec {node}".
        fanout: how many nodes may be starting at the same time.
        node_limit_s: how long one node may take to answer.

    Raises:
        UsageProblem: there is no such kind, or an option does not fit it.
    """
    carrier: Carrier
    if kind == "slurm":
        return SlurmChannel(relkit, partition=partition, slurm_args=slurm_args)
    if kind == "ssh":
        carrier = SshCarrier(ssh_args, relkit)
    elif kind == "kubectl":
        carrier = KubectlCarrier(kubectl_args, relkit)
    elif kind == "command":
        carrier = CommandCarrier(command, relkit)
    elif kind == "local":
        carrier = LocalCarrier(relkit)
    else:
        raise UsageProblem(f"no channel is called {kind!r}; there are {', '.join(KINDS)}")
    return ProcessChannel(carrier, fanout=fanout, node_limit_s=node_limit_s)
