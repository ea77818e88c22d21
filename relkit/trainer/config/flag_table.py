"""Megatron's flags: which field each sets, and which are taken without any effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Flag:
    """A flag that sets one field.

    Args:
        name: with its dashes; field: e.g. "model.num_layers"; help: what it says in --help.
        kind: of its value; None for a switch, which sets `constant`.
    """

    name: str
    field: str
    help: str
    kind: type | None = int
    constant: Any = True


def _switch(name: str, field: str, help: str, constant: object = True) -> Flag:
    return Flag(name, field, help, None, constant)


FLAGS: tuple[Flag, ...] = (
    Flag("--num-layers", "model.num_layers", "transformer layers of the whole model"),
    Flag("--hidden-size", "model.hidden_size", "width of the residual stream"),
    Flag("--ffn-hidden-size", "model.ffn_hidden_size", "width of the feed-forward part"),
    Flag("--num-attention-heads", "model.num_attention_heads", "query heads"),
    _switch("--group-query-attention", "model.group_query_attention", "share keys and values"),
    Flag("--num-query-groups", "model.num_query_groups", "key and value heads"),
    Flag("--seq-length", "model.seq_length", "tokens of a sample"),
    Flag("--max-position-embeddings", "model.max_position_embeddings", "absolute positions"),
    Flag("--vocab-size", "model.vocab_size", "tokens; else those of the tokenizer's files"),
    Flag("--make-vocab-size-divisible-by", "model.make_vocab_size_divisible_by", "padding"),
    _switch(
        "--use-rotary-position-embeddings",
        "model.position_embedding_type",
        "as --position-embedding-type rope",
        "rope",
    ),
    Flag("--rotary-base", "model.rotary_base", "base of the rotary angles", float),
    _switch("--rotary-interleaved", "model.rotary_interleaved", "pairs are neighbours"),
    Flag("--normalization", "model.normalization", "LayerNorm or RMSNorm", str),
    Flag("--norm-epsilon", "model.layernorm_epsilon", "added to the variance", float),
    _switch("--swiglu", "model.activation", "SwiGLU in place of GELU", "swiglu"),
    _switch(
        "--no-bias-gelu-fusion",
        "model.gelu_tanh",
        "GELU by erf, not by Megatron's fused kernel, which is the tanh approximation",
        False,
    ),
    _switch("--disable-bias-linear", "model.add_bias_linear", "no biases in layers", False),
    _switch(
        "--untie-embeddings-and-output-weights",
        "model.untie_embeddings_and_output_weights",
        "a head with weights of its own",
    ),
    Flag("--hidden-dropout", "model.hidden_dropout", "probability", float),
    Flag("--attention-dropout", "model.attention_dropout", "probability", float),
    Flag("--init-method-std", "model.init_method_std", "of the initial weights", float),
    _switch("--fp16", "model.compute_dtype", "matrix products in float16", "float16"),
    _switch("--bf16", "model.compute_dtype", "matrix products in bfloat16", "bfloat16"),
    Flag("--num-experts", "model.num_moe_experts", "experts of a feed-forward part"),
    Flag("--moe-router-topk", "model.moe_router_topk", "experts that a token visits"),
    Flag("--moe-aux-loss-coeff", "model.moe_aux_loss_coeff", "of the balancing loss", float),
    Flag(
        "--tensor-model-parallel-size", "parallel.tensor_model_parallel_size", "parts of a matrix"
    ),
    Flag(
        "--pipeline-model-parallel-size",
        "parallel.pipeline_model_parallel_size",
        "stages of layers",
    ),
    Flag(
        "--virtual-pipeline-model-parallel-size",
        "parallel.virtual_pipeline_model_parallel_size",
        "model chunks on each pipeline rank",
    ),
    Flag(
        "--num-virtual-stages-per-pipeline-rank",
        "parallel.virtual_pipeline_model_parallel_size",
        "the same, by Megatron's newer name",
    ),
    Flag("--expert-model-parallel-size", "parallel.expert_model_parallel_size", "of the experts"),
    _switch("--sequence-parallel", "parallel.sequence_parallel", "cut norms along the sequence"),
    Flag("--micro-batch-size", "dataset.micro_batch_size", "samples of one forward pass"),
    Flag("--global-batch-size", "dataset.global_batch_size", "samples of a step, all ranks"),
    Flag("--split", "dataset.split", "weights of train, validation and test", str),
    Flag("--data-cache-path", "dataset.data_cache_path", "folder of the sample indices", str),
    Flag("--vocab-file", "dataset.vocab_file", "vocab.json of the tokenizer", str),
    Flag("--merge-file", "dataset.merge_file", "merges.txt of the tokenizer", str),
    Flag("--tokenizer-type", "dataset.tokenizer_type", "as of relkit data preprocess", str),
    Flag("--tokenizer-model", "dataset.tokenizer_model", "tokenizer.json", str),
    _switch("--eod-mask-loss", "dataset.eod_mask_loss", "no loss at ends of documents"),
    Flag("--lr", "optimizer.learning_rate", "highest learning rate", float),
    Flag("--min-lr", "optimizer.end_learning_rate", "lowest learning rate", float),
    Flag("--lr-decay-style", "optimizer.lr_decay_style", "cosine, linear or constant", str),
    Flag("--lr-decay-iters", "optimizer.decay_steps", "steps until the lowest rate"),
    Flag("--lr-warmup-iters", "optimizer.warmup_steps", "steps of warm-up"),
    Flag("--lr-warmup-fraction", "optimizer.warmup_fraction", "the same, of lr-decay-iters", float),
    Flag("--weight-decay", "optimizer.weight_decay", "not for norms and biases", float),
    Flag("--adam-eps", "optimizer.eps", "added to the second moment's root", float),
    Flag("--sgd-momentum", "optimizer.momentum", "of SGD", float),
    Flag("--train-iters", "training.training_iters", "steps of the whole run"),
    Flag("--seed", "training.seed", "of weights, dropout and sample order"),
    Flag("--clip-grad", "training.clip_value", "largest gradient norm; 0: any", float),
    Flag("--initial-loss-scale", "training.loss_scale", "first loss scale of fp16", float),
    Flag("--loss-scale-window", "training.loss_scale_window", "good steps until it doubles"),
    Flag("--min-loss-scale", "training.min_loss_scale", "it halves down to this", float),
    Flag("--hysteresis", "training.loss_scale_hysteresis", "overflows before it halves"),
    Flag("--save", "training.save", "folder of the checkpoints", str),
    Flag("--save-interval", "training.save_interval", "steps between two of them"),
    Flag("--eval-interval", "training.eval_interval", "steps between two evaluations"),
    Flag("--eval-iters", "training.eval_iters", "global batches of an evaluation"),
    Flag("--distributed-backend", "training.distributed_backend", "gloo or nccl", str),
    _switch(
        "--use-distributed-optimizer",
        "training.use_distributed_optimizer",
        "each data-parallel rank owns a shard of the fp32 state",
    ),
    Flag("--output-dir", "training.output_dir", "logs and events (relkit's own flag)", str),
    Flag("--keep-checkpoint-max", "training.keep_checkpoint_max", "newest ones kept (own flag)"),
    Flag("--ttp-copies", "training.ttp_copies", "ranks that hold each optimizer shard (own flag)"),
    _switch(
        "--local-copy-os",
        "training.local_copy_os",
        "keep each shard's last state instead of a barrier (MindIO's flag)",
    ),
    Flag(
        "--ttp-audit-interval",
        "training.ttp_audit_interval",
        "steps between two comparisons of the copies (own flag)",
    ),
)

FLAG_OF: Mapping[str, str] = {flag.field: flag.name for flag in reversed(FLAGS)}
"""Field -> the flag that sets it."""


IGNORED = ("--use-flash-attn", "--use-fused-rmsnorm")
"""Switches of the guides' scripts that change no number here; others are refused by name."""
