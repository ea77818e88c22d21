"""All that a job's files say -> the cause, whose it was, and how sure that is; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relkit.why.actors import Actor, Actors, in_words, rank_actor, ranks_in_words
from relkit.why.kinds import FOR_HANG
from relkit.why.missing import missing_of, world_size_missing
from relkit.why.model import Answer, Clock, Ended, Evidence, Sighting
from relkit.why.rules.causes import CAUSES
from relkit.why.rules.exceptions import GENERIC
from relkit.why.rules.exit_codes import cause_of_exit_code
from relkit.why.rules.told import Kind

# Where a rank hung, these say only what became of it.
AFTER_A_HANG = frozenset(
    ("collective-timeout", "time-limit", "cancelled", "killed", "interrupted", "peer-lost", "abort")
)
_BY_KIND = {Kind.ROOT: 0.9, Kind.WEAK: 0.55, Kind.CONSEQUENCE: 0.25, Kind.LAUNCHER: 0.4}
_MAX_REASONS = 8
# Below that an answer is a guess, and accuses nobody.
SURE = 0.5
# A rank that no other than its silence speaks against.
_ELIMINATED = 0.55
# What a launcher sends to those that are left.
_BY_LAUNCHER = (-15, 143)


@dataclass(frozen=True, slots=True)
class _Told:
    """A line, and who it is about."""

    sighting: Sighting
    actor: Actor


def diagnose(evidence: Evidence) -> Answer:
    """The answer of one job."""
    actors = Actors(evidence)
    told = [
        _Told(sighting, actor)
        for sighting in evidence.sightings
        if sighting.kind is not Kind.MENTION
        for actor in _about(sighting, actors)
    ]
    told += _of_launchers(evidence.ended, actors, told)
    told = _without_explained(told)
    ordered = _in_order(told)
    strongest = min((t.sighting.kind.value for t in ordered), default=None)
    firsts = _firsts(ordered)
    if strongest is None:
        return _by_hang(evidence, _nothing(evidence), firsts)
    best = [t for t in ordered if t.sighting.kind.value == strongest]
    chosen = best[0]
    alike = [t for t in best if t.sighting.cause == chosen.sighting.cause]
    others = [t for t in best if t.sighting.cause != chosen.sighting.cause]
    first = _believed(actors.first, told)
    answer = _answer(evidence, actors, first, chosen, alike, others, firsts)
    if answer.cause == "peer-lost" and not answer.culprits:
        answer = _by_elimination(answer, evidence, actors, told)
    return _by_hang(evidence, answer, firsts)


def _about(sighting: Sighting, actors: Actors) -> Sequence[Actor]:
    """Those whom a line names, else who wrote it."""
    return [rank_actor(rank) for rank in sighting.blamed] or [actors.of(sighting)]


def _believed(first: Ended | None, told: Sequence[_Told]) -> Ended | None:
    """Whom torchrun saw fail first; nobody where that rank only tells of others' failures."""
    kinds = {t.sighting.kind for t in told if first is not None and t.actor.rank == first.rank}
    is_victim = Kind.CONSEQUENCE in kinds and not kinds & {Kind.ROOT, Kind.WEAK}
    return None if is_victim else first


def _by_elimination(
    answer: Answer, evidence: Evidence, actors: Actors, told: Sequence[_Told]
) -> Answer:
    """Where all ranks but one have lost their connection to another: that one had ended.

    Only where the number of ranks is said or a launcher saw that one end by itself: else the log of
    the one that ended may be missing, and a rank that is silent as it still waits is no culprit.
    """
    lost = {t.actor.rank for t in told if t.sighting.cause == "peer-lost"}
    stopped = {actors.of_ended(e).rank for e in evidence.ended if e.exit_code in _BY_LAUNCHER}
    here = evidence.speakers | evidence.present
    seen = [actors.of_ended(each).rank for each in evidence.ended]
    seen += [actor.rank for actor in map(actors.of_speaker, here) if actor is not None]
    everyone = {rank for rank in seen if rank is not None}
    silent = everyone - lost - stopped
    if len(silent) != 1 or None in lost or everyone != set(range(len(everyone))):
        return answer
    who = ranks_in_words(sorted(silent))
    ended = {actors.of_ended(each).rank for each in evidence.ended}
    if evidence.world_size != len(everyone) and not silent <= ended:
        if evidence.world_size:
            return answer
        return replace(answer, missing=(world_size_missing(who), *answer.missing))
    reason = (
        f"all other ranks of these files lost their connection to another, and {who} tells of none"
    )
    return replace(
        answer,
        culprits=tuple(silent),
        who=who,
        reasons=(reason, *answer.reasons),
        confidence=_ELIMINATED,
    )


def _of_launchers(ended: Sequence[Ended], actors: Actors, told: Sequence[_Told]) -> list[_Told]:
    """What a launcher's exit codes say of ranks that say nothing themselves."""
    made = []
    speak = {t.actor for t in told if t.sighting.kind in (Kind.ROOT, Kind.WEAK)}
    for each in ended:
        code = each.exit_code
        actor = actors.of_ended(each)
        if not code or code in _BY_LAUNCHER or actor in speak:
            continue
        cause, kind = cause_of_exit_code(code)
        text = f"the launcher says that {actor.name} ended with exit code {code}"
        made.append(
            _Told(
                Sighting(cause, kind, text, each.path, each.line, clock=each.clock, pid=each.pid),
                actor,
            )
        )
    return made


def _without_explained(told: Sequence[_Told]) -> list[_Told]:
    """Without what another cause, which is seen as well, explains."""
    seen = {t.sighting.cause for t in told if t.sighting.kind in (Kind.ROOT, Kind.WEAK)}
    kept = []
    for each in told:
        cause = CAUSES.get(each.sighting.cause)
        is_explained = cause is not None and bool(seen & set(cause.follows))
        weaker = replace(each.sighting, kind=Kind.CONSEQUENCE)
        kept.append(replace(each, sighting=weaker) if is_explained else each)
    return kept


def _in_order(told: Sequence[_Told]) -> list[_Told]:
    """The first that happened first, as far as clocks or a common file show it.

    Where neither does, what names a cause comes before what is general.
    """
    if _is_timed(told):
        return sorted(
            told, key=lambda t: (_at(t.sighting.clock), t.sighting.line, t.sighting.offset)
        )
    if _is_one_file(told):
        return sorted(told, key=lambda t: (t.sighting.line, t.sighting.offset))
    return sorted(
        told,
        key=lambda t: (
            t.sighting.kind.value,
            t.sighting.cause in GENERIC,
            t.actor.rank is None,
            t.actor.rank or 0,
            str(t.sighting.path),
            t.sighting.line,
            t.sighting.offset,
        ),
    )


def _at(clock: Clock | None) -> float:
    return clock.at_s if clock is not None else 0.0


def _is_timed(told: Sequence[_Told]) -> bool:
    """Whether all have a time, and these can be compared."""
    kinds = {clock.kind if (clock := t.sighting.clock) is not None else "" for t in told}
    return len(kinds) == 1 and "" not in kinds


def _is_one_file(told: Sequence[_Told]) -> bool:
    return len({t.sighting.path for t in told}) == 1


def _firsts(ordered: Sequence[_Told]) -> dict[str, Sighting]:
    """By who wrote it, the first error: its own before what it met of others."""
    firsts: dict[str, Sighting] = {}
    for each in ordered:
        known = firsts.get(each.actor.name)
        if known is None or each.sighting.kind.value < known.kind.value:
            firsts[each.actor.name] = each.sighting
    return firsts


def _answer(
    evidence: Evidence,
    actors: Actors,
    first: Ended | None,
    chosen: _Told,
    alike: Sequence[_Told],
    others: Sequence[_Told],
    firsts: dict[str, Sighting],
) -> Answer:
    sighting = chosen.sighting
    cause = CAUSES[sighting.cause]
    whose = _named(alike)
    everyone = {a.rank for a in map(actors.of_speaker, evidence.speakers) if a is not None}
    ranks = tuple(sorted({a.rank for a in whose if a.rank is not None}))
    is_known = sighting.kind in (Kind.ROOT, Kind.WEAK) and not cause.whole_job
    if sighting.kind is Kind.WEAK and sighting.cause == "collective-timeout":
        is_known = False
    is_everyone = len(ranks) > 1 and set(ranks) >= everyone
    confidence = _confidence(chosen, alike, others, first)
    # A false word costs more than none.
    culprits = ranks if is_known and not is_everyone and confidence >= SURE else ()
    who = in_words(whose) if is_known else "nobody"
    if is_known and is_everyone:
        who = f"every rank ({in_words(whose)}), so none in particular"
    return Answer(
        cause=sighting.cause,
        culprits=culprits,
        who=who,
        place=_place(sighting),
        reasons=_reasons(alike, others, first),
        confidence=confidence,
        missing=missing_of(sighting, evidence, has_rank=bool(culprits) or is_everyone),
        first_of=firsts,
        others=tuple(t.sighting for t in others),
    )


def _named(alike: Sequence[_Told]) -> list[Actor]:
    """Whose failures these are; a log that a rank is known of is not named beside it."""
    of_ranks = {t.sighting.path for t in alike if t.actor.rank is not None}
    named = [t.actor for t in alike if t.actor.rank is not None or t.sighting.path not in of_ranks
             or t.actor.name != str(t.sighting.path)]  # fmt: skip
    return list(dict.fromkeys(named))


def _place(sighting: Sighting) -> str:
    if sighting.blamed:
        return ""
    host = sighting.speaker.host
    return sighting.code + (f" on {host}" if host and sighting.code else host)


def _reasons(
    alike: Sequence[_Told], others: Sequence[_Told], first: Ended | None
) -> tuple[str, ...]:
    reasons = []
    by_actor = {t.actor: t for t in reversed(alike)}
    for each in dict.fromkeys(by_actor[t.actor] for t in alike):
        at = f" (at {each.sighting.code})" if each.sighting.code else ""
        # A log that says nobody's name is called by its path, which stands before it already.
        is_nameless = each.actor.name == str(each.sighting.path) or each.sighting.blamed
        who = each.sighting.where if is_nameless else f"{each.sighting.where}: {each.actor.name}"
        reasons.append(f"{who}: {each.sighting.text}{at}")
    reasons = list(dict.fromkeys(reasons))
    more = len(reasons) - _MAX_REASONS
    reasons = reasons[:_MAX_REASONS] + ([f"and {more} more that say the same"] if more > 0 else [])
    if first is not None:
        reasons.append(
            f"{first.path}:{first.line}: torchrun saw rank {first.rank} fail first, exit code "
            f"{first.exit_code}"
        )
    if others:
        reasons.append(f"{len(others)} other failures are later, or less telling")
    return tuple(reasons)


def _confidence(
    chosen: _Told, alike: Sequence[_Told], others: Sequence[_Told], first: Ended | None
) -> float:
    score = _BY_KIND[chosen.sighting.kind]
    if chosen.sighting.cause in GENERIC:
        score -= 0.1
    if chosen.actor.rank is None and not CAUSES[chosen.sighting.cause].whole_job:
        score -= 0.1
    seen = [chosen, *others]
    if others and not (_is_timed(seen) or _is_one_file(seen)):
        score -= 0.25
    elif others:
        score -= 0.1
    if first is not None and chosen.actor.rank is not None:
        agrees = any(t.actor.rank == first.rank for t in alike)
        score += 0.05 if agrees else -0.15
    return round(min(max(score, 0.05), 0.95), 2)


def _nothing(evidence: Evidence) -> Answer:
    return Answer("", (), "nobody", "", (), 0.0, missing_of(None, evidence, has_rank=False), {}, ())


def _by_hang(evidence: Evidence, answer: Answer, firsts: dict[str, Sighting]) -> Answer:
    """Dumps and stacks know better than a time-out what it was that hung."""
    hang = evidence.hang
    if hang is None:
        return answer
    is_weak = not answer.cause or answer.cause in AFTER_A_HANG
    is_weak = is_weak or (answer.confidence < SURE and not answer.culprits)
    if hang.culprits and is_weak:
        ranks = ranks_in_words(hang.culprits)
        return Answer(
            cause="hang",
            culprits=hang.culprits,
            who=ranks,
            place="",
            reasons=(hang.sentence, *answer.reasons[:2]),
            confidence=hang.score,
            missing=(),
            first_of=firsts,
            others=answer.others,
        )
    if hang.sentence and not answer.cause:
        return replace(answer, cause="hang", reasons=(hang.sentence,), confidence=0.3)
    # What it made of the same lines is no second proof.
    is_other_proof = any(file.used_for in FOR_HANG for file in evidence.files)
    if is_other_proof and set(hang.culprits) & set(answer.culprits):
        return replace(
            answer,
            reasons=(*answer.reasons, f"dumps and stacks agree: {hang.sentence}"),
            confidence=round(min(answer.confidence + 0.05, 0.95), 2),
        )
    return answer
