"""Which link or interface is slow."""

from __future__ import annotations

import numpy as np

from relkit.straggler.model import Cause, Subject, Verdict
from relkit.straggler.score.links import LinkScorer, Transfer

HOSTS = ("n0", "n1", "n2", "n3")


def _pairs(slow: set[tuple[str, str]], rng: np.random.Generator) -> list[Transfer]:
    pairs = [(a, b) for a in HOSTS for b in HOSTS if a != b]
    noise = 1.0 + 0.05 * rng.standard_normal(len(pairs))
    return [
        Transfer(pair, "send", (4.0 if pair in slow else 1.0) * float(more), ring=False)
        for pair, more in zip(pairs, noise, strict=True)
    ]


def _after(slow: set[tuple[str, str]], steps: int = 20) -> tuple[Verdict, ...]:
    rng, scorer = np.random.default_rng(2), LinkScorer()
    said: tuple[Verdict, ...] = ()
    for step in range(steps):
        said = scorer.update(step, _pairs(slow if step >= 5 else set(), rng))
    return said


def test_one_slow_edge_is_named_with_both_ends() -> None:
    (verdict,) = _after({("n1", "n2")})
    assert verdict.subject is Subject.LINK
    assert verdict.ends == ("n1", "n2")
    assert verdict.cause is Cause.NETWORK
    assert verdict.first_step == 5
    assert verdict.score > 2.0


def test_a_slow_interface_is_a_host() -> None:
    slow = {(a, b) for a in HOSTS for b in HOSTS if a != b and "n3" in (a, b)}
    (verdict,) = _after(slow)
    assert (verdict.subject, verdict.ends) == (Subject.HOST, ("n3",))


def test_healthy_links_are_left_alone() -> None:
    assert _after(set(), steps=200) == ()


def test_the_edge_of_one_ring_is_told_by_who_leaves_last() -> None:
    rng, scorer = np.random.default_rng(4), LinkScorer()
    said: tuple[Verdict, ...] = ()
    for step in range(40):
        slow = step >= 15
        # Behind the slow edge n1 -> n2 one leaves last, and each further one a transfer sooner.
        exits = (0.0, -0.5, 0.9, 0.4) if slow else (0.0, 0.01, -0.01, 0.0)
        seconds = (3.0 if slow else 1.0) * (1.0 + 0.05 * float(rng.standard_normal()))
        said = scorer.update(step, [Transfer(HOSTS, "allreduce", seconds, exit_s=exits)])
        assert slow or not said
    (verdict,) = said
    assert verdict.ends == ("n1", "n2")
    assert verdict.confidence < 0.8


def test_without_times_of_leaving_a_ring_names_a_link_with_little_confidence() -> None:
    scorer = LinkScorer()
    for step in range(40):
        said = scorer.update(step, [Transfer(HOSTS, "allreduce", 4.0 if step >= 15 else 1.0)])
    (verdict,) = said
    assert verdict.confidence < 0.3


def test_a_link_that_recovers_is_let_go() -> None:
    rng, scorer = np.random.default_rng(2), LinkScorer()
    said: list[tuple[Verdict, ...]] = []
    for step in range(60):
        slow = {("n1", "n2")} if 5 <= step < 20 else set()
        said.append(scorer.update(step, _pairs(slow, rng)))
    assert said[19]
    assert not said[-1]


def test_an_edge_that_is_quick_for_others_is_not_what_slows_a_ring() -> None:
    """Three of the four edges of the slow ring carry quick sends as well: it is the fourth."""
    scorer = LinkScorer()
    for step in range(40):
        ring = Transfer(HOSTS, "allreduce", 4.0 if step >= 20 else 1.0)
        sends = [
            Transfer(pair, "send", 1.0, ring=False)
            for pair in (("n0", "n1"), ("n1", "n2"), ("n2", "n3"))
        ]
        verdicts = scorer.update(step, [ring, *sends])
    (verdict,) = verdicts
    assert (verdict.subject, verdict.ends) == (Subject.LINK, ("n3", "n0"))
    assert verdict.confidence > 0.9
