"""Breaks of linkcheck: what the tools print, which links are good, which end is at fault."""

from __future__ import annotations

from tools.mutants.model import Break

_JUDGE = ("tests/unit/linkcheck/test_judge.py",)
_PROVIDERS = ("tests/unit/linkcheck/test_providers.py",)

BREAKS = (
    Break(
        "relkit/linkcheck/judge.py",
        "measurement.bandwidth_mb_s >= min_bandwidth_mb_s",
        "measurement.bandwidth_mb_s > min_bandwidth_mb_s",
        _JUDGE,
    ),
    Break(
        "relkit/linkcheck/judge.py",
        "max(states, key=_WORST_LAST.index)",
        "min(states, key=_WORST_LAST.index)",
        _JUDGE,
    ),
    Break(
        "relkit/linkcheck/judge.py",
        "    if good >= min_channels:",
        "    if good > min_channels:",
        _JUDGE,
    ),
    Break("relkit/linkcheck/judge.py", "if good + unknown >= min_channels", "if unknown", _JUDGE),
    Break(
        "relkit/linkcheck/judge.py",
        "    if measurement.failure in INCONCLUSIVE:\n        return LinkState.UNKNOWN\n",
        "",
        _JUDGE,
    ),
    Break(
        "relkit/linkcheck/judge.py",
        "    if crosses and len(good) > 1:\n",
        "    if False:\n",
        _JUDGE,
    ),
    Break(
        "relkit/linkcheck/judge.py",
        "if mine in present and mine != theirs:",
        "if mine != theirs:",
        _JUDGE,
    ),
    Break(
        "relkit/linkcheck/blame.py",
        "return self.can_cross and state is not None and state.is_bad",
        "return state is not None and state.is_bad",
        _JUDGE,
    ),
    Break(
        "relkit/linkcheck/blame.py",
        "end = 0 if way is Way.OUT else 1",
        "end = 1 if way is Way.OUT else 0",
        _JUDGE,
    ),
    Break(
        "relkit/linkcheck/blame.py",
        "return min(states, key=_BEST_FIRST.index) if states else None",
        "return max(states, key=_BEST_FIRST.index) if states else None",
        _JUDGE,
    ),
    Break("relkit/linkcheck/blame.py", "if len(own & set(ends)) == 1}", "}", _JUDGE),
    Break(
        "relkit/linkcheck/layout.py",
        "gpu = int(folder.name) - cpu_nodes",
        "gpu = int(folder.name)",
        _PROVIDERS,
    ),
    Break(
        "relkit/linkcheck/layout.py",
        "for socket, gpus in claims.items() if len(gpus) == 1}",
        "for socket, gpus in claims.items()}",
        (
            *_PROVIDERS,
            "tests/commands/test_linkcheck.py::test_a_socket_that_two_gpus_claim_is_never_measured",
        ),
    ),
    Break("relkit/linkcheck/metax.py", "        bytes_s /= 8\n", "        pass\n", _PROVIDERS),
    Break("relkit/linkcheck/metax.py", '1024 if match["binary"] else 1000', "1000", _PROVIDERS),
    Break(
        "relkit/linkcheck/metax.py",
        '    if unit == "b" and prefix.islower() and prefix != "k":\n        return None\n',
        "",
        _PROVIDERS,
    ),
    Break("relkit/linkcheck/nvbandwidth.py", "value * 1e3", "value", _PROVIDERS),
    Break(
        "relkit/linkcheck/nvbandwidth.py",
        "matrix[source, target] = ",
        "matrix[target, source] = ",
        _PROVIDERS,
    ),
    Break(
        "relkit/linkcheck/nvbandwidth.py",
        'if case.get("status") != "Passed":',
        "if False:",
        _PROVIDERS,
    ),
    Break(
        "relkit/linkcheck/nvidia.py",
        'if answer.get("is_intact") is not True:',
        'if answer.get("is_intact") is None:',
        _PROVIDERS,
    ),
    Break(
        "relkit/linkcheck/lane_findings.py",
        "if c.gpu in in_use and not c.after",
        "if not c.after",
        _PROVIDERS,
    ),
    Break(
        "relkit/linkcheck/lane_findings.py",
        'if c.name != "active" and c.after > c.before',
        'if c.name != "active" and c.after',
        _PROVIDERS,
    ),
    Break(
        "relkit/linkcheck/nvlink_counters.py",
        "before.keys() & after.keys()",
        "before.keys()",
        _PROVIDERS,
    ),
    Break(
        "relkit/linkcheck/pairs.py",
        "set(pair.sockets) == set(known.sockets)",
        "pair.sockets == known.sockets",
        ("tests/commands/test_linkcheck.py::test_bad_options_are_usage_and_run_nothing",),
    ),
)
