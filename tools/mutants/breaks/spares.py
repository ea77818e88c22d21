"""Breaks of spare nodes and their ranks: who steps in, or keeps a place; when one is dead."""

from __future__ import annotations

from tools.mutants.model import Break

_ROOM = "relkit/launch/spares"
_TESTS = "tests/unit/launch/spares"
_MEETING = (f"{_TESTS}/test_spare_rendezvous.py",)
_MEMBERSHIP = (f"{_TESTS}/test_membership.py",)
_OPTIONS = (f"{_TESTS}/test_options.py",)
_RANKS = ("tests/unit/launch/test_topology_ranks.py",)
_DEAD_NODES = (f"{_TESTS}/test_dead_nodes.py",)
_OPERATIONS = (f"{_TESTS}/test_operations.py",)
_PROBES = (f"{_TESTS}/test_host_probes.py",)
_SILENCE = ("tests/unit/launch/test_silence.py",)
_STEP = (f"{_TESTS}/test_join_step.py",)

BREAKS = (
    # A spare takes the place of a node that is only late, or two take one place.
    Break(f"{_ROOM}/join_step.py", "candidates.index(node) <", "0 <", _STEP),
    Break(
        f"{_ROOM}/join_step.py",
        "rendezvous.max_nodes - len(expected) - len(stepped_in)",
        "rendezvous.max_nodes - len(rendezvous.participants)",
        _STEP,
    ),
    Break(f"{_ROOM}/join_step.py", "if not expected <= present or", "if", _STEP),
    # The number of nodes is no multiple of the unit, or the host of the store has to wait.
    Break(f"{_ROOM}/join_step.py", "most - most % rendezvous.unit - there", "most - there", _STEP),
    Break(
        f"{_ROOM}/join_step.py",
        "key != membership.host, key not in",
        "key not in",
        _STEP,
    ),
    Break(f"{_ROOM}/spare_rendezvous.py", "        if left_over:", "        if False:", _MEETING),
    Break("commands/_launch_spares.py", "-(-int(low) // unit) * unit", "int(low)", _OPTIONS),
    Break(f"{_ROOM}/join_step.py", "len(present) < rendezvous.min_nodes", "False", _STEP),
    Break(
        f"{_ROOM}/membership.py",
        "if key not in self.expected:",
        "if key in self.gone:",
        _MEMBERSHIP,
    ),
    Break(
        f"{_ROOM}/membership.py",
        "if self.failed or self.gone or key not in",
        "if self.gone or key not in",
        _MEMBERSHIP,
    ),
    # Whoever loses a node is blamed for that.
    Break(
        f"{_ROOM}/membership.py",
        "if self.failed and not self.gone:",
        "if self.failed:",
        _MEMBERSHIP,
    ),
    Break(
        f"{_ROOM}/membership.py", "if restarts <= self.restarts else", "if False else", _MEMBERSHIP
    ),
    # A launcher that stood still takes all others for dead.
    Break(
        "relkit/launch/job/silence.py", "now_s - self._looked_s > self._gap_s", "False", _SILENCE
    ),
    Break("relkit/launch/job/silence.py", "if known and known[0] == beat", "if known", _SILENCE),
    # A spare ends as if it had failed.
    Break(
        f"{_ROOM}/spare_rendezvous.py",
        'raise RendezvousGracefulExitError("the job has ended")',
        "return by_torch(context, deadline)",
        _MEETING,
    ),
    Break(
        f"{_ROOM}/spare_rendezvous.py",
        "is_late = now_s > self._try.short_since_s + self._replacement_s",
        "is_late = False",
        _MEETING,
    ),
    # A node whose peers live, and only take their time, gives the job up.
    Break(
        f"{_ROOM}/spare_rendezvous.py",
        "if not is_short(rendezvous, self.membership.expected):",
        "if False:",
        _MEETING,
    ),
    Break(
        f"{_ROOM}/torch_state.py",
        "state.participants.pop(node, None) is not None",
        "False",
        _MEETING,
    ),
    # A launcher that is asked to end stays in the meeting that it waits for.
    Break(f"{_ROOM}/spare_rendezvous.py", "if self.leaving_why:", "if False:", _MEETING),
    Break(
        "commands/_launch_spares.py",
        "if spares and options.max_restarts < 1:",
        "if False:",
        _OPTIONS,
    ),
    Break(
        "relkit/launch/peers/find.py",
        "point.nodes - spares <= max_nodes",
        "point.nodes <= max_nodes",
        ("tests/unit/launch/peers/test_join.py",),
    ),
    # What was measured before the job's first start speaks for all later ones.
    Break(
        "relkit/launch/netcheck/network_check.py",
        'measured again."""\n        self._passed_check_id = ""',
        'measured again."""',
        ("tests/unit/launch/test_network_check.py",),
    ),
    # Ranks in torch's order, or first of those that the file does not name.
    Break(
        "relkit/launch/job/topology_ranks.py",
        "return sorted(keys, key=position)",
        "return list(keys)",
        _RANKS,
    ),
    Break(
        "relkit/launch/job/topology_ranks.py",
        "            state.participants[nodes[key]] = rank",
        "            state.participants.setdefault(nodes[key], rank)",
        _RANKS,
    ),
    Break(
        "relkit/launch/job/topology_ranks.py",
        'return float("inf") if at is None else at',
        "return 0 if at is None else at",
        _RANKS,
    ),
    # A launcher that waits for a processor is as dead as a host that is cut off.
    Break(f"{_ROOM}/dead_nodes.py", "hosts.get(node) in lost", "node in hosts", _DEAD_NODES),
    Break(f"{_ROOM}/dead_nodes.py", "if for_s >= UNANSWERED_S", "if True", _DEAD_NODES),
    Break(
        f"{_ROOM}/dead_nodes.py",
        "self._ask_s if len(hosts) > MAX_OFTEN else 0.0",
        "0.0",
        _DEAD_NODES,
    ),
    Break(f"{_ROOM}/dead_nodes.py", "if len(hosts) > MAX_OFTEN else 0.0", "", _DEAD_NODES),
    Break(f"{_ROOM}/settings.py", "UNANSWERED_S = 2, 3.0", "UNANSWERED_S = 2, 2.0", _DEAD_NODES),
    Break(
        f"{_ROOM}/settings.py",
        "_MISSED_WITH_HOST, UNANSWERED_S = 2,",
        "_MISSED_WITH_HOST, UNANSWERED_S = 1,",
        _DEAD_NODES,
    ),
    # A firewall makes hosts dead; so does a host's silence of yesterday.
    Break(f"{_ROOM}/host_probes.py", "for host in answered}", "for host in named}", _PROBES),
    Break(
        f"{_ROOM}/host_probes.py",
        "for h, at in self._unanswered.items() if h in self._asked}",
        "for h, at in self._unanswered.items()}",
        _PROBES,
    ),
    Break(f"{_ROOM}/host_probes.py", "if host not in lost:", "if False:", _PROBES),
    Break(
        f"{_ROOM}/host_probes.py", "(first_s, begun_s)", "(first_s, self._clock() + 1.0)", _PROBES
    ),
    Break(f"{_ROOM}/host_probes.py", "{0, errno.ECONNREFUSED,", "{0,", _PROBES),
    Break(f"{_ROOM}/host_probes.py", "if error in _LOST}", "if error not in _ANSWERS}", _PROBES),
    # A host that answers is asked without a pause.
    Break(
        f"{_ROOM}/host_probes.py",
        "time.sleep(max(0.0, end_s - time.monotonic()))",
        "pass",
        _PROBES,
    ),
    Break(f"{_ROOM}/host_probes.py", "time.sleep(_PAUSE_S)", "pass", _PROBES),
    # A host is lost half a second later than it could be; what is known of it outlives the wait.
    Break(f"{_ROOM}/host_probes.py", "elif all_answer:", "else:", _PROBES),
    Break(f"{_ROOM}/host_probes.py", "self._unanswered = {}", "pass", _PROBES),
    # A thread that waits for a processor takes its own lateness for an outage.
    Break(
        f"{_ROOM}/host_probes.py",
        "(host, (put_s, begun_s))",
        "(host, (begun_s, begun_s))",
        _PROBES,
    ),
    Break(
        f"{_ROOM}/host_probes.py",
        "poller.poll(max(0.0, end_s - time.monotonic()) * 1e3)",
        "end_s > time.monotonic() and poller.poll(250)",
        _PROBES,
    ),
    # The store takes each question for a connection.
    Break(
        f"{_ROOM}/spare_rendezvous.py",
        "if host != of_store}",
        "}",
        (f"{_TESTS}/test_store_host.py",),
    ),
    # A busy launcher loses its place, and with its next fault the job its store.
    Break(
        f"{_ROOM}/spare_rendezvous.py",
        "- {repr(context.node), membership.host}",
        "- {repr(context.node)}",
        (f"{_TESTS}/test_store_host.py",),
    ),
    # Those who train are told of a lost node by what they have read a second before.
    Break(
        f"{_ROOM}/spare_rendezvous.py",
        "_state_holder._cache_duration =",
        "_unused_s =",
        (f"{_TESTS}/test_spare_rendezvous.py",),
    ),
    # They are asked for as long as the launcher lives.
    Break(f"{_ROOM}/host_probes.py", "begun_s - self._looked_s > _AWAY_S", "False", _PROBES),
    # torch's executor writes what it has read before: what others have written is lost.
    Break(f"{_ROOM}/operations.py", "self._by_torch._state = holder.state", "pass", _OPERATIONS),
    Break(f"{_ROOM}/operations.py", "holder.sync()", "pass", _OPERATIONS),
    Break(f"{_ROOM}/operations.py", "holder._last_sync_time = -1.0", "pass", _OPERATIONS),
    # One node that waits leaves those out whose name nobody knows, and all others with them.
    Break(f"{_ROOM}/host_probes.py", "suppress(UnknownHost)", "suppress()", _PROBES),
    # Each heartbeat of a thousand nodes is an exchange of the whole state, every two seconds.
    Break("commands/_launch_spares.py", "int(high or low) + spares <= MAX_OFTEN", "True", _OPTIONS),
    # A node is given up for what the loss of another caused.
    Break(
        f"{_ROOM}/dead_member.py",
        "if membership.gone or silence.silent(others, beats, clock()):",
        "if membership.gone:",
        (f"{_TESTS}/test_dead_member.py",),
    ),
    Break(
        f"{_ROOM}/dead_member.py",
        "if membership.gone or silence.silent(others, beats, clock()):",
        "if silence.silent(others, beats, clock()):",
        (f"{_TESTS}/test_dead_member.py",),
    ),
    Break(
        f"{_ROOM}/dead_member.py",
        "others = membership.expected & beats.keys()",
        "others = membership.expected",
        (f"{_TESTS}/test_dead_member.py",),
    ),
    Break(
        "relkit/launch/spare_agent.py",
        "if self._given_up and self._has_lost_another():",
        "if False:",
        (f"{_TESTS}/test_spare_agent.py",),
    ),
)
