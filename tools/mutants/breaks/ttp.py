"""Breaks of try-to-persist: what is saved after a fault, by whom, and when nothing is."""

from __future__ import annotations

from tools.mutants.model import Break

_MATRIX = ("tests/ttp/test_trainer_faults.py::test_a_sample_of_the_matrix",)

BREAKS = (
    Break(
        "relkit/ttp/plan.py",
        "        if isinstance(found, SavePlan):\n            return found\n",
        "",
        _MATRIX,
    ),
    Break(
        "relkit/ttp/plan.py",
        "            or (self.step + 1 == step and self.ready)\n",
        "",
        _MATRIX,
    ),
    Break(
        "relkit/ttp/plan.py",
        "    newest = max(survivor.step for survivor in survivors)\n",
        "    newest = min(survivor.step for survivor in survivors)\n",
        _MATRIX,
    ),
)
