"""Megatron's command line: the guide's own words, defaults, nearest names, YAML underneath."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from relkit.errors import BadInputFile, UsageProblem
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.config.flag_table import FLAGS
from relkit.trainer.megatron.flags import parse_flags, parser

SHAPE = "--num-layers 2 --hidden-size 8 --num-attention-heads 2 --train-iters 10"

# The guide's arguments as bash hands them over: its script has a backslash that is followed by a
# space, which ends up as a word of its own.
GUIDE = r"""
    --num-layers 24 --hidden-size 1024 \  --num-attention-heads 16 --seq-length 1024
    --max-position-embeddings 1024 --micro-batch-size 8 --global-batch-size 64 --lr 0.00015
    --train-iters 1000 --lr-decay-iters 320000 --lr-decay-style cosine --min-lr 1.0e-5
    --weight-decay 1e-2 --lr-warmup-fraction .01 --clip-grad 1.0 --fp16 --transformer-impl local
    --data-path ./gpt_pretrain_data/alpaca_text_document --vocab-file VOCAB --merge-file MERGES
    --split 949,50,1 --log-interval 100 --save-interval 100 --eval-interval 1000 --eval-iters 10
    --distributed-backend nccl --save ./ckpt --ckpt-format torch
"""


class Parser:
    """Parses a line of flags and keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def __call__(self, line: str) -> TrainerConfig:
        return parse_flags(shlex.split(line), warn=self.warnings.append)


@pytest.fixture
def parse() -> Parser:
    return Parser()


@pytest.fixture
def guide(tmp_path: Path) -> list[str]:
    vocabulary = {f"token{number}": number for number in range(50)} | {"<|endoftext|>": 50}
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (tmp_path / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    words = GUIDE.replace("VOCAB", str(tmp_path / "vocab.json")).split()
    return [word.replace("MERGES", str(tmp_path / "merges.txt")) for word in words]


def test_the_guides_arguments(guide: list[str]) -> None:
    warnings: list[str] = []
    config = parse_flags(guide, warn=warnings.append)
    model, training, optimizer = config.model, config.training, config.optimizer
    assert (model.num_layers, model.hidden_size, model.num_attention_heads) == (24, 1024, 16)
    assert (model.seq_length, model.positions, model.compute_dtype) == (1024, 1024, "float16")
    assert (model.position_embedding_type, model.activation) == ("absolute", "gelu")
    assert (model.vocab_size, config.dataset.eod_token) == (51, 50)
    assert (config.dataset.micro_batch_size, config.dataset.global_batch_size) == (8, 64)
    assert (config.dataset.split, config.dataset.tokenizer_type) == ("949,50,1", "GPT2BPETokenizer")
    assert (optimizer.learning_rate, optimizer.end_learning_rate) == (0.00015, 1e-5)
    assert (optimizer.lr_decay_style, optimizer.decay_steps) == ("cosine", 320000)
    assert (optimizer.warmup_fraction, optimizer.weight_decay) == (0.01, 0.01)
    assert (training.training_iters, training.clip_value) == (1000, 1.0)
    assert (training.log_interval, training.save_interval) == (100, 100)
    assert (training.eval_interval, training.eval_iters) == (1000, 10)
    assert (training.save, training.load, training.resume_training) == ("./ckpt", "", False)
    assert training.distributed_backend == "nccl"
    assert [word for word in warnings if "backslash" in word] == warnings


def test_the_guides_second_script_loses_its_array_and_runs(guide: list[str]) -> None:
    """There OUTPUT_ARGS is an array, and $OUTPUT_ARGS its first word alone."""
    start, end = guide.index("--log-interval"), guide.index("--distributed-backend")
    words = [*guide[: start + 1], *guide[end:], "--load", "./ckpt"]
    warnings: list[str] = []
    training = parse_flags(words, warn=warnings.append).training
    assert (training.log_interval, training.save_interval) == (100, None)
    assert (training.load, training.resume_training) == ("./ckpt", True)
    assert '${OUTPUT_ARGS[@]}"' in warnings[-1]


def test_megatrons_defaults(parse: Parser) -> None:
    config = parse(SHAPE)
    assert (config.training.log_interval, config.training.eval_interval) == (100, 1000)
    assert (config.model.hidden_dropout, config.model.attention_dropout) == (0.1, 0.1)
    assert (config.optimizer.optimizer_type, config.optimizer.betas) == ("AdamW", (0.9, 0.999))
    assert config.optimizer.lr_decay_style == "linear"
    assert parse.warnings == []


@pytest.mark.parametrize(
    ("line", "field", "expected"),
    [
        ("--tensor-model-parallel-size 2", "parallel.tensor_model_parallel_size", 2),
        ("--pipeline-model-parallel-size 2", "parallel.pipeline_model_parallel_size", 2),
        (
            "--num-layers 8 --pipeline-model-parallel-size 2"
            " --num-layers-per-virtual-pipeline-stage 2",
            "parallel.virtual_pipeline_model_parallel_size",
            2,
        ),
        ("--sequence-parallel", "parallel.sequence_parallel", True),
        ("--use-distributed-optimizer", "training.use_distributed_optimizer", True),
        ("--bf16", "model.compute_dtype", "bfloat16"),
        ("--swiglu", "model.activation", "swiglu"),
        ("--bf16", "model.gelu_tanh", True),
        ("--no-bias-gelu-fusion", "model.gelu_tanh", False),
        ("--disable-bias-linear", "model.gelu_tanh", False),
        ("--disable-bias-linear", "model.add_bias_linear", False),
        ("--position-embedding-type rope", "model.position_embedding_type", "rope"),
        ("--use-rotary-position-embeddings", "model.position_embedding_type", "rope"),
        ("--position-embedding-type learned_absolute", "model.position_embedding_type", "absolute"),
        ("--optimizer sgd --sgd-momentum 0.5", "optimizer.momentum", 0.5),
        ("--optimizer adam", "optimizer.optimizer_type", "AdamW"),
        ("--fp16", "training.loss_scale_hysteresis", 2),
        ("--hysteresis 3", "training.loss_scale_hysteresis", 3),
        ("--min-loss-scale 4", "training.min_loss_scale", 4.0),
        ("--adam-beta2 0.95", "optimizer.betas", (0.9, 0.95)),
        ("--data-path 1.0 some/prefix", "dataset.data_path", "some/prefix"),
        ("--num-experts 4 --moe-router-topk 1", "model.num_moe_experts", 4),
        ("--preset 13B --num-attention-heads 8", "model.ffn_hidden_size", 13824),
    ],
)
def test_flags_that_say_more_than_a_value(
    parse: Parser, line: str, field: str, expected: object
) -> None:
    config = parse(f"{SHAPE} {line}")
    owner, _, name = field.partition(".")
    assert getattr(getattr(config, owner), name) == expected
    assert parse.warnings == []


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--num-layer 4", "unknown flag --num-layer; the nearest known one is --num-layers"),
        ("--num_layers 4", "unknown flag --num_layers; the nearest known one is --num-layers"),
        ("--lr-decay-stile=cosine", "unknown flag --lr-decay-stile; .* is --lr-decay-style"),
        ("--tensor-parallel-size 2", "nearest known one is --tensor-model-parallel-size"),
        ("stray", "'stray' follows no flag"),
        ("--overlap-grad-reduce", "unknown flag --overlap-grad-reduce"),
        ("--ttp-all-reduce", "unknown flag --ttp-all-reduce"),
        ("--num-layers", "--num-layers: expected one argument"),
        ("--num-layers two", "--num-layers: invalid int value: 'two'"),
        ("--fp16 --bf16", "--fp16 and --bf16 exclude each other"),
        ("--data-path 0.3 a 0.7 b", "--data-path has 4 words; relkit reads one data set"),
        ("--ckpt-format torch_dist", "invalid choice: 'torch_dist'"),
        ("--context-parallel-size 2", "--context-parallel-size: invalid choice"),
        ("--num-layers-per-virtual-pipeline-stage 3", "2 layers over 1 pipeline stages are not"),
        (
            "--lr-warmup-iters 5 --lr-warmup-fraction 0.1",
            "both .*warmup_fraction",
        ),
        ("--preset 14B", "no preset '14B'; the nearest is 13B"),
    ],
)
def test_what_is_refused_is_named(parse: Parser, line: str, sentence: str) -> None:
    with pytest.raises(UsageProblem, match=sentence):
        parse(f"{SHAPE} {line}")


def test_what_is_missing_is_named(parse: Parser) -> None:
    with pytest.raises(UsageProblem, match=r"training_config.training_iters is not given") as met:
        parse("--num-layers 2")
    assert "--train-iters" in met.value.next_step


def test_flags_without_effect_are_warned_of(parse: Parser) -> None:
    parse(f"{SHAPE} --use-flash-attn --use-fused-rmsnorm --transformer-impl transformer_engine")
    assert parse.warnings == [
        "--use-flash-attn has no effect here",
        "--use-fused-rmsnorm has no effect here",
        "--transformer-impl transformer_engine has no effect here: it is local",
    ]


def test_yaml_then_run_cmd_then_flags(parse: Parser, tmp_path: Path) -> None:
    path = tmp_path / "gpt.yaml"
    path.write_text(
        "training_config: {training_iters: 5, seed: 7}\n"
        "gpt_config: {num_layers: 2, hidden_size: 8, num_attention_heads: 2}\n"
        "dataset_config: {micro_batch_num: 2}\n"
        "optimizer_config: {learning_rate_scheduler_kwargs: {warmup_steps: 3}}\n",
        encoding="utf-8",
    )
    config = parse(
        f"--config_path={path} --model_type gpt_config --run_cmd='--num-layers 4 --seed 8' --seed 9"
        " --global-batch-size 16 --lr-warmup-fraction 0.5"
    )
    assert (config.training.seed, config.model.num_layers) == (9, 4)
    assert (config.training.training_iters, config.training.log_interval) == (5, 1)
    assert config.model.hidden_dropout == 0.0
    assert (config.dataset.global_batch_size, config.dataset.micro_batch_num) == (16, None)
    assert (config.optimizer.warmup_fraction, config.optimizer.warmup_steps) == (0.5, 0)
    config = parse(f"--config-path {path} --save-interval 2 --output-dir there")
    assert config.training.save == "there/checkpoint"


def test_files_of_the_tokenizer_that_are_wrong(parse: Parser, tmp_path: Path) -> None:
    path = tmp_path / "vocab.json"
    for content, sentence in [(None, "cannot read"), ("{", "is not JSON"), ("[]", "not a vocab")]:
        if content is not None:
            path.write_text(content, encoding="utf-8")
        with pytest.raises(BadInputFile, match=sentence):
            parse(f"{SHAPE} --vocab-file {path} --merge-file {path}")
    with pytest.raises(UsageProblem, match="GPT2BPETokenizer needs --merge-file"):
        parse(f"{SHAPE} --vocab-file {path}")
    with pytest.raises(UsageProblem, match="'BertWordPiece' is not a tokenizer type"):
        parse(f"{SHAPE} --tokenizer-type BertWordPiece")


def test_a_given_vocabulary_size_leaves_the_tokenizers_files_alone(parse: Parser) -> None:
    config = parse(f"{SHAPE} --vocab-file not/there.json --vocab-size 100")
    assert (config.model.vocab_size, config.dataset.eod_token) == (100, None)
    with pytest.raises(BadInputFile, match=r"cannot read not/there\.json"):
        parse(
            f"{SHAPE} --vocab-file not/there.json --merge-file m --vocab-size 100 --eod-mask-loss"
        )


def test_other_tokenizers_tell_their_size(parse: Parser, tmp_path: Path) -> None:
    assert parse(f"{SHAPE} --tokenizer-type CharLevelTokenizer").model.vocab_size == 512
    words = {"[UNK]": 0, "<|endoftext|>": 1, "word": 2}
    library = Tokenizer(WordLevel(vocab=words))
    library.save(str(tmp_path / "tokenizer.json"))
    config = parse(f"{SHAPE} --tokenizer-model {tmp_path / 'tokenizer.json'}")
    assert (config.model.vocab_size, config.dataset.eod_token) == (3, 1)
    assert config.dataset.tokenizer_type == "HFTokenizer"


def test_every_flag_is_in_the_help() -> None:
    text = parser().format_help()
    assert not [flag.name for flag in FLAGS if flag.name not in text]
