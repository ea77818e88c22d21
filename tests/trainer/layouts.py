"""The layouts that are held against one process, and small models that each fits."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from relkit.trainer.config.config import (
    DatasetConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    TrainerConfig,
    TrainingConfig,
)
from relkit.trainer.data.samples import MicroBatch

SONNETS = Path(__file__).parents[2] / "examples" / "data" / "sonnets.txt"
SEQ_LENGTH = 32
MICRO_BATCHES = 4
"""Of a step, over all data-parallel ranks."""
SAMPLES = 4
"""Of a micro-batch."""
FIRST_TOKEN = 20
"""Of the text's 60; so each of two tensor ranks has some of them among its 64 rows."""

GPT2 = ModelConfig(
    num_layers=4,
    hidden_size=32,
    num_attention_heads=4,
    seq_length=SEQ_LENGTH,
    # Padded to 96 rows by one tensor rank, and to 128 by two.
    vocab_size=85,
    make_vocab_size_divisible_by=32,
    hidden_dropout=0.0,
    attention_dropout=0.0,
)
LLAMA = replace(
    GPT2,
    group_query_attention=True,
    num_query_groups=2,
    position_embedding_type="rope",
    normalization="RMSNorm",
    activation="swiglu",
    add_bias_linear=False,
    untie_embeddings_and_output_weights=True,
)
EXPERTS = replace(LLAMA, num_moe_experts=4, moe_router_topk=2, moe_aux_loss_coeff=0.02)
MODELS = {"gpt2": GPT2, "llama": LLAMA, "experts": EXPERTS}


@dataclass(frozen=True)
class Layout:
    """Degrees, the ranks that they take, and what is tried on them.

    Args:
        models: keys of `MODELS` that take one step.
        goes_on: whether the first of them takes fifty.
    """

    name: str
    ranks: int
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    distributed_optimizer: bool = False
    models: tuple[str, ...] = ("gpt2", "llama")
    goes_on: bool = True

    def config(self, model: str, optimizer: OptimizerConfig | None = None) -> TrainerConfig:
        """The whole configuration for one of `MODELS`."""
        return TrainerConfig(
            training=TrainingConfig(
                training_iters=50, use_distributed_optimizer=self.distributed_optimizer
            ),
            model=MODELS[model],
            parallel=self.parallel,
            dataset=DatasetConfig(
                micro_batch_size=SAMPLES, global_batch_size=SAMPLES * MICRO_BATCHES
            ),
            optimizer=optimizer or OptimizerConfig(),
        )


ALONE = Layout("alone", 1, models=tuple(MODELS))

_ALL = ParallelConfig(tensor_model_parallel_size=2, pipeline_model_parallel_size=2)
LAYOUTS = (
    Layout("TP2", 2, ParallelConfig(tensor_model_parallel_size=2), models=tuple(MODELS)),
    Layout(
        "SP2",
        2,
        ParallelConfig(tensor_model_parallel_size=2, sequence_parallel=True),
        models=tuple(MODELS),
    ),
    Layout("PP2", 2, ParallelConfig(pipeline_model_parallel_size=2)),
    Layout(
        "PP2 with 2 virtual stages",
        2,
        ParallelConfig(pipeline_model_parallel_size=2, virtual_pipeline_model_parallel_size=2),
    ),
    Layout("DP2", 2),
    Layout("DP2 with distributed optimizer", 2, distributed_optimizer=True),
    Layout("EP2", 2, ParallelConfig(expert_model_parallel_size=2), models=("experts",)),
    Layout(
        "EP2 with distributed optimizer",
        4,
        ParallelConfig(expert_model_parallel_size=2),
        distributed_optimizer=True,
        models=("experts",),
        goes_on=False,
    ),
    Layout("TP2xPP2xDP2", 8, _ALL),
    Layout(
        "all at once",
        8,
        ParallelConfig(
            tensor_model_parallel_size=2,
            pipeline_model_parallel_size=2,
            virtual_pipeline_model_parallel_size=2,
            expert_model_parallel_size=2,
            sequence_parallel=True,
        ),
        distributed_optimizer=True,
        models=("experts",),
        goes_on=False,
    ),
)


@functools.cache
def _tokens() -> torch.Tensor:
    text = SONNETS.read_text(encoding="utf-8")
    numbers = {character: n for n, character in enumerate(sorted(set(text)), FIRST_TOKEN)}
    return torch.tensor([numbers[character] for character in text])


def micro_batches(step: int, *, rank: int, ranks: int) -> list[MicroBatch]:
    """A data-parallel rank's share of a step on the sonnets; characters are tokens.

    Some labels of each sample are left out of its loss, as many in each.
    """
    tokens = _tokens()
    generator = torch.Generator().manual_seed(step)
    starts = torch.randint(
        len(tokens) - SEQ_LENGTH - 1, (MICRO_BATCHES, SAMPLES), generator=generator
    )
    made = []
    for several in starts[rank::ranks]:
        samples = torch.stack(
            [tokens[start : start + SEQ_LENGTH + 1] for start in several.tolist()]
        )
        mask = torch.ones(SAMPLES, SEQ_LENGTH)
        mask[:, :3] = 0
        made.append(MicroBatch(samples[:, :-1], samples[:, 1:], mask))
    return made
