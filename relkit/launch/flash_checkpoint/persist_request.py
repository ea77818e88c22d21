"""What a node asks for when something happens to the job: a note that node 0 looks for."""

from __future__ import annotations

import json
from dataclasses import dataclass

from relkit.launch.flash_checkpoint.persist_plan import SavedStep
from relkit.text.foreign_json import parse_json

_MAX_TRIGGER_CHARS = 500


@dataclass(frozen=True, slots=True)
class PersistRequest:
    """Have the slots of the job persisted.

    Args:
        number: of this node's request in an attempt of the job, 1, 2, ...; 0: none yet.
        trigger: what happened to the job.
        by_ttp: what try-to-persist has saved since.
    """

    number: int
    trigger: str
    by_ttp: SavedStep | None = None

    def next(self, trigger: str, by_ttp: SavedStep | None) -> PersistRequest:
        """The request that follows this one."""
        return PersistRequest(self.number + 1, trigger[:_MAX_TRIGGER_CHARS], by_ttp)

    def to_note(self) -> bytes:
        """As it is left in the mailbox."""
        ttp = None if self.by_ttp is None else [self.by_ttp.step, self.by_ttp.where]
        note = {"number": self.number, "trigger": self.trigger, "ttp": ttp}
        return json.dumps(note).encode()

    @classmethod
    def from_note(cls, note: bytes) -> PersistRequest:
        """The inverse.

        Raises:
            ValueError, KeyError, TypeError: it is not a request.
        """
        plain = parse_json(note)
        saved = plain["ttp"]
        by_ttp = None if saved is None else SavedStep(int(saved[0]), str(saved[1]))
        return cls(int(plain["number"]), str(plain["trigger"])[:_MAX_TRIGGER_CHARS], by_ttp)
