"""Makes this rank's part of the model, and the loss that its last stage computes.

The whole model exists only on torch's meta device, without storage: a rank takes its stages out of
it, cuts them, and allocates and draws no more than what it keeps.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.init import initialise
from relkit.trainer.core.mesh import Mesh
from relkit.trainer.core.model import GPT
from relkit.trainer.core.parallel import parallelize
from relkit.trainer.core.parameters import ParamInfo
from relkit.trainer.core.pipeline import LossFunction
from relkit.trainer.core.tensor_parallel import vocab_parallel_cross_entropy
from relkit.trainer.data.samples import MicroBatch


def build_model(
    config: TrainerConfig, mesh: Mesh, make: Callable[..., GPT] = GPT
) -> tuple[list[GPT], dict[str, ParamInfo]]:
    """This rank's model chunks, with their first weights, and what each of their parameters is.

    Under every layout the weights have the same bits; they depend on the seed alone.

    Args:
        config: `mesh` was built from its degrees.
        mesh: the groups of this rank.
        make: the whole model, which each chunk is taken out of.

    Returns:
        One chunk per virtual stage, in the order in which a micro-batch meets them, in training
        mode; and the parameters of all chunks by their names in the whole model.
    """
    chunks: list[GPT] = []
    infos: dict[str, ParamInfo] = {}
    for number in range(config.parallel.virtual_stages):
        chunk = _stage(config, mesh, number, make)
        of_chunk = parallelize(chunk, mesh, config)
        chunk.to_empty(device=mesh.device)
        initialise(chunk, of_chunk, config, mesh, config.training.seed)
        chunks.append(chunk.train())
        infos.update(of_chunk)
    return chunks, infos


def stage_layers(config: TrainerConfig, pipeline_rank: int, chunk: int) -> range:
    """Numbers of the layers that a chunk of a pipeline rank holds, counted over the whole model."""
    size = config.parallel.pipeline_model_parallel_size
    per_stage = config.model.num_layers // (size * config.parallel.virtual_stages)
    first = (chunk * size + pipeline_rank) * per_stage
    return range(first, first + per_stage)


def _stage(config: TrainerConfig, mesh: Mesh, number: int, make: Callable[..., GPT]) -> GPT:
    """The chunk of that number without storage: whatever other stages hold is taken out."""
    model = config.model
    is_first = mesh.is_first_stage and number == 0
    is_last = mesh.is_last_stage and number == config.parallel.virtual_stages - 1
    rows = model.padded_vocab_size(mesh.tensor.size)
    with torch.device("meta"):
        chunk = make(model, vocab_rows=rows)
        if is_last and not is_first and not model.untie_embeddings_and_output_weights:
            assert chunk.output_layer is not None
            chunk.output_layer.weight = nn.Parameter(torch.empty(rows, model.hidden_size))
    held = stage_layers(config, mesh.pipeline.rank, number)
    for layer in range(model.num_layers):
        if layer not in held:
            del chunk.decoder.layers[str(layer)]
    if not is_first:
        chunk.embedding = None
    if not is_last:
        chunk.decoder.final_layernorm = None
        chunk.output_layer = None
    return chunk


def loss_function(config: TrainerConfig, mesh: Mesh) -> LossFunction:
    """What the last stage computes of its logits: the mean cross entropy of the unmasked tokens.

    Rows that only pad the vocabulary take no part, so the loss does not depend on how far the
    tensor degree made it grow.
    """
    local = config.model.padded_vocab_size(mesh.tensor.size) // mesh.tensor.size
    real = max(0, min(local, config.model.vocab_size - mesh.tensor.rank * local))

    def loss(logits: Tensor, micro_batch: MicroBatch) -> Tensor:
        labels = micro_batch.labels.to(logits.device, non_blocking=True)
        mask = micro_batch.loss_mask.to(logits.device, non_blocking=True)
        if real < local:
            # Behind autograd's back: their gradient is softmax's exact zero anyway, and for an
            # operation that it knew of it would copy all logits, the step's largest tensor.
            logits.data[..., real:] = float("-inf")
        per_token = vocab_parallel_cross_entropy(logits, labels, mesh.tensor)
        return (per_token * mask).sum() / mask.sum().clamp(min=1)

    return loss
