"""One process: what the files hold, that a resumed run is the undisturbed one, named errors."""

from __future__ import annotations

import os
import pickle
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from relkit.checkpoint import iteration_folder as files
from relkit.checkpoint.manifest import MANIFEST, Manifest, read_manifest
from relkit.errors import BadInputFile, UnwritablePath
from relkit.trainer.megatron import names
from tests.checkpoint.test_iteration_folder import small_disk
from tests.trainer.checkpointing.checkpoint_run import Run, config_of
from tests.trainer.layouts import ALONE

__all__ = ["small_disk"]

SHARDED = replace(ALONE, distributed_optimizer=True)
FOLDER = "mp_rank_00"
Damage = Callable[[Path], None]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("model", ["gpt2", "llama", "experts"])
@pytest.mark.parametrize("optimizer", ["AdamW", "SGD", "CAME"])
def test_a_resumed_run_is_the_undisturbed_one_bit_for_bit(
    tmp_path: Path, model: str, optimizer: str
) -> None:
    run = Run(config_of(ALONE, model, optimizer))
    run.steps(2)
    run.save(tmp_path)
    expected, digest = run.steps(2), run.digest()
    resumed = Run(config_of(ALONE, model, optimizer))
    resumed.steps(1)
    resumed.load(tmp_path)
    assert resumed.progress.step == 2
    assert resumed.progress.consumed_train_samples == 32
    assert resumed.progress.skipped_steps == 1
    assert resumed.progress.loss_scaler == {"scale": 4096.0, "growth_tracker": 3.0}
    assert resumed.progress.metrics == {"loss": 0.1}
    assert resumed.steps(2) == expected
    assert resumed.digest() == digest


@pytest.mark.parametrize("layouts", [(ALONE, SHARDED), (SHARDED, ALONE)], ids=["to", "from"])
def test_the_two_forms_of_the_optimizer_load_each_others_state(
    tmp_path: Path, layouts: tuple[Any, Any]
) -> None:
    run = Run(config_of(layouts[0], "experts"))
    run.steps(2)
    run.save(tmp_path)
    expected, digest = run.steps(1), run.digest()
    resumed = Run(config_of(layouts[1], "experts"))
    resumed.load(tmp_path)
    assert resumed.steps(1) == expected
    assert resumed.digest() == digest


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two iterations of a distributed-optimizer run."""
    folder = tmp_path_factory.mktemp("saved")
    run = Run(config_of(SHARDED, "gpt2"))
    for _ in range(2):
        run.steps(1)
        run.save(folder)
    return folder


def opened(path: Path) -> Any:  # noqa: ANN401
    with torch.serialization.safe_globals([Namespace]):
        return torch.load(path, weights_only=True)


def test_the_files_have_megatrons_names_and_keys(saved: Path) -> None:
    iteration = saved / "iter_0000002"
    assert (saved / "latest_checkpointed_iteration.txt").read_text() == "2"
    names = {str(path.relative_to(iteration)) for path in iteration.rglob("*") if path.is_file()}
    assert names == {
        "manifest.json",
        "mp_rank_00/model_optim_rng.pt",
        "mp_rank_00/distrib_optim.pt",
    }
    model = opened(iteration / FOLDER / "model_optim_rng.pt")
    assert {
        "args",
        "checkpoint_version",
        "iteration",
        "model",
        "optimizer",
        "opt_param_scheduler",
        "rng_state",
        "num_floating_point_operations_so_far",
    } < set(model)
    assert (model["checkpoint_version"], model["iteration"]) == (3.0, 2)
    assert model["args"].consumed_train_samples == 32
    assert model["args"].tensor_model_parallel_size == 1
    assert model["args"].padded_vocab_size == 96
    layers = {name.split(".")[2] for name in model["model"] if name.startswith("decoder.layers.")}
    assert layers == {"0", "1", "2", "3"}
    assert model["model"]["embedding.word_embeddings.weight"].shape == (96, 32)
    for group in model["optimizer"]["optimizer"]["param_groups"]:
        assert group["step"] == 2
        assert "params" not in group
    assert model["opt_param_scheduler"]["num_steps"] == 2 * 16
    assert set(model["rng_state"][0]) == {
        "random_rng_state",
        "np_rng_state",
        "torch_rng_state",
        "cuda_rng_state",
        "rng_tracker_states",
    }
    flat = opened(iteration / FOLDER / "distrib_optim.pt")
    assert flat["buckets_coalesced"] is True
    buffer = flat[0][(torch.float32, torch.float32)]
    sizes = {buffer[name].numel() for name in ("param", "exp_avg", "exp_avg_sq")}
    assert sizes == {buffer["numel_unpadded"]}
    # Reverse order of registration: the first in the buffer is the last of the model.
    last = model["model"]["decoder.final_layernorm.bias"]
    assert torch.equal(buffer["param"][: last.numel()], last)


def test_experts_have_megatrons_names(tmp_path: Path) -> None:
    run = Run(config_of(SHARDED, "experts"))
    run.steps(1)
    iteration = run.save(tmp_path)
    model = opened(iteration / FOLDER / "model_optim_rng.pt")["model"]
    assert "decoder.layers.3.mlp.experts.local_experts.2.linear_fc1.weight" in model
    # Megatron has a buffer of their own for them only where they are spread over ranks.
    flat = opened(iteration / FOLDER / "distrib_optim.pt")
    assert set(flat) == {"buckets_coalesced", 0}


def test_the_plain_form_has_the_moments_by_parameter(tmp_path: Path) -> None:
    run = Run(config_of(ALONE, "gpt2"))
    run.steps(1)
    path = run.save(tmp_path) / FOLDER / "model_optim_rng.pt"
    optimizer = opened(path)["optimizer"]
    shapes = {tuple(moments["exp_avg"].shape) for moments in optimizer["state"].values()}
    assert (96, 32) in shapes
    numbers = [number for group in optimizer["param_groups"] for number in group["params"]]
    assert sorted(numbers) == list(range(len(run.infos)))
    assert not (path.parent / "distrib_optim.pt").exists()


def test_old_iterations_are_removed_as_configured(tmp_path: Path) -> None:
    config = config_of(ALONE, "gpt2")
    config = replace(config, training=replace(config.training, keep_checkpoint_max=2))
    run = Run(config)
    for _ in range(4):
        run.steps(1)
        run.save(tmp_path)
    assert files.iterations(tmp_path) == (3, 4)


def test_an_earlier_iteration_can_be_named(saved: Path) -> None:
    run = Run(config_of(SHARDED, "gpt2"))
    run.load(saved, step=1)
    assert run.progress.step == 1


def copy(saved: Path, to: Path) -> Path:
    for path in sorted(saved.rglob("*")):
        target = to / path.relative_to(saved)
        if path.is_dir():
            target.mkdir()
        else:
            target.write_bytes(path.read_bytes())
    return to / "iter_0000002"


WAS_RUN = "was-run"


class Hostile:
    """What runs a command where it is unpickled."""

    def __init__(self, iteration: Path) -> None:
        self._evidence = iteration.parent / WAS_RUN

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.system, (f"touch {self._evidence}",))


def code(iteration: Path) -> None:
    torch.save({"args": Hostile(iteration)}, iteration / FOLDER / "model_optim_rng.pt")
    (iteration / MANIFEST).unlink()


def raw_pickle(iteration: Path) -> None:
    (iteration / FOLDER / "model_optim_rng.pt").write_bytes(
        pickle.dumps({"args": Hostile(iteration)})
    )
    (iteration / MANIFEST).unlink()


def cut(iteration: Path) -> None:
    path = iteration / FOLDER / "model_optim_rng.pt"
    path.write_bytes(path.read_bytes()[:-100])


def cut_without_manifest(iteration: Path) -> None:
    cut(iteration)
    (iteration / MANIFEST).unlink()


def flipped(iteration: Path) -> None:
    path = iteration / FOLDER / "distrib_optim.pt"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def without_keys(iteration: Path) -> None:
    path = iteration / FOLDER / "model_optim_rng.pt"
    model = opened(path)
    del model["rng_state"]
    torch.save(model, path)
    (iteration / MANIFEST).unlink()


def without_a_parameter(iteration: Path) -> None:
    path = iteration / FOLDER / "model_optim_rng.pt"
    model = opened(path)
    del model["model"]["decoder.final_layernorm.bias"]
    torch.save(model, path)
    (iteration / MANIFEST).unlink()


def no_tracker(iteration: Path) -> None:
    (iteration.parent / files.TRACKER).unlink()


def odd_tracker(iteration: Path) -> None:
    (iteration.parent / files.TRACKER).write_text("release")


def far_tracker(iteration: Path) -> None:
    (iteration.parent / files.TRACKER).write_text("7")


def missing_optimizer(iteration: Path) -> None:
    (iteration / FOLDER / "distrib_optim.pt").unlink()


def other_size(iteration: Path) -> None:
    path = iteration / FOLDER / "distrib_optim.pt"
    flat = opened(path)
    flat[0][(torch.float32, torch.float32)]["numel_unpadded"] = 7
    torch.save(flat, path)
    (iteration / MANIFEST).unlink()


def other_degree(iteration: Path) -> None:
    manifest = read_manifest(iteration)
    facts = {**manifest.facts, "tensor_model_parallel_size": 2}
    (iteration / MANIFEST).write_bytes(Manifest(2, manifest.files, facts).encode())


DAMAGES: list[tuple[Damage, str]] = [
    (code, r"model_optim_rng\.pt is refused: it would call or make posix\.system"),
    (raw_pickle, "is not a checkpoint, or is damaged"),
    (cut, r"has \d+ bytes, and was written with \d+"),
    (cut_without_manifest, "is not a checkpoint, or is damaged"),
    (flipped, r"distrib_optim\.pt has another content than was written"),
    (without_keys, "lacks something .* KeyError 'rng_state'"),
    (without_a_parameter, r"lacks decoder\.final_layernorm\.bias"),
    (no_tracker, "has no latest_checkpointed_iteration.txt"),
    (odd_tracker, "says 'release', which is no step"),
    (far_tracker, "iter_0000007 is not there"),
    (missing_optimizer, r"distrib_optim\.pt is missing"),
    (other_size, r"distrib_optim\.pt has 7 elements of buffer 0, and the model has \d+"),
    (other_degree, "was written with tensor_model_parallel_size 2, and this run has 1"),
]


@pytest.mark.parametrize(("damage", "sentence"), DAMAGES, ids=[d.__name__ for d, _ in DAMAGES])
def test_what_is_wrong_with_a_checkpoint_is_named(
    saved: Path, tmp_path: Path, damage: Damage, sentence: str
) -> None:
    damage(copy(saved, tmp_path))
    run = Run(config_of(SHARDED, "gpt2"))
    with pytest.raises(BadInputFile, match=sentence):
        run.load(tmp_path)
    assert not (tmp_path / WAS_RUN).exists()


def test_a_checkpoint_of_another_shape_is_refused_by_name(saved: Path) -> None:
    config = config_of(SHARDED, "gpt2")
    wider = replace(config, model=replace(config.model, hidden_size=64))
    with pytest.raises(BadInputFile, match="written with hidden_size 32, and this run has 64"):
        Run(wider).load(saved)
    with pytest.raises(BadInputFile, match="num_query_groups 4, and this run has 2"):
        Run(config_of(SHARDED, "llama")).load(saved)


@pytest.mark.parametrize("name", names.DEGREES)
def test_a_degree_that_nobody_set_is_one(name: str) -> None:
    """Megatron writes None for some of them."""
    agreed = dict.fromkeys(names.MUST_AGREE, 1)
    iteration = Path("iter_0000007")
    names.refuse_other({**agreed, name: None}, agreed, iteration)
    names.refuse_other(agreed, {**agreed, name: None}, iteration)
    with pytest.raises(BadInputFile, match=f"with {name} 2, and this run has 1"):
        names.refuse_other({**agreed, name: 2}, {**agreed, name: None}, iteration)
    with pytest.raises(BadInputFile, match=f"with {name} 1, and this run has 2"):
        names.refuse_other({**agreed, name: None}, {**agreed, name: 2}, iteration)


def test_shapes_are_held_against_the_model_where_arguments_agree(
    saved: Path, tmp_path: Path
) -> None:
    iteration = copy(saved, tmp_path)
    path = iteration / FOLDER / "model_optim_rng.pt"
    model = opened(path)
    model["model"]["decoder.final_layernorm.bias"] = torch.zeros(31)
    torch.save(model, path)
    (iteration / MANIFEST).unlink()
    with pytest.raises(BadInputFile, match=r"bias as \(31,\), and this run's is \(32,\)"):
        Run(config_of(SHARDED, "gpt2")).load(tmp_path)


def test_moments_of_another_optimizer_are_refused(saved: Path) -> None:
    with pytest.raises(BadInputFile, match="momentum_buffer"):
        Run(config_of(SHARDED, "gpt2", "SGD")).load(saved)


def test_a_half_written_iteration_is_named_and_ignored(
    saved: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copy(saved, tmp_path)
    files.begin(tmp_path, 3)
    run = Run(config_of(SHARDED, "gpt2"))
    run.load(tmp_path)
    assert run.progress.step == 2
    assert "iter_0000003_tmp is half-written, and is ignored" in caplog.text


@pytest.mark.root
def test_a_full_disk_in_mid_save_leaves_the_previous_iteration(
    small_disk: Path,
) -> None:
    run = Run(config_of(SHARDED, "gpt2"))
    run.steps(1)
    run.save(small_disk)
    size = sum(path.stat().st_size for path in small_disk.rglob("*") if path.is_file())
    (small_disk / "other").write_bytes(b"x" * (4 * 1024 * 1024 - size - size // 2))
    run.steps(1)
    with pytest.raises(UnwritablePath, match="No space left on device"):
        run.save(small_disk)
    assert files.half_written(small_disk) == ()
    again = Run(config_of(SHARDED, "gpt2"))
    again.load(small_disk)
    assert again.progress.step == 1
    (small_disk / "other").unlink()
    assert run.save(small_disk).name == "iter_0000002"
