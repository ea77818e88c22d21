"""Breaks of what netcheck reports of nodes and sizes, and of how its results are read back."""

from __future__ import annotations

from tools.mutants.model import Break

_REPORT = ("tests/unit/netcheck/test_report.py",)
_BUNDLE = ("tests/unit/netcheck/test_bundle.py",)
_NODES = "relkit/netcheck/report/node_findings.py"
_RECORD = "relkit/netcheck/record.py"

BREAKS = (
    Break(
        _NODES,
        "if abs(item.clock_skew_s) > _SKEW_S",
        "if item.clock_skew_s > _SKEW_S",
        _REPORT,
    ),
    Break(_NODES, "score < _COMPUTE_WARN * usual", "score < _COMPUTE_FAIL * usual", _REPORT),
    Break(
        _NODES,
        "known = [item for item in facts if setting.of(item)]",
        "known = list(facts)",
        _REPORT,
    ),
    Break(
        "relkit/netcheck/report/size_findings.py",
        "if size_bytes % unit == 0:",
        "if size_bytes >= unit:",
        ("tests/unit/netcheck/test_sizes.py",),
    ),
    Break(
        "relkit/netcheck/report/statistics.py",
        "received[edge.target].append",
        "received[edge.source].append",
        _REPORT,
    ),
    Break(_RECORD, "    return Failure.PROBE_ERROR\n", "    return Failure.NONE\n", _BUNDLE),
    # The key of older bundles.
    Break(_RECORD, 'raw.get("strangers")', "0", _BUNDLE),
    Break(_RECORD, " or source == target:", ":", _BUNDLE),
)
