"""Breaks of what every command uses: exit codes."""

from __future__ import annotations

from tools.mutants.model import Break

BREAKS = (
    Break(
        "relkit/errors.py",
        "EXIT_CONVICTED = 5",
        "EXIT_CONVICTED = 6",
        ("tests/unit/test_exit_codes.py",),
    ),
)
