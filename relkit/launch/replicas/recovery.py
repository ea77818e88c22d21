"""Before workers start: the launchers say what they hold, agree on a round, and bring it in place.

    node N: hello/N ----------> its host, address and ranks; its copies, and its own slots
    node 0: plan/I -----------> the round, and whose copy each rank starts from
            <------- ready/I/N  every node has fetched and checked what it lacks, or says why not
            result -----------> the slots take their names; or disk is used

A copy that turns out to be of no use is left out of the next plan (I = 1, 2, ...).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.errors import RelkitError
from relkit.files.private_file import open_private
from relkit.flash_checkpoint.replicas.copy_folder import CopyFolder
from relkit.flash_checkpoint.replicas.copy_stream import reader_of, receive
from relkit.flash_checkpoint.replicas.origin import Origin
from relkit.flash_checkpoint.slots import native_copy, slot_folder
from relkit.flash_checkpoint.slots import slot_format as form
from relkit.flash_checkpoint.slots.slot_file import SlotFile, require_room
from relkit.flash_checkpoint.slots.slot_format import SlotHeader
from relkit.hosts import numeric_address
from relkit.launch.job.exchange import ExchangeBroken, Mailbox, wait_for_notes
from relkit.launch.replicas.peers import FETCH, Peer, connect, fetch, ranks_of
from relkit.launch.replicas.plan import Held, Resume, newest_own, newest_round, words
from relkit.launch.replicas.wire import Asked, Link, slot_bytes
from relkit.text.foreign_json import parse_json

HELLO_S = 30.0
_ANSWER_S = 30.0
_PLANS = 8
_MAX_REASONS = 5
_NEW = ".fetched"
# On top of what fetching may take: until the notes of all nodes have come.
_NOTES_S = 15.0
# int() of a number that JSON calls infinite is an OverflowError.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True, slots=True)
class Hello:
    """What a node says before workers start.

    Args:
        peer: who it is; count: of replicas that it was told to make.
        copies: rows of rank, round, step; own: rows of rank and step, in slots of its own ranks.
    """

    peer: Peer
    count: int
    copies: tuple[tuple[int, str, int], ...]
    own: tuple[tuple[int, int], ...]

    def to_note(self) -> bytes:
        """For the store."""
        peer = self.peer
        plain = {
            "node": peer.node, "name": peer.name, "host": peer.host, "address": peer.address,
            "port": peer.port, "ranks": peer.ranks, "count": self.count, "copies": self.copies,
            "own": self.own,
        }  # fmt: skip
        return json.dumps(plain).encode()

    @classmethod
    def from_note(cls, note: bytes) -> Hello:
        """The inverse.

        Raises:
            ValueError, KeyError, TypeError: it is none.
        """
        plain = parse_json(note)
        ranks = tuple(int(rank) for rank in plain["ranks"])
        peer = Peer(
            int(plain["node"]), str(plain["name"])[:100], str(plain["host"]), str(plain["address"]),
            int(plain["port"]), ranks,
        )  # fmt: skip
        # Whoever connects to it must not look up names, or try a port that cannot be.
        if not numeric_address(peer.address) or not 0 < peer.port < 1 << 16:
            raise ValueError("no address to connect to")
        copies = tuple(
            (int(rank), bytes.fromhex(round_id).hex(), int(step))
            for rank, round_id, step in plain["copies"]
        )
        own = tuple((int(rank), int(step)) for rank, step in plain["own"])
        return cls(peer, int(plain["count"]), copies, own)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What came of it.

    Args:
        hellos: of all nodes, by number; keep: the round whose copies stay; "": none.
        origin: for the workers.
    """

    hellos: Mapping[int, Hello]
    keep: str
    origin: Origin


class Recovery:
    """This node's part.

    Args:
        mailbox: to the other nodes; hello: of this node; world_size: ranks of the job.
        folder: of this node's slots; copies: of this node; secret: of the connections.
        let_fetch: called with a node, and the ranks whose copies it comes for.
        timeout_s: how long fetching may take.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        hello: Hello,
        world_size: int,
        folder: Path,
        copies: CopyFolder,
        secret: bytes,
        let_fetch: Callable[[int, list[int]], None],
        timeout_s: float,
    ) -> None:
        self._mailbox, self._hello, self._world_size = mailbox, hello, world_size
        self._folder, self._copies, self._secret = folder, copies, secret
        self._let_fetch, self._timeout_s = let_fetch, timeout_s
        self._served: set[int] = set()

    def run(self) -> Recovered:
        """Do it.

        Raises:
            ExchangeBroken: the store, or another launcher, does not answer.
        """
        hellos = self._meet()
        ready: list[tuple[SlotFile, Path]] = []
        try:
            if self._mailbox.node == 0:
                resume, origin = self._lead(hellos, ready)
            else:
                resume, origin = self._follow(hellos, ready)
            if origin.step >= 0:
                for file, path in ready:
                    file.replace(path)
                    file.close()
                ready = []
        finally:
            for file, _ in ready:
                file.discard()
        keep = "" if resume is None else resume.round_id
        self._copies.keep_only({keep})
        return Recovered(hellos, keep, origin)

    def _meet(self) -> dict[int, Hello]:
        self._mailbox.put(f"hello/{self._mailbox.node}", self._hello.to_note())
        keys = [f"hello/{node}" for node in range(self._mailbox.nodes)]
        if not wait_for_notes(self._mailbox, keys, HELLO_S):
            silent = [key for key in keys if self._mailbox.get(key) is None]
            raise ExchangeBroken(
                f"node {silent[0].partition('/')[2] if silent else '?'} says nothing of replicas"
                " (--replica-count must be the same on all nodes)"
            )
        try:
            hellos = {n: Hello.from_note(self._mailbox.get(k) or b"") for n, k in enumerate(keys)}
        except _UNREADABLE as error:
            raise ExchangeBroken("a node's note on its replicas cannot be read") from error
        if any(hello.peer.node != node for node, hello in hellos.items()):
            raise ExchangeBroken("a node's note on its replicas is another node's")
        ranks = sorted(rank for hello in hellos.values() for rank in hello.peer.ranks)
        if ranks != list(range(self._world_size)):
            raise ExchangeBroken("the nodes do not say whose ranks are whose")
        return hellos

    def _lead(
        self, hellos: Mapping[int, Hello], ready: list[tuple[SlotFile, Path]]
    ) -> tuple[Resume | None, Origin]:
        held = [Held(n, *row) for n, hello in hellos.items() for row in hello.copies]
        own = newest_own(_own_steps(hellos), self._world_size)
        runs = ranks_of({n: hello.peer for n, hello in hellos.items()})
        names = {n: hello.peer.name for n, hello in hellos.items()}
        refused: set[Held] = set()
        reasons: list[str] = []
        for number in range(_PLANS):
            resume = newest_round(held, self._world_size, runs, refused)
            if resume is None or resume.step <= own:
                # What is in the workers' own slots needs no launcher.
                origin = Origin(why_not="; ".join(reasons[:_MAX_REASONS]))
                if resume is None and held and own < 0 and not reasons:
                    origin = Origin(why_not="no round of replicas has all ranks")
                return resume, self._decide(resume, origin)
            self._put(f"plan/{number}", _to_plain(resume))
            end_s = time.monotonic() + self._timeout_s
            problems = {
                **self._bring(resume, hellos, ready, own),
                **self._gather(f"ready/{number}", end_s + _NOTES_S),
            }
            if not problems:
                origin = Origin(resume.step, words(resume, runs, names), "")
                return resume, self._decide(resume, origin)
            for rank, why in sorted(problems.items()):
                node = resume.sources[rank]
                refused.add(Held(node, rank, resume.round_id, resume.step))
                reasons.append(f"step {resume.step} of rank {rank} on {names[node]}: {why}")
        return None, self._decide(None, Origin(why_not="; ".join(reasons[:_MAX_REASONS])))

    def _decide(self, resume: Resume | None, origin: Origin) -> Origin:
        self._put(
            "result",
            {
                "resume": None if resume is None else _to_plain(resume), "step": origin.step,
                "words": origin.words, "why_not": origin.why_not,
            },
        )  # fmt: skip
        return origin

    def _follow(
        self, hellos: Mapping[int, Hello], ready: list[tuple[SlotFile, Path]]
    ) -> tuple[Resume | None, Origin]:
        own = newest_own(_own_steps(hellos), self._world_size)
        try:
            for number in range(_PLANS + 1):
                name = self._first_of((f"plan/{number}", "result"), self._timeout_s + _ANSWER_S)
                note = self._get(name)
                if name == "result":
                    resume = None if note["resume"] is None else _from_plain(note["resume"])
                    origin = Origin(int(note["step"]), str(note["words"]), str(note["why_not"]))
                    return resume, origin
                problems = self._bring(_from_plain(note), hellos, ready, own)
                self._put(f"ready/{number}/{self._mailbox.node}", {"problems": problems})
        except _UNREADABLE as error:
            raise ExchangeBroken(f"node 0's note on replicas cannot be read: {error}") from error
        raise ExchangeBroken("node 0 does not come to a decision on replicas")

    def _bring(
        self,
        resume: Resume,
        hellos: Mapping[int, Hello],
        ready: list[tuple[SlotFile, Path]],
        own: int,
    ) -> dict[int, str]:
        """Bring this node's ranks to a round, in time; by rank, what went wrong."""
        end_s = time.monotonic() + self._timeout_s
        for file, _ in ready:
            file.discard()
        ready.clear()
        node = self._mailbox.node
        self._serve(resume, hellos)
        problems: dict[int, str] = {}
        links: dict[int, Link] = {}
        stop = threading.Event()
        try:
            for rank in self._hello.peer.ranks:
                source = resume.sources[rank]
                try:
                    if source != node and source not in links:
                        peer = hellos[source].peer
                        links[source] = connect(peer, FETCH, node, self._secret, stop, end_s)
                    ready.append(self._brought(rank, resume.round_id, links.get(source), own))
                except (RelkitError, OSError) as error:
                    problems[rank] = str(error)
                    if source in links:
                        links.pop(source).close()
        finally:
            for link in links.values():
                link.close()
        return problems

    def _serve(self, resume: Resume, hellos: Mapping[int, Hello]) -> None:
        for other, hello in hellos.items():
            wanted = [r for r in hello.peer.ranks if resume.sources[r] == self._mailbox.node]
            if other != self._mailbox.node and wanted and other not in self._served:
                self._served.add(other)
                # Any of its ranks: a later plan may take another one from here.
                self._let_fetch(other, list(hello.peer.ranks))

    def _brought(
        self, rank: int, round_id: str, link: Link | None, own: int
    ) -> tuple[SlotFile, Path]:
        """A file of slots with the copy in it, under a name of its own.

        Raises:
            BadSlot: the copy is damaged, or not there; NoRoom, Broken, OSError: as they say.
        """
        if link is not None:
            header, read_into = fetch(link, Asked(rank, round_id), self._world_size)
            return self._filled(rank, header, lambda file: receive(read_into, header, file), own)
        copy = self._copies.of(rank, round_id)
        descriptor = open_private(copy.path)
        try:
            read = reader_of(descriptor, 0)
            return self._filled(
                rank, copy.header, lambda file: receive(read, copy.header, file), own
            )
        finally:
            os.close(descriptor)

    def _filled(
        self, rank: int, header: SlotHeader, fill: Callable[[Any], None], own: int
    ) -> tuple[SlotFile, Path]:
        path = slot_folder.slots_path(self._folder, rank)
        if own < 0:
            # Steps that not all ranks have: they are of no use, and take up room.
            path.unlink(missing_ok=True)
        end = slot_bytes(header)
        require_room(self._folder, end)
        owner = slot_folder.owner(self._folder, rank, self._world_size)
        file = SlotFile.create(path.with_suffix(_NEW), owner, end)
        try:
            file.reserve(0, end)
            fill(file.bytes[file.base(0) : file.base(1)])
            native_copy.publish(file.address(0), form.pack_slot_header(header, owner))
        except BaseException:
            file.discard()
            raise
        return file, path

    def _gather(self, name: str, end_s: float) -> dict[int, str]:
        """What went wrong on the other nodes, by rank.

        Args:
            end_s: monotonic time up to which they are waited for, s.

        Raises:
            ExchangeBroken: one of them has not answered in time.
        """
        keys = [f"{name}/{node}" for node in range(1, self._mailbox.nodes)]
        if not wait_for_notes(self._mailbox, keys, max(0.0, end_s - time.monotonic())):
            raise ExchangeBroken("a node has not fetched its replicas in time")
        try:
            return {
                int(rank): str(why)
                for key in keys
                for rank, why in self._get(key)["problems"].items()
                if 0 <= int(rank) < self._world_size
            }
        except _UNREADABLE as error:
            raise ExchangeBroken("a node's answer on replicas cannot be read") from error

    def _first_of(self, names: tuple[str, ...], timeout_s: float) -> str:
        end_s = time.monotonic() + timeout_s
        while True:
            for name in names:
                if self._mailbox.get(name) is not None:
                    return name
            if time.monotonic() >= end_s:
                raise ExchangeBroken("node 0 does not say what is resumed from")
            time.sleep(0.05)

    def _put(self, key: str, plain: Mapping[str, Any]) -> None:
        self._mailbox.put(key, json.dumps(plain).encode())

    def _get(self, key: str) -> Any:  # noqa: ANN401
        return parse_json(self._mailbox.get(key) or b"null")


def own_steps_of(steps: Mapping[int, list[int]]) -> tuple[tuple[int, int], ...]:
    """As rows of a Hello."""
    return tuple((rank, step) for rank, of_rank in steps.items() for step in of_rank)


def _own_steps(hellos: Mapping[int, Hello]) -> dict[int, set[int]]:
    steps: dict[int, set[int]] = {}
    for hello in hellos.values():
        for rank, step in hello.own:
            # A node speaks of its own ranks only.
            if rank in hello.peer.ranks:
                steps.setdefault(rank, set()).add(step)
    return steps


def _to_plain(resume: Resume) -> dict[str, Any]:
    sources = {str(rank): node for rank, node in resume.sources.items()}
    return {"step": resume.step, "round": resume.round_id, "sources": sources}


def _from_plain(plain: dict[str, Any]) -> Resume:
    sources = {int(rank): int(node) for rank, node in plain["sources"].items()}
    return Resume(int(plain["step"]), bytes.fromhex(plain["round"]).hex(), sources)
