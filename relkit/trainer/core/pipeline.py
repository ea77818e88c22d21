"""One step's forward and backward passes on this rank, and what travels between the stages.

The order of the passes is `schedule.py`'s; one rank alone has the same code do plain
gradient accumulation. Here is how a pass is run, and how its tensors get from stage to stage:

- Every direction of travel has a process group of its own (`Mesh.p2p_groups`). Both ends of an
  edge see the tensors in the same order, so nothing needs a tag, and with NCCL, where each group
  is a stream, a send that waits for its receiver holds up nothing but the sends behind it.
- A receive is posted one pass ahead, so that the tensor travels while this rank computes.
- A send is left behind; a rank waits for its oldest one only beyond `SENDS_UNDER_WAY`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn

from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.mesh import Mesh
from relkit.trainer.core.moe import set_aux_loss_scale
from relkit.trainer.core.schedule import (
    SENDS_UNDER_WAY,
    Action,
    P2PEdge,
    forward_schedule,
    schedule,
    source,
    target,
)
from relkit.trainer.data.samples import MicroBatch

LossFunction = Callable[[Tensor, MicroBatch], Tensor]
"""Logits [B, S, V or its part of this tensor rank] and their micro-batch to one number."""


@dataclass(slots=True)
class _Wires:
    """The sends and receives of one rank in one step."""

    mesh: Mesh
    virtual: int
    shape: tuple[int, ...]
    dtype: torch.dtype
    under_way: deque[tuple[dist.Work, Tensor]] = field(default_factory=deque)

    def expect(self, action: Action) -> tuple[dist.Work, Tensor] | None:
        """Post the receive of what a pass needs; None where it needs nothing from elsewhere."""
        edge = source(action, self.mesh.pipeline.rank, self.mesh.pipeline.size, self.virtual)
        if edge is None:
            return None
        buffer = torch.empty(self.shape, dtype=self.dtype, device=self.mesh.device)
        work = dist.irecv(buffer, self._peer(edge), group=self._group(edge))
        assert work is not None
        return work, buffer

    def send(self, action: Action, result: Tensor) -> None:
        """Start the way of a pass's result to the stage that needs it, if one does."""
        edge = target(action, self.mesh.pipeline.rank, self.mesh.pipeline.size, self.virtual)
        if edge is None:
            return
        assert result.shape == self.shape, (result.shape, self.shape)
        assert result.dtype == self.dtype, (result.dtype, self.dtype)
        result = result.detach().contiguous()
        work = dist.isend(result, self._peer(edge), group=self._group(edge))
        assert work is not None
        # The work does not keep the tensor alive.
        self.under_way.append((work, result))
        self.finish(leave=SENDS_UNDER_WAY)

    def finish(self, *, leave: int = 0) -> None:
        """Wait for sends, oldest first, until only `leave` are under way."""
        while len(self.under_way) > leave:
            work, _ = self.under_way.popleft()
            work.wait()

    def _peer(self, edge: P2PEdge) -> int:
        return self.mesh.pipeline.ranks[edge.peer]

    def _group(self, edge: P2PEdge) -> dist.ProcessGroup:
        return self.mesh.p2p_groups[edge.kind, edge.wrap]


def run_step(
    chunks: Sequence[nn.Module],
    micro_batches: Sequence[MicroBatch],
    loss_function: LossFunction,
    mesh: Mesh,
    config: TrainerConfig,
    *,
    grad_scale: float,
    forward_only: bool = False,
) -> list[Tensor]:
    """Pass every micro-batch through all stages; gradients are added to the parameters' `.grad`.

    All ranks of a pipeline must call it with the same micro-batches. No gradient is reduced here.

    Args:
        chunks: model chunks of this rank, as `build_model` made them.
        micro_batches: of this data-parallel rank; all of one shape.
        loss_function: called on the last stage, for each micro-batch.
        grad_scale: what each loss is multiplied by before its backward pass: the loss scale over
            the number of micro-batches on all data-parallel ranks, for gradients that are summed.
        forward_only: compute the losses alone (evaluation).

    Returns:
        The losses (unscaled, detached), in the order of the micro-batches; empty on a rank without
        the last stage.

    Raises:
        UsageProblem: no schedule exists for that many micro-batches.
    """
    rank, size = mesh.pipeline.rank, mesh.pipeline.size
    virtual = len(chunks)
    order = (forward_schedule if forward_only else schedule)(
        rank, size, len(micro_batches), virtual
    )
    wires = _Wires(mesh, virtual, hidden_shape(micro_batches[0], mesh, config), torch.float32)
    stage = _Stage(chunks, micro_batches, loss_function, mesh, grad_scale, forward_only)
    set_aux_loss_scale(grad_scale)
    with torch.set_grad_enabled(not forward_only):
        coming = wires.expect(order[0])
        for action, following in zip(order, (*order[1:], None), strict=True):
            arriving = coming
            coming = wires.expect(following) if following is not None else None
            received = None
            if arriving is not None:
                work, received = arriving
                work.wait()
            result = (stage.forward if action.kind == "F" else stage.backward)(action, received)
            if result is not None:
                wires.send(action, result)
    wires.finish()
    return stage.losses


def hidden_shape(micro_batch: MicroBatch, mesh: Mesh, config: TrainerConfig) -> tuple[int, ...]:
    """Shape of what travels between stages: [B, S, H]; sequence parallel ranks have a part of S."""
    samples, tokens = micro_batch.tokens.shape
    if config.parallel.sequence_parallel:
        tokens //= mesh.tensor.size
    return samples, tokens, config.model.hidden_size


@dataclass(slots=True)
class _Stage:
    """Runs this rank's passes and keeps what backward passes need of forward ones."""

    chunks: Sequence[nn.Module]
    micro_batches: Sequence[MicroBatch]
    loss_function: LossFunction
    mesh: Mesh
    grad_scale: float
    forward_only: bool
    losses: list[Tensor] = field(default_factory=list)
    kept: dict[tuple[int, int], tuple[Tensor | None, Tensor]] = field(default_factory=dict)

    def forward(self, action: Action, received: Tensor | None) -> Tensor | None:
        """Returns the activation for the next stage; None after the last one."""
        micro_batch = self.micro_batches[action.micro_batch]
        if received is None:
            tokens = micro_batch.tokens.to(self.mesh.device, non_blocking=True)
            output: Tensor = self.chunks[action.chunk](tokens)
        else:
            received.requires_grad_(not self.forward_only)
            output = self.chunks[action.chunk](received)
        result: Tensor | None = output
        if action.chunk == len(self.chunks) - 1 and self.mesh.is_last_stage:
            loss = self.loss_function(output, micro_batch)
            self.losses.append(loss.detach())
            output, result = loss * self.grad_scale, None
        if not self.forward_only:
            self.kept[action.micro_batch, action.chunk] = (received, output)
        return result

    def backward(self, action: Action, received: Tensor | None) -> Tensor | None:
        """Returns the gradient for the stage before; None before the first one."""
        given, output = self.kept.pop((action.micro_batch, action.chunk))
        torch.autograd.backward(output, received)
        return None if given is None else given.grad
