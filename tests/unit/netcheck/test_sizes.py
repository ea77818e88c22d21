"""Message sizes: what --sizes takes, and what the report makes of them."""

from __future__ import annotations

import pytest

from relkit.commands.shared.netcheck_run import message_sizes
from relkit.errors import UsageProblem
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.measure.options import CheckOptions, for_probe
from relkit.netcheck.model import Edge, SizeStatistics
from relkit.netcheck.report.size_findings import short_size, size_facts, size_findings


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("64K,1M,8M", (1 << 16, 1 << 20, 8 << 20)),
        (" 8m , 64k,8MiB,65536B ", (1 << 16, 8 << 20)),
        ("1", (1,)),
        ("256M", (256 << 20,)),
    ],
)
def test_sizes_are_sorted_and_each_counts_once(text: str, sizes: tuple[int, ...]) -> None:
    assert message_sizes(text, "tcp") == sizes


def test_each_probe_has_its_default() -> None:
    assert message_sizes(None, "tcp") == ()
    assert for_probe(CheckOptions(sizes_bytes=()), "tcp").sizes_bytes == (1 << 20,)
    assert for_probe(CheckOptions(sizes_bytes=()), "nccl").sizes_bytes == (16 << 20,)
    assert for_probe(CheckOptions(sizes_bytes=()), "ib").sizes_bytes == (16 << 20,)
    assert message_sizes("4M", "ib") == (4 << 20,)


@pytest.mark.parametrize("text", ["", "1G", "0", "-4K", "1.5M", "1M,,2M", "257M", "K", "9" * 30])
def test_what_is_no_size_is_usage(text: str) -> None:
    with pytest.raises(UsageProblem, match="--sizes"):
        message_sizes(text, "tcp")


def test_too_many_sizes() -> None:
    with pytest.raises(UsageProblem, match="9 sizes"):
        message_sizes(",".join(map(str, range(1, 10))), "tcp")
    with pytest.raises(UsageProblem, match="one message size"):
        message_sizes("1K,2K", "ib")


def test_the_medians_of_each_size() -> None:
    edges = tuple(
        Edge("a", "b", at, bandwidth_gbps=speed,
             by_size=(SizeStatistics(1 << 16, speed / 2, 20.0, 30.0),
                      SizeStatistics(1 << 20, speed)))
        for at, speed in enumerate((8.0, 9.0, 2.0))
    )  # fmt: skip
    result = CheckResult(("a", "b"), (), edges)
    (finding,) = size_findings(result)
    assert "64K 4 Gbit/s 20 us, 1M 8 Gbit/s;" in finding.title
    facts = size_facts(result)
    assert facts["sizes"][0] == {
        "size_bytes": 1 << 16, "median_gbps": 4.0, "latency_p50_us": 20.0, "latency_p99_us": 30.0,
    }  # fmt: skip
    assert facts["sizes"][1]["latency_p50_us"] is None
    assert [row["round"] for row in facts["edges_by_size"]] == [0, 1, 2]
    assert facts["edges_by_size"][2]["by_size"][1] == {
        "size_bytes": 1 << 20, "bandwidth_gbps": 2.0,
    }  # fmt: skip


def test_one_size_adds_nothing() -> None:
    result = CheckResult(("a", "b"), (), (Edge("a", "b", 0, bandwidth_gbps=1.0),))
    assert size_findings(result) == []
    assert size_facts(result) == {}


def test_sizes_in_their_largest_unit() -> None:
    assert [short_size(n) for n in (1, 1000, 1024, 1536, 3 << 20)] == [
        "1", "1000", "1K", "1536", "3M",
    ]  # fmt: skip
