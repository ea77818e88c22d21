"""A real job hangs: its page is there when it ends, and `relkit report` makes the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from relkit.cli import run
from tests.cluster.conftest import ENDLESS, EXAMPLE, Start
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.timeout(120 * PATIENCE)]


@pytest.mark.long
def test_the_folder_of_a_hang_gives_its_page(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    timeline = tmp_path / "timeline"
    done = start(
        "launch", "--nproc-per-node", "4", "--hang-timeout", "5", "--on-hang", "abort",
        "--timeline-path", timeline, "--inject", "hang:rank=2:step=5", EXAMPLE, *ENDLESS,
    ).wait(80)  # fmt: skip
    assert done.code == 1, done.err
    shown = timeline / "report.html"
    assert f"  {shown}\n" in done.err
    at_the_hang = shown.read_text(encoding="utf-8")
    assert run(["report", str(timeline)]) == 1
    capsys.readouterr()
    assert shown.read_text(encoding="utf-8") == at_the_hang
    assert run(["report", str(timeline), "--json", "-o", str(tmp_path / "page.html")]) == 1
    facts = json.loads(capsys.readouterr().out)
    assert facts["culprits"] == [2]
    (blamed,) = facts["blamed"]
    assert blamed["category"] == "blocked-on-host"
    assert blamed["place"].startswith("examples/train.py:")
    # The job has been ended: nothing can be asked of its processes.
    assert blamed["commands"] == [f"less {timeline}/py_stack"]
    did = [action["text"] for action in facts["actions"]]
    assert did[1] == "4 of 4 ranks captured, and judged"
    assert did[2] == "the job is ended (--on-hang abort)"
    assert did[-1] == "the run failed: the job hung and was ended (--on-hang abort)"
    assert all(f'<span class="what">{text}</span>' in at_the_hang for text in did[1:])
    nodes = facts["wait_graph"]["nodes"]
    assert [(node["ranks"], node["culprit"]) for node in nodes] == [("2", True), ("0-1,3", False)]
    assert facts["wait_graph"]["edges"] == [[1, 0]]
    group = facts["groups"][0]
    assert [row["ranks"] for row in group["members"]] == ["2", "0-1,3"]
    assert group["members"][0]["in_flight"] == ""
    assert group["members"][1]["in_flight"].startswith("all_reduce #")
    # Every rank's last seconds, from the recorders in the files of the stacks.
    assert [lane["rank"] for lane in facts["timeline"]] == [0, 1, 2, 3]
    assert all(len(lane["ops"]) > 4 for lane in facts["timeline"])
    for lane in facts["timeline"]:
        ended = [op["ended_s"] for op in lane["ops"]]
        assert (None in ended) is not lane["culprit"]
    assert facts["stack_classes"][0]["ranks"] == "2"
    assert facts["notes"] == []
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Rank 2 holds up the job" in page
    assert blamed["place"] in page
