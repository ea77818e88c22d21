"""Measuring the links of a hang's suspects, as the leader has it done and as the others take part.

Nothing here raises, and nothing takes longer than its deadline: the job is to be ended or restarted
whatever becomes of the measurement. Listeners are open only meanwhile.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from relkit.hang.links.health import better, doubtful
from relkit.hang.links.model import LinkCheck, LinkMeasurement, Suspects
from relkit.launch.hang.links import notes
from relkit.launch.hang.links.notes import Ask, BadNote, Call, Listening, PairResult
from relkit.launch.job.bounded_calls import BoundedCalls, NoAnswer
from relkit.launch.job.exchange import LauncherAddress, LedMailbox
from relkit.launch.job.settings import Log
from relkit.ranks import RankSet

if TYPE_CHECKING:
    from relkit.launch.hang.links.node_part import NodePart

# The whole check, s: an action on the job waits no longer than this for it.
CHECK_S = 10.0
# Until all nodes listen: they look for requests once a second.
LISTEN_S = 2.5
_POLL_S = 0.02
# What the deadline leaves to a call that is on its way back.
_MARGIN_S = 0.5


class LinkChecks:
    """One launcher's part in the checks of one attempt of the job.

    Args:
        mailbox: to the other launchers.
        is_asked_for: this launcher was told to take part (--on-hang-netcheck).
        log: writes one line to the terminal.
    """

    def __init__(self, mailbox: LedMailbox, log: Log, *, is_asked_for: bool) -> None:
        self._mailbox, self._log = mailbox, log
        self._is_asked_for = is_asked_for
        self._seen: set[tuple[int, int]] = set()

    @property
    def is_asked_for(self) -> bool:
        """Links are measured after a hang."""
        return self._is_asked_for

    def lead(self, number: int, suspects: Suspects, silent: Collection[int] = ()) -> LinkCheck:
        """Have the links between these nodes measured; on the node that judges.

        Args:
            number: of the incident.
            suspects: the nodes.
            silent: nodes that did not answer before: they are not asked.
        """
        mute = (self._mailbox.silent | set(silent)) & set(suspects.ranks)
        nodes = tuple(sorted(set(suspects.ranks) - mute))
        nothing = LinkCheck(suspects, {}, unreachable=tuple(sorted(mute)))
        launcher = self._mailbox.launcher_address
        if len(nodes) < 2 or launcher is None:
            return replace(nothing, problem=_why_nothing(suspects, launcher))
        self._log(f"measuring the links between nodes {RankSet.of(nodes).fold()}")
        leading = _Leading(self._mailbox, number, nodes, launcher, self._log)
        check, problem = _bounded(lambda: leading.measure(nothing))
        return check or replace(nothing, problem=problem)

    def follow(self, number: int) -> bool:
        """Take part where the leader asks for it; on the others, several times in an incident.

        Args:
            number: of the incident.

        Returns:
            True where the leader has links measured in this incident, by whomever.
        """
        mailbox = self._mailbox
        leader = mailbox.leader
        note = mailbox.get(notes.ask_key(number))
        if note is None or (leader, number) in self._seen:
            return note is not None
        self._seen.add((leader, number))
        try:
            ask = notes.read_ask(note, mailbox.nodes)
        except BadNote as why:
            self._log(f"a request of node {leader} to measure links is ignored: {why}")
            return True
        if mailbox.node in ask.nodes:
            _, problem = _bounded(lambda: self._take_part(number, ask, leader))
            if problem:
                self._log(problem)
        return True

    def _take_part(self, number: int, ask: Ask, leader: int) -> None:
        from relkit.launch.hang.links.node_part import TURNS, NodePart
        from relkit.launch.job.node_name import node_name

        mailbox, launcher = self._mailbox, self._mailbox.launcher_address
        key = notes.at_key(number, mailbox.node)
        if not self._is_asked_for or launcher is None:
            why = "has no links" if launcher is None else "runs without --on-hang-netcheck"
            mailbox.put(key, Listening(node_name(), problem=f"it {why}").encode())
            return
        end_s = time.monotonic() + CHECK_S - _MARGIN_S
        with closing(NodePart(ask, mailbox.node, launcher, CHECK_S)) as part:
            mailbox.put(key, part.listening().encode())
            for turn in range(TURNS):
                go = _wait_for(mailbox, notes.go_key(number, turn), end_s, leader)
                calls = {} if go is None else notes.read_go(go)
                if not calls:
                    return
                results = part.measure(calls, turn)
                mailbox.put(notes.done_key(number, turn, mailbox.node), notes.encode_done(results))


def _bounded(call: Callable[[], LinkCheck | None]) -> tuple[LinkCheck | None, str]:
    """What it returns; or None, and why: it takes too long, or fails."""
    try:
        return BoundedCalls("relkit-check").call(call, timeout_s=CHECK_S), ""
    except NoAnswer:
        return None, f"the links were not measured within {CHECK_S:g} s"
    except Exception as error:  # noqa: BLE001 (whatever it is, the job must be acted upon)
        return None, f"the links could not be measured: {str(error)[:200]}"


def _why_nothing(suspects: Suspects, launcher: LauncherAddress | None) -> str:
    if not suspects.ranks:
        return "it is not known on which nodes the suspects run"
    if len(suspects.ranks) == 1:
        return "the suspects and those that wait for them run on one node: no link to measure"
    return "there are no links between the launchers" if launcher is None else "one node is left"


@dataclass(frozen=True, slots=True)
class _Leading:
    """The leader's side of one check.

    Args:
        mailbox: to the others; number: of the incident.
        nodes: that are asked, ascending; launcher: where this node's listens.
        log: writes one line to the terminal.
    """

    mailbox: LedMailbox
    number: int
    nodes: tuple[int, ...]
    launcher: LauncherAddress
    log: Log

    def measure(self, nothing: LinkCheck) -> LinkCheck:
        """Ask the nodes, have them measure, and what is in doubt once more.

        Args:
            nothing: what is known before.
        """
        from relkit.launch.hang.links.node_part import TURNS, NodePart, pairs_of, turn_s

        mailbox, number = self.mailbox, self.number
        ask = Ask(self.nodes, secrets.token_bytes(notes.NONCE_BYTES))
        end_s = time.monotonic() + CHECK_S - _MARGIN_S
        turn = 0
        with ExitStack() as stack:
            part: NodePart | None = None
            if mailbox.node in self.nodes:
                part = stack.enter_context(
                    closing(NodePart(ask, mailbox.node, self.launcher, CHECK_S))
                )
            mailbox.put(notes.ask_key(number), ask.encode())
            # Whatever happens here, the others need not wait for more.
            stack.callback(lambda: mailbox.put(notes.go_key(number, turn), notes.encode_go({})))
            places = self._places(part, min(end_s, time.monotonic() + LISTEN_S))
            pairs = pairs_of(self.nodes)
            links = [LinkMeasurement(low, high, failure="not tried") for low, high, _ in pairs]
            while turn < TURNS:
                calls = _calls(links, [slot for *_, slot in pairs], places, turn)
                turn_end_s = time.monotonic() + turn_s(calls) + _MARGIN_S
                if not calls or turn_end_s > end_s:
                    break
                mailbox.put(notes.go_key(number, turn), notes.encode_go(calls))
                results = {} if part is None else part.measure(calls, turn)
                connecting = {links[pair].ends[1 - turn] for pair in calls} - {mailbox.node}
                results |= self._results(connecting, turn, turn_end_s)
                links = _with(links, results, turn)
                turn += 1
        names = {node: place.name for node, place in places.items()}
        return replace(
            nothing,
            names=_told_apart(names),
            links=tuple(sorted(links, key=lambda link: link.ends)),
            problem=self._problem(places),
        )

    def _places(self, part: NodePart | None, end_s: float) -> dict[int, Listening]:
        """Where the nodes listen, of those that say so in time."""
        places = {} if part is None else {self.mailbox.node: part.listening()}
        keys = {node: notes.at_key(self.number, node) for node in self.nodes if node not in places}
        for node, note in self._collect(keys, end_s).items():
            try:
                places[node] = notes.read_listening(note)
            except BadNote as why:
                self.log(f"node {node} takes no part in measuring links: {why}")
        return places

    def _results(self, nodes: Collection[int], turn: int, end_s: float) -> dict[int, PairResult]:
        """What these nodes measured, as far as it was theirs to measure."""
        results: dict[int, PairResult] = {}
        keys = {node: notes.done_key(self.number, turn, node) for node in nodes}
        for node, note in self._collect(keys, end_s).items():
            try:
                told = notes.read_done(note)
            except BadNote as why:
                self.log(f"what node {node} measured is ignored: {why}")
                continue
            own = self._connects(node, turn)
            results |= {pair: each for pair, each in told.items() if pair in own}
            if strange := told.keys() - own:
                self.log(
                    f"node {node} speaks of {len(strange)} links that are not its own: ignored"
                )
        return results

    def _connects(self, node: int, turn: int) -> set[int]:
        from relkit.launch.hang.links.node_part import pairs_of

        return {i for i, pair in enumerate(pairs_of(self.nodes)) if pair[1 - turn] == node}

    def _collect(self, keys: Mapping[int, str], end_s: float) -> dict[int, bytes]:
        """The notes that come in time, by node; each is taken out of the mailbox."""
        taken: dict[int, bytes] = {}
        while len(taken) < len(keys) and time.monotonic() < end_s:
            for node in keys.keys() - taken.keys():
                if (note := self.mailbox.get(keys[node])) is not None:
                    taken[node] = note
                    self.mailbox.remove(keys[node])
            if len(taken) < len(keys):
                time.sleep(_POLL_S)
        return taken

    def _problem(self, places: Mapping[int, Listening]) -> str:
        parts = [
            f"{place.name} took no part: {place.problem}"
            for place in places.values()
            if place.problem
        ]
        if mute := set(self.nodes) - set(places):
            who = f"node{'s' if len(mute) > 1 else ''} {RankSet.of(mute).fold()}"
            parts.append(f"{who} did not say within {LISTEN_S:g} s where to connect to")
        return "; ".join(parts)


def _calls(
    links: Sequence[LinkMeasurement],
    slots: Sequence[int],
    places: Mapping[int, Listening],
    turn: int,
) -> dict[int, Call]:
    """Who connects where and when: in the first turn all, later those that are in doubt.

    Args:
        links: what is known so far; slots: of the first turn, by pair.
        places: where the nodes listen.
    """
    ends = {link.ends for link in links} if turn == 0 else set(doubtful(links))
    chosen = [pair for pair, link in enumerate(links) if link.ends in ends]
    # What does not answer does not disturb the others either: these are all tried at once.
    working = sorted({slots[pair] for pair in chosen if turn == 0 or not links[pair].failure})
    calls = {}
    for pair in chosen:
        accepting = places.get(links[pair].ends[turn])
        connecting = places.get(links[pair].ends[1 - turn])
        if accepting is None or connecting is None or connecting.problem:
            continue
        if port := accepting.ports.get(pair):
            slot = working.index(slots[pair]) if slots[pair] in working else 0
            calls[pair] = Call(accepting.address, port, slot)
    return calls


def _with(
    links: Sequence[LinkMeasurement], results: Mapping[int, PairResult], turn: int
) -> list[LinkMeasurement]:
    measured = list(links)
    for pair, each in results.items():
        low, high = links[pair].ends
        link = LinkMeasurement(
            low, high, each.mb_per_s, each.round_trip_ms, each.failure, each.is_cut
        )
        measured[pair] = link if turn == 0 else better(links[pair], link)
    return measured


def _told_apart(names: Mapping[int, str]) -> dict[int, str]:
    """The names, with the number where several nodes have the same."""
    count = Counter(names.values())
    return {node: name if count[name] == 1 else f"{name}-{node}" for node, name in names.items()}


def _wait_for(mailbox: LedMailbox, key: str, end_s: float, leader: int) -> bytes | None:
    """The note, once it is there; None where the leader is another one, or time is over."""
    while (note := mailbox.get(key)) is None:
        if time.monotonic() >= end_s or mailbox.leader != leader:
            return None
        time.sleep(_POLL_S)
    return note
