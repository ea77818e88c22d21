"""Rounds in which all launchers copy one step, and send the copies to other hosts.

    node 0: round/K ----------> every node waits for that step, copies it, and pushes the copies
            <------- done/K/N - and says whether all is where it belongs

Copies of the last round that was complete on all nodes stay until a later one is.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from relkit.errors import RelkitError
from relkit.flash_checkpoint.replicas.copy_folder import ROUND_BYTES, CopyFolder
from relkit.flash_checkpoint.slots.errors import BadSlot, NoRoom
from relkit.launch.job.exchange import ExchangeBroken, Mailbox
from relkit.launch.job.settings import Log
from relkit.launch.replicas.peers import PUSH, Peer, connect, push
from relkit.launch.replicas.plan import next_step
from relkit.launch.replicas.rank_slots import RankSlots
from relkit.launch.replicas.wire import Answer, Asked, Broken, Link, RateLimit
from relkit.log_lines import warning
from relkit.text.foreign_json import parse_json

# How often notes are looked for; less often in a large job, as all ask one store.
LOOK_S, _NODES_PER_LOOK = 0.2, 100
# A step that was announced is waited for, at least.
_MIN_WAIT_S = 20.0
_LONGEST_POLL_S, _SHORTEST_POLL_S = 0.05, 0.002
# A node that says nothing for so long is not waited for: the next round begins.
_ROUND_S = 1800.0
_MISSES = 20
_SILENT = "it has not answered"


@dataclass(frozen=True, slots=True)
class Task:
    """What a node does in the rounds of an attempt.

    Args:
        mailbox: to the other nodes; world_size: ranks of the job; secret: of the connections.
        targets: to which its copies go; rate_limit: of what it sends.
    """

    mailbox: Mailbox
    world_size: int
    secret: bytes
    targets: Sequence[Peer]
    rate_limit: RateLimit


class Rounds:
    """This node's part in all rounds of one attempt, in a thread.

    Args:
        task, slots, copies: see there.
        keep: the round that was complete last; "" where there is none.
        stop: ends it; log: writes one line to the terminal.
    """

    def __init__(
        self,
        task: Task,
        slots: RankSlots,
        copies: CopyFolder,
        keep: str,
        stop: threading.Event,
        log: Log,
    ) -> None:
        self._task, self._slots, self._copies = task, slots, copies
        self._keep, self._stop, self._log = keep, stop, log
        self._number, self._newest, self._misses = 1, -1, 0
        self._links: dict[int, Link] = {}
        self._said: set[str] = set()
        self._look_s = LOOK_S * (1 + task.mailbox.nodes // _NODES_PER_LOOK)
        self._thread = threading.Thread(target=self._run, name="relkit-replicas", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread; it is not waited for longer than a moment."""
        self._stop.set()
        for link in list(self._links.values()):
            link.close()
        self._thread.join(2.0)

    def _run(self) -> None:
        while not self._stop.wait(self._look_s):
            try:
                if self._task.mailbox.node == 0:
                    self._lead()
                else:
                    self._follow()
            except (ExchangeBroken, BadSlot, OSError):
                continue  # a store that does not answer, or a state that grows at this moment
            except RelkitError as error:
                self._say(f"no replicas for now: {error}")
        for link in self._links.values():
            link.close()

    def _lead(self) -> None:
        rhythm = self._slots.rhythm()
        if rhythm is None or rhythm.newest <= self._newest:
            return
        # All nodes must have seen the note by then.
        step = next_step(rhythm, time.time(), 2 * self._look_s)
        round_id = secrets.token_hex(ROUND_BYTES)
        note = {
            "step": step, "round": round_id, "keep": self._keep, "period_s": rhythm.period_s
        }  # fmt: skip
        self._put(f"round/{self._number}", note)
        problems = {0: self._own_part(note), **self._gather()}
        if _SILENT not in problems.values():
            self._task.mailbox.remove(f"round/{self._number}")
        self._number += 1
        wrong = {node: why for node, why in problems.items() if why}
        if not wrong:
            if not self._keep:
                self._log(f"flash checkpoint: step {step} has its first replicas on other hosts")
            self._keep, self._newest, self._misses = round_id, step, 0
            return
        self._misses += 1
        if self._misses == _MISSES:
            node, why = next(iter(wrong.items()))
            self._say(f"{_MISSES} times in a row there were no whole replicas: node {node}: {why}")

    def _follow(self) -> None:
        note = self._get(f"round/{self._number}")
        if note is None:
            return
        try:
            problem = self._own_part(note)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            problem = f"the note of the round cannot be read: {error}"
        self._put(f"done/{self._number}/{self._task.mailbox.node}", {"why": problem})
        self._number += 1

    def _gather(self) -> dict[int, str]:
        """What went wrong, by node; "" for nothing."""
        missing = set(range(1, self._task.mailbox.nodes))
        problems: dict[int, str] = {}
        end_s = time.monotonic() + _ROUND_S
        while missing and not self._stop.is_set():
            for node in sorted(missing):
                note = self._get(f"done/{self._number}/{node}")
                if note is not None:
                    problems[node] = str(note.get("why", "?"))
                    self._task.mailbox.remove(f"done/{self._number}/{node}")
            missing -= problems.keys()
            if missing and (time.monotonic() >= end_s or self._stop.wait(self._look_s / 2)):
                break
        return {**problems, **dict.fromkeys(missing, _SILENT)}

    def _own_part(self, note: Mapping[str, Any]) -> str:
        """Copy the step, and push the copies; what went wrong, "" for nothing."""
        step, round_id, keep = int(note["step"]), str(note["round"]), str(note["keep"])
        try:
            self._wait_for(step, float(note["period_s"]))
            for rank in self._slots.ranks:
                self._copy(rank, step, round_id, keep)
        except NoRoom as error:
            self._say(f"no replicas of this node's ranks: {error}")
            return str(error)
        except BadSlot as error:
            return str(error)
        wrong = [self._push_all(peer, round_id, keep) for peer in self._task.targets]
        # Last: what is outdated was written over as far as it could be.
        self._copies.keep_only({keep, round_id})
        return "; ".join(filter(None, wrong))

    def _wait_for(self, step: int, period_s: float) -> None:
        """Wait until all ranks of this node have a step whole.

        Raises:
            BadSlot: they have passed it, or do not come to it.
        """
        end_s = time.monotonic() + min(_ROUND_S, max(_MIN_WAIT_S, 5 * period_s))
        poll_s = min(_LONGEST_POLL_S, max(_SHORTEST_POLL_S, period_s / 4))
        while not all(step in steps for steps in self._slots.steps().values()):
            newest = min(max(steps, default=-1) for steps in self._slots.steps().values())
            if newest > step or time.monotonic() >= end_s or self._stop.wait(poll_s):
                # A thing that a rank has no more (or not yet) is said by `locked`.
                return

    def _copy(self, rank: int, step: int, round_id: str, keep: str) -> None:
        slot = self._slots.locked(rank, step)
        try:
            self._copies.add(
                rank, round_id, slot.header, slot.read_into, keep=keep,
                spare_bytes=self._slots.slot_bytes(),
            )  # fmt: skip
        finally:
            slot.close()

    def _push_all(self, peer: Peer, round_id: str, keep: str) -> str:
        """Push the copies of all ranks to a node; what went wrong, "" for nothing."""
        task = self._task
        try:
            link = self._links.get(peer.node)
            if link is None:
                link = connect(peer, PUSH, task.mailbox.node, task.secret, self._stop)
                self._links[peer.node] = link
            for rank in self._slots.ranks:
                asked = Asked(rank, round_id, keep)
                kind, words = push(link, self._copies, asked, task.world_size, task.rate_limit)
                if kind is Answer.NO_ROOM:
                    # Said, and not waited for: the other ranks' replicas are still of use.
                    self._say(f"rank {rank} has no replica on {peer.name}: {words}")
                elif kind is not Answer.WHOLE:
                    return f"{peer.name} refused rank {rank}: {words}"
        except (Broken, BadSlot) as error:
            broken = self._links.pop(peer.node, None)
            if broken is not None:
                broken.close()
            if not self._stop.is_set():
                self._say(f"a replica did not get to {peer.name}: {error}")
            return str(error)
        return ""

    def _put(self, key: str, plain: Mapping[str, Any]) -> None:
        self._task.mailbox.put(key, json.dumps(plain).encode())

    def _get(self, key: str) -> dict[str, Any] | None:
        note = self._task.mailbox.get(key)
        with suppress(ValueError):
            plain = None if note is None else parse_json(note)
            return plain if isinstance(plain, dict) else None
        return None

    def _say(self, line: str) -> None:
        kind = line[:40]
        if kind not in self._said:
            self._said.add(kind)
            self._log(warning(f"flash checkpoint: {line}"))
