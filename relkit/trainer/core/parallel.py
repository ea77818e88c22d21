"""Cuts a GPT for tensor, sequence and expert parallelism, by replacing modules of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.collectives import all_reduce
from relkit.trainer.core.expert_parallel import expert_dispatch, show_whole_samples
from relkit.trainer.core.init import shard
from relkit.trainer.core.mesh import Group, Mesh
from relkit.trainer.core.model import GPT, MLP, Embedding, TransformerLayer
from relkit.trainer.core.moe import MoELayer
from relkit.trainer.core.parameters import ParamInfo
from relkit.trainer.core.rng import ForkedRng
from relkit.trainer.core.tensor_parallel import (
    ColumnParallelLinear,
    ParallelOutputLayer,
    PartOfSumLinear,
    RowParallelLinear,
    SpreadSequence,
    VocabParallelEmbedding,
)

WORD_EMBEDDINGS = "embedding.word_embeddings.weight"
HEAD = "output_layer.weight"
# Dimension that the tensor ranks share; what is not here, every one of them has whole.
SHARD_DIMENSIONS = {
    "word_embeddings.weight": 0,
    "output_layer.weight": 0,
    "linear_qkv.weight": 0,
    "linear_qkv.bias": 0,
    "linear_proj.weight": 1,
    "linear_fc1.weight": 0,
    "linear_fc1.bias": 0,
    "linear_fc2.weight": 1,
}


def parallelize(model: GPT, mesh: Mesh, config: TrainerConfig) -> dict[str, ParamInfo]:
    """Cut a model, or one pipeline stage of it, into this rank's part, in place.

    Works on torch's meta device, and on weights that are there (each rank then keeps its part of
    them). The rows of its embedding and head must divide by the tensor degree.

    Args:
        mesh: built from the degrees of `config`.

    Returns:
        What each parameter of `model.named_parameters()` is, by that name. A tied head's copy of
        the embedding is under `output_layer.weight`, with the embedding's name in its `ParamInfo`.
    """
    if mesh.expert.size > 1:
        _keep_own_experts(model, mesh.expert)
    tied = not config.model.untie_embeddings_and_output_weights
    sequence = config.parallel.sequence_parallel and mesh.tensor.size > 1
    infos = {
        name: _describe(name, parameter, config, mesh, tied=tied, sequence=sequence)
        for name, parameter in model.named_parameters()
    }
    if mesh.tensor.size > 1:
        for name, whole in list(model.named_parameters()):
            piece = shard(whole.detach(), infos[name], mesh.tensor.rank, mesh.tensor.size)
            holder, _, attribute = name.rpartition(".")
            setattr(model.get_submodule(holder), attribute, nn.Parameter(piece))
        for module in list(model.modules()):
            _replace(module, mesh.tensor, sequence=sequence)
    for module in model.modules():
        if isinstance(module, MoELayer) and (mesh.expert.size > 1 or mesh.tensor.size > 1):
            module.dispatch = expert_dispatch(mesh.expert, mesh.tensor)
            if sequence:
                show_whole_samples(module, mesh.tensor)
    return infos


def finish_gradients(chunks: Sequence[GPT], infos: Mapping[str, ParamInfo], mesh: Mesh) -> None:
    """Sum what ranks of one model replica know of a gradient only in part, in place in `.grad`.

    These are gradients of norms and biases that saw this rank's tokens only (over the tensor
    group), and those of a tied embedding that the first and the last stage hold. Comes after the
    last backward pass of a step, before the reduction over data-parallel ranks; all ranks call it.

    Args:
        chunks: model chunks of this rank.
        infos: what `parallelize` returned, of all chunks.
    """
    partial, tied = [], []
    for chunk in chunks:
        for name, parameter in chunk.named_parameters():
            if infos[name].partial:
                partial.append(_gradient(parameter))
            if infos[name].name == WORD_EMBEDDINGS:
                tied.append(_gradient(parameter))
    _sum_together(partial, mesh.tensor)
    _sum_together(tied, mesh.embedding)


def _describe(
    name: str,
    parameter: nn.Parameter,
    config: TrainerConfig,
    mesh: Mesh,
    *,
    tied: bool,
    sequence: bool,
) -> ParamInfo:
    cut = next((dim for ending, dim in SHARD_DIMENSIONS.items() if name.endswith(ending)), None)
    gated = config.model.activation == "swiglu" and ".linear_fc1." in name
    expert = ".experts." in name
    # Norms and the biases of row-parallel layers work on this rank's tokens; but experts and their
    # router see all of them, and each rank adds its share of an expert's bias.
    on_own_tokens = sequence and cut is None and parameter.dim() == 1 and not expert
    share = mesh.tensor.size > 1 and expert and cut is None
    copy = tied and name == HEAD
    return ParamInfo(
        name=WORD_EMBEDDINGS if copy else name,
        full_shape=tuple(parameter.shape),
        dim=cut,
        parts=2 if gated else 1,
        # Where each rank has all of them, they are as all else: one buffer, one reduction.
        expert=expert and mesh.expert.size > 1,
        partial=on_own_tokens or share,
        tied_copy=copy,
        decay=parameter.dim() > 1,
    )


def _keep_own_experts(model: GPT, expert: Group) -> None:
    for module in model.modules():
        if isinstance(module, MoELayer):
            numbers = list(module.experts)
            each = len(numbers) // expert.size
            kept = numbers[expert.rank * each : (expert.rank + 1) * each]
            for number in set(numbers) - set(kept):
                del module.experts[number]


def _replace(module: nn.Module, tensor: Group, *, sequence: bool) -> None:
    """Give one module of the model, whose parameters are cut already, its parallel parts."""
    if isinstance(module, Embedding):
        module.add_module("word_embeddings", VocabParallelEmbedding(module.word_embeddings, tensor))
        if sequence:
            module.spread = SpreadSequence(tensor)
            _fork_dropout(module, "dropout")
    elif isinstance(module, TransformerLayer):
        attention = module.self_attention
        _fork_dropout(attention, "core_attention")
        _replace_pair(attention, "linear_qkv", "linear_proj", tensor, sequence=sequence)
        if isinstance(module.mlp, MLP):
            _replace_pair(module.mlp, "linear_fc1", "linear_fc2", tensor, sequence=sequence)
        else:
            for expert in module.mlp.experts.values():
                last = expert.get_submodule("linear_fc2")
                assert isinstance(last, nn.Linear)
                expert.add_module("linear_fc2", PartOfSumLinear(last, tensor))
        if sequence:
            _fork_dropout(module, "attention_dropout")
            _fork_dropout(module, "mlp_dropout")
    elif isinstance(module, GPT) and module.output_layer is not None:
        head = ParallelOutputLayer(module.output_layer, tensor, sequence=sequence)
        module.add_module("output_layer", head)


def _replace_pair(
    holder: nn.Module, column: str, row: str, tensor: Group, *, sequence: bool
) -> None:
    first, last = holder.get_submodule(column), holder.get_submodule(row)
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    holder.add_module(column, ColumnParallelLinear(first, tensor, sequence=sequence))
    holder.add_module(row, RowParallelLinear(last, tensor, sequence=sequence))


def _fork_dropout(holder: nn.Module, name: str) -> None:
    inner = holder.get_submodule(name)
    if inner.p if isinstance(inner, nn.Dropout) else inner.dropout:
        holder.add_module(name, ForkedRng(inner))


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        # No micro-batch reached it here; on the other ranks one may have.
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _sum_together(gradients: Sequence[Tensor], group: Group) -> None:
    """One all-reduce for all of them."""
    if group.size == 1 or not gradients:
        return
    flat = all_reduce(torch.cat([gradient.flatten() for gradient in gradients]), group)
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, total in zip(gradients, torch.split(flat, sizes), strict=True):
        gradient.copy_(total.view_as(gradient))
