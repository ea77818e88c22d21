"""Judges a job by steps that somebody else measured: who is slow, since when, what it cost; pure.

The same tests as of a job under watch, with what a trace does not have left out: no step is left
out as warm-up, and nothing is known of CPU time.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from relkit.straggler import measured_steps as columns
from relkit.straggler.history_types import History, RaisedVerdict, steps_to_keep
from relkit.straggler.measured_steps import MeasuredSteps, RankSteps
from relkit.straggler.model import (
    COMPUTE,
    EXCUSED,
    GC,
    INPUT,
    LOCAL_PARTS,
    PARTS,
    UNATTRIBUTED,
    Cause,
    Floats,
    Ints,
    Verdict,
)
from relkit.straggler.score.doubts import doubt
from relkit.straggler.score.quickest_steps import STEPS, quickest_parts
from relkit.straggler.score.rank_scorer import RankScorer, Settings
from relkit.straggler.score.slowdown import WARM_UP
from relkit.straggler.score.verdict_log import VerdictLog
from relkit.straggler.score.what_if import WhatIf, what_if
from relkit.straggler.step_record import StepTable

# Of a table of a whole job the first steps are not judged; a trace begins where it was told to.
_WHOLE_JOB_STEPS = 64
# A trace without CPU time shows a busy host as slow operations: less is not said from it.
_LEAST_ON_A_BUSY_HOST = 0.1
_BATCH = 128
# Three years; and less than the tick of any clock.
_LONGEST_STEP_S, _SHORTEST_S = 1e8, 1e-12
# The fewest steps of which a verdict can come: no single one counts for more than a fifth of it.
_FEWEST = 5
# The job as a whole is held against its own past, and that takes some.
_FEWEST_OF_A_WHOLE = 2 * WARM_UP


@dataclass(frozen=True, slots=True, eq=False)
class JudgedJob:
    """What was concluded.

    Args:
        history: as of a job under watch, with the verdicts; local times are of all steps.
        ideal: what the job lost against an ideal one, by step of `numbers`.
        numbers: of all steps; step_s: what each took.
        suspects: verdicts that are no more than a suspicion, with what speaks against each.
        whole: the job became slower, without a rank that is slower than the others; its part.
    """

    history: History
    ideal: WhatIf
    numbers: Ints
    step_s: Floats
    suspects: tuple[tuple[RaisedVerdict, str], ...]
    whole: tuple[RaisedVerdict, Cause] | None


@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """All ranks side by side.

    Args:
        numbers: of the steps; values: (MEASURED_PARTS, steps, ranks), s.
    """

    numbers: Ints
    values: Floats

    @property
    def local_s(self) -> Floats:
        """(steps, ranks), s."""
        own: Floats = self.values[: columns.REST + 1].sum(axis=0)
        return own

    @property
    def step_s(self) -> Floats:
        """What each step took, s: the longest of its ranks where these differ."""
        wall = self.values[columns.WALL]
        known = np.isfinite(wall)
        longest: Floats = np.where(known, wall, -np.inf).max(axis=1, initial=-np.inf)
        return np.where(np.isfinite(longest), longest, np.nan)


def fewest_steps(measured: MeasuredSteps) -> int:
    """With fewer of them nothing can be told."""
    return _FEWEST + (STEPS - 1 if measured.busy_host_shows else 0)


def judge(measured: MeasuredSteps) -> JudgedJob:
    """Say who is slow in a job that was measured."""
    steps = _side_by_side(measured.ranks, [each.parts for each in measured.ranks])
    tested = steps
    if measured.busy_host_shows:
        tested = _side_by_side(measured.ranks, [quickest_parts(each) for each in measured.ranks])
    keys: list[Hashable] = [each.role or ("alone", each.rank) for each in measured.ranks]
    settings = _settings(measured, len(steps.numbers))
    scorer = RankScorer(keys, settings)
    log = VerdictLog()
    end = len(steps.numbers) - (STEPS - 1 if measured.busy_host_shows else 0)
    judged = slice(_warm_up(measured, steps), max(0, end))
    for number, verdicts in _scored(scorer, tested.numbers[judged], tested.values[:, judged]):
        log.hold(verdicts, number)
    # Who waited for a core has cost the job something that no rank is to blame for.
    ideal = what_if(tested.local_s, keys)
    holding, suspects = [], []
    for raised in log.holding:
        place = raised.verdict.rank
        told = _as_told(raised, measured, steps, ideal)
        why_not = _why_not(measured, steps, place)
        if not why_not and measured.busy_host_shows:
            mine = measured.ranks[place]
            peers = [each for each in measured.ranks if each.role == mine.role and each is not mine]
            why_not = doubt(mine, peers, told.verdict, settings.min_slowdown)
        if why_not:
            suspects.append((told, why_not))
        else:
            holding.append(told)
    past = [_as_told(raised, measured, steps, ideal) for raised in log.dropped]
    past = [each for each in past if not _why_not(measured, steps, _place(measured, each))]
    whole = (
        None if holding or suspects or measured.busy_host_shows else _as_a_whole(steps, settings)
    )
    history = _history(measured, steps, keys, scorer, settings)
    return JudgedJob(
        replace(history, verdicts=tuple(holding), past=tuple(past)),
        ideal, steps.numbers, steps.step_s, tuple(suspects), whole,
    )  # fmt: skip


def _side_by_side(ranks: Sequence[RankSteps], parts: Sequence[Floats]) -> _Steps:
    numbers = np.unique(np.concatenate([each.numbers for each in ranks]))
    values = np.full((columns.MEASURED_PARTS, len(numbers), len(ranks)), np.nan)
    for place, (each, mine) in enumerate(zip(ranks, parts, strict=True)):
        values[:, np.searchsorted(numbers, each.numbers), place] = mine
    # What no step takes is a damaged figure, whichever file it is from.
    odd = (values > _LONGEST_STEP_S).any(axis=0)
    values[:, odd] = np.nan
    values[values < _SHORTEST_S] = 0.0
    # A step of one rank alone is compared with nothing.
    several = np.isfinite(values[columns.REST]).sum(axis=1) >= min(2, len(ranks))
    return _Steps(numbers[several], values[:, several])


def _settings(measured: MeasuredSteps, steps: int) -> Settings:
    usual = Settings(horizon_steps=max(1, steps))
    if not measured.busy_host_shows:
        return usual
    return replace(usual, min_slowdown=_LEAST_ON_A_BUSY_HOST, shifts=(0.1, 0.2, 0.4))


def _warm_up(measured: MeasuredSteps, steps: _Steps) -> int:
    """How many steps are not judged."""
    is_table = not (measured.busy_host_shows or measured.how == "kernels")
    return WARM_UP if is_table and len(steps.numbers) >= _WHOLE_JOB_STEPS else 0


def _scored(
    scorer: RankScorer, numbers: Ints, values: Floats
) -> Iterator[tuple[int, tuple[Verdict, ...]]]:
    for first in range(0, len(numbers), _BATCH):
        some = slice(first, first + _BATCH)
        tables = [
            StepTable(int(number), parts, np.full(parts.shape[1], np.nan))
            for number, parts in zip(
                numbers[some], _model_parts(values[:, some]).swapaxes(0, 1), strict=True
            )
        ]
        verdicts = scorer.update(tables)
        yield from zip((table.step for table in tables), verdicts, strict=True)


def _model_parts(values: Floats) -> Floats:
    """(PARTS, steps, ranks) of (MEASURED_PARTS, steps, ranks)."""
    parts = np.full((len(PARTS), *values.shape[1:]), np.nan)
    parts[COMPUTE], parts[INPUT] = values[columns.COMPUTE], values[columns.INPUT]
    parts[UNATTRIBUTED], parts[GC] = values[columns.REST], values[columns.COLLECTION]
    parts[EXCUSED] = np.where(np.isfinite(parts[:LOCAL_PARTS].sum(axis=0)), 0.0, np.nan)
    return parts


def _why_not(measured: MeasuredSteps, steps: _Steps, place: int) -> str:
    """Why a rank is not accused whatever its steps say; "" where nothing forbids it."""
    rank = measured.ranks[place].rank
    if rank in measured.not_judged:
        return measured.not_judged[rank]
    known = np.isfinite(steps.local_s)
    usual = np.median(known.sum(axis=0))
    lacking = int(usual - known[:, place].sum())
    if lacking > 0.05 * usual:
        return f"{lacking} of the steps that the others have are not in what was read of it"
    return ""


def _place(measured: MeasuredSteps, raised: RaisedVerdict) -> int:
    return next(
        place for place, each in enumerate(measured.ranks) if each.rank == raised.verdict.rank
    )


def _as_told(
    raised: RaisedVerdict, measured: MeasuredSteps, steps: _Steps, ideal: WhatIf
) -> RaisedVerdict:
    """The verdict with the rank's own number, and what it cost by the ideal job."""
    verdict, place = raised.verdict, raised.verdict.rank
    until = steps.numbers[-1] if raised.holds else raised.ended_step
    during = (steps.numbers >= verdict.first_step) & (steps.numbers <= until)
    cost_s = float(ideal.by_rank_s[during, place].sum())
    cause = verdict.cause
    reasons = list(verdict.reasons)
    if cause is not Cause.NOISE and not measured.causes_known:
        cause, reasons = Cause.UNKNOWN, reasons[:1]
    elif cause is Cause.COMPUTE:
        reasons += _by_name(measured, place)
    return replace(
        raised,
        verdict=replace(
            verdict, rank=measured.ranks[place].rank, cause=cause, cost_s=cost_s,
            reasons=tuple(reasons),
        ),
    )  # fmt: skip


def _by_name(measured: MeasuredSteps, place: int) -> list[str]:
    """In which kernel or operator the rank's time goes, beyond that of its peers."""
    mine = measured.ranks[place]
    peers = [
        dict(each.longest)
        for each in measured.ranks
        if each.role == mine.role and each.rank != mine.rank
    ]
    if not mine.longest or not peers:
        return []
    more_s = {
        name: seconds - float(np.median([peer.get(name, 0.0) for peer in peers]))
        for name, seconds in mine.longest
    }
    name = max(more_s, key=lambda each: more_s[each])
    if more_s[name] <= 0.0:
        return []
    took_s = dict(mine.longest)[name]
    return [
        f"most of it in {name[:120]}: {1e3 * took_s:.3g} ms a step, "
        f"{1e3 * (took_s - more_s[name]):.3g} ms on its peers"
    ]


def _as_a_whole(steps: _Steps, settings: Settings) -> tuple[RaisedVerdict, Cause] | None:
    """The job as one rank without peers, held against its own past."""
    if len(steps.numbers) < _FEWEST_OF_A_WHOLE:
        return None
    values = np.full((columns.MEASURED_PARTS, len(steps.numbers), 1), np.nan)
    with np.errstate(all="ignore"):
        for part in range(columns.MEASURED_PARTS):
            values[part, :, 0] = _middle(steps.values[part])
        # Who waits least has waited for nobody: what is left are the transfers.
        waits = steps.values[columns.COMMUNICATION]
        transfer_s = np.where(np.isfinite(waits), waits, np.inf).min(axis=1, initial=np.inf)
    transfer_s = np.where(np.isfinite(transfer_s), transfer_s, 0.0)
    values[columns.REST, :, 0] += transfer_s
    scorer, log = RankScorer(["job"], settings), VerdictLog()
    for number, verdicts in _scored(scorer, steps.numbers, values):
        # Without peers no confidence reaches that of an accusation, and nobody is accused here.
        sure = (replace(each, confidence=1.0) for each in verdicts if each.cause is not Cause.NOISE)
        log.hold(tuple(sure), number)
    if not log.holding:
        return None
    raised = log.holding[0]
    since = steps.numbers >= raised.verdict.first_step
    before = ~since
    if not before.any():
        return None
    grown = {
        Cause.COMPUTE: _growth(values[columns.COMPUTE, :, 0], since),
        Cause.INPUT: _growth(values[columns.INPUT, :, 0], since),
        Cause.NETWORK: _growth(transfer_s, since),
        Cause.HOST: _growth(values[columns.REST, :, 0] - transfer_s, since),
    }
    return raised, max(grown, key=lambda cause: grown[cause])


def _growth(seconds: Floats, since: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> float:
    return float(
        np.median(np.nan_to_num(seconds[since])) - np.median(np.nan_to_num(seconds[~since]))
    )


def _middle(values: Floats) -> Floats:
    """Median over the ranks of each step; NaN where nothing is known."""
    middle = np.full(len(values), np.nan)
    known = np.isfinite(values).any(axis=1)
    if known.any():
        middle[known] = np.nanmedian(values[known], axis=1)
    return middle


def _history(
    measured: MeasuredSteps,
    steps: _Steps,
    keys: list[Hashable],
    scorer: RankScorer,
    settings: Settings,
) -> History:
    """As of a job under watch: what the page draws."""
    ranks = [each.rank for each in measured.ranks]
    world = max(ranks) + 1
    last = int(steps.numbers[-1]) if len(steps.numbers) else 0
    first = max(int(steps.numbers[0]) if len(steps.numbers) else 0, last - steps_to_keep(world) + 1)
    kept = steps.numbers >= first
    at = steps.numbers[kept] - first
    parts = np.full((len(PARTS), world, last - first + 1), np.nan, np.float32)
    mine = np.full((len(PARTS), len(ranks), last - first + 1), np.nan, np.float32)
    mine[:, :, at] = _model_parts(steps.values[:, kept]).swapaxes(1, 2)
    parts[:, ranks] = mine
    ends = np.full(last - first + 1, np.nan)
    ends[at] = np.cumsum(np.nan_to_num(steps.step_s[kept]))
    number: dict[Hashable, int] = {}
    peers = np.full(world, -1, np.int32)
    peers[ranks] = [number.setdefault(key, len(number)) for key in keys]
    hosts = [""] * world
    for each in measured.ranks:
        hosts[each.rank] = each.host
    scores = np.full(world, np.nan, np.float32)
    evidence = np.zeros(world, np.float32)
    scores[ranks] = scorer.recent_slowdown
    evidence[ranks] = np.clip(scorer.suspicion, 0.0, 1.0)
    return History(
        job_id=measured.name, world_size=world, first_step=first, steps=last - first + 1,
        hosts=tuple(hosts), local_s=parts[:LOCAL_PARTS].sum(axis=0),
        late_s=np.full((world, last - first + 1), np.nan, np.float32), parts=parts,
        step_unix_s=ends,
        settings={**asdict(settings), "shifts": list(settings.shifts)},
        notes=measured.notes, scores=scores, evidence=evidence, peers=peers, ended=True,
    )  # fmt: skip
