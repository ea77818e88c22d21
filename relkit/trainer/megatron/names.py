"""Megatron's names in a checkpoint: of a rank's folder, of parameters, and of what must agree."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relkit.errors import BadInputFile
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.lr_schedule import decay_steps
from relkit.trainer.core.mesh import Mesh
from relkit.trainer.core.progress import Progress
from relkit.trainer.core.rng import STAGE_STRIDE
from relkit.trainer.data.samples import global_batch_size

# Of the seed of the stream that Megatron gives experts.
EXPERT_OFFSET, EXPERT_STRIDE = 1024, 100
MODEL_FILE = "model_optim_rng.pt"
OPTIMIZER_FILE = "distrib_optim.pt"
DEGREES = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "expert_model_parallel_size",
)
# A checkpoint and the run that loads it must agree in these; all else may differ.
MUST_AGREE = (
    *DEGREES,
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "max_position_embeddings",
    "position_embedding_type",
    "normalization",
    "swiglu",
    "add_bias_linear",
    "untie_embeddings_and_output_weights",
    "make_vocab_size_divisible_by",
    "padded_vocab_size",
    "num_experts",
    "tokenizer_type",
)


def rank_folder(mesh: Mesh, expert: int | None = None) -> str:
    """Folder of the files of this rank's tensor, pipeline and expert place: mp_rank_TT[_PPP][_EEE].

    Args:
        expert: another expert place than this rank's.
    """
    name = f"mp_rank_{mesh.tensor.rank:02d}"
    if mesh.pipeline.size > 1:
        name += f"_{mesh.pipeline.rank:03d}"
    if mesh.expert.size > 1:
        name += f"_{mesh.expert.rank if expert is None else expert:03d}"
    return name


def parameters(chunk: nn.Module) -> dict[str, Tensor]:
    """A chunk's parameters by Megatron's names: layers and experts counted from the first here."""
    named = dict(chunk.named_parameters())
    first_layer = _lowest(r"decoder\.layers\.(\d+)\.", named)
    first_expert = _lowest(r"\.mlp\.experts\.(\d+)\.", named)

    def local(name: str) -> str:
        name = re.sub(
            r"^decoder\.layers\.(\d+)\.",
            lambda match: f"decoder.layers.{int(match[1]) - first_layer}.",
            name,
        )
        return re.sub(
            r"\.mlp\.experts\.(\d+)\.",
            lambda match: f".mlp.experts.local_experts.{int(match[1]) - first_expert}.",
            name,
        )

    return {local(name): parameter.detach() for name, parameter in named.items()}


def _lowest(pattern: str, names: Iterable[str]) -> int:
    return min((int(match[1]) for name in names if (match := re.search(pattern, name))), default=0)


def arguments(config: TrainerConfig, mesh: Mesh, progress: Progress) -> Namespace:
    """The run's configuration under the names of Megatron's flags."""
    model, parallel, training = config.model, config.parallel, config.training
    dataset, optimizer = config.dataset, config.optimizer
    learned = model.position_embedding_type == "absolute"
    return Namespace(
        num_layers=model.num_layers,
        hidden_size=model.hidden_size,
        ffn_hidden_size=model.ffn_size,
        num_attention_heads=model.num_attention_heads,
        kv_channels=model.head_size,
        group_query_attention=model.group_query_attention,
        num_query_groups=model.query_groups,
        seq_length=model.seq_length,
        max_position_embeddings=model.positions,
        add_position_embedding=learned,
        position_embedding_type="learned_absolute" if learned else "rope",
        rotary_base=model.rotary_base,
        rotary_interleaved=model.rotary_interleaved,
        normalization=model.normalization,
        norm_epsilon=model.layernorm_epsilon,
        swiglu=model.activation == "swiglu",
        openai_gelu=model.gelu_tanh,
        add_bias_linear=model.add_bias_linear,
        untie_embeddings_and_output_weights=model.untie_embeddings_and_output_weights,
        hidden_dropout=model.hidden_dropout,
        attention_dropout=model.attention_dropout,
        init_method_std=model.init_method_std,
        vocab_size=model.vocab_size,
        make_vocab_size_divisible_by=model.make_vocab_size_divisible_by,
        padded_vocab_size=model.padded_vocab_size(mesh.tensor.size),
        num_experts=model.num_moe_experts,
        moe_router_topk=model.moe_router_topk,
        moe_aux_loss_coeff=model.moe_aux_loss_coeff,
        params_dtype=torch.float32,
        bf16=model.compute_dtype == "bfloat16",
        fp16=model.compute_dtype == "float16",
        tensor_model_parallel_size=parallel.tensor_model_parallel_size,
        pipeline_model_parallel_size=parallel.pipeline_model_parallel_size,
        virtual_pipeline_model_parallel_size=parallel.virtual_pipeline_model_parallel_size,
        expert_model_parallel_size=parallel.expert_model_parallel_size,
        sequence_parallel=parallel.sequence_parallel,
        world_size=mesh.world.size,
        data_parallel_size=mesh.data.size,
        micro_batch_size=dataset.micro_batch_size,
        global_batch_size=global_batch_size(dataset, mesh.data.size),
        data_path=[dataset.data_path],
        split=dataset.split,
        tokenizer_type=dataset.tokenizer_type or None,
        vocab_file=dataset.vocab_file or None,
        merge_file=dataset.merge_file or None,
        train_iters=training.training_iters,
        seed=training.seed,
        clip_grad=training.clip_value,
        use_distributed_optimizer=training.use_distributed_optimizer,
        optimizer=optimizer.optimizer_type.lower(),
        lr=optimizer.learning_rate,
        min_lr=optimizer.end_learning_rate,
        lr_decay_style=optimizer.lr_decay_style,
        weight_decay=optimizer.weight_decay,
        adam_beta1=optimizer.betas[0],
        adam_beta2=optimizer.betas[1],
        adam_eps=optimizer.eps,
        ckpt_format="torch",
        iteration=progress.step,
        consumed_train_samples=progress.consumed_train_samples,
        consumed_valid_samples=progress.consumed_valid_samples,
    )


def scheduler(config: TrainerConfig, mesh: Mesh, updates: int) -> dict[str, Any]:
    """The learning-rate schedule as Megatron keeps it, counted in samples.

    Args:
        updates: steps whose gradients were finite.
    """
    optimizer, iters = config.optimizer, config.training.training_iters
    samples = global_batch_size(config.dataset, mesh.data.size)
    decay, fraction = decay_steps(optimizer, iters) * samples, optimizer.warmup_fraction
    # As Megatron reckons it, to the last digit: it compares the two.
    warmup = optimizer.warmup_steps * samples if fraction is None else fraction * decay
    return {
        "max_lr": optimizer.learning_rate,
        "min_lr": optimizer.end_learning_rate,
        "lr_warmup_steps": warmup,
        "lr_decay_steps": decay,
        "lr_decay_style": optimizer.lr_decay_style,
        "num_steps": updates * samples,
        "start_wd": optimizer.weight_decay,
        "end_wd": optimizer.weight_decay,
        "wd_incr_style": "constant",
        "wd_incr_steps": iters * samples,
    }


def undrawn_streams(seed: int, mesh: Mesh) -> dict[str, Tensor]:
    """Streams that Megatron has too, and nothing here draws from: their first states, by its names.

    Args:
        seed: of the job.
    """
    seed += STAGE_STRIDE * mesh.pipeline.rank
    expert = seed + EXPERT_OFFSET + EXPERT_STRIDE * mesh.expert.rank + mesh.tensor.rank
    seeds = {"data-parallel-rng": seed, "expert-parallel-rng": expert}
    return {
        name: torch.Generator(mesh.device).manual_seed(first).get_state()
        for name, first in seeds.items()
    }


def refuse_other(saved: Mapping[str, Any], expected: Mapping[str, Any], iteration: Path) -> None:
    """Refuse a checkpoint of another model or of other degrees.

    Args:
        saved: of the checkpoint, by Megatron's names; what is not there is not looked at.
        expected: of this run, from `arguments`.

    Raises:
        BadInputFile: names the first that differs, with both values.
    """
    for name in MUST_AGREE:
        theirs, ours = saved.get(name), expected[name]
        if name == "num_query_groups" and saved.get("group_query_attention") is False:
            # Until it has made a step, Megatron's own program has the flag's default there.
            theirs = saved.get("num_attention_heads", theirs)
        if name in DEGREES:
            theirs, ours = theirs or 1, ours or 1
        if theirs is None or (name == "tokenizer_type" and ours is None):
            continue
        if theirs != ours:
            raise BadInputFile(
                f"{iteration} was written with {name} {theirs}, and this run has {ours}",
                next_step=f"Set {name} to {theirs}, or start from another checkpoint.",
            )
