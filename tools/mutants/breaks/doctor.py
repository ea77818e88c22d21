"""Breaks of `relkit doctor`: what is found about a host, and how it is judged."""

from __future__ import annotations

from tools.mutants.model import Break

_DOCTOR = ("tests/unit/test_doctor.py",)
_DIAGNOSE = "relkit/doctor/diagnose.py"

BREAKS = (
    Break(_DIAGNOSE, "if not torch.backends:", "if False:", _DOCTOR),
    Break(_DIAGNOSE, "scope in (None, 0)", "scope in (None, 0, 1)", _DOCTOR),
    Break(_DIAGNOSE, ' and not facts.core_pattern.startswith("|")', "", _DOCTOR),
    Break(
        _DIAGNOSE, "facts.recorder_bytes * facts.ranks_per_node", "facts.recorder_bytes", _DOCTOR
    ),
    Break(
        _DIAGNOSE,
        "Status.OK if platform.driver else Status.WARN,",
        "Status.OK,",
        _DOCTOR,
    ),
    Break("relkit/doctor/collect.py", "return place.is_dir() and os", "return os", _DOCTOR),
)
