"""Breaks of how stragglers are shown: the figures, the report, the summary, the advice."""

from __future__ import annotations

from tools.mutants.model import Break

_REPORT = ("tests/unit/straggler/test_report.py",)
_METRICS = "relkit/straggler/present/metrics.py"

BREAKS = (
    Break(_METRICS, "raised.verdict.first_step + 1)", "history.first_step + 1)", _REPORT),
    Break(_METRICS, "    others[:, alone] = _median(own[:, alone].T)\n", "", _REPORT),
    Break(
        _METRICS,
        "means[_RUN_QUEUE_WAIT] - np.nan_to_num(means[_THROTTLED]), 0.0",
        "means[_RUN_QUEUE_WAIT], 0.0",
        _REPORT,
    ),
    Break(
        "relkit/straggler/present/report.py",
        "Status.WARN if ended or verdict.cause is Cause.NOISE else Status.FAIL",
        "Status.WARN if ended else Status.FAIL",
        _REPORT,
    ),
    Break(
        "relkit/straggler/present/summary.py",
        "    order.sort(key=lambda rank: rank not in said)\n",
        "",
        _REPORT,
    ),
    Break(
        "relkit/straggler/present/advice.py",
        '_HOST.get(part, _HOST[""])',
        '_HOST[""]',
        _REPORT,
    ),
    Break(
        "relkit/straggler/model.py",
        "return self.compute_s + self.input_s + self.unattributed_s",
        "return self.compute_s + self.unattributed_s",
        ("tests/unit/straggler/test_local_time.py",),
    ),
)
