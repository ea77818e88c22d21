"""Nodes taken out and put back: never more than a tenth a day, never back without a test."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from relkit.history.database import read, write
from relkit.history.model import Event, What
from relkit.nodes.act import NodeActions
from relkit.nodes.model import NodeState, Refused, reason_text

NOW_S = 1_800_000_000.0
DAY_S = 86400.0


@dataclass
class FakeCluster:
    """A cluster in memory; its clock is that of the test."""

    name: str = "fake"
    now_s: float = NOW_S
    states: dict[str, NodeState] = field(default_factory=dict)

    def nodes(self) -> tuple[NodeState, ...]:
        return tuple(self.states.values())

    def take_out(self, node: str, reason: str) -> None:
        self.states[node] = NodeState(node, True, reason, self.now_s)

    def put_back(self, node: str) -> None:
        self.states[node] = NodeState(node, False)

    @property
    def out(self) -> set[str]:
        return {state.name for state in self.states.values() if state.is_out}


def cluster(count: int) -> FakeCluster:
    return FakeCluster(states={f"n{at}": NodeState(f"n{at}", False) for at in range(count)})


def acting(
    of: FakeCluster, folder: Path, *, later_s: float = 0.0, real: bool = True
) -> NodeActions:
    of.now_s = NOW_S + later_s
    return NodeActions(of, folder / "history", is_real=real, now_s=of.now_s)


def passed(folder: Path, node: str, *, later_s: float, status: str = "ok") -> None:
    event = Event(
        NOW_S + later_s, What.RETEST, nodes=(node,), finding="RK-NET-027", status=status
    )  # fmt: skip
    write(folder / "history", [event], NOW_S + later_s)


def test_without_yes_nothing_is_done_and_nothing_noted(tmp_path: Path) -> None:
    of = cluster(20)
    said = acting(of, tmp_path, real=False).drain(["n1"], "RK-NET-002", "slow")
    assert said.id == "RK-NODE-001"
    assert "dry run" in said.title
    assert not of.out
    assert not (tmp_path / "history").exists()


def test_a_drain_has_the_finding_as_its_reason_and_stands_in_the_history(tmp_path: Path) -> None:
    of = cluster(20)
    acting(of, tmp_path).drain(["n1"], "RK-NET-002", "n1 is slow;\n'rm -rf'")
    assert of.states["n1"].reason == "relkit RK-NET-002: n1 is slow; rm -rf"
    assert of.states["n1"].finding == "RK-NET-002"
    (event,) = read(tmp_path / "history", 0.0)
    assert (event.what, event.nodes, event.finding) == (What.DRAIN, ("n1",), "RK-NET-002")


def test_at_most_a_tenth_of_the_fleet_in_a_day_whoever_has_drained_it(tmp_path: Path) -> None:
    of = cluster(20)
    with pytest.raises(Refused, match="3 nodes in a day, of 20; relkit takes out 2"):
        acting(of, tmp_path).drain(["n1", "n2", "n3"], "RK-NET-002", "")
    assert not of.out
    acting(of, tmp_path).drain(["n1"], "RK-NET-002", "")
    of.states["n9"] = NodeState("n9", True, "relkit RK-LNK-001: from its own host", NOW_S)
    with pytest.raises(Refused, match="3 nodes in a day"):
        acting(of, tmp_path, later_s=3600).drain(["n2"], "RK-NET-002", "")
    acting(of, tmp_path, later_s=DAY_S + 1).drain(["n2"], "RK-NET-002", "")
    assert of.out == {"n1", "n2", "n9"}


def test_a_node_that_was_put_back_still_counts_and_an_undone_drain_does_not(
    tmp_path: Path,
) -> None:
    of = cluster(10)
    acting(of, tmp_path).drain(["n1"], "RK-NET-002", "")
    passed(tmp_path, "n1", later_s=60)
    acting(of, tmp_path, later_s=120).undrain(["n1"])
    with pytest.raises(Refused, match="2 nodes in a day"):
        acting(of, tmp_path, later_s=180).drain(["n2"], "RK-NET-002", "")
    other = tmp_path / "other"
    acting(of, other).drain(["n3"], "RK-NET-002", "")
    acting(of, other, later_s=60).undo()
    acting(of, other, later_s=120).drain(["n4"], "RK-NET-002", "")
    assert of.out == {"n4"}


@pytest.mark.parametrize(
    ("tests", "is_back"),
    [
        ([], False),
        ([(-60.0, "ok")], False),
        ([(60.0, "fail")], False),
        ([(60.0, "unknown")], False),
        ([(60.0, "ok"), (90.0, "fail")], False),
        ([(60.0, "fail"), (90.0, "ok")], True),
    ],
)
def test_a_node_comes_back_only_if_its_newest_test_since_was_good(
    tmp_path: Path, tests: list[tuple[float, str]], is_back: bool
) -> None:
    of = cluster(20)
    acting(of, tmp_path).drain(["n1"], "RK-NET-002", "")
    for later_s, status in tests:
        passed(tmp_path, "n1", later_s=later_s, status=status)
    if is_back:
        acting(of, tmp_path, later_s=120).undrain(["n1"])
    else:
        with pytest.raises(Refused, match="has passed no test of that since") as refused:
            acting(of, tmp_path, later_s=120).undrain(["n1"])
        assert "relkit nodes retest n1" in str(refused.value.next_step)
    assert of.out == (set() if is_back else {"n1"})


def test_another_check_than_the_one_that_failed_is_no_test(tmp_path: Path) -> None:
    of = cluster(20)
    acting(of, tmp_path).drain(["n1"], "RK-LNK-002", "")
    passed(tmp_path, "n1", later_s=60)
    with pytest.raises(Refused, match="RK-LNK-002") as refused:
        acting(of, tmp_path, later_s=120).undrain(["n1"])
    assert "check-node" in str(refused.value.next_step)


def test_what_others_have_drained_is_theirs(tmp_path: Path) -> None:
    of = cluster(20)
    of.states["n1"] = NodeState("n1", True, "bad fan", NOW_S)
    passed(tmp_path, "n1", later_s=60)
    with pytest.raises(Refused, match="not taken out by relkit: bad fan"):
        acting(of, tmp_path, later_s=120).undrain(["n1"])
    with pytest.raises(Refused, match="n1 is out already: bad fan"):
        acting(of, tmp_path).drain(["n1"], "RK-NET-002", "")
    with pytest.raises(Refused, match="no node of this cluster: n77"):
        acting(of, tmp_path).drain(["n77"], "RK-NET-002", "")
    with pytest.raises(Refused, match="n2 is not out"):
        acting(of, tmp_path).undrain(["n2"])


def test_undo_takes_back_the_last_drain_once_and_only_where_it_still_holds(tmp_path: Path) -> None:
    of = cluster(40)
    acting(of, tmp_path).drain(["n1", "n2"], "RK-NET-002", "")
    acting(of, tmp_path, later_s=1).drain(["n3"], "RK-NET-001", "")
    acting(of, tmp_path, later_s=2).undo()
    assert of.out == {"n1", "n2"}
    of.states["n1"] = replace(of.states["n1"], reason="bad fan")
    acting(of, tmp_path, later_s=3).undo()
    assert of.out == {"n1"}
    with pytest.raises(Refused, match="no node is out"):
        acting(of, tmp_path, later_s=4).undo()


def test_a_reason_is_one_short_line() -> None:
    text = reason_text("RK-NET-002", "a\nb\x00" + "x" * 500)
    assert text.startswith("relkit RK-NET-002: a b x")
    assert (len(text), text.isprintable()) == (160, True)
