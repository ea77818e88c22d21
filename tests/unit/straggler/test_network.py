"""Edges are measured up to a number: the first ones, for good."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from relkit.straggler.edge_traffic import EdgeTraffic
from relkit.straggler.model import Verdict
from relkit.straggler.score import online_scorer


def test_the_first_edges_are_measured_and_later_ones_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken: list[list[str]] = []

    class Scorer:
        def update(
            self, step: int, traffic: Sequence[EdgeTraffic], elapsed_s: float
        ) -> tuple[Verdict, ...]:
            assert (step, elapsed_s) == (7, 0.5)
            taken.append([each.target for each in traffic])
            return ()

    monkeypatch.setattr(online_scorer, "_MAX_EDGES", 2)
    monkeypatch.setattr(online_scorer, "EdgeScorer", Scorer)
    own = online_scorer.Network()
    for targets in ("ab", "bc", "c", "ca"):
        own.take_traffic(7, [EdgeTraffic("n", target, 1, 0.1) for target in targets], 0.5)
    assert taken == [["a", "b"], ["b"], ["a"]]
