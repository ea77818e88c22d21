"""Two names for one machine, which only the agents can detect."""

from __future__ import annotations

from collections.abc import Mapping

from relkit.fleet.channel import Answer


def same_machine(answers: Mapping[str, Answer]) -> tuple[tuple[str, ...], ...]:
    """Groups of names behind which one network stack answered; () where all are distinct.

    Not for the local channel, where all agents share this machine on purpose.
    """
    groups: dict[str, list[str]] = {}
    for name, answer in answers.items():
        machine = answer.hello.get("machine")
        if answer.answered and isinstance(machine, str) and machine:
            groups.setdefault(machine, []).append(name)
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)
