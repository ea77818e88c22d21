"""Which findings say something of a node, and reports as events."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.findings import Evidence, Finding, Report, Status
from relkit.history.findings_of_nodes import events_of, nodes_in, speaks_of_nodes
from relkit.history.model import What


def died(code: int) -> Finding:
    exit_code = Evidence("exit code", code, how="launcher")
    return Finding("RK-HANG-002", Status.FAIL, "x", nodes="n1", evidence=(exit_code,))


@pytest.mark.parametrize(
    ("finding", "speaks"),
    [
        (Finding("RK-HANG-008", Status.FAIL, "x"), True),
        (Finding("RK-HANG-008", Status.WARN, "it is over"), False),
        (Finding("RK-STRAG-004", Status.WARN, "x"), True),
        (Finding("RK-NET-001", Status.FAIL, "x"), True),
        # A link has two ends, and a program runs wherever it is started.
        (Finding("RK-NET-004", Status.FAIL, "x"), False),
        (Finding("RK-HANG-005", Status.FAIL, "another collective"), False),
        (Finding("RK-DEATH-005", Status.FAIL, "an exception"), False),
        (died(-9), True),
        (died(1), False),
    ],
)
def test_what_a_program_does_wrong_is_no_word_about_its_node(
    finding: Finding, speaks: bool
) -> None:
    assert speaks_of_nodes(finding.to_json()) is speaks


def test_a_report_becomes_events() -> None:
    found = (
        Finding("RK-HANG-008", Status.FAIL, "rank 3 waits", ranks="3", nodes="n[1-2]"),
        Finding("RK-HANG-025", Status.OK, "links are good"),
    )
    report = Report("hang", found, started=100.0, duration_s=5.0)
    (event,) = events_of(report.to_json(), job="j", run="r", host="h", of_nodes=4)
    assert (event.what, event.at_unix_s, event.nodes) == (What.VERDICT, 105.0, ("n1", "n2"))
    assert (event.job, event.run, event.host, event.of_nodes) == ("j", "r", "h", 4)
    assert event.speaks_of_nodes


def test_a_network_check_is_an_event_of_its_own_and_a_save_has_its_step() -> None:
    bad = Finding("RK-NET-001", Status.FAIL, "n2 is dead", nodes="n2")
    check, verdict = events_of(Report("netcheck", (bad,), {"nodes": [{}, {}]}).to_json())
    assert (check.what, check.text, check.status) == (
        What.NETCHECK, "2 nodes, 1 finding of a fault", "fail",
    )  # fmt: skip
    assert (verdict.nodes, verdict.of_nodes) == (("n2",), 2)
    saved = Finding("RK-FLASH-001", Status.WARN, "step 7 is kept")
    (save,) = events_of(Report("flash", (saved,), {"step": 7}).to_json())
    assert (save.what, save.step) == (What.SAVE, 7)


JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["schema", "findings", "meta", "started", "duration_s", "id", "status", "nodes",
             "evidence", "name", "value", "step", "title", "ranks"]
        ),
        inner,
        max_size=6,
    ),
    max_leaves=12,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["schema", "findings", "meta", "step", "nodes"]), JSON))
def test_whatever_a_report_holds_it_gives_events(report: dict[str, Any]) -> None:
    for event in events_of(report):
        assert event.at_unix_s >= 0
        assert isinstance(event.text, str)


@given(st.text())
def test_whatever_a_list_of_nodes_holds_it_is_bounded(folded: str) -> None:
    assert len(nodes_in(folded)) <= 1024


def test_a_list_that_means_millions_is_none() -> None:
    assert nodes_in("n[1-99999999]") == ()
    assert nodes_in("@group") in ((), ("@group",))
    assert nodes_in("n[1-3],m7") == ("m7", "n1", "n2", "n3")


def test_numbers_in_a_host_name_are_no_span() -> None:
    names = tuple(f"ip-10-250-{number}-8" for number in range(10, 20))
    assert set(nodes_in(",".join(names))) == set(names)


def test_a_huge_span_is_not_made_whatever_stands_beside_it() -> None:
    begin_s = time.process_time()
    assert nodes_in("x99999999-1,b[0-20000000]") == ()
    assert nodes_in("x[99999999-1],b[[0-20000000]") == ()
    assert time.process_time() - begin_s < 1.0


def test_a_report_of_somebody_elses_making_never_raises() -> None:
    hostile: dict[str, Any] = {"id": [], "status": {}, "title": 1, "nodes": [], "evidence": 3}
    meta = {"started": 10**400, "duration_s": 1e308}
    (event,) = events_of({"schema": "relkit.hang/1", "findings": [hostile], "meta": meta})
    assert not event.speaks_of_nodes
    assert event.at_unix_s > 0.0
