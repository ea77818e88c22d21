"""Two names for one machine, which only the agents can detect."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from relkit.fleet.channel import Answer


def same_machine(answers: Mapping[str, Answer]) -> tuple[tuple[str, ...], ...]:
    """Groups of names behind which one network stack answered; () where all are distinct.

    Not for the local channel, where all agents share this machine on purpose.
    """
    groups = _by_machine(answers, lambda machine: machine)
    return tuple(names for names in groups.values() if len(names) > 1)


def alone_on_host(answers: Mapping[str, Answer]) -> frozenset[str]:
    """Names that share their kernel, and so its processors, with no other name."""
    groups = _by_machine(answers, lambda machine: machine.partition("/")[0])
    return frozenset(names[0] for names in groups.values() if len(names) == 1)


def _by_machine(
    answers: Mapping[str, Answer], of: Callable[[str], str]
) -> dict[str, tuple[str, ...]]:
    groups: dict[str, tuple[str, ...]] = {}
    for name, answer in answers.items():
        machine = answer.hello.get("machine")
        if answer.answered and isinstance(machine, str) and machine:
            groups[of(machine)] = (*groups.get(of(machine), ()), name)
    return groups
