"""Bundles: what is saved comes back, and what is no bundle is refused by name and line."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.errors import BadBundle
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.measure.baseline import load_baseline
from relkit.netcheck.measure.bundle import EDGES, FACTS, FILES, HEAD, load, save
from relkit.netcheck.model import (
    Edge,
    Failure,
    Link,
    NodeFacts,
    SizeStatistics,
    Thresholds,
)
from relkit.netcheck.record import plain_edge, read_edge
from relkit.netcheck.report.report import net_report
from relkit.netcheck.solve.judge import judge
from relkit.output import as_json, as_text
from relkit.text.printable import UNSAFE

RESULT = CheckResult(
    nodes=("a", "b", "ü"),
    facts=(NodeFacts("a", "A", "10.0.0.1", mtu=1500), NodeFacts("b", answered=False, detail="no"),
           NodeFacts("ü", clock_skew_s=-1.5, unauthenticated_connections=2)),
    edges=(Edge("a", "ü", 0, bandwidth_gbps=9.5, latency_p50_us=31.0, size_bytes=1 << 20,
                by_size=(SizeStatistics(1 << 10, 3.5, 32.0, 64.0), SizeStatistics(1 << 20, 9.5))),
           Edge("ü", "a", 0, bandwidth_gbps=7.5),
           Edge("ü", "a", 1, failure=Failure.NO_ANSWER, detail="timed out", accused="a")),
    lost={"a": "killed"},
    groups={"a": "asw-1"},
    duplicate_hosts=(("a", "ü"),),
    mode="full",
    probe="gloo",
    rounds=2,
    notes=("a note",),
)  # fmt: skip


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    written = save(tmp_path / "new" / "bundle", RESULT)
    assert [path.name for path in written] == list(FILES)
    assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}
    assert stat.S_IMODE(written[0].parent.stat().st_mode) == 0o700
    assert load(tmp_path / "new" / "bundle") == RESULT


@settings(deadline=None)
@given(
    st.builds(
        Edge, st.just("a"), st.just("b"), st.integers(0, 10**6), st.sampled_from(["tcp", "nccl"]),
        st.integers(0, 1 << 40), st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e9),
        st.floats(0, 1e9), st.sampled_from(Failure), st.text(max_size=200), st.text(max_size=20),
    )
)  # fmt: skip
def test_any_edge_survives_json(edge: Edge) -> None:
    back = read_edge(json.loads(json.dumps(plain_edge(edge))))
    assert back is not None
    assert (back.failure, back.detail, back.accused, back.round, back.size_bytes) == (
        edge.failure, edge.detail, edge.accused, edge.round, edge.size_bytes,
    )  # fmt: skip
    assert back.bandwidth_gbps == pytest.approx(edge.bandwidth_gbps, rel=1e-4)
    assert back.latency_p99_us == pytest.approx(edge.latency_p99_us, rel=1e-4)


def test_figures_by_size_that_are_none_are_dropped() -> None:
    rows = [
        {"size_bytes": 10, "bandwidth_gbps": -1.0},
        {"size_bytes": -5},
        7,
        {},
        {"size_bytes": "9"},
    ]
    edge = read_edge({"source": "a", "target": "b", "by_size": rows})
    assert edge is not None
    assert edge.by_size == (SizeStatistics(10),)
    for strange in ("x", {"size_bytes": 1}, 3):
        edge = read_edge({"source": "a", "target": "b", "by_size": strange})
        assert edge is not None
        assert edge.by_size == ()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("", Failure.NONE),
        (Failure.NO_ANSWER.value, Failure.NO_ANSWER),
        ("NO_ANSWER", Failure.NO_ANSWER),
        ("of a later version", Failure.PROBE_ERROR),
        (7, Failure.PROBE_ERROR),
    ],
)
def test_a_failure_that_nobody_knows_is_no_success(written: object, read: Failure) -> None:
    edge = read_edge({"source": "a", "target": "b", "bandwidth_gbps": 9, "failure": written})
    assert edge is not None
    assert edge.failure is read


@settings(deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(
                        st.sampled_from(["source", "target", "round", "failure", "detail",
                                         "bandwidth_gbps", "size_bytes", "by_size"]),
                        inner)))  # fmt: skip
def test_no_json_at_all_breaks_the_reader(value: object) -> None:
    edge = read_edge(value)
    assert edge is None or (edge.source != edge.target and edge.bandwidth_gbps >= 0)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        (HEAD, None, "cannot read"),
        (FACTS, None, "cannot read"),
        (HEAD, "{", "not JSON"),
        (HEAD, "[]", "not a netcheck bundle"),
        (HEAD, '{"format": "relkit.netcheck.bundle/99"}', "bundle/99"),
        (FACTS, '{"name": "a"}\n', "do not name the same nodes"),
        (FACTS, "{}\n", "nodes.jsonl:1 does not describe a node"),
        (EDGES, '{"source": "a", "target": "ü", "round": 0}\n{"sour', "edges.jsonl:2 is not JSON"),
        (EDGES, '{"source": "a", "target": "z", "round": 0}\n', "edges.jsonl:1 is not an edge"),
        (EDGES, '{"source": "a", "target": "a"}\n', "edges.jsonl:1 is not an edge"),
        (EDGES, "[" * 100_000 + "\n", "edges.jsonl:1 is not JSON"),
    ],
)
def test_what_is_no_bundle_is_refused(
    tmp_path: Path, name: str, text: str | None, words: str
) -> None:
    save(tmp_path, RESULT)
    if text is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(BadBundle, match=words):
        load(tmp_path)


def test_hostile_text_is_kept_and_never_written_raw(tmp_path: Path) -> None:
    hostile = "\x1b[2J\x9b\u202e\ud800"
    facts = (NodeFacts(hostile, detail=hostile), NodeFacts("b"))
    save(tmp_path, CheckResult((hostile, "b"), facts, (), notes=(hostile,)))
    assert not any(UNSAFE.search((tmp_path / name).read_text().replace("\n", "")) for name in FILES)
    result = load(tmp_path)
    assert (result.facts, result.notes) == (facts, (hostile,))
    text = as_text(net_report(result, judge(result, Thresholds()), Thresholds()))
    assert not UNSAFE.search(text.replace("\n", ""))
    text.encode()


@pytest.mark.parametrize("number", ["-1", "1e17", "NaN", "Infinity", "1e400", "[1]"])
def test_numbers_that_make_no_sense_are_refused_or_ignored(tmp_path: Path, number: str) -> None:
    save(tmp_path, RESULT)
    line = '{"source": "a", "target": "b", "round": %s, "bandwidth_gbps": %s, "latency_p50_us": %s}'
    (tmp_path / EDGES).write_text(line % ("0", number, number))
    result = load(tmp_path)
    verdict = judge(result, Thresholds())
    json.loads(as_json(net_report(result, verdict, Thresholds())), parse_constant=pytest.fail)
    (tmp_path / EDGES).write_text(line % (number, "1", "1"))
    if number in ("-1", "1e17"):
        with pytest.raises(BadBundle, match="is not an edge"):
            load(tmp_path)
    else:
        assert load(tmp_path).edges[0].round == 0


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    save(tmp_path, RESULT)
    (tmp_path / EDGES).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadBundle, match="not text"):
        load(tmp_path)


def test_a_baseline_is_the_slower_direction_of_each_good_link(tmp_path: Path) -> None:
    save(tmp_path, RESULT)
    assert load_baseline(tmp_path) == {Link("a", "ü"): 7.5}
    assert load_baseline(tmp_path / EDGES) == {Link("a", "ü"): 7.5}


def test_a_check_without_a_good_edge_is_no_baseline(tmp_path: Path) -> None:
    save(tmp_path, CheckResult(("a",), (NodeFacts("a"),), ()))
    with pytest.raises(BadBundle, match="no measured edge"):
        load_baseline(tmp_path)
