"""From the journal of a launcher to what its page of an incident says that was done."""

from __future__ import annotations

from dataclasses import dataclass

from relkit.accounting.records import Record, What
from relkit.accounting.words import standbys_words
from relkit.commands.shared.incident_page import IncidentPage


@dataclass(slots=True)
class PageNotes:
    """Notes what becomes of the workers, record by record.

    Args:
        page: of the newest incident.
        fault_s: when they had to be stopped, monotonic clock; 0: they had not.
        has_steps: the loop has told its steps.
    """

    page: IncidentPage
    fault_s: float = 0.0
    has_steps: bool = False

    def take(self, record: Record) -> None:
        """Note a record of the journal, if it says what was done."""
        if record.what is What.FAULT:
            self.fault_s = record.at_s
        elif record.what is What.FIRST_STEP:
            self.has_steps = True
        # What becomes of a job that is back is no matter of that incident.
        if not self.page.is_over:
            self._note(record)

    def _note(self, record: Record) -> None:
        note = self.page.note
        match record.what:
            case What.FAULT:
                note(f"stopping the workers: {record.text or record.name}")
            case What.PHASE if record.name == "stop":
                note(f"the workers are stopped ({record.seconds:.1f} s)", ends_ranks=True)
            case What.SAVED if record.name == "memory":
                note(f"step {record.number} stays in memory for the workers that come")
            case What.ATTEMPT if self.fault_s:
                note(f"{_started(record)} started again", ends_ranks=True)
            case What.STEP_DONE | What.OPERATION if self.fault_s:
                self._back(record)
            case What.FIRST_STEP if self.fault_s:
                note(f"step {record.number} begins, {self._after(record)}")
            case What.ENDED:
                note(f"the run {record.name}{f': {record.text}' if record.text else ''}")
            case _:
                pass

    def _back(self, record: Record) -> None:
        is_step = record.what is What.STEP_DONE
        if is_step or not self.has_steps:
            what = "the first step is done" if is_step else "the ranks work together again"
            self.page.note(f"{what}, {self._after(record)}", is_last=True)
            self.fault_s = 0.0

    def _after(self, record: Record) -> str:
        return f"{record.at_s - self.fault_s:.1f} s after the workers had to be stopped"


def _started(record: Record) -> str:
    ranks = f"{record.world_size:,} rank{'' if record.world_size == 1 else 's'}"
    nodes = f" on {record.nodes:,} nodes" if record.nodes > 1 else ""
    standbys = f", {standbys_words(record.standbys)} here," if record.standbys else ""
    are = "is" if record.world_size == 1 else "are"
    return f"{ranks}{nodes}{standbys} {are}"
