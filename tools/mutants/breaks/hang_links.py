"""Breaks of the links that are measured after a hang."""

from __future__ import annotations

from tools.mutants.model import Break

_SUSPECTS = ("tests/unit/hang/links/test_suspects.py",)
_HEALTH = ("tests/unit/hang/links/test_health.py",)
_JOINED = ("tests/unit/hang/links/test_joined.py",)
_NOTES = ("tests/unit/launch/hang_links/test_notes.py",)
_PART = ("tests/unit/launch/hang_links/test_node_part.py",)
_CHECKS = ("tests/unit/launch/hang_links/test_checks.py",)
_HANG = "relkit/hang/links"
_LAUNCH = "relkit/launch/hang/links"

BREAKS = (
    # Ranks that wait for somebody else are looked at, too.
    Break(
        f"{_HANG}/suspects.py",
        "if not culprits or wait.missing & culprits",
        "if True",
        _SUSPECTS,
    ),
    # A job of thousands of nodes is measured.
    Break(f"{_HANG}/suspects.py", "for node in order[:MAX_NODES]", "for node in order", _SUSPECTS),
    Break(f"{_HANG}/health.py", "SLOW_FACTOR = 10.0", "SLOW_FACTOR = 5.0", _HEALTH),
    # A firewall is taken for a broken network.
    Break(f"{_HANG}/health.py", "if link.is_cut and answered:", "if link.is_cut:", _HEALTH),
    Break(
        f"{_HANG}/health.py",
        "max(MIN_SLOW_ROUND_TRIP_MS, SLOW_FACTOR * usual_ms)",
        "SLOW_FACTOR * usual_ms",
        _HEALTH,
    ),
    Break(f"{_HANG}/health.py", "    return max(first", "    return min(first", _HEALTH),
    # What contradicts the verdict confirms it.
    Break(
        f"{_HANG}/joined.py",
        "confirms = is_bad is blames_network",
        "confirms = is_good",
        _JOINED,
    ),
    Break(f"{_HANG}/joined.py", "culprit.category in _MAY_BE_NETWORK", "True", _JOINED),
    Break(f"{_HANG}/joined.py", "is_good = is_compared and", "is_good =", _JOINED),
    Break(
        f"{_HANG}/joined.py",
        'is_first = finding.id == BAD and not report.facts.get("culprits")',
        "is_first = finding.id == BAD",
        _JOINED,
    ),
    Break(f"{_LAUNCH}/notes.py", "or not 0 <= each < nodes for each", "for each", _NOTES),
    Break(f"{_LAUNCH}/notes.py", "if len(secret) != NONCE_BYTES:", "if False:", _NOTES),
    Break(f"{_LAUNCH}/notes.py", "if bool(speed) == bool(failure) or", "if", _NOTES),
    Break(f"{_LAUNCH}/notes.py", "or not is_node_name(name)", "", _NOTES),
    # One that does not know the key makes a link look cut.
    Break(
        f"{_LAUNCH}/node_part.py",
        "Failure.RESET, Failure.NO_ROUTE)",
        "Failure.RESET, Failure.NO_ROUTE, Failure.PROBE_ERROR)",
        _PART,
    ),
    # A firewall in one direction is taken for a cut link.
    Break(
        f"{_LAUNCH}/node_part.py",
        "self._node == (low if turn == 0 else high)",
        "self._node == low",
        _PART,
    ),
    # Whoever reads the notes could connect.
    Break(
        f"{_LAUNCH}/node_part.py",
        'derive(launcher.key, "links after a hang", ask.nonce)',
        'derive(bytes(32), "links after a hang", ask.nonce)',
        _PART,
    ),
    # It listens although nobody asked for that on this node.
    Break(
        f"{_LAUNCH}/checks.py",
        "if not self._is_asked_for or launcher is None:",
        "if launcher is None:",
        _CHECKS,
    ),
    # A launcher speaks for links that it has no part in.
    Break(
        f"{_LAUNCH}/checks.py",
        "for pair, each in told.items() if pair in own}",
        "for pair, each in told.items()}",
        _CHECKS,
    ),
    # The job waits for ever for a check that hangs.
    Break(
        f"{_LAUNCH}/checks.py",
        'BoundedCalls("relkit-check").call(call, timeout_s=CHECK_S), ""',
        'call(), ""',
        _CHECKS,
    ),
    # A node whose worker fails meanwhile decides alone.
    Break(
        "relkit/launch/hang/follower.py",
        "CHECK_S if self._leader_measures else 0.0",
        "0.0",
        _CHECKS,
    ),
    Break(f"{_LAUNCH}/checks.py", "self._mailbox.silent | set(silent)", "set(silent)", _CHECKS),
)
