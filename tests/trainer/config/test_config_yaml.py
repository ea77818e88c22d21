"""MindFormers' YAML: the tutorial's own file, every kind of key, and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from relkit.errors import BadInputFile, UsageProblem
from relkit.trainer.config.config import DatasetConfig, ModelConfig, TrainerConfig
from relkit.trainer.config.dataset_files import with_dataset_files
from relkit.trainer.config.flag_table import FLAG_OF
from relkit.trainer.config.values import build
from relkit.trainer.config.yaml_file import settled, yaml_values

EXAMPLES = Path(__file__).parents[3] / "examples"

# What the tutorial's page shows, section by section, with its null and its list.
TUTORIAL = """
training_config:
  seed: 42
  output_dir: './output'
  training_iters: 10
  log_interval: 1
  save_interval: null
  loss_scale: 4096
  grad_clip_kwargs:
    grad_clip_type: "ClipGlobalNorm"
    clip_value: 1.0
  loss_reduction: "mean"
  loss_func_kwargs:
    loss_func_type: "VocabParallelCrossEntropy"
  use_distributed_optimizer: True
parallel_config:
  tensor_model_parallel_size: 1
  pipeline_model_parallel_size: 1
  expert_model_parallel_size: 1
  virtual_pipeline_model_parallel_size: null
  sequence_parallel: False
model_config:
  params_dtype: "float32"
  compute_dtype: "bfloat16"
  position_embedding_type: 'rope'
  untie_embeddings_and_output_weights: True
  num_layers: 6
  hidden_size: 4096
  ffn_hidden_size: 11008
  num_attention_heads: 32
dataset_config:
  batch_size: 1
  micro_batch_num: 2
  dataset_dir: './dataset'
  shuffle: False
optimizer_config:
  optimizer_type: "AdamW"
  betas:
    - 0.9
    - 0.95
  eps: 1.e-8
  learning_rate: 1.25e-6
  weight_decay: 1.e-1
  learning_rate_scheduler_kwargs:
    warmup_steps: 200
    decay_steps: 2000
    use_cosine: True
    end_learning_rate: 1.25e-7
"""

SMALL = """
training_config: {training_iters: 10}
gpt_config: {num_layers: 2, hidden_size: 8, num_attention_heads: 2}
"""


def load_yaml(
    path: Path, *, model_section: str = "gpt_config", warn: Callable[[str], None]
) -> TrainerConfig:
    """What the trainer takes from a YAML file where no flag changes it."""
    values = yaml_values(path, model_section=model_section, warn=warn)
    return build(with_dataset_files(settled(values)), FLAG_OF)


class Loader:
    """Writes text to a file, loads it, keeps the warnings."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gpt.yaml"
        self.warnings: list[str] = []

    def __call__(self, text: str) -> TrainerConfig:
        self.path.write_text(text, encoding="utf-8")
        return load_yaml(self.path, warn=self.warnings.append)


@pytest.fixture
def load(tmp_path: Path) -> Loader:
    return Loader(tmp_path)


def test_the_tutorials_file(load: Loader) -> None:
    config = load(TUTORIAL)
    training, model, optimizer = config.training, config.model, config.optimizer
    assert load.warnings == [
        "training_config.loss_scale is 1 here: only compute_dtype float16 needs another"
    ]
    assert (training.seed, training.training_iters, training.log_interval) == (42, 10, 1)
    assert (training.save_interval, training.save, training.loss_scale) == (None, "", 4096.0)
    assert (training.grad_clip_type, training.clip_value) == ("ClipGlobalNorm", 1.0)
    assert training.use_distributed_optimizer
    assert config.parallel.virtual_pipeline_model_parallel_size is None
    assert (model.compute_dtype, model.position_embedding_type) == ("bfloat16", "rope")
    assert (model.num_layers, model.ffn_size, model.hidden_dropout) == (6, 11008, 0.0)
    assert model.untie_embeddings_and_output_weights
    assert (config.dataset.micro_batch_size, config.dataset.micro_batch_num) == (1, 2)
    assert (config.dataset.data_path, config.dataset.shuffle) == ("dataset", False)
    assert (optimizer.betas, optimizer.eps) == ((0.9, 0.95), 1e-8)
    assert (optimizer.lr_decay_style, optimizer.warmup_steps) == ("cosine", 200)
    assert (optimizer.decay_steps, optimizer.end_learning_rate) == (2000, 1.25e-7)


def leaves(content: object, prefix: str = "") -> Iterator[str]:
    """Every key of a document with those around it, "a.b.c"."""
    assert isinstance(content, dict)
    for key, value in content.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


# Key of the page -> another value that relkit has, where it has one, and one that is refused.
OTHERS: dict[str, tuple[object, object]] = {
    "training_config.seed": (7, "x"),
    "training_config.output_dir": ("elsewhere", 3),
    "training_config.training_iters": (11, 0),
    "training_config.log_interval": (2, 0),
    "training_config.save_interval": (5, 0),
    "training_config.loss_scale": (2048, 0),
    "training_config.grad_clip_kwargs.grad_clip_type": ("GradClipByValue", "None"),
    "training_config.grad_clip_kwargs.clip_value": (0.5, -1),
    "training_config.loss_reduction": ("sum", "max"),
    "training_config.loss_func_kwargs.loss_func_type": ("CrossEntropyLoss", "Focal"),
    "training_config.use_distributed_optimizer": (False, "yes"),
    "parallel_config.tensor_model_parallel_size": (2, 0),
    "parallel_config.pipeline_model_parallel_size": (2, 0),
    "parallel_config.expert_model_parallel_size": (2, 0),
    "parallel_config.virtual_pipeline_model_parallel_size": (1, 2),
    "parallel_config.sequence_parallel": (True, 1),
    "model_config.params_dtype": (None, "bfloat16"),
    "model_config.compute_dtype": ("float16", "int8"),
    "model_config.position_embedding_type": ("absolute", "alibi"),
    "model_config.untie_embeddings_and_output_weights": (False, 0),
    "model_config.num_layers": (7, 0),
    "model_config.hidden_size": (2048, 33),
    "model_config.ffn_hidden_size": (128, "wide"),
    "model_config.num_attention_heads": (16, 33),
    "dataset_config.batch_size": (3, 0),
    "dataset_config.micro_batch_num": (3, 0),
    "dataset_config.dataset_dir": ("elsewhere", 3),
    "dataset_config.shuffle": (True, "no"),
    "optimizer_config.optimizer_type": ("Came", "Lamb"),
    "optimizer_config.betas": ([0.8, 0.9], 0.9),
    "optimizer_config.eps": (1e-6, -1),
    "optimizer_config.learning_rate": (1e-3, -1),
    "optimizer_config.weight_decay": (0.2, -1),
    "optimizer_config.learning_rate_scheduler_kwargs.warmup_steps": (3, -1),
    "optimizer_config.learning_rate_scheduler_kwargs.decay_steps": (9, "x"),
    "optimizer_config.learning_rate_scheduler_kwargs.use_cosine": (False, None),
    "optimizer_config.learning_rate_scheduler_kwargs.end_learning_rate": (1e-9, -1),
}


def test_every_key_of_the_page_is_looked_at() -> None:
    assert OTHERS.keys() == set(leaves(yaml.safe_load(TUTORIAL)))


@pytest.mark.parametrize("key", OTHERS)
def test_every_key_of_the_page_acts_or_is_refused_by_name(load: Loader, key: str) -> None:
    def changed(value: object) -> str:
        document = yaml.safe_load(TUTORIAL)
        document["training_config"]["use_distributed_optimizer"] = False  # Came needs whole moments
        section, *names = key.split(".")
        inner = document[section]
        for name in names[:-1]:
            inner = inner[name]
        inner[names[-1]] = value
        return yaml.safe_dump(document)

    other, refused = OTHERS[key]
    if key.endswith("use_distributed_optimizer"):
        other = True
    if other is not None:
        assert load(changed(other)) != load(TUTORIAL.replace("optimizer: True", "optimizer: False"))
    if refused is not None:
        with pytest.raises(UsageProblem, match=key.rpartition(".")[2]):
            load(changed(refused))


def test_what_a_file_does_not_say_of_its_data() -> None:
    dataset = DatasetConfig()
    assert (dataset.micro_batch_size, dataset.micro_batch_num, dataset.split) == (
        1, None, "969,30,1"
    )  # fmt: skip


# Llama's own numbers: embeddings, head, attention, gated feed-forward, two norms a layer.
@pytest.mark.parametrize(("name", "billions"), [("7B", 6.738), ("13B", 13.016), ("70B", 68.977)])
def test_the_presets_have_the_sizes_that_they_are_named_after(name: str, billions: float) -> None:
    warnings: list[str] = []
    config = load_yaml(EXAMPLES / f"gpt_{name}.yaml", warn=warnings.append)
    assert warnings == []
    assert round(_parameters(config.model) / 1e9, 3) == billions


def _parameters(model: ModelConfig) -> int:
    width = model.hidden_size
    attention = 2 * width * (width + model.query_groups * model.head_size)
    layer = attention + 3 * width * model.ffn_size + 2 * width
    return 2 * model.vocab_size * width + model.num_layers * layer + width


def test_keys_beside_a_preset_change_it_wherever_they_stand(load: Loader) -> None:
    for keys in ("num_layers: 6, preset: 70B", "preset: 70B, num_layers: 6"):
        model = load(f"training_config: {{training_iters: 1}}\ngpt_config: {{{keys}}}").model
        assert (model.num_layers, model.num_query_groups) == (6, 8)


def test_the_section_that_model_type_names_comes_first(tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    shape = "{num_layers: %d, hidden_size: 8, num_attention_heads: 2}"
    text = "training_config: {training_iters: 1}\n"
    for number, name in enumerate(("model_config", "gpt_config", "llama_config"), start=1):
        text += f"{name}: {shape % number}\n"
    path.write_text(text.replace("llama", "other"), encoding="utf-8")
    warnings: list[str] = []
    with pytest.raises(UsageProblem, match="unknown section 'other_config'"):
        load_yaml(path, warn=warnings.append)
    config = load_yaml(path, model_section="other_config", warn=warnings.append)
    assert config.model.num_layers == 3
    assert "section gpt_config is not used, because other_config is there" in warnings[-1]


@pytest.mark.parametrize(
    ("section", "field", "expected"),
    [
        ("optimizer_config: {learning_rate: 1e-4}", "optimizer.learning_rate", 1e-4),
        ("optimizer_config: {learning_rate: 1}", "optimizer.learning_rate", 1.0),
        ("optimizer_config: {betas: [0.9, 1e-1]}", "optimizer.betas", (0.9, 0.1)),
        ("optimizer_config: {betas: null}", "optimizer.betas", (0.9, 0.999)),
        ("optimizer_config: {warmup_steps: 3}", "optimizer.warmup_steps", 3),
        (
            "optimizer_config: {learning_rate_scheduler_kwargs: {use_cosine: False}}",
            "optimizer.lr_decay_style",
            "linear",
        ),
        (
            "optimizer_config: {learning_rate_scheduler_kwargs: null}",
            "optimizer.lr_decay_style",
            "constant",
        ),
        ("parallel_config:", "parallel.tensor_model_parallel_size", 1),
        ("moe_config: {num_experts: 4}", "model.num_moe_experts", 4),
        ("moe_config: {num_experts: 1}", "model.num_moe_experts", None),
        ("dataset_config: {eod_token: 7}", "dataset.eod_token", 7),
    ],
)
def test_values_that_mean_the_same(
    load: Loader, section: str, field: str, expected: object
) -> None:
    config = load(SMALL + section)
    owner, _, name = field.partition(".")
    assert getattr(getattr(config, owner), name) == expected
    assert load.warnings == []


@pytest.mark.parametrize(
    ("name", "meant"), [("mint.AdamW", "AdamW"), ("SpeedAdamW", "AdamW"), ("Came", "CAME")]
)
def test_the_tutorials_other_optimizers_are_aliases(load: Loader, name: str, meant: str) -> None:
    config = load(SMALL + f'optimizer_config: {{optimizer_type: "{name}"}}')
    assert config.optimizer.optimizer_type == meant
    assert load.warnings == [f"optimizer {name} is {meant} here"]


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        ("optimiser_config: {}", "unknown section 'optimiser_config'; .* is optimizer_config"),
        (
            "dataset_config: {micro_batch: 2}",
            "unknown key .*micro_batch; .* is micro_batch_",
        ),
        (
            "dataset_config: {hidden_size: 8}",
            "hidden_size; it belongs in model_config",
        ),
        (
            "dataset_config: {batch_size: two}",
            "batch_size is 'two'; it must be a whole number",
        ),
        ("dataset_config: {batch_size: 1.5}", "dataset_config.batch_size is 1.5"),
        ("dataset_config: {batch_size: 1" + 400 * "0" + "}", "it must be a whole number"),
        ("dataset_config: {shuffle: 1}", "dataset_config.shuffle is 1; it must be True or False"),
        ("dataset_config: 3", "section dataset_config is 3, not keys with values"),
        ("optimizer_config: {betas: 0.9}", "betas is 0.9; it must be a list of numbers"),
        ("optimizer_config: {optimizer_type: Adamax}", "'Adamax'; it must be one of AdamW"),
        ("optimizer_config: {learning_rate_scheduler_kwargs: 5}", "kwargs is 5; it must hold keys"),
        ("parallel_config: {context_parallel_size: 2}", "unknown key .*context_parallel_size"),
        ("parallel_config: {recompute_config: {recompute: [1]}}", "unknown key .*recompute"),
        ("moe_config: {moe_router_load_balancing_type: sinkhorn}", "unknown key .*balancing"),
        ("dataset_config: {global_batch_size: 8, micro_batch_num: 2}", "both .*global_batch_size"),
        ("training_config: {training_iters: 1, load_checkpoint: ckpt}", "resume_training is not"),
    ],
)
def test_what_is_refused_is_named(load: Loader, section: str, sentence: str) -> None:
    with pytest.raises(UsageProblem, match=sentence):
        load(SMALL + section)


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("hidden_act: silu", "'silu'; it must be one of swiglu, gelu"),
        ("encoder_attn_mask_type: padding", "relkit has only 'causal'"),
        ("preset: 7b", "no preset '7b'; the nearest is 7B"),
        ("apply_residual_connection_post_norm: True", "unknown key .*post_norm"),
        ("fp16_lm_cross_entropy: True", "relkit has only False"),
    ],
)
def test_what_a_model_here_cannot_be(load: Loader, keys: str, sentence: str) -> None:
    with pytest.raises(UsageProblem, match=sentence):
        load(SMALL.replace("num_layers: 2", f"num_layers: 2, {keys}"))


@pytest.mark.parametrize(
    ("keys", "sentence"),
    [
        ("loss_scale_factor: 4", "unknown key training_config.loss_scale_factor"),
        ("calculate_per_token_loss: True", "unknown key .*per_token"),
        ("min_loss_scale: 0", "min_loss_scale is 0; it must be above 0"),
        ("loss_scale: 4, min_loss_scale: 8", "at most loss_scale .4."),
        ("loss_scale_hysteresis: 0", "loss_scale_hysteresis"),
    ],
)
def test_keys_that_would_change_numbers_are_refused(load: Loader, keys: str, sentence: str) -> None:
    with pytest.raises(UsageProblem, match=sentence):
        load(SMALL.replace("{training_iters: 10}", f"{{training_iters: 9, {keys}}}"))


def test_a_missing_key_is_named_in_both_ways(load: Loader) -> None:
    with pytest.raises(UsageProblem, match=r"model_config.num_attention_heads is not given") as met:
        load("training_config: {training_iters: 1}\ngpt_config: {num_layers: 1, hidden_size: 8}")
    assert "--num-attention-heads" in met.value.next_step


def test_checkpoints_go_into_the_output_folder_when_they_are_asked_for(load: Loader) -> None:
    config = load(SMALL.replace("{training_iters: 10}", "{training_iters: 9, save_interval: 3}"))
    assert config.training.save == "./output/checkpoint"


def test_a_folder_stands_for_the_only_pair_in_it(load: Loader, tmp_path: Path) -> None:
    text = SMALL + f"dataset_config: {{dataset_dir: {tmp_path}}}"
    with pytest.raises(BadInputFile, match="a folder with 0 "):
        load(text)
    (tmp_path / "a.b_text_document.idx").touch()
    assert load(text).dataset.data_path == str(tmp_path / "a.b_text_document")
    (tmp_path / "a.b_text_document" / "cache").mkdir(parents=True)
    assert load(text.replace(f"{tmp_path}", f"{tmp_path}/a.b_text_document")).dataset.data_path == (
        str(tmp_path / "a.b_text_document")
    )
    (tmp_path / "other.idx").touch()
    with pytest.raises(BadInputFile, match=r"2 \.bin/\.idx pairs"):
        load(text)


def test_files_that_are_not_there_or_not_yaml(tmp_path: Path) -> None:
    for content, sentence in [(None, "cannot read"), ("a: [", "is not YAML"), ("3", "no sections")]:
        path = tmp_path / "bad.yaml"
        if content is not None:
            path.write_text(content, encoding="utf-8")
        with pytest.raises(BadInputFile, match=sentence):
            load_yaml(path, warn=lambda sentence: None)
