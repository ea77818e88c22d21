"""Flash checkpoint as a service of a job: what workers save in memory outlives them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from relkit.launch.flash_checkpoint.persist_plan import SavedStep
from relkit.launch.flash_checkpoint.slot_host import SlotHost
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.phases import Phase
from relkit.launch.job.service import Job, Service


class FlashService(Service):
    """Keeps the slots of this node's ranks over restarts; persists them when the job breaks off.

    Args:
        slots: of this node.
        saved: the step that something else has saved since; None for none.
    """

    def __init__(self, slots: SlotHost, saved: Callable[[], SavedStep | None]) -> None:
        self._slots, self._saved = slots, saved
        self._job: Job | None = None

    def job_begins(self, job: Job) -> None:
        """See Service."""
        self._job = job

    def before_workers(self, attempt: Attempt) -> None:
        """See Service."""
        assert self._job is not None
        with self._job.phases.phase(Phase.SAVE):
            self._slots.wait_collected()
        if (step := self._slots.newest()) >= 0:
            self._job.phases.saved(step, "memory")

    def environment(self, attempt: Attempt) -> Mapping[str, str]:
        """See Service."""
        return self._slots.begin(attempt)

    def breaks_off(self, trigger: str) -> None:
        """See Service."""
        assert self._job is not None
        persist = partial(self._slots.persist, trigger, self._saved())
        self._job.looks.take("flash checkpoint", persist, None)

    def close(self) -> None:
        """See Service."""
        self._slots.close()
