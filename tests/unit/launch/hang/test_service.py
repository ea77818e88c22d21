"""What the watch for hangs asks of the agent."""

from __future__ import annotations

import pytest

from relkit.launch.hang.service import HUNG_SHUTDOWN_S, HangService
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.service import End, Restart, Service, Stop
from tests.unit.launch.elastic.bare import job_of, stub

ATTEMPT = Attempt("job")


class Kept(Service):
    """Notes what breaks the job off."""

    def __init__(self) -> None:
        self.triggers: list[str] = []

    def breaks_off(self, trigger: str) -> None:
        self.triggers.append(trigger)


class Scene:
    """The service of a monitor that says what a test wants."""

    def __init__(self, restarts_left: int = 1) -> None:
        self.action: OnHang | None = None
        self.failures: list[str] = []
        self.monitor = stub(
            hung=False, action=lambda: self.action, pause=lambda: None, close=lambda: None,
            failed=self.failures.append, hang_timeout_s=60.0, log=print,
        )  # fmt: skip
        self.said: list[str] = []
        self.expected = ""
        self.kept = Kept()
        self.service = HangService(
            self.monitor, stub(path=None), lambda: self.expected, self.said.append
        )
        job_of(self.service, self.kept, restarts_left=restarts_left)


def test_a_hang_breaks_the_job_off_once_in_each_attempt() -> None:
    scene = Scene()
    scene.service.poll(ATTEMPT)
    scene.monitor.hung = True
    for _ in range(2):
        assert scene.service.poll(ATTEMPT) is None
    assert scene.kept.triggers == ["the job hangs"]
    scene.service.environment(ATTEMPT)
    scene.service.poll(ATTEMPT)
    assert scene.kept.triggers == ["the job hangs"] * 2


@pytest.mark.parametrize(
    ("action", "restarts", "wanted"),
    [
        (None, 1, None),
        (OnHang.SAVE, 1, None),
        (OnHang.RESTART, 1, Restart("restarting the workers")),
        (OnHang.RESTART, 0, "(--on-hang restart; no restart is left)"),
        (OnHang.ABORT, 1, "(--on-hang abort)"),
    ],
)
def test_what_is_to_be_done_about_it(
    action: OnHang | None, restarts: int, wanted: Restart | str | None
) -> None:
    scene = Scene(restarts)
    scene.action = action
    done = scene.service.poll(ATTEMPT)
    if isinstance(wanted, str):
        assert isinstance(done, End)
        assert str(done.why) == f"the job hung and was ended {wanted}"
    else:
        assert done == wanted


def test_a_failure_that_was_to_be_expected_is_not_captured() -> None:
    scene = Scene()
    scene.service.worker_failed(ATTEMPT, "rank 0 exited with code 1")
    assert scene.failures == ["rank 0 exited with code 1"]
    scene.expected = "node 3 leaves"
    scene.service.worker_failed(ATTEMPT, "rank 0 exited with code 1")
    assert len(scene.failures) == 1
    assert scene.said == ["rank 0 exited with code 1; that was expected: node 3 leaves"]


def test_workers_that_hang_get_little_time_to_end_in_each_step_of_their_stop() -> None:
    scene = Scene()
    assert scene.service.before_stop(ATTEMPT, Stop.RESTART) is None
    scene.monitor.hung = True
    assert scene.service.before_stop(ATTEMPT, Stop.RESTART) == HUNG_SHUTDOWN_S
    scene.monitor.hung = False  # it is not watched any more
    assert scene.service.before_stop(ATTEMPT, Stop.END) == HUNG_SHUTDOWN_S
    scene.service.environment(ATTEMPT)
    assert scene.service.before_stop(ATTEMPT, Stop.END) is None
