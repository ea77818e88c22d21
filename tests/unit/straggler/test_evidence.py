"""What is kept of the steps of a rank that may be slow."""

from __future__ import annotations

import numpy as np
import pytest

from relkit.straggler.model import PARTS
from relkit.straggler.score.evidence import RankEvidence
from relkit.straggler.score.features import FEATURES, WHOLE, WITHOUT_WAIT
from relkit.straggler.score.slowdown import Slowdowns


def lasting_s(whole_s: float, without_wait_s: float) -> float:
    """What counts as lasting of a rank's slowdown in one step that usually takes 0.1 s."""
    slowdown_s = np.zeros((1, len(FEATURES), 1))
    slowdown_s[0, WHOLE], slowdown_s[0, WITHOUT_WAIT] = whole_s, without_wait_s
    parts, ones = np.zeros((1, len(PARTS), 1)), np.ones((1, 1))
    slowdowns = Slowdowns(
        reference_s=parts, usual_s=0.1 * ones, slowdown_s=slowdown_s, share=slowdown_s / 0.1,
        sigma=slowdown_s[:, None], paused=ones < 0, recent=ones, usual_wait=0 * ones,
    )  # fmt: skip
    evidence = RankEvidence(1)
    summands = evidence.summands(parts, np.full((1, 1), np.nan), slowdowns)
    evidence.add(summands[0], np.array([True]), np.array([True]))
    return float(evidence.lasting_s[0])


def test_one_long_run_queue_wait_does_not_count_as_lasting() -> None:
    # A quarter of the usual time counts, of what is beyond the work itself.
    assert lasting_s(0.02, 0.0) == pytest.approx(0.02)
    assert lasting_s(5.0, 0.0) == pytest.approx(0.025)
    assert lasting_s(5.0, 1.0) == pytest.approx(1.025)
