"""Which nodes a network check convicts of a slow device, and what it says of them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from relkit.findings import Finding, Report, Status
from relkit.launch.netcheck.slow_devices import (
    ROUNDS,
    judge_devices,
    with_devices,
    without_rates,
)
from relkit.netcheck.device_score import DeviceScore


def scores(
    shares: Mapping[str, float], kind: str = "cpu", *, model: str = "m", noise: float = 0.02,
    seed: int = 0,
) -> list[DeviceScore]:  # fmt: skip
    """One device a node, which computes at this share of what is usual."""
    rng = np.random.default_rng(seed)
    return [
        DeviceScore(node, kind, tuple(100 * share * (1 + noise * rng.standard_normal(ROUNDS))),
                    model=model)
        for node, share in shares.items()
    ]  # fmt: skip


def test_the_node_with_a_slow_device_is_named_with_its_share() -> None:
    verdict = judge_devices(scores({"a": 1.0, "b": 1.0, "c": 0.4}, noise=0.0))
    assert verdict.reasons == {
        "c": "slow device: cpu computes at 40% of the other cpu devices (40 instead of 100 GFLOP/s)"
    }
    assert verdict.warnings == ()


def test_accelerators_may_lack_less_than_cpus() -> None:
    shares = {"a": 1.0, "b": 1.0, "c": 0.72}
    assert not judge_devices(scores(shares)).slow
    assert list(judge_devices(scores(shares, "cuda:3")).slow) == ["c"]
    assert not judge_devices(scores({**shares, "c": 0.85}, "cuda:3")).slow


def test_of_a_node_with_two_slow_devices_the_slower_one_is_named() -> None:
    one = scores({"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.7}, "cuda:0", noise=0.0)
    two = scores({"a": 1.0, "b": 1.0, "c": 1.0, "d": 0.5}, "cuda:1", noise=0.0)
    (device,) = judge_devices([*one, *two]).slow.values()
    assert (device.node, device.device) == ("d", "cuda:1")


def test_other_models_are_not_compared() -> None:
    new, old = scores({"a": 1.0, "b": 1.0, "c": 1.0}), scores({"d": 0.4}, model="old")
    assert not judge_devices([*new, *old]).slow
    # Nor are they of those of which fewer than half can be slow.
    pair, others = scores({"a": 1.0, "b": 0.4}), scores(dict.fromkeys("cde", 0.5), model="old")
    assert not judge_devices([*pair, *others]).slow


def test_where_half_of_the_devices_lag_nobody_is_convicted() -> None:
    verdict = judge_devices(scores({"a": 1.0, "b": 0.4}))
    assert not verdict.slow
    assert [device.node for device in verdict.in_doubt] == ["b"]
    assert "cpu of b computes at 4" in verdict.warnings[0]
    # One fast node among others is no reason to convict all of them.
    assert not judge_devices(scores({"a": 2.0, "b": 1.0, "c": 1.0, "d": 1.0})).slow


def test_a_device_whose_rounds_differ_as_much_is_not_convicted() -> None:
    wild = DeviceScore("c", "cpu", (100.0, 30.0, 98.0, 28.0, 31.0), model="m")
    assert not judge_devices([*scores({"a": 1.0, "b": 1.0}), wild]).slow


def test_memory_is_not_looked_at() -> None:
    slow = DeviceScore("c", "cpu", (100.0,) * 5, (1.0,) * 5, "m")
    others = [DeviceScore(node, "cpu", (100.0,) * 5, (9.0,) * 5, "m") for node in "ab"]
    assert not judge_devices([slow, *others]).slow


@given(st.integers(0, 2**32), st.integers(2, 40), st.floats(0.0, 0.06), st.booleans())
def test_healthy_nodes_are_never_convicted(
    seed: int, nodes: int, noise: float, is_cpu: bool
) -> None:
    rng = np.random.default_rng(seed)
    shares = {f"n{number}": float(rng.uniform(0.95, 1.05)) for number in range(nodes)}
    kind = "cpu" if is_cpu else "cuda:0"
    verdict = judge_devices(scores(shares, kind, noise=noise, seed=seed))
    assert not verdict.slow
    assert not verdict.in_doubt


@given(st.integers(0, 2**32), st.integers(3, 40), st.floats(0.2, 0.5))
def test_a_slow_one_is_convicted_among_any_number(seed: int, nodes: int, share: float) -> None:
    shares = {f"n{number}": 1.0 for number in range(nodes)} | {"n1": share}
    assert list(judge_devices(scores(shares, seed=seed)).slow) == ["n1"]


def test_the_report_has_the_figures_and_the_slow_device_first() -> None:
    plain = Report("netcheck", (Finding("RK-NET-001", Status.OK, "fine"),))
    measured = scores({"a": 1.0, "b": 1.0, "c": 0.4})
    report = with_devices(plain, measured, judge_devices(measured))
    assert [finding.id for finding in report.findings] == ["RK-NET-022", "RK-NET-001"]
    assert report.status is Status.FAIL
    assert [row["node"] for row in report.facts["devices"]] == ["a", "b", "c"]
    two = scores({"a": 1.0, "b": 0.4})
    assert with_devices(plain, two, judge_devices(two)).findings[0].id == "RK-NET-023"
    assert with_devices(plain, (), judge_devices(())) is plain


def test_nodes_that_were_not_timed_are_said_once_for_each_reason() -> None:
    assert without_rates({"n1": "no torch", "n2": "no torch"}) == [
        "devices of n[1-2] were not all timed: no torch"
    ]
