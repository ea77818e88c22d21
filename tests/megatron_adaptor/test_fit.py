"""Which Megatron is changed, and which is left as it was; holders of shards."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

with pytest.MonkeyPatch.context() as patch:
    # The import looks at Megatron; the real one takes half a minute, and is not asked here.
    patch.setitem(sys.modules, "megatron.core", ModuleType("megatron.core"))
    from relkit.megatron_adaptor import fit, holders
    from relkit.megatron_adaptor.fit import DoesNotFit
    from relkit.megatron_adaptor.holders import Place
    from relkit.megatron_adaptor.patches import adapt, adapted


def setup_model_and_optimizer(model_provider_func: object, model_type: object) -> None: ...
def load_checkpoint(ddp_model: object, optimizer: object, opt_param_scheduler: object) -> None: ...
def train(
    forward_step_func: object,
    model: object,
    optimizer: object,
    opt_param_scheduler: object,
    config: object,
) -> None: ...
def train_step(
    forward_step_func: object, data_iterator: object, model: object, optimizer: object
) -> None: ...
def checkpoint_and_decide_exit(
    model: object,
    optimizer: object,
    opt_param_scheduler: object,
    iteration: int,
    num_floating_point_operations_so_far: float,
    checkpointing_context: object,
    train_data_iterator: object,
) -> None: ...


FUNCTIONS: tuple[Callable[..., None], ...] = (
    setup_model_and_optimizer,
    load_checkpoint,
    train,
    train_step,
    checkpoint_and_decide_exit,
)
# Of Megatron's module of checkpoints, by relkit.flash_checkpoint.megatron too.
CALLED = (
    "get_args",
    "get_checkpoint_name",
    "get_checkpoint_tracker_filename",
    "generate_state_dict",
    "save_checkpoint",
    "load_checkpoint",
)


@pytest.fixture
def megatron(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The modules that the import looks at, with nothing in them but names."""
    core, training = ModuleType("megatron.core"), ModuleType(fit.TRAINING)
    checkpointing = ModuleType(fit.CHECKPOINTING)
    core.__version__ = "0.16.1"  # type: ignore[attr-defined]
    for function in FUNCTIONS:
        setattr(training, function.__name__, function)
    for name in CALLED:
        setattr(checkpointing, name, lambda: Namespace())
    training.get_args = lambda: Namespace(save=None, curr_iteration=3)  # type: ignore[attr-defined]
    modules = {"core": core, "training": training, "checkpointing": checkpointing}
    for name in ("megatron.core", fit.TRAINING, fit.CHECKPOINTING):
        monkeypatch.setitem(sys.modules, name, modules[name.rpartition(".")[2]])
    return modules


def unchanged(megatron: dict[str, Any]) -> bool:
    return all(getattr(megatron["training"], f.__name__, f) is f for f in FUNCTIONS)


def test_all_functions_are_changed_once(megatron: dict[str, Any]) -> None:
    training = megatron["training"]
    assert adapt()
    assert adapted(training)
    first = {f.__name__: getattr(training, f.__name__) for f in FUNCTIONS}
    assert not any(first[f.__name__] is f for f in FUNCTIONS)
    assert adapt()
    assert {f.__name__: getattr(training, f.__name__) for f in FUNCTIONS} == first
    # Without a launcher, each is what it was.
    training.train(1, 2, 3, 4, config=5)
    training.train_step(1, 2, 3, 4)
    training.setup_model_and_optimizer(1, model_type=2)
    training.load_checkpoint(1, 2, 3)
    training.checkpoint_and_decide_exit(1, 2, 3, 4, 5.0, None, train_data_iterator=6)


@pytest.mark.parametrize("version", ["0.11.0", "0.17.0", "0.17.0rc0", "1.16.0", "0.1.12", "dev"])
def test_a_version_that_is_not_known_is_refused_by_name(
    megatron: dict[str, Any], capsys: pytest.CaptureFixture[str], version: str
) -> None:
    megatron["core"].__version__ = version
    assert not adapt()
    assert unchanged(megatron)
    (line,) = capsys.readouterr().err.splitlines()
    assert f"megatron-core {version} is not known" in line
    assert line.endswith("Megatron is left as it was")


@pytest.mark.parametrize("version", ["0.12.0", "0.13.1", "0.14.0rc7", "0.15.3", "0.16.0+local"])
def test_versions_that_are_known(megatron: dict[str, Any], version: str) -> None:
    megatron["core"].__version__ = version
    assert adapt()


@pytest.mark.parametrize("name", [f.__name__ for f in FUNCTIONS])
def test_a_function_that_is_missing_leaves_all_as_they_were(
    megatron: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    delattr(megatron["training"], name)
    assert not adapt()
    assert unchanged(megatron)
    assert f"has no {name}" in capsys.readouterr().err


@pytest.mark.parametrize("name", CALLED)
def test_a_function_of_checkpoints_that_is_missing_leaves_all_as_they_were(
    megatron: dict[str, Any], capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """Found missing in the middle of a job, it would end the job."""
    delattr(megatron["checkpointing"], name)
    assert not adapt()
    assert unchanged(megatron)
    assert f"{fit.CHECKPOINTING} of megatron-core 0.16.1 has no {name}" in capsys.readouterr().err


def test_other_arguments_leave_all_as_they_were(
    megatron: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    def moved(optimizer: object, model: object) -> None: ...

    megatron["training"].checkpoint_and_decide_exit = moved
    assert not adapt()
    assert megatron["training"].train is train
    assert "takes optimizer, model, where model was expected" in capsys.readouterr().err


def test_ranks_but_the_first_say_nothing(
    megatron: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "3")
    megatron["core"].__version__ = "9.9"
    assert not adapt()
    assert capsys.readouterr().err == ""


def test_with_megatron_core_alone_the_import_says_so() -> None:
    """As pip installs it; the program goes on."""
    done = subprocess.run(
        [sys.executable, "-c", "import relkit.megatron_adaptor; print('goes on')"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "goes on\n"
    said = [line for line in done.stderr.splitlines() if line.startswith("relkit:")]
    assert len(said) == 1
    assert "megatron.training cannot be imported" in said[0]


def test_everybody_holds_a_plain_optimizers_file() -> None:
    places = [Place(f"mp_rank_0{rank % 2}", 0, 1) for rank in range(4)]
    made = holders.replica_map(places, 3)
    assert (made.ranks, made.holders) == ((1, 3), ((1, 3),))


def test_two_instances_hold_each_shard_twice() -> None:
    places = [Place("mp_rank_00", rank % 3, 3) for rank in range(6)]
    made = holders.replica_map(places, 1)
    assert made.holders == ((0, 3), (1, 4), (2, 5))


@pytest.mark.parametrize(
    "places",
    [
        [Place("a", 0, 2), Place("a", 0, 2)],
        [Place("a", 0, 2), Place("a", 1, 3)],
        [Place("a etp0", 0, 1), Place("a etp1", 0, 1)],
    ],
)
def test_what_cannot_be_put_together_is_refused(places: list[Place]) -> None:
    with pytest.raises(DoesNotFit):
        holders.replica_map(places, 0)


class FP32Optimizer: ...


class DistributedOptimizer:
    data_parallel_group_gloo = None


class LayerWise: ...


@pytest.mark.parametrize(
    ("args", "chained", "said"),
    [
        ({"data_parallel_random_init": True}, [FP32Optimizer()], "--data-parallel-random-init"),
        ({}, [LayerWise()], "the optimizer LayerWise"),
        ({}, [DistributedOptimizer(), DistributedOptimizer()], "experts are spread"),
        # Megatron could not load what was saved, at each restart.
        ({}, [DistributedOptimizer()], "--disable-gloo-process-groups"),
        ({"qk_clip": True}, [FP32Optimizer()], "--qk-clip"),
        ({"dataloader_save": "/data"}, [FP32Optimizer()], "--dataloader-save"),
        ({"fp8": "hybrid"}, [FP32Optimizer()], "--fp8-recipe delayed"),
    ],
)
def test_what_does_not_go_with_try_to_persist(
    args: dict[str, Any], chained: list[Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "_expert_tensor_place", lambda: "")
    megatron: Any = Namespace(file_of_rank=lambda _: "mp_rank_00/model_optim_rng.pt")
    with pytest.raises(DoesNotFit, match=said):
        holders.place(Namespace(**args), megatron, Namespace(chained_optimizers=chained))
