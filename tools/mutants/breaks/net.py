"""Breaks of the network between relkit's processes: proofs, doors, nodes, switches, agents."""

from __future__ import annotations

from tools.mutants.model import Break

_HANDSHAKE = ("tests/unit/net/test_handshake.py",)
_GATE = ("tests/unit/net/test_gate.py",)
_HOSTS = ("tests/unit/test_hosts.py",)
_TOPOLOGY = ("tests/unit/test_topology.py",)
_WIRE = ("tests/unit/fleet/test_wire.py",)
_ROSTER = ("tests/unit/fleet/test_roster.py",)
_AGENT = ("tests/unit/fleet/test_agent.py",)
_ARGV = ("tests/unit/fleet/test_argv.py",)
_CHANNEL = ("tests/unit/fleet/test_channel.py",)
_SLURM = ("tests/unit/fleet/test_slurm_nodes.py",)

BREAKS = (
    Break(
        "relkit/net/handshake.py",
        'text = b"%s|%d|" % (end, round_number) + nonces + label',
        'text = b"%s|%d|" % (end, round_number) + nonces',
        _HANDSHAKE,
    ),
    Break(
        "relkit/net/handshake.py",
        'text = b"%s|%d|" % (end, round_number) + nonces + label',
        'text = b"%s|" % end + nonces + label',
        _HANDSHAKE,
    ),
    Break(
        "relkit/net/handshake.py",
        'text = b"%s|%d|" % (end, round_number) + nonces + label',
        'text = b"%d|" % round_number + nonces + label',
        _HANDSHAKE,
    ),
    Break(
        "relkit/net/handshake.py",
        "    nonces = greeted[len(BANNER) :] + answered[:NONCE_BYTES]\n",
        "    nonces = answered[:NONCE_BYTES] + greeted[len(BANNER) :]\n",
        _HANDSHAKE,
    ),
    Break(
        "relkit/net/handshake.py",
        "    if len(answered) != ANSWER_BYTES:\n        return None\n",
        "",
        _HANDSHAKE,
    ),
    Break(
        "relkit/net/handshake.py",
        "    if not hmac.compare_digest(expected, answered[-_MAC_BYTES:]):\n        return None\n",
        "",
        _HANDSHAKE,
    ),
    Break(
        "relkit/net/gate.py",
        "        _reset(peer.connection)\n",
        "        peer.connection.close()\n",
        _GATE,
    ),
    Break("relkit/net/gate.py", "max(self._origins.values())", "1", _GATE),
    Break(
        "relkit/net/gate.py",
        "        self._drop_older_than(HANDSHAKE_S, now_s)\n",
        "",
        _GATE,
    ),
    Break(
        "relkit/net/gate.py",
        "    if parsed.version == 6:\n"
        "        return str(ipaddress.ip_network((parsed, 64), strict=False))\n",
        "",
        _GATE,
    ),
    Break(
        "relkit/net/gate.py",
        "        if not self._origins[peer.origin]:\n            del self._origins[peer.origin]\n",
        "",
        _GATE,
        survives="A count of 0 is never the highest while anybody waits; it costs memory alone.",
    ),
    Break(
        "relkit/net/dial.py",
        "(ConnectionResetError, BrokenPipeError, TimeoutError):",
        "(BrokenPipeError, TimeoutError):",
        ("tests/unit/net/test_gate.py::test_who_was_reset_comes_again",),
    ),
    Break(
        "relkit/net/dial.py",
        "        if not handshake.check_confirmation(",
        "        if False and not handshake.check_confirmation(",
        _HANDSHAKE,
    ),
    Break(
        "relkit/net/file_limit.py",
        "(files if _covers(hard, files) else hard, hard)",
        "(hard, hard)",
        _GATE,
    ),
    Break("relkit/net/call_queue.py", "        self._read.close()\n", "", ("tests/unit/net",)),
    Break(
        "relkit/hosts.py",
        "if not out & {spec.name, spec.target}]",
        "if not any(spec.name.startswith(name) for name in out)]",
        _HOSTS,
    ),
    Break(
        "relkit/hosts.py",
        "if not out & {spec.name, spec.target}]",
        "if spec.name not in out]",
        _HOSTS,
    ),
    Break("relkit/hosts.py", "if len(ports[spec.name]) > 1:", "if spec.port:", _HOSTS),
)
