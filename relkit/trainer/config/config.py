"""What to train and how: five frozen sections, named after the MindFormers tutorial's YAML.

A section checks itself; `TrainerConfig` checks what concerns two of them. Everything that a user
may get wrong is a `UsageProblem` that names the key and says what to set.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from relkit.errors import UsageProblem

POSITION_EMBEDDINGS = ("rope", "absolute")
NORMALIZATIONS = ("LayerNorm", "RMSNorm")
ACTIVATIONS = ("swiglu", "gelu")
DTYPES = ("float32", "bfloat16", "float16")
OPTIMIZERS = ("AdamW", "Adam", "SGD", "CAME")
CLIP_TYPES = ("ClipGlobalNorm", "GradClipByValue")
LR_STYLES = ("cosine", "linear", "constant")
REDUCTIONS = ("mean", "sum")


def _one_of(section: str, key: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise UsageProblem(f"{section}.{key} is {value!r}; it must be one of {', '.join(known)}")


def _at_least(section: str, key: str, value: float, least: float) -> None:
    if not value >= least:
        raise UsageProblem(f"{section}.{key} is {value}; it must be at least {least}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The shape of the GPT.

    Args:
        num_layers: transformer layers in the whole model.
        hidden_size: width of the residual stream.
        ffn_hidden_size: width inside the feed-forward part; None: 4 x hidden_size for gelu, and
            8/3 of it, rounded up to a multiple of 64, for swiglu.
        num_attention_heads: query heads.
        group_query_attention: whether several query heads share one key and value head.
        num_query_groups: key and value heads; None without group_query_attention.
        vocab_size: tokens of the tokenizer, before padding.
        make_vocab_size_divisible_by: the embedding has a multiple of this times the tensor degree.
        seq_length: tokens of a sample.
        max_position_embeddings: rows of an absolute position embedding; None: seq_length.
        position_embedding_type: "rope" or "absolute".
        rotary_base: base of the rotary angles.
        rotary_interleaved: pairs are neighbours instead of halves.
        normalization: "LayerNorm" or "RMSNorm".
        layernorm_epsilon: added to the variance.
        activation: "swiglu" or "gelu"; gelu_tanh: the tanh approximation, as GPT-2 has it.
        add_bias_linear: whether linear layers have a bias.
        untie_embeddings_and_output_weights: whether the head has weights of its own.
        hidden_dropout, attention_dropout: probabilities in [0, 1).
        init_method_std: standard deviation of the initial weights.
        params_dtype: what parameters are kept in; only "float32".
        compute_dtype: what matrix products run in ("float32", "bfloat16", "float16").
        num_moe_experts: experts of a feed-forward part; None: a dense model.
        moe_router_topk: experts that a token visits.
        moe_aux_loss_coeff: weight of the load-balancing loss; 0 leaves it out.
    """

    num_layers: int
    hidden_size: int
    num_attention_heads: int
    ffn_hidden_size: int | None = None
    group_query_attention: bool = False
    num_query_groups: int | None = None
    vocab_size: int = 50257
    make_vocab_size_divisible_by: int = 128
    seq_length: int = 1024
    max_position_embeddings: int | None = None
    position_embedding_type: str = "absolute"
    rotary_base: float = 10000.0
    rotary_interleaved: bool = False
    normalization: str = "LayerNorm"
    layernorm_epsilon: float = 1e-5
    activation: str = "gelu"
    gelu_tanh: bool = False
    add_bias_linear: bool = True
    untie_embeddings_and_output_weights: bool = False
    hidden_dropout: float = 0.1
    attention_dropout: float = 0.1
    init_method_std: float = 0.02
    params_dtype: str = "float32"
    compute_dtype: str = "float32"
    num_moe_experts: int | None = None
    moe_router_topk: int = 2
    moe_aux_loss_coeff: float = 0.0

    def __post_init__(self) -> None:
        where = "model_config"
        for key in ("num_layers", "hidden_size", "num_attention_heads", "vocab_size", "seq_length"):
            _at_least(where, key, getattr(self, key), 1)
        _at_least(where, "make_vocab_size_divisible_by", self.make_vocab_size_divisible_by, 1)
        _one_of(where, "position_embedding_type", self.position_embedding_type, POSITION_EMBEDDINGS)
        _one_of(where, "normalization", self.normalization, NORMALIZATIONS)
        _one_of(where, "activation", self.activation, ACTIVATIONS)
        _one_of(where, "params_dtype", self.params_dtype, ("float32",))
        _one_of(where, "compute_dtype", self.compute_dtype, DTYPES)
        if self.hidden_size % self.num_attention_heads:
            raise UsageProblem(
                f"model_config.hidden_size {self.hidden_size} does not divide by"
                f" num_attention_heads {self.num_attention_heads}"
            )
        if self.num_attention_heads % self.query_groups:
            raise UsageProblem(
                f"model_config.num_attention_heads {self.num_attention_heads} does not divide by"
                f" num_query_groups {self.query_groups}"
            )
        if self.position_embedding_type == "absolute" and self.positions < self.seq_length:
            raise UsageProblem(
                f"model_config.max_position_embeddings {self.positions} is below"
                f" seq_length {self.seq_length}"
            )
        for key in ("hidden_dropout", "attention_dropout"):
            if not 0 <= getattr(self, key) < 1:
                raise UsageProblem(f"model_config.{key} is {getattr(self, key)}, not in [0, 1)")
        if self.num_moe_experts is not None:
            _at_least(where, "num_moe_experts", self.num_moe_experts, 1)
            if not 1 <= self.moe_router_topk <= self.num_moe_experts:
                raise UsageProblem(
                    f"model_config.moe_router_topk is {self.moe_router_topk}; it must be"
                    f" 1 to num_moe_experts ({self.num_moe_experts})"
                )

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def query_groups(self) -> int:
        """Key and value heads."""
        if not self.group_query_attention:
            return self.num_attention_heads
        return self.num_query_groups or 1

    @property
    def positions(self) -> int:
        """Rows of the absolute position embedding."""
        return self.max_position_embeddings or self.seq_length

    @property
    def ffn_size(self) -> int:
        """Width inside the feed-forward part."""
        if self.ffn_hidden_size is not None:
            return self.ffn_hidden_size
        if self.activation == "gelu":
            return 4 * self.hidden_size
        return -(-8 * self.hidden_size // 3 // 64) * 64

    def padded_vocab_size(self, tensor_parallel: int) -> int:
        """Rows of the embedding: a multiple of make_vocab_size_divisible_by x the degree."""
        multiple = self.make_vocab_size_divisible_by * tensor_parallel
        return -(-self.vocab_size // multiple) * multiple


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelConfig:
    """Into how many parts the model is cut; what is left of the world is data parallel."""

    tensor_model_parallel_size: int = 1
    pipeline_model_parallel_size: int = 1
    virtual_pipeline_model_parallel_size: int | None = None
    expert_model_parallel_size: int = 1
    sequence_parallel: bool = False

    def __post_init__(self) -> None:
        for key in ("tensor_model_parallel_size", "pipeline_model_parallel_size"):
            _at_least("parallel_config", key, getattr(self, key), 1)
        _at_least(
            "parallel_config", "expert_model_parallel_size", self.expert_model_parallel_size, 1
        )
        virtual = self.virtual_pipeline_model_parallel_size
        if virtual is not None:
            _at_least("parallel_config", "virtual_pipeline_model_parallel_size", virtual, 1)
            if virtual > 1 and self.pipeline_model_parallel_size == 1:
                raise UsageProblem(
                    "parallel_config.virtual_pipeline_model_parallel_size needs a pipeline",
                    next_step="Set pipeline_model_parallel_size to 2 or more, or leave it null.",
                )

    @property
    def virtual_stages(self) -> int:
        """Model chunks on each pipeline rank."""
        return self.virtual_pipeline_model_parallel_size or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetConfig:
    """Where samples come from and how many make a step.

    Args:
        data_path: prefix of a .bin/.idx pair.
        micro_batch_size: samples of one forward pass on one data-parallel rank.
        global_batch_size: samples of one step over all ranks; None: micro_batch_num of them on
            every data-parallel rank.
        micro_batch_num: micro-batches of a step on a data-parallel rank; None where
            global_batch_size decides.
        split: weights of train, validation and test, e.g. "949,50,1".
        data_cache_path: folder of the sample indices; "": beside the data.
        vocab_file, merge_file, tokenizer_type, tokenizer_model: of the tokenizer (vocabulary size).
        shuffle: whether samples are drawn in random order.
        eod_mask_loss: whether the loss leaves out end-of-document tokens (needs eod_token).
    """

    data_path: str = ""
    micro_batch_size: int = 1
    global_batch_size: int | None = None
    micro_batch_num: int | None = None
    split: str = "969,30,1"
    data_cache_path: str = ""
    vocab_file: str = ""
    merge_file: str = ""
    tokenizer_type: str = ""
    tokenizer_model: str = ""
    shuffle: bool = True
    eod_mask_loss: bool = False
    eod_token: int | None = None

    def __post_init__(self) -> None:
        for key in ("micro_batch_size", "global_batch_size", "micro_batch_num"):
            value = getattr(self, key)
            if value is not None:
                _at_least("dataset_config", key, value, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerConfig:
    """The optimizer and its learning rate over time.

    Args:
        optimizer_type: "AdamW", "Adam", "SGD" or "CAME".
        betas: decay rates of the moments; CAME uses a third one.
        eps: added to the root of the second moment.
        momentum: of SGD.
        learning_rate: highest rate.
        end_learning_rate: rate after decay_steps.
        lr_decay_style: "cosine", "linear" or "constant".
        warmup_steps: steps of linear growth from 0; warmup_fraction: the same as a share of
            decay_steps (one of the two).
        decay_steps: step at which end_learning_rate is reached; None: training_iters.
        weight_decay: for parameters that are neither norms nor biases.
    """

    optimizer_type: str = "AdamW"
    betas: tuple[float, ...] = (0.9, 0.999)
    eps: float = 1e-8
    momentum: float = 0.9
    learning_rate: float = 1e-4
    end_learning_rate: float = 0.0
    lr_decay_style: str = "linear"
    warmup_steps: int = 0
    warmup_fraction: float | None = None
    decay_steps: int | None = None
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        _one_of("optimizer_config", "optimizer_type", self.optimizer_type, OPTIMIZERS)
        _one_of("optimizer_config", "lr_decay_style", self.lr_decay_style, LR_STYLES)
        for key in ("learning_rate", "end_learning_rate", "weight_decay", "warmup_steps", "eps"):
            _at_least("optimizer_config", key, getattr(self, key), 0)
        if self.warmup_fraction is not None and not 0 <= self.warmup_fraction <= 1:
            raise UsageProblem(
                f"optimizer_config.warmup_fraction is {self.warmup_fraction}, not in [0, 1]"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingConfig:
    """The run: how long, what is written, how gradients are scaled and clipped.

    Args:
        training_iters: optimizer steps of the whole run.
        output_dir: logs and events; save: checkpoints ("": none); load: resume from there.
        log_interval, save_interval, eval_interval: in steps; None: never.
        eval_iters: global batches of one evaluation.
        loss_scale: initial loss scale of fp16; ignored (1) otherwise. loss_scale_window: good steps
            before it doubles. min_loss_scale: it halves down to this. loss_scale_hysteresis:
            overflows before it halves, counted since it last doubled.
        grad_clip_type: "ClipGlobalNorm" or "GradClipByValue"; clip_value: 0 leaves clipping out.
        loss_reduction: "mean" of the means of a step's micro-batches, as Megatron's default, or
            "sum" over ranks of their means.
        loss_func_type: "VocabParallelCrossEntropy" or "CrossEntropyLoss" (the same numbers).
        use_distributed_optimizer: whether each data-parallel rank owns a shard of the fp32 state.
        distributed_backend: "gloo" or "nccl".
        keep_checkpoint_max: older ones are removed beyond this many; None: keep all.
        resume_training: whether `load` (or `save`, where load is empty) is resumed from.
        ttp_copies: ranks that hold each shard of the optimizer state under try-to-persist.
        local_copy_os: keep each shard's last state there, in place of a barrier in every step.
        ttp_audit_interval: steps between two comparisons of the copies; None: never.
    """

    training_iters: int
    seed: int = 1234
    output_dir: str = "./output"
    save: str = ""
    load: str = ""
    log_interval: int | None = 1
    save_interval: int | None = None
    eval_interval: int | None = None
    eval_iters: int = 10
    loss_scale: float = 4096.0
    loss_scale_window: int = 1000
    min_loss_scale: float = 1.0
    loss_scale_hysteresis: int = 1
    grad_clip_type: str = "ClipGlobalNorm"
    clip_value: float = 1.0
    loss_reduction: str = "mean"
    loss_func_type: str = "VocabParallelCrossEntropy"
    use_distributed_optimizer: bool = False
    distributed_backend: str = "gloo"
    keep_checkpoint_max: int | None = None
    resume_training: bool = False
    ttp_copies: int = 2
    local_copy_os: bool = False
    ttp_audit_interval: int | None = None

    def __post_init__(self) -> None:
        where = "training_config"
        _at_least(where, "training_iters", self.training_iters, 1)
        for key in ("ttp_copies", "loss_scale_window", "loss_scale_hysteresis"):
            _at_least(where, key, getattr(self, key), 1)
        if not 0 < self.min_loss_scale <= self.loss_scale:
            raise UsageProblem(
                f"training_config.min_loss_scale is {self.min_loss_scale:g}; it must be above 0 and"
                f" at most loss_scale ({self.loss_scale:g})"
            )
        for key in (
            "log_interval",
            "save_interval",
            "eval_interval",
            "keep_checkpoint_max",
            "ttp_audit_interval",
        ):
            value = getattr(self, key)
            if value is not None:
                _at_least(where, key, value, 1)
        _at_least(where, "eval_iters", self.eval_iters, 0)
        _at_least(where, "clip_value", self.clip_value, 0)
        _one_of(where, "grad_clip_type", self.grad_clip_type, CLIP_TYPES)
        _one_of(where, "loss_reduction", self.loss_reduction, REDUCTIONS)
        _one_of(
            where,
            "loss_func_type",
            self.loss_func_type,
            ("VocabParallelCrossEntropy", "CrossEntropyLoss"),
        )
        _one_of(where, "distributed_backend", self.distributed_backend, ("gloo", "nccl"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerConfig:
    """All five sections, checked against each other.

    Raises:
        UsageProblem: two keys cannot both hold; the sentence names them.
    """

    training: TrainingConfig
    model: ModelConfig
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    dataset: DatasetConfig = field(default_factory=DatasetConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)

    def __post_init__(self) -> None:
        if self.optimizer.optimizer_type == "CAME" and self.training.use_distributed_optimizer:
            raise UsageProblem(
                "optimizer_config.optimizer_type CAME keeps row and column moments of whole"
                " matrices, which use_distributed_optimizer would cut",
                next_step="Set training_config.use_distributed_optimizer to False.",
            )
