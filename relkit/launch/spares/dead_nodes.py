"""Which nodes are dead, for those that wait until a node is missing."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from relkit.launch.job.silence import Silence
from relkit.launch.spares.host_probes import HostProbes
from relkit.launch.spares.settings import (
    MAX_OFTEN,
    UNANSWERED_S,
    ask_after_s,
    dead_after_s,
    lost_after_s,
)


class DeadNodes:
    """Looks at heartbeats once a second or more often, and asks the hosts of nodes.

    All hosts are asked all the time, so that the moment is known from which one does not answer; in
    jobs of more than 64 nodes only those whose node's heartbeat is late.

    Args:
        heartbeat_s: from one heartbeat to the next, s.
        probes: None where hosts cannot be asked; silence alone decides then.
    """

    def __init__(self, heartbeat_s: float, probes: HostProbes | None = None) -> None:
        self.limit_s = dead_after_s(heartbeat_s)
        self._ask_s, self._lost_s = ask_after_s(heartbeat_s), lost_after_s(heartbeat_s)
        self._silence, self._probes = Silence(self.limit_s), probes

    def why_dead(
        self,
        nodes: Collection[str],
        hosts: Mapping[str, str],
        heartbeats: Mapping[str, object],
        now_s: float,
    ) -> dict[str, str]:
        """Why nodes are dead, in a few words: those that are.

        Args:
            nodes: to be looked at; hosts: of those whose host is known, its name or address.
            heartbeats: the newest of each, anything that changes with it.
            now_s: monotonic time, s.
        """
        silent_s = self._silence.for_s(nodes, heartbeats, now_s)
        unanswered_s: Mapping[str, float] = {}
        if self._probes is not None:
            late_s = self._ask_s if len(hosts) > MAX_OFTEN else 0.0
            asked = {hosts[n] for n, s in silent_s.items() if s >= late_s and n in hosts}
            unanswered_s = self._probes.unanswered_s(frozenset(hosts.values()), asked)
        lost = {host for host, for_s in unanswered_s.items() if for_s >= UNANSWERED_S}
        why: dict[str, str] = {}
        for node, for_s in sorted(silent_s.items()):
            if for_s >= self._lost_s and hosts.get(node) in lost:
                why[node] = f"no sign of life for {self._lost_s:g} s, and its host does not answer"
            elif for_s >= self.limit_s:
                why[node] = f"no sign of life for {self.limit_s:g} s"
        return why
