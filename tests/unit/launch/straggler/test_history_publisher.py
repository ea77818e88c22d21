"""The history that a job keeps goes where it belongs, also where shared memory is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.errors import UnwritablePath
from relkit.launch.straggler.history_publisher import HistoryPublisher
from relkit.straggler.transport.history import load
from relkit.straggler.transport.locate import KEPT_FILE, LIVE_FILE
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


def test_both_files_are_written(tmp_path: Path) -> None:
    publisher = HistoryPublisher(tmp_path, tmp_path / "timeline")
    publisher.publish(lambda: job(8, 40), 100.0, keep=True)
    assert load(tmp_path / LIVE_FILE).steps == load(tmp_path / "timeline" / KEPT_FILE).steps == 40


def test_a_timeline_that_cannot_be_written_is_not_tried_at_every_look(tmp_path: Path) -> None:
    (tmp_path / "timeline").write_text("in the way")
    publisher = HistoryPublisher(tmp_path, tmp_path / "timeline")
    with pytest.raises(UnwritablePath, match="timeline"):
        publisher.publish(lambda: job(8, 40), 100.0, keep=True)
    assert load(tmp_path / LIVE_FILE).steps == 40
    assert not publisher.is_due(109.0)
    assert publisher.is_due(100_000.0)


def test_what_is_to_be_kept_is_kept_although_shared_memory_is_full(tmp_path: Path) -> None:
    publisher = HistoryPublisher(tmp_path / "full", tmp_path / "timeline")
    with pytest.raises(UnwritablePath, match=str(LIVE_FILE)):
        publisher.publish(lambda: job(8, 40), 100.0, keep=True)
    assert load(tmp_path / "timeline" / KEPT_FILE).steps == 40
    # It is not tried again at every look.
    assert not publisher.is_due(109.0)
    assert publisher.is_due(100_000.0)
