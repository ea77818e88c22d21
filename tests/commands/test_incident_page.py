"""The page of an incident is drawn beside the job, and again when more was done about it."""

from __future__ import annotations

import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from relkit.accounting.records import What
from relkit.commands.launch_parts.page_notes import PageNotes
from relkit.commands.shared import incident_page
from relkit.commands.shared.incident_page import IncidentPage, NotDrawn, draw_beside
from relkit.hang_picture.actions import FILE, MAX_ACTIONS, Action, read_actions
from relkit.launch.warm_standby.memory import Room
from relkit.process import procfs
from relkit.process.bounded_child import ChildResult
from tests.unit.accounting.stories import Story
from tests.unit.hang_picture.hang_folders import blocked_job, write_hang
from tests.waiting import eventually

WAIT_S = 60.0
FIRST = Action(1.79e9, "no operation for 10 s")


class Artist:
    """Draws when it is allowed to, and keeps what was noted by then."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.drawn: queue.Queue[tuple[str, ...]] = queue.Queue()
        self.error: Exception | None = None

    def __call__(self, folder: Path) -> Sequence[Path]:
        assert self.goes_on.wait(WAIT_S)
        self.drawn.put(tuple(action.text for action in read_actions(folder)))
        if self.error is not None:
            raise self.error
        return [folder / "report.html"]


@pytest.fixture
def artist() -> Iterator[Artist]:
    artist = Artist()
    yield artist
    artist.goes_on.set()


@pytest.fixture
def page(tmp_path: Path, artist: Artist, lines: queue.Queue[str]) -> IncidentPage:
    return IncidentPage(tmp_path, lines.put, artist)


@pytest.fixture
def lines() -> queue.Queue[str]:
    return queue.Queue()


def test_no_call_waits_for_the_drawing(page: IncidentPage, artist: Artist) -> None:
    shown: queue.Queue[Sequence[Path]] = queue.Queue()
    page.begin([FIRST], shown.put)
    page.note("the workers are stopped", ends_ranks=True)
    page.note("4 ranks are started again")
    assert artist.drawn.empty()
    artist.goes_on.set()
    assert [path.name for path in shown.get(timeout=WAIT_S)] == ["report.html"]
    page.close()
    assert artist.drawn.get(timeout=WAIT_S)[0] == FIRST.text
    assert shown.empty()


def test_the_last_page_has_all_that_was_done(
    page: IncidentPage, artist: Artist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artist.goes_on.set()
    page.begin([FIRST], lambda _: None)
    page.note("the first step is done", is_last=True)
    assert page.is_over
    # Written beside the job, which was back before.
    page.note("step 30 is kept in /ck")
    monkeypatch.setattr(time, "monotonic", lambda: math.inf)
    page.note("too late")
    monkeypatch.undo()
    page.close()
    texts = [action.text for action in read_actions(tmp_path)]
    assert texts == ["no operation for 10 s", "the first step is done", "step 30 is kept in /ck"]
    drawn: tuple[str, ...] = ()
    while not artist.drawn.empty():
        drawn = artist.drawn.get()
    assert drawn == tuple(texts)


def test_without_an_incident_nothing_is_drawn(
    page: IncidentPage, tmp_path: Path, artist: Artist
) -> None:
    page.note("2 ranks are started")
    page.close()
    assert artist.drawn.empty()
    assert list(tmp_path.iterdir()) == []


def test_what_is_noted_has_a_bound(page: IncidentPage, artist: Artist, tmp_path: Path) -> None:
    artist.goes_on.set()
    page.begin([FIRST], lambda _: None)
    for number in range(3 * MAX_ACTIONS):
        page.note(f"{number}")
    page.close()
    # Readers leave out what is more.
    assert len((tmp_path / FILE).read_text().splitlines()) == MAX_ACTIONS


def test_a_page_that_cannot_be_drawn_is_one_line(
    page: IncidentPage, artist: Artist, lines: queue.Queue[str]
) -> None:
    artist.error = NotDrawn("no room")
    artist.goes_on.set()
    shown: queue.Queue[Sequence[Path]] = queue.Queue()
    page.begin([FIRST], shown.put)
    page.note("more")
    page.close()
    assert lines.get(timeout=WAIT_S) == "the page of this incident was not drawn: no room"
    assert lines.empty()
    assert list(shown.get(timeout=WAIT_S)) == []


def test_a_launcher_that_ends_does_not_wait_for_ever(
    page: IncidentPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incident_page, "CLOSE_S", 0.3)
    page.begin([FIRST], lambda _: None)
    page.close()


def test_a_launcher_that_ends_before_the_page_says_where_the_evidence_is(
    page: IncidentPage, lines: queue.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incident_page, "CLOSE_S", 0.1)
    shown: queue.Queue[Sequence[Path]] = queue.Queue()
    page.begin([FIRST], shown.put)
    page.close()
    assert list(shown.get_nowait()) == []
    assert "not drawn" in lines.get_nowait()


def test_a_launcher_that_ends_draws_no_page_again(page: IncidentPage, artist: Artist) -> None:
    """It was begun as the launcher ended, and went on after it."""
    artist.goes_on.set()
    shown: queue.Queue[Sequence[Path]] = queue.Queue()
    page.begin([FIRST], shown.put)
    shown.get(timeout=WAIT_S)
    thread = page._thread
    assert thread is not None
    page.close()
    page.note("too late")
    page.begin([FIRST], shown.put)
    thread.join(WAIT_S)
    assert not thread.is_alive()
    assert artist.drawn.qsize() == 1


def test_a_host_without_threads_is_one_line(
    page: IncidentPage, lines: queue.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watch for hangs ended of it before it had acted, and the launcher waited at its end."""

    def full(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    shown: queue.Queue[Sequence[Path]] = queue.Queue()
    page.begin([FIRST], shown.put)
    page.note("the workers are stopped")
    assert lines.get_nowait().endswith("not drawn: can't start new thread")
    assert lines.empty()
    assert list(shown.get_nowait()) == []
    monkeypatch.setattr(incident_page, "CLOSE_S", math.inf)
    page.close()


def test_what_shows_a_page_may_fail(page: IncidentPage, artist: Artist, tmp_path: Path) -> None:
    artist.goes_on.set()

    def show(_files: object) -> None:
        raise OSError("no terminal")

    page.begin([FIRST], show)
    artist.drawn.get(timeout=WAIT_S)
    page.note("more")
    page.close()
    assert [action.text for action in read_actions(tmp_path)][-1] == "more"


# The parent of a child that draws for ever.
LAUNCHER = """
import os, sys
from pathlib import Path
from relkit.commands.shared import incident_page
from tests.commands import endless_page
incident_page.page_process = endless_page
incident_page.draw_beside(Path(sys.argv[1]), dict(os.environ))
"""


def test_a_child_ends_with_its_launcher(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, tmp_path], cwd=root)
    try:
        note = tmp_path / "pid"
        eventually(lambda: note.exists() and note.read_text(), "no child", WAIT_S)
        pid = int(note.read_text())
        assert procfs.start_ticks(pid)
    finally:
        launcher.kill()
        launcher.wait()
    eventually(lambda: not procfs.is_same_process(pid, 0), "the child goes on", WAIT_S)


def test_a_child_may_take_half_of_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a child takes more than there is, the kernel may end the job with it."""
    asked: list[Sequence[str]] = []

    def run(argv: Sequence[str], _timeout_s: float, **_named: object) -> ChildResult:
        asked.append(argv)
        return ChildResult(0, b"", "")

    monkeypatch.setattr(incident_page, "run_child", run)
    for available in (1200 << 20, 64 << 30):
        monkeypatch.setattr(incident_page, "room_now", lambda: Room(1 << 40, available))  # noqa: B023
        draw_beside(tmp_path, {})
    assert [int(argv[-1]) for argv in asked] == [600 << 20, 2 << 30]


@pytest.mark.parametrize("name", ["t", "t\udcff", "t\u00e9"])
def test_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    write_hang(tmp_path / name, blocked_job(2), started=1.79e9)
    variables = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert all(path.is_file() for path in draw_beside(tmp_path / name, variables))


def test_a_child_under_a_tighter_limit_draws(tmp_path: Path) -> None:
    write_hang(tmp_path / "t", blocked_job(2), started=1.79e9)
    tight = f"ulimit -d {1 << 20} && exec {sys.executable} -c '{DRAWS}' {tmp_path / 't'}"
    done = subprocess.run(["sh", "-c", tight], capture_output=True, text=True, check=False)
    assert done.stdout == "drawn\n", done.stderr


DRAWS = """
import os, sys
from pathlib import Path
from relkit.commands.shared.incident_page import draw_beside
print("drawn" if draw_beside(Path(sys.argv[1]), dict(os.environ)) else "")
"""


def test_a_child_draws_what_is_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_hang(tmp_path / "t", blocked_job(4), started=1.79e9)
    # A module of the user's that is called like one of ours is none of ours.
    (tmp_path / "click.py").write_text("raise SystemExit('of the user')")
    (tmp_path / "relkit.py").write_text("raise SystemExit('of the user')")
    monkeypatch.chdir(tmp_path)
    written = draw_beside(tmp_path / "t", dict(os.environ))
    assert written[0] == tmp_path / "t" / "report.html"
    assert all(path.is_file() for path in written)
    assert "Rank 2 holds up the job" in written[0].read_text(encoding="utf-8")


def test_a_child_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(NotDrawn, match=r"report\.json"):
        draw_beside(tmp_path, dict(os.environ))


def test_little_memory_is_left_to_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(incident_page, "room_now", lambda: Room(8 << 30, 300 << 20))
    with pytest.raises(NotDrawn, match="300 MB of memory are available"):
        draw_beside(tmp_path, {})


def noted(story: Story) -> list[str]:
    texts: list[str] = []

    class Kept(IncidentPage):
        def __init__(self) -> None:
            self._ends_s = math.inf

        def note(self, text: str, *, ends_ranks: bool = False, is_last: bool = False) -> None:
            texts.append(text + " (gone)" * ends_ranks + " (last)" * is_last)
            self._ends_s = 0.0 if is_last else math.inf

    notes = PageNotes(Kept())
    for record in story.records:
        notes.take(record)
    return texts


def test_a_restart_in_the_words_of_the_page() -> None:
    story = Story().attempt(0, 10).fault("hang").attempt(8, 20, number=1)
    assert noted(story) == [
        "stopping the workers: rank 1: hang",
        "the workers are stopped (0.5 s) (gone)",
        "step 7 stays in memory for the workers that come",
        "2 ranks are started again (gone)",
        "step 8 begins, 5.5 s after the workers had to be stopped",
        "the first step is done, 6.5 s after the workers had to be stopped (last)",
    ]


def test_a_loop_that_tells_no_steps_is_back_with_its_first_operation() -> None:
    story = Story().add(What.ATTEMPT, world_size=1).add(What.OPERATION, 1.0)
    story.fault().add(What.ATTEMPT, number=1, world_size=1, nodes=1).add(What.OPERATION, 2.0)
    assert noted(story)[-1] == (
        "the ranks work together again, 5.0 s after the workers had to be stopped (last)"
    )


def test_how_the_run_ended() -> None:
    story = Story().attempt(0, 3).fault("hang").add(What.ENDED, name="failed", text="the job hung")
    assert noted(story)[-1] == "the run failed: the job hung"


def test_what_becomes_of_a_job_that_is_back_is_not_on_the_page() -> None:
    story = Story().attempt(0, 3).fault("hang").attempt(2, 5, number=1)
    told = noted(story)
    later = story.fault("killed by SIGKILL").attempt(4, 9, number=2)
    assert noted(later.add(What.ENDED, name="succeeded")) == told
