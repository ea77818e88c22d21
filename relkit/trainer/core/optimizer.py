"""The optimizer: flat fp32 state, whole on every data-parallel rank or a shard on each.

A step has phases, in this order; only the update does not communicate:

    reduce_gradients()      sums gradients over ranks
    facts = prepare(scale)  norm, finiteness, clipping: all that the update needs
    update(facts, rate)     elementwise on this rank's shard
    gather_parameters()     every rank gets the shards of the others

So once `prepare` has returned, a rank can finish the step whatever becomes of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from relkit.errors import BadInputFile
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.clipping import StepFacts, step_facts
from relkit.trainer.core.flat_buffer import FlatBuffer
from relkit.trainer.core.mesh import Group, Mesh
from relkit.trainer.core.model import GPT
from relkit.trainer.core.parallel import finish_gradients
from relkit.trainer.core.parameters import ParamInfo
from relkit.trainer.kernels.came import CameParameter
from relkit.trainer.kernels.fused_optimizers import MOMENTS, FusedGroup
from relkit.ttp.replicas import ReplicaMap

WORD_EMBEDDING = "embedding.word_embeddings.weight"


def build_optimizer(
    chunks: Sequence[GPT],
    infos: Mapping[str, ParamInfo],
    config: TrainerConfig,
    mesh: Mesh,
    *,
    shards: tuple[Group, Group] | None = None,
    replicas: tuple[ReplicaMap, ReplicaMap] | None = None,
) -> Optimizer:
    """Move this rank's parameters into flat buffers and make the optimizer of them.

    From then on parameters and their `.grad` are views of the buffers: gradients are to be added to
    (`zero_grad` clears them), never replaced.

    Args:
        chunks: of `build_model`, with their first weights.
        infos: of all their parameters, by name.
        shards: ranks over which dense and expert state is spread, each the reducing group or a part
            of it; None: that group with use_distributed_optimizer, this rank alone without.
        replicas: who keeps copies of dense and of expert shards; None: nobody. Without
            use_distributed_optimizer every rank has everything, and this is not looked at.
    """
    if shards is None:
        shards = (mesh.data, mesh.expert_data)
        if not config.training.use_distributed_optimizer:
            me = mesh.world.global_rank
            shards = (Group(None, (me,), 0, 1), Group(None, (me,), 0, 1))
            replicas = None
    return Optimizer(chunks, infos, config, mesh, shards, replicas)


class Optimizer:
    """What `build_optimizer` makes.

    Attributes:
        buffers: for each chunk its dense parameters, then its experts' where it has any.
        places: (chunk, whether of experts) of each buffer.
        moments: for each buffer, by name, this rank's shard of each bucket.
        copied: for each buffer, by the number of a shard that is another rank's, the same of it.
        came: CAME's memory by parameter; empty for the other optimizers.
        steps: updates done; steps that were skipped do not count.
    """

    def __init__(
        self,
        chunks: Sequence[GPT],
        infos: Mapping[str, ParamInfo],
        config: TrainerConfig,
        mesh: Mesh,
        shards: tuple[Group, Group],
        replicas: tuple[ReplicaMap, ReplicaMap] | None,
    ) -> None:
        self.chunks, self.infos, self.config, self.mesh = chunks, infos, config, mesh
        self.buffers: list[FlatBuffer] = []
        self.places: list[tuple[int, bool]] = []
        self.steps = 0
        for number, chunk in enumerate(chunks):
            for expert in (False, True):
                parameters = [
                    (name, parameter, self.is_shared(infos[name]))
                    for name, parameter in chunk.named_parameters()
                    if infos[name].expert is expert
                ]
                if parameters:
                    reduce = mesh.expert_data if expert else mesh.data
                    buffer = FlatBuffer(
                        parameters,
                        reduce=reduce,
                        shard=shards[expert],
                        replicas=None if replicas is None else replicas[expert],
                    )
                    self.buffers.append(buffer)
                    self.places.append((number, expert))
        self.moments = [self._start_moments(buffer, buffer.shards) for buffer in self.buffers]
        self.copied = [
            {n: self._start_moments(buffer, parts) for n, parts in buffer.copies.items()}
            for buffer in self.buffers
        ]
        self.came = self._start_came() if config.optimizer.optimizer_type == "CAME" else {}
        self._groups = () if self.came else self._start_groups()
        self._counted = [
            buffer.gradients[part]
            for buffer in self.buffers
            for _, part, counts in buffer.runs(buffer.measured, self._counts)
            if counts
        ]

    def zero_grad(self) -> None:
        """Clear every gradient."""
        for buffer in self.buffers:
            buffer.gradients.zero_()

    def reduce_gradients(self) -> None:
        """Sum gradients over tensor, embedding and data ranks; of shards, this rank's only."""
        finish_gradients(self.chunks, self.infos, self.mesh)
        for buffer in self.buffers:
            buffer.reduce_gradients()

    def prepare(self, loss_scale: float = 1.0) -> StepFacts:
        """Measure the reduced gradient; the last collective before the update.

        Args:
            loss_scale: factor in the gradients.
        """
        return step_facts(self._counted, self.mesh, self.config.training, loss_scale)

    def update(self, facts: StepFacts, learning_rate: float) -> None:
        """One step of all shards held, without any communication; none if not finite."""
        if not facts.finite:
            return
        config = self.config.optimizer
        divisor = facts.loss_scale / facts.clip_coefficient
        if self.config.training.grad_clip_type == "GradClipByValue" or self.came:
            for buffer in self.buffers:
                for part in buffer.held:
                    self._unscale_and_clip(buffer.gradients[part], divisor)
            divisor = 1.0
        for group in self._groups:
            group.update(config, learning_rate, divisor)
        for memory in self.came.values():
            memory.update(learning_rate, config)
        self.steps += 1

    def shard(self, number: int, shard: int) -> dict[str, list[Tensor]]:
        """A shard of a buffer that this rank holds: "param" and the moments, a tensor a bucket.

        Raises:
            KeyError: it does not hold it.
        """
        buffer = self.buffers[number]
        if shard == buffer.shard_group.rank:
            parts, moments = buffer.shards, self.moments[number]
        else:
            parts, moments = buffer.copies[shard], self.copied[number][shard]
        return {"param": [buffer.parameters[part] for part in parts], **moments}

    def changing(self) -> list[Tensor]:
        """Views of everything that an update changes on this rank, but for `steps`."""
        views: list[Tensor] = []
        for group in self._groups:
            views += group.values + group.steps
            views += [moment for moments in group.moments.values() for moment in moments]
        for memory in self.came.values():
            views += [memory.value, *memory.state.values()]
        return views

    def gather_parameters(self) -> None:
        """Give every rank the parameters that others updated."""
        for buffer in self.buffers:
            buffer.gather(buffer.parameters)

    def full_state(self) -> dict[str, Any]:
        """The state without its cuts over data-parallel ranks; all ranks must call it.

        Returns:
            "steps"; "buffers": for each buffer a dict of "param" and the moments (fp32 on the CPU,
            unpadded as in Megatron's distrib_optim.pt), or None on ranks that are not the first of
            the buffer's reducing group (where each rank has all of it: of the expert-data group);
            "came": by parameter name, for CAME.
        """
        return {
            "steps": self.steps,
            "buffers": [
                self._gathered(buffer, moments)
                for buffer, moments in zip(self.buffers, self.moments, strict=True)
            ],
            "came": {
                name: {key: tensor.cpu().clone() for key, tensor in memory.state.items()}
                for name, memory in self.came.items()
            },
        }

    def load_full_state(self, state: Mapping[str, Any]) -> None:
        """Take over what `full_state` gave on however many data-parallel ranks; no communication.

        Raises:
            BadInputFile: it is of another optimizer or another model.
        """
        buffers = state["buffers"]
        if len(buffers) != len(self.buffers) or set(state["came"]) != set(self.came):
            raise BadInputFile("the optimizer state is of another optimizer or another layout")
        for number, (buffer, moments) in enumerate(zip(self.buffers, self.moments, strict=True)):
            saved = buffers[number] or {}
            for name in ("param", *moments):
                size = saved[name].numel() if name in saved else None
                if size != buffer.layout.unpadded_size:
                    raise BadInputFile(
                        f"the optimizer state has {'no' if size is None else size} elements of"
                        f" {name} in buffer {number}; the model has {buffer.layout.unpadded_size}"
                    )
            for bucket, whole in zip(
                buffer.layout.buckets, buffer.padded(saved["param"]), strict=True
            ):
                buffer.parameters[bucket.start : bucket.end] = whole
            group = buffer.shard_group
            held = {group.rank: moments, **self.copied[number]}
            for name in moments:
                for bucket_number, whole in enumerate(buffer.padded(saved[name])):
                    cut = whole.chunk(group.size)
                    for shard, kept in held.items():
                        kept[name][bucket_number].copy_(cut[shard])
        for name, memory in self.came.items():
            for key, tensor in memory.state.items():
                tensor.copy_(state["came"][name][key])
        self.set_steps(state["steps"])

    def set_steps(self, steps: int) -> None:
        """Say how many updates the loaded moments have seen."""
        self.steps = steps
        for group in self._groups:
            for step in group.steps:
                step.fill_(steps)

    def _gathered(
        self, buffer: FlatBuffer, moments: Mapping[str, Sequence[Tensor]]
    ) -> dict[str, Tensor] | None:
        pieces = {"param": [buffer.parameters[own] for own in buffer.shards], **moments}
        group = buffer.shard_group
        gathered: dict[str, Tensor] = {}
        for name, shards in pieces.items():
            buckets = []
            for shard in shards:
                parts = [shard]
                if group.size > 1:
                    parts = [torch.empty_like(shard) for _ in range(group.size)]
                    to = parts if group.rank == 0 else None
                    dist.gather(shard, to, dst=group.ranks[0], group=group.process_group)
                buckets.append(torch.cat(parts))
            gathered[name] = buffer.unpadded(buckets).cpu()
        # Each expert place has a file of its own; Megatron's plain form has dense moments in all.
        first = self.mesh.expert_data if group.size == 1 else buffer.reduce_group
        return gathered if first.rank == 0 else None

    def is_shared(self, info: ParamInfo) -> bool:
        """Whether two pipeline stages hold it, which gives it a bucket of its own."""
        tied = not self.config.model.untie_embeddings_and_output_weights
        first = tied and self.mesh.pipeline.size > 1 and info.name == WORD_EMBEDDING
        return info.tied_copy or first

    def _counts(self, name: str) -> bool:
        """Whether this rank is the one that counts it in the gradient norm."""
        info = self.infos[name]
        return not info.tied_copy and (info.dim is not None or self.mesh.tensor.rank == 0)

    def _start_moments(self, buffer: FlatBuffer, parts: Sequence[slice]) -> dict[str, list[Tensor]]:
        return {
            name: [torch.zeros_like(buffer.parameters[part]) for part in parts]
            for name in MOMENTS[self.config.optimizer.optimizer_type]
        }

    def _start_groups(self) -> tuple[FusedGroup, FusedGroup]:
        decayed = FusedGroup(self.config.optimizer.weight_decay)
        others = FusedGroup(0.0)
        for number, buffer in enumerate(self.buffers):
            held = [(buffer.shards, self.moments[number])]
            held += [(buffer.copies[n], copied) for n, copied in self.copied[number].items()]
            for parts, moments in held:
                for bucket, run, decay in buffer.runs(parts, lambda n: self.infos[n].decay):
                    start = parts[bucket].start
                    inside = slice(run.start - start, run.stop - start)
                    (decayed if decay else others).add(
                        buffer.parameters[run],
                        buffer.gradients[run],
                        {name: kept[bucket][inside] for name, kept in moments.items()},
                    )
        return decayed, others

    def _start_came(self) -> dict[str, CameParameter]:
        return {
            name: CameParameter.start(
                parameter.detach(), parameter.grad, decay=self.infos[name].decay
            )
            for chunk in self.chunks
            for name, parameter in chunk.named_parameters()
            if parameter.grad is not None
        }

    def _unscale_and_clip(self, gradients: Tensor, divisor: float) -> None:
        if divisor != 1:
            gradients.div_(divisor)
        training = self.config.training
        if training.grad_clip_type == "GradClipByValue" and training.clip_value > 0:
            gradients.clamp_(-training.clip_value, training.clip_value)
