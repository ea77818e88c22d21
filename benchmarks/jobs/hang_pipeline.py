"""Pipelines of one stage or two chunks a rank, under gloo, that go wrong.

--schedule gpipe: blocking sends and receives with tags; 1f1b: blocking ones, even ranks send
first; batched: 1F1B in which every exchange is one batch_isend_irecv; interleaved: two chunks a
rank, 1F1B, sends in the background. Every step ends with a collective.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor

from benchmarks.jobs.hang_faults import Fault, options

MICRO_BATCHES, CHUNKS, WIDTH = 8, 2, 256


@dataclass(frozen=True, slots=True)
class Part:
    """A send or receive: of an activation (forward) or gradient, of a micro-batch."""

    sends: bool
    peer: int
    forward: bool
    micro_batch: int


@dataclass(slots=True)
class Stage:
    """One rank of the pipeline.

    Args:
        fault: of the job; schedule: of the job; rank, size: its place.
        step: that it is in; pending: sends that it has not waited for.
    """

    fault: Fault
    schedule: str
    rank: int
    size: int
    step: int = 0
    pending: list[tuple[dist.Work | None, Tensor]] = field(default_factory=list)

    def here(self, name: str, micro_batch: int) -> bool:
        """This fault, now."""
        return self.fault.here(name, self.rank, self.step, micro_batch)

    def compute(self, micro_batch: int) -> None:
        """The forward pass of a micro-batch."""
        self.fault.on_host(self.rank, self.step, micro_batch)

    def exchange(self, *parts: Part) -> None:
        """All of these, as the schedule's library does it."""
        kept = [part for part in parts if not self._left_out(part)]
        if self.schedule == "batched":
            if kept:
                self._batch(kept)
        elif self.schedule == "interleaved":
            for part in kept:
                self._in_background(part)
        else:
            first = self.rank % 2 == 0
            if any(self.here("swap", part.micro_batch) for part in parts if part.forward):
                first = not first
            for part in sorted(kept, key=lambda part: part.sends is not first):
                self._blocking(part)

    def _left_out(self, part: Part) -> bool:
        way = "send" if part.sends else "recv"
        kind = "" if part.forward else "-gradient"
        return self.here(f"skip-{way}{kind}", part.micro_batch)

    def _tensor(self, part: Part) -> Tensor:
        larger = part.sends and part.forward and self.here("larger-send", part.micro_batch)
        less = not part.sends and part.forward and self.here("smaller-recv", part.micro_batch)
        return torch.ones(2 * WIDTH if larger else WIDTH // 2 if less else WIDTH)

    def _peer(self, part: Part) -> int:
        wrong = part.sends and part.forward and self.here("peer", part.micro_batch)
        return (part.peer + 1) % self.size if wrong else part.peer

    def _blocking(self, part: Part) -> None:
        call = dist.send if part.sends else dist.recv
        tag = part.micro_batch if self.schedule == "gpipe" else 0
        call(self._tensor(part), self._peer(part), tag=tag)

    def _batch(self, parts: list[Part]) -> None:
        ops = [
            dist.P2POp(dist.isend if p.sends else dist.irecv, self._tensor(p), self._peer(p))
            for p in parts
        ]
        for work in dist.batch_isend_irecv(ops):
            work.wait()

    def _in_background(self, part: Part) -> None:
        tensor = self._tensor(part)
        if part.sends:
            self.pending.append((dist.isend(tensor, self._peer(part)), tensor))
        else:
            dist.recv(tensor, self._peer(part))

    def end_step(self) -> None:
        """Wait for the sends, and add up the loss."""
        for work, _ in self.pending:
            if work is not None:
                work.wait()
        self.pending.clear()
        if not self.fault.here("skip-collective", self.rank, self.step):
            dist.all_reduce(torch.ones(1))

    def _ways(self, micro_batch: int) -> tuple[list[Part], list[Part], list[Part], list[Part]]:
        """Receive and send forward, receive and send backward; empty at the ends."""
        before = [self.rank - 1] if self.rank else []
        after = [self.rank + 1] if self.rank < self.size - 1 else []
        return (
            [Part(sends=False, peer=p, forward=True, micro_batch=micro_batch) for p in before],
            [Part(sends=True, peer=p, forward=True, micro_batch=micro_batch) for p in after],
            [Part(sends=False, peer=p, forward=False, micro_batch=micro_batch) for p in after],
            [Part(sends=True, peer=p, forward=False, micro_batch=micro_batch) for p in before],
        )

    def gpipe(self) -> None:
        """All micro-batches forward, then all backward."""
        order = list(range(MICRO_BATCHES))
        wrong = self.fault.micro_batch
        if self.here("order", wrong):
            order[wrong], order[wrong + 1] = order[wrong + 1], order[wrong]
        for micro_batch in order:
            receive, send, _, _ = self._ways(micro_batch)
            self.exchange(*receive)
            self.compute(micro_batch)
            self.exchange(*send)
        for micro_batch in reversed(range(MICRO_BATCHES)):
            _, _, receive, send = self._ways(micro_batch)
            self.exchange(*receive)
            self.exchange(*send)

    def one_forward_one_backward(self) -> None:
        """Warm-up, one forward and one backward in turn, then what is left of the backward."""
        warm = self.size - self.rank - 1
        if self.fault.here("warm-up", self.rank, self.step):
            warm -= 2
        for micro_batch in range(warm):
            receive, send, _, _ = self._ways(micro_batch)
            self.exchange(*receive)
            self.compute(micro_batch)
            self.exchange(*send)
        self.exchange(*self._ways(warm)[0])
        for back in range(MICRO_BATCHES - warm):
            self.compute(back + warm)
            self.exchange(*self._ways(back + warm)[1], *self._ways(back)[2])
            more = back + warm + 1 < MICRO_BATCHES
            receive = self._ways(back + warm + 1)[0] if more else []
            self.exchange(*self._ways(back)[3], *receive)
        for back in range(MICRO_BATCHES - warm, MICRO_BATCHES):
            self.exchange(*self._ways(back)[2])
            self.exchange(*self._ways(back)[3])

    def interleaved(self) -> None:
        """1F1B over two chunks a rank: the virtual stages go around all ranks twice."""
        total = MICRO_BATCHES * CHUNKS
        warm = min((self.size - self.rank - 1) * 2 + (CHUNKS - 1) * self.size, total)
        for number in range(warm):
            self._chunk_forward(number)
        for number in range(warm, total):
            self._chunk_forward(number)
            self._chunk_backward(number - warm)
        for number in range(total - warm, total):
            self._chunk_backward(number)

    def _chunk_forward(self, number: int) -> None:
        chunk = number // self.size % CHUNKS
        if (self.rank, chunk) != (0, 0):
            before = (self.rank - 1) % self.size
            self.exchange(Part(sends=False, peer=before, forward=True, micro_batch=number))
        self.compute(number)
        if (self.rank, chunk) != (self.size - 1, CHUNKS - 1):
            after = (self.rank + 1) % self.size
            self.exchange(Part(sends=True, peer=after, forward=True, micro_batch=number))

    def _chunk_backward(self, number: int) -> None:
        chunk = CHUNKS - 1 - number // self.size % CHUNKS
        if (self.rank, chunk) != (self.size - 1, CHUNKS - 1):
            after = (self.rank + 1) % self.size
            self.exchange(Part(sends=False, peer=after, forward=False, micro_batch=number))
        if (self.rank, chunk) != (0, 0):
            before = (self.rank - 1) % self.size
            self.exchange(Part(sends=True, peer=before, forward=False, micro_batch=number))


def main() -> None:
    """Run the job."""
    fault, given = options("schedule")
    dist.init_process_group("gloo")
    stage = Stage(fault, given.schedule, dist.get_rank(), dist.get_world_size())
    schedules = {"gpipe": stage.gpipe, "interleaved": stage.interleaved}
    train = schedules.get(given.schedule, stage.one_forward_one_backward)
    for step in range(given.steps):
        stage.step = step
        train()
        stage.end_step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
