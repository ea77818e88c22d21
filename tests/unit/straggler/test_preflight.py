"""Devices against the others of their kind and against a baseline: the slow one and no other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.errors import EXIT_UNKNOWN
from relkit.findings import Status
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.device_score import DeviceScore, read_score
from relkit.netcheck.model import NodeFacts, Thresholds
from relkit.straggler.preflight.devices import LowDevice, low_devices
from relkit.straggler.preflight.report import preflight_report

ROUNDS = 3


def fleet(
    count: int, seed: int = 0, noise: float = 0.01, slow: dict[str, float] | None = None
) -> list[DeviceScore]:
    """Eight devices a node, of which some reach only a share of the others."""
    rng = np.random.default_rng(seed)
    found = []
    for node in range(count):
        for device in range(8):
            name = f"n{node}/cuda:{device}"
            share = (slow or {}).get(name, 1.0)
            figures = 4e5 * share * (1.0 + noise * rng.standard_normal(ROUNDS))
            memory = 3e3 * (1.0 + noise * rng.standard_normal(ROUNDS))
            found.append(DeviceScore(f"n{node}", f"cuda:{device}", tuple(figures), tuple(memory)))
    return found


def slow_devices(
    scores: list[DeviceScore], slow_fraction: float, baseline: Sequence[DeviceScore] = ()
) -> list[LowDevice]:
    """Those that are slow for certain."""
    return [one for one in low_devices(scores, slow_fraction, baseline) if one.is_certain]


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.02])
def test_a_device_a_tenth_slower_is_named_and_no_other(noise: float) -> None:
    for seed in range(20):
        found = slow_devices(fleet(8, seed, noise, {"n3/cuda:5": 0.88}), 0.05)
        assert [(one.node, one.device, one.figure) for one in found] == [
            ("n3", "cuda:5", "compute_gflops")
        ]
        assert found[0].slowdown == pytest.approx(1 / 0.88 - 1, abs=0.06)


def test_devices_of_another_model_are_not_compared() -> None:
    new = [DeviceScore(node, "cuda:0", (100.0,) * ROUNDS, model="new") for node in "abc"]
    old = [DeviceScore(node, "cuda:0", (50.0,) * ROUNDS, model="old") for node in "de"]
    assert low_devices([*new, *old], 0.1) == ()


def test_healthy_fleets_name_nobody() -> None:
    for seed in range(50):
        assert low_devices(fleet(16, seed, 0.02), 0.05) == ()


def test_what_scatters_between_rounds_hardly_ever_accuses() -> None:
    rng = np.random.default_rng(1)
    accused = 0
    for _ in range(100):
        wild = [
            DeviceScore(f"n{node}", "cpu", tuple(100.0 * rng.uniform(0.5, 1.0, ROUNDS)))
            for node in range(6)
        ]
        accused += bool(slow_devices(wild, 0.1))
    assert accused <= 2  # three rounds of six nodes may fall that way by chance


def test_of_two_the_faster_one_shows_what_can_be_had() -> None:
    two = [DeviceScore("a", "cpu", (100.0,) * 3), DeviceScore("b", "cpu", (70.0,) * 3)]
    assert [one.node for one in slow_devices(two, 0.1)] == ["b"]


def test_a_whole_fleet_that_got_slower_shows_against_its_baseline_only() -> None:
    before = fleet(2, seed=1)
    now = [DeviceScore(s.node, s.device, tuple(0.8 * v for v in s.compute_gflops)) for s in before]
    assert low_devices(now, 0.1) == ()
    found = slow_devices(now, 0.1, before)
    assert len(found) == 16
    assert {one.against for one in found} == {"its baseline"}


def test_kinds_are_not_held_against_each_other() -> None:
    mixed = [DeviceScore("a", "cpu", (90.0,)), DeviceScore("b", "cpu", (92.0,)), *fleet(1)]
    assert low_devices(mixed, 0.1) == ()


@given(
    st.lists(
        st.builds(
            DeviceScore,
            st.sampled_from("abc"),
            st.sampled_from(["cpu", "cuda:0"]),
            st.lists(st.floats(1e-300, 1e18), max_size=4).map(tuple),
            st.lists(st.floats(1e-300, 1e18), max_size=4).map(tuple),
        ),
        max_size=12,
    )
)
def test_any_scores_give_a_sound_answer(scores: list[DeviceScore]) -> None:
    for one in low_devices(scores, 0.1, scores[::2]):
        assert one.value < one.usual
        assert one.slowdown > 0.0


def test_a_saved_score_comes_back_and_nonsense_does_not() -> None:
    assert read_score(
        {"node": "a", "device": "cpu", "compute_gflops": [1.0, "x", -3, float("nan")]}
    ) == DeviceScore("a", "cpu", (1.0,))
    assert read_score([1]) == DeviceScore("", "")


BUSY = [
    DeviceScore("a", "cpu", (100.0, 60.0, 98.0)),
    DeviceScore("b", "cpu", (50.0, 90.0, 55.0)),
]


def test_a_low_figure_that_noise_may_explain_is_neither_slow_nor_even() -> None:
    (low,) = low_devices(BUSY, 0.1)
    assert (low.node, low.value, low.is_certain) == ("b", 55.0, False)
    made = preflight_report(result(BUSY), Thresholds())
    by_id = {f.id: f for f in made.findings}
    assert "RK-STRAG-020" not in by_id
    assert by_id["RK-STRAG-023"].status is Status.UNKNOWN
    assert by_id["RK-STRAG-023"].title.startswith("could not tell whether cpu of b is slow")
    assert "--rounds 6" in by_id["RK-STRAG-023"].advice
    assert made.facts["slow_devices"] == []
    assert made.exit_code == EXIT_UNKNOWN


def test_noise_in_which_only_a_little_could_hide_is_not_mentioned() -> None:
    scores = [
        DeviceScore("a", "cpu", (100.0, 99.0, 101.0)),
        DeviceScore("b", "cpu", (93.0, 99.0, 94.0)),
    ]
    assert low_devices(scores, 0.05) == ()


def result(scores: list[DeviceScore], errors: dict[str, str] | None = None) -> CheckResult:
    names = tuple(sorted({score.node for score in scores} | set(errors or {})))
    return CheckResult(
        names, tuple(NodeFacts(name) for name in names), (),
        scores=tuple(scores), score_errors=errors or {},
    )  # fmt: skip


def test_the_report_names_device_figure_and_next_step() -> None:
    made = preflight_report(result(fleet(2, slow={"n1/cuda:2": 0.7})), Thresholds())
    slow = [f for f in made.findings if f.id == "RK-STRAG-021"]
    assert [f.status for f in slow] == [Status.FAIL]
    assert slow[0].title.startswith("cuda:2 of n1 is slow: its arithmetic is ")
    assert slow[0].nodes == "n1"
    assert made.to_json()["schema"] == "relkit.straggler-preflight/1"
    assert made.facts["slow_devices"][0]["device"] == "cuda:2"
    assert made.exit_code == 1


def test_missing_scores_and_nothing_to_compare_with_are_no_good_news() -> None:
    made = preflight_report(
        result([DeviceScore("a", "cpu", (5.0,))], {"b": "no numpy"}), Thresholds()
    )
    by_id = {f.id: f for f in made.findings}
    assert by_id["RK-STRAG-020"].status is Status.UNKNOWN
    assert by_id["RK-STRAG-022"].status is Status.UNKNOWN
    assert by_id["RK-STRAG-022"].nodes == "b"
