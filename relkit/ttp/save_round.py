"""One try at an emergency save: what survivors have, the plan, and what is on the disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from relkit.ttp.plan import Refusal, SavePlan, Survivor, make_plan
from relkit.ttp.replicas import ReplicaMap

Files = dict[str, tuple[str, int]]


class SaveRound:
    """From one notice of a fault to the commit, or to the next notice.

    Args:
        epoch: number of the round; answers to another one do not count.

    Attributes:
        states: what each rank that has answered can give.
        plan: who saves what; None until it is made.
        committer: the rank that was asked to commit; -1 until then.
        steps_made: by all ranks together, when their time to pause was last set.
    """

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.states: dict[int, Survivor] = {}
        self.plan: SavePlan | None = None
        self.committer = -1
        self.steps_made = 0
        self._saved: dict[int, Files] = {}

    def missing(self, living: Collection[int]) -> list[int]:
        """Living ranks that have not said what they have."""
        return [rank for rank in living if rank not in self.states]

    def can_do_without(self, missing: Collection[int], maps: Sequence[ReplicaMap]) -> bool:
        """Whether those that have answered can save everything by themselves."""
        return isinstance(self._plan_without(missing, maps), SavePlan)

    def _plan_without(
        self, ranks: Collection[int], maps: Sequence[ReplicaMap]
    ) -> SavePlan | Refusal:
        return make_plan([s for rank, s in self.states.items() if rank not in ranks], maps)

    def make_plan(self, maps: Sequence[ReplicaMap], silent: Collection[int]) -> SavePlan | Refusal:
        """Plan with the states that have come; see plan.make_plan.

        Args:
            silent: ranks that have said nothing since: they have a part only where the others
                cannot save as new a step.
        """
        plan, others = self._plan_without((), maps), self._plan_without(silent, maps)
        if isinstance(others, SavePlan) and not _is_newer(plan, others):
            plan = others
        if isinstance(plan, SavePlan):
            self.plan, self._saved = plan, {}
        return plan

    def still_needs(self, rank: int) -> bool:
        """Whether the rank has a part in the plan that it has not done.

        Once it has, its file is on the disk, and the rank may go.
        """
        return self.plan is not None and rank in self.plan.ranks and rank not in self._saved

    def saved(self, rank: int, files: Mapping[str, tuple[str, int]]) -> None:
        """A rank has done its part."""
        self._saved[rank] = dict(files)

    @property
    def all_saved(self) -> bool:
        """Whether everything of the plan is on the disk."""
        return self.plan is not None and set(self.plan.ranks) <= self._saved.keys()

    @property
    def files(self) -> Files:
        """All files that were written."""
        return {name: facts for part in self._saved.values() for name, facts in part.items()}

    def choose_committer(self, living: Sequence[int], silent: Collection[int]) -> int | None:
        """A living rank to commit, a writer if one lives; None where nobody does.

        Args:
            silent: of the living; one of these only where there is no other.
        """
        assert self.plan is not None
        living = [rank for rank in living if rank not in silent] or living
        writers = [group.writer for group in self.plan.groups if group.writer in living]
        able = writers or list(living)
        if not able:
            return None
        self.committer = able[0]
        return self.committer


def _is_newer(plan: SavePlan | Refusal, other: SavePlan) -> bool:
    return isinstance(plan, SavePlan) and plan.step > other.step
