"""Runs of a job as records, with times that a reader can add up."""

from __future__ import annotations

from relkit.accounting.records import VERSION, Record, What


class Story:
    """Records by a clock that a test moves."""

    def __init__(self, job_id: str = "story") -> None:
        self.now_s = 100.0
        self.records: list[Record] = []
        self.add(What.LAUNCHER, name="host", text=job_id, number=VERSION)

    def add(self, what: What, after_s: float = 0.0, **members: object) -> Story:
        """Something happens, so long after what was before."""
        self.now_s += after_s
        self.records.append(
            Record(what, self.now_s, 1e9 + self.now_s, **members)  # type: ignore[arg-type]
        )
        return self

    def attempt(self, first: int, last: int, step_s: float = 1.0, number: int = 0) -> Story:
        """Workers start in 2 s, load in 0.5 s, and begin the steps from first to last."""
        self.add(What.ATTEMPT, number=number, nodes=1, world_size=2)
        self.add(What.OPERATION, 1.0)
        self.add(What.LOAD, 1.0, seconds=0.5, number=first - 1, text="memory")
        self.add(What.FIRST_STEP, 0.5, number=first)
        if last > first:
            self.add(What.STEP_DONE, step_s)
            self.add(What.LAST_STEP, step_s * (last - first - 1), number=last)
        return self

    def fault(self, cause: str = "killed by SIGKILL", detect_s: float = 0.25) -> Story:
        """A fault, and what comes before the next attempt: 3 s without detection."""
        self.add(What.FAULT, detect_s, name=cause, text=f"rank 1: {cause}", seconds=detect_s)
        for phase, seconds in (
            ("capture", 1.0),
            ("stop", 0.5),
            ("rendezvous", 1.0),
            ("save", 0.25),
        ):
            self.add(What.PHASE, seconds, name=phase, seconds=seconds)
        self.add(What.SAVED, 0.25, name="memory", number=7)
        return self
