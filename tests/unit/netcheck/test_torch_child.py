"""The figures of a pair of torch processes, from times that are plain."""

from __future__ import annotations

from typing import Any

import pytest

from relkit.netcheck.measure.probes import torch_child


class Rank:
    """A pair with 1 ms of latency, whose bytes take a nanosecond each."""

    def pings(self) -> list[float]:
        return [1000.0, 1000.0, 1000.0]

    def all_reduce(self, size: int, share_s: float) -> float:
        assert share_s == 0.5
        return size * 2e-9

    def one_way(self, source: int, size: int, share_s: float) -> float:
        return size * (1e-9 if source == 1 else 4e-9)

    def both_ways(self, size: int, share_s: float) -> float:
        return size * 2e-9


@pytest.mark.parametrize("both_ways", [False, True])
def test_figures_are_in_the_units_of_their_names(*, both_ways: bool) -> None:
    order: dict[str, Any] = {"sizes": [1000, 10**6], "duration_s": 1.0, "both_ways": both_ways}
    measured = torch_child._measure_all(Rank(), order)  # type: ignore[arg-type]
    small, large = measured["all_reduce"]
    assert (small["size_bytes"], small["time_us"]) == (1000, 2.0)
    assert (large["size_bytes"], large["time_us"]) == (10**6, 2000.0)
    assert (large["out_gbps"], large["in_gbps"]) == (8.0, 2.0)
    assert (large["algbw_gbytes_s"], large["busbw_gbytes_s"]) == (0.5, 0.5)
    assert measured["both_ways_gbps"] == (4.0 if both_ways else 0.0)
    assert (measured["latency_p50_us"], measured["latency_p99_us"]) == (1000.0, 1000.0)
