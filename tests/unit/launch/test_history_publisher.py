"""The history that a job keeps in its timeline folder goes there and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.errors import UnwritablePath
from relkit.launch.straggler.history_publisher import HistoryPublisher
from tests.reports.straggler_jobs import job


def test_the_history_and_what_a_node_had_to_leave_for_are_kept(tmp_path: Path) -> None:
    publisher = HistoryPublisher(tmp_path / "job", tmp_path / "timeline")
    publisher.keep_exclusion(job(8, 100))
    names = {path.name for path in (tmp_path / "timeline/straggler/excluded").iterdir()}
    assert names == {"history.npz", "report.json"}


@pytest.mark.parametrize("planted", ["straggler", "straggler/excluded"])
def test_a_link_in_the_timeline_folder_is_not_followed(tmp_path: Path, planted: str) -> None:
    precious, timeline = tmp_path / "precious", tmp_path / "timeline"
    precious.mkdir()
    (timeline / planted).parent.mkdir(parents=True)
    (timeline / planted).symlink_to(precious)
    with pytest.raises(UnwritablePath, match="straggler"):
        HistoryPublisher(tmp_path / "job", timeline).keep_exclusion(job(8, 100))
    assert list(precious.iterdir()) == []
