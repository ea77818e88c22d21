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
        ("tests/unit/net/test_gate.py::test_who_says_nothing_loses_the_place_in_time",),
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
    # A missing file is a node, which is then looked for.
    Break("relkit/hosts.py", " or _FILE.fullmatch(text):", ":", _HOSTS),
    Break("relkit/hosts.py", "if len(ports[spec.name]) > 1:", "if spec.port:", _HOSTS),
    Break(
        "relkit/hosts.py",
        'return address if not scope or _SCOPE.fullmatch(scope) else ""',
        "return address",
        _HOSTS,
    ),
    Break("relkit/hosts.py", "if not port:", "if port is None:", _HOSTS),
    Break(
        "relkit/text/whole_number.py",
        "(text.isascii() and text.isdecimal())",
        "text.isdigit()",
        ("tests/unit/text/test_whole_number.py",),
    ),
    Break(
        "relkit/text/whole_number.py",
        "len(text) > len(str(LARGEST)) or ",
        "",
        ("tests/unit/text/test_whole_number.py",),
    ),
    Break("relkit/hosts.py", 'line.split("#", 1)[0]', "line", _HOSTS),
    Break("relkit/hosts.py", 'key == "address" and len(specs) == 1', 'key == "address"', _HOSTS),
    Break(
        "relkit/topology.py",
        "key=lambda node: (psw_rank[topology.places[node].psw], asw_rank[topology.places[node]])",
        "key=lambda node: (asw_rank[topology.places[node]], psw_rank[topology.places[node].psw])",
        _TOPOLOGY,
    ),
    Break(
        "relkit/topology.py", "order = (*known, *unknown)", "order = (*unknown, *known)", _TOPOLOGY
    ),
    Break(
        "relkit/topology.py",
        "asw_rank = _first_seen(topology.places[node] for node in known)",
        "asw_rank = _first_seen(sorted((topology.places[node] for node in known), key=repr))",
        _TOPOLOGY,
    ),
    Break(
        "relkit/topology.py",
        "_changes(places, lambda p: p and p.psw)",
        "_changes(places, lambda p: p)",
        _TOPOLOGY,
    ),
    Break("relkit/topology.py", "if len(psws) > 1}", "if len(psws) > 2}", _TOPOLOGY),
    Break(
        "relkit/fleet/wire.py",
        "        if self._sizes[node] > MAX_LINE_BYTES:",
        "        if False:",
        _WIRE,
    ),
    Break("relkit/fleet/wire.py", "if c.isprintable() else", "if True else", _WIRE),
    Break(
        "relkit/fleet/roster.py",
        "        if sender and node != sender:",
        "        if sender and not node.startswith(sender):",
        _ROSTER,
    ),
    Break("relkit/fleet/roster.py", "elif node not in self._gone:", "else:", _ROSTER),
    Break("relkit/fleet/roster.py", "if protocol != PROTOCOL:", "if protocol is None:", _ROSTER),
    Break(
        "relkit/fleet/roster.py",
        'if message["op"] in (GONE, "hello"):',
        'if message["op"] == "hello":',
        _ROSTER,
    ),
    Break("relkit/fleet/roster.py", "(sent_s + time.time()) / 2", "sent_s", _ROSTER),
    Break(
        "relkit/fleet/roster.py",
        "round(theirs - (sent_s",
        "round(-theirs + (sent_s",
        _ROSTER,
    ),
    Break(
        "relkit/fleet/agent.py",
        "name not in to):",
        "not any(name.startswith(n) for n in to)):",
        _AGENT,
    ),
    Break("relkit/fleet/agent.py", "{**common, **mine}", "{**mine, **common}", _AGENT),
    Break("relkit/fleet/agent.py", "        stopping.set()\n", "        pass\n", _AGENT),
    Break(
        "relkit/fleet/agent.py",
        "        for pid in living:\n",
        "        for pid in reversed(living):\n",
        _AGENT,
    ),
    Break("relkit/fleet/agent.py", "SUBREAPER, 1, 0", "SUBREAPER, 0, 0", _AGENT),
    Break(
        "relkit/fleet/agent.py",
        "        if not all(_ends_before(end, pid) for pid in living):\n",
        "        if all(_ends_before(end, pid) for pid in living):\n",
        _AGENT,
    ),
    Break(
        "relkit/fleet/agent.py",
        "    except (OSError, AttributeError):  # a kernel",
        "    except OSError:  # a kernel",
        _AGENT,
    ),
    Break("relkit/fleet/ssh.py", '"--", node.target', "node.target", _ARGV),
    Break(
        "relkit/fleet/ssh.py",
        "return ExitReason(meaning, text in _HOST_IS_DOWN)",
        "return ExitReason(meaning, True)",
        ("tests/unit/netcheck/test_report.py",),
    ),
    Break(
        "relkit/fleet/slurm.py",
        "states[name] = state.strip().lower()",
        "states[name] = state.strip()",
        _ARGV,
    ),
    Break("relkit/fleet/slurm.py", "elif ours and name not in ours:", "elif False:", _SLURM),
    Break("relkit/fleet/slurm.py", 'elif state.endswith("*"):', "elif False:", _SLURM),
    Break(
        "relkit/fleet/slurm.py",
        "if any(word in state for word in _UNUSABLE) and not self._in_job:",
        "if False:",
        _SLURM,
    ),
    Break(
        "relkit/fleet/identity.py",
        "if answer.answered and isinstance(machine, str) and machine:",
        "if answer.answered and isinstance(machine, str):",
        _ARGV,
    ),
    Break("relkit/fleet/exit_reason.py", "if code < 0:", "if code > 128:", _ARGV),
)
