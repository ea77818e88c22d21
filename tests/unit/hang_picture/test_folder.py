"""Folders that a hang left: whole, without report.json, foreign, damaged, hostile."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.errors import BadInputFile, RelkitError, UsageProblem
from relkit.hang.attribute import attribute
from relkit.hang.model import JobView, Manner, RankView, Suspicion
from relkit.hang.report import hang_report, kept_recorders
from relkit.hang.stored_report import BadReport, recorders_of, report_of, verdict_of
from relkit.hang_picture.folder import HangEvidence, read_hang
from relkit.hook.stored_state import state_text, stored_state
from relkit.ranks import RankSet
from relkit.reports.hangs import hang_page
from tests.unit.flight_recorder.flight_builders import document, steps
from tests.unit.hang.hang_builders import state, trained
from tests.unit.hang_picture.hang_folders import (
    CAPTURED_S,
    blocked_job,
    died_job,
    pipeline_job,
    write_hang,
)


def facts_of(evidence: HangEvidence) -> dict[str, Any]:
    plain = json.loads(json.dumps(evidence.picture.to_json()))
    assert isinstance(plain, dict)
    return plain


def test_the_folder_says_what_the_launcher_knew(tmp_path: Path) -> None:
    written = write_hang(tmp_path, pipeline_job(16), started=1.79e9)
    evidence = read_hang(tmp_path)
    assert evidence.report.findings == written.findings
    assert evidence.report.started == 1.79e9
    assert evidence.report.exit_code == 1
    facts = facts_of(evidence)
    assert [blamed["rank"] for blamed in facts["blamed"]] == [3]
    assert facts["blamed"][0]["place"] == "examples/train.py:88 Loader.next_batch"
    assert {wait["missing"] for wait in facts["waits"]} >= {"3", "4"}
    assert [each["rank"] for each in facts["transfers"]] == [4, 5, 6, 7]
    assert len(facts["timeline"]) == 16
    # The outlier stands before the many.
    assert facts["stack_classes"][0]["ranks"] == "3"
    assert facts["notes"] == []


def test_what_was_suspected_before_stays_in_the_facts(tmp_path: Path) -> None:
    suspicion = Suspicion(RankSet.of([3]), "rank 3 has not joined", Manner.FROZEN, 288.0)
    written = write_hang(tmp_path, replace(pipeline_job(16), suspicions=(suspicion,)))
    assert read_hang(tmp_path).report.facts["suspicions"] == written.facts["suspicions"] != []


def test_without_report_json_the_stacks_are_judged_again(tmp_path: Path) -> None:
    write_hang(tmp_path, blocked_job(4))
    whole = read_hang(tmp_path)
    (tmp_path / "report.json").unlink()
    again = read_hang(tmp_path)
    assert again.report.facts["culprits"] == [2]
    assert again.picture.wait_graph.edges == whole.picture.wait_graph.edges
    assert again.picture.groups == whole.picture.groups
    # When it was, the files say; what the job's command line was, they do not.
    assert (again.report.started, again.report.argv) == (CAPTURED_S, ())
    # Nothing in the files says what limit the job had.
    (wait,) = [e for e in again.report.findings[0].evidence if "in flight" in e.name]
    assert (wait.value, wait.threshold) == (11.0, None)


def test_a_folder_of_one_node_accuses_no_rank_only_because_its_file_is_elsewhere(
    tmp_path: Path,
) -> None:
    write_hang(tmp_path, blocked_job(4))
    (tmp_path / "report.json").unlink()
    (tmp_path / "00003-00004.stacktrace").unlink()
    evidence = read_hang(tmp_path)
    assert evidence.report.facts["absent"] == "3"
    assert evidence.report.facts["culprits"] == [2]
    (tmp_path / "00002-00004.stacktrace").unlink()
    evidence = read_hang(tmp_path)
    assert evidence.report.facts["culprits"] == []
    assert evidence.report.findings[0].id == "RK-HANG-010"
    assert "nothing is known of them: no file of it in the folder" in (
        evidence.report.findings[0].title
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "damaged"),
        (b'{"schema": "relkit.hang/1", "world', "damaged"),
        (b"\xff\xfe\x00", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b"[]", "not a JSON object"),
        (b'{"schema": "relkit.netcheck/1"}', "relkit.netcheck/1"),
        (b'{"schema": "relkit.hang/1", "world_size": 200000}', "number of ranks"),
        (b'{"schema": "relkit.hang/1", "world_size": true}', "number of ranks"),
    ],
)
def test_a_report_that_is_none_is_named(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "report.json").write_bytes(content)
    with pytest.raises(BadInputFile, match=words) as caught:
        read_hang(tmp_path)
    assert "--timeline-path" in caught.value.next_step
    # Where there are stacks, they are judged, and the page says why.
    write_hang(tmp_path / "whole", blocked_job(4))
    (tmp_path / "whole" / "report.json").write_bytes(content)
    evidence = read_hang(tmp_path / "whole")
    assert evidence.report.facts["culprits"] == [2]
    assert words in evidence.picture.notes[0]


def test_folders_of_nothing(tmp_path: Path) -> None:
    for folder, words in (
        (tmp_path / "missing", "does not exist"),
        (tmp_path, "holds neither"),
    ):
        with pytest.raises(UsageProblem, match=words) as caught:
            read_hang(folder)
        assert "--timeline-path" in caught.value.next_step
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageProblem, match="is no folder"):
        read_hang(tmp_path / "file")
    with pytest.raises(BadInputFile, match="cannot be read: File name too long"):
        read_hang(tmp_path / ("x" * 300))


def test_a_folder_of_too_many_files_is_refused_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("relkit.files.files_below.MAX_FILES", 2)
    for rank in range(3):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(document(steps(1))))
    with pytest.raises(UsageProblem, match="more than 2 files"):
        read_hang(tmp_path)


@pytest.mark.timeout(30)
def test_pipes_and_folders_in_the_place_of_files_are_not_waited_for(tmp_path: Path) -> None:
    write_hang(tmp_path, blocked_job(4))
    (tmp_path / "report.json").unlink()
    os.mkfifo(tmp_path / "report.json")
    (tmp_path / "00001-00004.stacktrace").unlink()
    os.mkfifo(tmp_path / "00001-00004.stacktrace")
    (tmp_path / "00007-00004.stacktrace").mkdir()
    evidence = read_hang(tmp_path)
    notes = " ".join(evidence.picture.notes)
    assert "named pipe" in notes
    assert "00001-00004.stacktrace" in notes
    assert "1" in evidence.report.facts["absent"].split(",")


def test_a_damaged_dump_and_a_hostile_recorder_cost_only_themselves(tmp_path: Path) -> None:
    hung = blocked_job(4)
    dump = hung.ranks[1].dump
    assert dump is not None
    bad = json.dumps({**json.loads(dump.hook_json), "now_ns": "<script>"})
    views = list(hung.ranks)
    views[1] = replace(views[1], dump=replace(dump, hook_json=bad))
    write_hang(tmp_path, replace(hung, ranks=tuple(views)))
    (tmp_path / "00003-00004.stacktrace").write_bytes(b"\xff\xff\xff")
    evidence = read_hang(tmp_path)
    assert evidence.report.facts["culprits"] == [2]
    assert [lane.rank for lane in evidence.picture.timeline] == [0, 2]
    assert any("rank 1: its recorder" in note for note in evidence.picture.notes)
    assert any("00003-00004.stacktrace" in note for note in evidence.picture.notes)


def test_a_job_too_large_to_draw_is_refused(tmp_path: Path) -> None:
    hung = blocked_job(4)
    dump = hung.ranks[0].dump
    assert dump is not None
    views = (replace(hung.ranks[0], dump=replace(dump, world_size=200_000)),)
    write_hang(tmp_path, replace(hung, ranks=views))
    (tmp_path / "report.json").unlink()
    with pytest.raises(BadInputFile, match="200,000 ranks"):
        read_hang(tmp_path)


def test_flight_recorder_dumps_give_the_same_facts(tmp_path: Path) -> None:
    for rank in range(4):
        plain = document(steps(5, "completed") if rank == 1 else steps(6))
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(plain))
    evidence = read_hang(tmp_path)
    facts = facts_of(evidence)
    assert evidence.report.facts["culprits"] == [1]
    assert facts["blamed"][0]["place"].startswith("gpt/train.py:")
    assert [node["ranks"] for node in facts["wait_graph"]["nodes"]] == ["1", "0,2-3"]
    assert [m["completed"] for m in facts["groups"][0]["members"]] == [5, 5]
    assert facts["stack_classes"][0]["ranks"] == "1"
    assert len(facts["timeline"]) == 4
    assert evidence.merged is None
    # The newest operation is #6, which is created 6 s after the builder's clock began.
    assert evidence.report.started == pytest.approx(6.0, abs=1e-3)
    assert evidence.report.argv == ()
    assert facts["blamed"][0]["commands"] == [f"relkit hang analyze {tmp_path}"]


def test_the_commands_to_type_fit_the_folder(tmp_path: Path) -> None:
    hung = blocked_job(4)
    done = replace(hung.ranks[2], alive=False, exit_code=0, dump=None, process_state="")
    write_hang(tmp_path, replace(hung, ranks=(*hung.ranks[:2], done, hung.ranks[3])))
    (blamed,) = read_hang(tmp_path).picture.blamed
    assert blamed.commands[0] == f"less {tmp_path}/report.json"
    (tmp_path / "report.json").unlink()
    (blamed,) = read_hang(tmp_path).picture.blamed
    assert blamed.category == "inconclusive"
    for rank in range(4):
        plain = document(steps(6, shape=(2, 2)) if rank == 1 else steps(6))
        (tmp_path / "flight").mkdir(exist_ok=True)
        (tmp_path / "flight" / f"trace_{rank}").write_bytes(pickle.dumps(plain))
    blamed = read_hang(tmp_path / "flight").picture.blamed[0]
    assert blamed.category == "mismatched-collective"
    assert blamed.commands[0] == f"relkit hang analyze {tmp_path / 'flight'}"


def test_a_hostile_pickle_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "dump_0").write_bytes(b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00echo\x85R.")
    with pytest.raises(BadInputFile, match=r"dump_0.*system"):
        read_hang(tmp_path)


def test_recorders_of_ranks_without_stacks_are_kept_in_the_report(tmp_path: Path) -> None:
    hung = died_job(4)
    assert kept_recorders(hung).keys() == {"2"}
    assert kept_recorders(replace(hung, has_stacks=False)) == {}
    write_hang(tmp_path, hung)
    evidence = read_hang(tmp_path)
    assert [lane.rank for lane in evidence.picture.timeline] == [0, 1, 2, 3]
    assert evidence.picture.blamed[0].category == "dead"
    nodes = {node.ranks: node for node in evidence.picture.wait_graph.nodes}
    assert nodes["2"].culprit
    assert evidence.picture.wait_graph.edges


def test_kept_recorders_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    write_hang(tmp_path, died_job(4))
    path = tmp_path / "report.json"
    plain = json.loads(path.read_text())
    plain["recorders"] = {"2": "{}", "x": plain["recorders"]["2"], "3": 5}
    path.write_text(json.dumps(plain))
    notes = read_hang(tmp_path).picture.notes
    assert [note.partition(" cannot")[0] for note in notes] == [
        f"report.json: the recorder of rank {name}" for name in ("2", "x", "3")
    ]


def test_a_fault_of_a_newer_relkit_is_not_explained_away(tmp_path: Path) -> None:
    write_hang(tmp_path, blocked_job(4))
    path = tmp_path / "report.json"
    path.write_text(path.read_text().replace("blocked-on-host", "eaten-by-a-whale"))
    evidence = read_hang(tmp_path)
    assert (
        "rank 2 has a fault that this relkit does not know: eaten-by-a-whale"
        in (evidence.picture.notes[0])
    )
    text = hang_page.render(evidence.report, evidence.picture, {}, draw_with_graphviz=False)
    assert "Rank 2 holds up the job" in text
    assert "Nobody is late" not in text
    assert ">score<" not in text


def test_long_texts_are_cut_where_one_sees_it_and_sets_of_ranks_are_not_cut() -> None:
    every_other = RankSet.of(range(0, 4096, 2)).fold()
    report = report_of(
        {
            "schema": "relkit.hang/1",
            "world_size": 4096,
            "absent": every_other,
            "victims": [{"ranks": every_other, "sentence": "wait" * 1000}],
        }
    )
    assert report.facts["absent"] == every_other
    (victims,) = report.facts["victims"]
    assert victims["ranks"] == every_other
    assert victims["sentence"].endswith("...")
    assert len(victims["sentence"]) == 2000


def test_kept_recorders_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relkit.hang.report.ALL_OPS", 600)
    hung = blocked_job(60)
    gone = tuple(replace(v, dump=None) for v in hung.ranks)
    texts = kept_recorders(replace(hung, ranks=gone))
    assert len(texts) == 60
    assert {len(stored_state(text).recent) for text in texts.values()} == {10}


def test_a_state_comes_back_as_it_was() -> None:
    hook = trained(1, 4)
    assert stored_state(state_text(hook, 1000)) == hook
    assert len(stored_state(state_text(hook, 3)).recent) == 3
    assert stored_state(state_text(hook, 0)).recent == ()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("now_ns", "1"), ("now_ns", 1 << 70), ("now_ns", None), ("recent", [{}]), ("recent", 5),
        ("in_flight", [[]]), ("communicators", [1]), ("notes", [5]), ("transfers", "x"),
        ("pid", True), ("extra", 1), ("missing", 3),
    ],
)  # fmt: skip
def test_a_state_of_wrong_types_is_refused(field: str, value: object) -> None:
    plain = {**state(0, 2).to_json(), field: value}
    with pytest.raises(ValueError, match=r"."):
        stored_state(json.dumps(plain))


@pytest.mark.parametrize("text", ["", "5", "[]", "{}", "[" * 100_000, '{"pid": NaN}'])
def test_text_that_is_no_state_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        stored_state(text)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYS = (
    "job_id", "trigger", "verdict", "hang_timeout_s", "culprits", "culprit_details", "victims",
    "ranks", "deaths", "suspicions", "absent", "findings", "meta", "recorders",
)  # fmt: skip
ROWS = st.lists(
    st.dictionaries(
        st.sampled_from(
            ["rank", "host", "pid", "alive", "category", "sentence", "reasons", "score", "note",
             "exit_code", "cpu_share", "id", "status", "title", "evidence", "value", "name"]
        ),
        json_values,
    ),
    max_size=3,
)  # fmt: skip


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), json_values | ROWS))
def test_any_document_is_a_report_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, parts: dict[str, Any]
) -> None:
    plain = {"schema": "relkit.hang/1", "world_size": 4, **parts}
    report = report_of(plain)
    verdict_of(report)
    recorders_of(plain)
    folder = tmp_path_factory.mktemp("hang")
    (folder / "report.json").write_text(json.dumps(plain), encoding="utf-8")
    evidence = read_hang(folder)
    assert json.dumps(evidence.picture.to_json())
    assert evidence.report.exit_code in (0, 1, 3)


@settings(max_examples=100, deadline=None)
@given(json_values)
def test_any_json_is_a_report_or_an_error(plain: Any) -> None:  # noqa: ANN401
    with pytest.raises(BadReport):
        report_of(plain)
    recorders_of({"recorders": plain})


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_an_error_with_a_next_step(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("bytes")
    (folder / "report.json").write_bytes(data)
    (folder / "00000-00002.stacktrace").write_bytes(data)
    error = problem_of(folder)
    assert error is None or error.next_step


def problem_of(folder: Path) -> RelkitError | None:
    """The error that reading the folder ends in; anything but ours is a failure."""
    try:
        read_hang(folder)
    except RelkitError as error:
        return error
    return None


def test_the_report_that_is_read_back_names_the_same_ranks() -> None:
    hung = pipeline_job(16)
    verdict = attribute(hung)
    report = hang_report(hung, verdict)
    plain = json.loads(json.dumps(report.to_json()))
    assert verdict_of(report_of(plain)) == verdict


def of_node(hung: JobView, ranks: range) -> JobView:
    """What one node sees of a job: its own ranks."""
    unseen = "it runs on another node, which this one cannot see"
    views = [
        each if each.rank in ranks
        else RankView(each.rank, "", 0, alive=False, absent_reason=unseen)
        for each in hung.ranks
    ]  # fmt: skip
    return replace(hung, ranks=tuple(views), sees_all=False)


@pytest.mark.parametrize("make", [blocked_job, died_job])
def test_nodes_that_each_judged_their_own_ranks(
    tmp_path: Path, make: Callable[[int], JobView]
) -> None:
    hung = make(4)
    first = write_hang(tmp_path / "node-0", of_node(hung, range(2)))
    write_hang(tmp_path / "node-1", of_node(hung, range(2, 4)))
    assert first.facts["culprits"] == []
    evidence = read_hang(tmp_path)
    assert (evidence.report.facts["culprits"], evidence.report.facts["absent"]) == ([2], "")
    assert evidence.report.facts["job_id"] == hung.job_id


def test_a_node_whose_report_is_of_another_job_or_damaged(tmp_path: Path) -> None:
    hung = blocked_job(4)
    write_hang(tmp_path / "node-0", of_node(hung, range(4)))
    older = replace(of_node(blocked_job(8, 5), range(8)), job_id="older")
    write_hang(tmp_path / "node-1", replace(older, ranks=tuple(
        replace(each, dump=None) for each in older.ranks)), started=5.0)  # fmt: skip
    (tmp_path / "node-2").mkdir()
    (tmp_path / "node-2" / "report.json").write_text("{", encoding="ascii")
    evidence = read_hang(tmp_path)
    assert (evidence.report.facts["world_size"], evidence.report.facts["culprits"]) == (4, [2])
    assert "node-1/report.json: of job older" in evidence.picture.notes
    assert any(note.startswith("node-2/report.json: ") for note in evidence.picture.notes)
