"""The trainer's part of try-to-persist, without faults of real processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from relkit.checkpoint import iteration_folder
from relkit.errors import UsageProblem
from relkit.trainer.checkpointing.persist import Persist, RunLogger
from relkit.trainer.config.config import TrainerConfig
from relkit.trainer.core.hooks import ReadyStep, StepHooks
from relkit.trainer.core.mesh import build_mesh
from relkit.trainer.core.progress import Progress
from relkit.trainer.core.trainer import Trainer
from relkit.ttp.environment import ControllerAccess, WorkerEnvironment, saved_since_the_start
from relkit.ttp.fault_injector import Death, FaultInjector, from_environment, parse, to_environment
from relkit.ttp.link import Endpoint
from relkit.ttp.rank_state import RankState, TrainingInterrupted
from tests.trainer.checkpointing.checkpoint_run import config_of
from tests.trainer.layouts import ALONE, micro_batches


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """More would only wait for each other: every tensor is tiny."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Rank:
    """A trainer under try-to-persist that nobody leads."""

    def __init__(self, tmp_path: Path, **training: Any) -> None:  # noqa: ANN401
        base = config_of(ALONE, "gpt2")
        chosen = replace(base.training, save=str(tmp_path), eval_interval=2, **training)
        self.config: TrainerConfig = replace(base, training=chosen)
        self.said: list[str] = []
        self.events: list[dict[str, Any]] = []
        mesh = build_mesh(base.parallel, base.model, backend="gloo")
        environment = WorkerEnvironment(
            ControllerAccess((Endpoint("127.0.0.1", 1),), b"", 0),
            Endpoint("127.0.0.1", 1),
            tmp_path,
        )
        logger = RunLogger(self.said.append, lambda name, **facts: self.events.append(facts))
        self.persist = Persist(environment, self.config, mesh, logger)
        self.stopper = Stopper()
        hooks: list[StepHooks] = [self.persist, self.stopper]
        self.trainer = Trainer(self.config, mesh, hooks=hooks, replicas=self.persist.replicas)
        self.rank_state = self.persist._state = RankState(0, 0)
        self.persist._trainer = self.trainer

    def step(self) -> None:
        with self.trainer.clock("data"):
            batches = micro_batches(self.trainer.progress.step, rank=0, ranks=1)
        self.trainer.train_step(batches)

    def state(self) -> tuple[list[Tensor], int, Progress]:
        optimizer = self.trainer.optimizer
        return [t.clone() for t in optimizer.changing()], optimizer.steps, self.trainer.progress


class Stopper:
    """A fault that is met between a step's last collective and its update."""

    def __init__(self) -> None:
        self.due = False

    def phase(self, name: str) -> None: ...

    def gradients_ready(self, ready: ReadyStep) -> None:
        if self.due:
            raise TrainingInterrupted

    def before_update(self, ready: ReadyStep) -> None: ...

    def after_commit(self, progress: Progress) -> None: ...


def assert_same(
    one: tuple[list[Tensor], int, Progress], other: tuple[list[Tensor], int, Progress]
) -> None:
    assert all(map(torch.equal, one[0], other[0]))
    assert one[1:] == other[1:]


FORMS = [{}, {"use_distributed_optimizer": True}]


@pytest.mark.parametrize("form", FORMS, ids=["plain", "distributed"])
def test_a_step_is_made_up_for_from_its_gradients(tmp_path: Path, form: dict[str, Any]) -> None:
    undisturbed = Rank(tmp_path, **form)
    undisturbed.step()
    undisturbed.step()
    # After the other one: both draw from this process's random streams.
    parked = Rank(tmp_path, **form)
    parked.step()
    parked.stopper.due = True
    with pytest.raises(TrainingInterrupted):
        parked.step()
    assert parked.rank_state.survivor().ready
    parked.persist._roll_forward(2)
    assert_same(parked.state(), undisturbed.state())


def test_a_step_that_was_skipped_is_made_up_for_too(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    rank.step()
    before = rank.state()
    rank.stopper.due = True
    with pytest.raises(TrainingInterrupted):
        rank.step()
    ready = rank.persist._ready
    assert ready is not None
    rank.persist._ready = replace(ready, facts=replace(ready.facts, finite=False))
    rank.persist._roll_forward(2)
    after = rank.state()
    assert all(map(torch.equal, before[0], after[0]))
    assert (after[1], after[2].step) == (1, 2)


@pytest.mark.parametrize("optimizer", ["AdamW", "SGD", "CAME"])
def test_the_kept_copy_is_the_step_before(tmp_path: Path, optimizer: str) -> None:
    rank = Rank(tmp_path, local_copy_os=True)
    if optimizer != "AdamW":
        chosen = replace(rank.config.optimizer, optimizer_type=optimizer)
        rank.trainer = Trainer(
            replace(rank.config, optimizer=chosen), rank.trainer.mesh, hooks=[rank.persist]
        )
        rank.persist._trainer = rank.trainer
    for _ in range(2):
        rank.step()
    second = rank.state()
    rank.step()
    third = rank.state()
    assert rank.rank_state.survivor().previous
    rank.persist._rollback(2)
    assert_same(rank.state(), second)
    assert rank.trainer.progress.step == 2
    assert not all(map(torch.equal, second[0], third[0]))


def test_the_position_in_the_validation_data_follows_from_the_step(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    seen = []
    for _ in range(4):
        rank.step()
        seen.append(rank.trainer.progress.consumed_valid_samples)
    once = rank.trainer.batch_size * rank.config.training.eval_iters
    assert seen == [0, once, once, 2 * once]


def test_a_job_knows_what_it_has_saved_from_what_was_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, save = tmp_path / "notes", tmp_path / "save"
    notes.mkdir()
    save.mkdir()
    tracker = save / iteration_folder.TRACKER
    for there_before in (False, True):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
        assert not saved_since_the_start(notes, save)
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
        assert not saved_since_the_start(notes, save), there_before
        tracker.write_text("12" if there_before else "7")
        assert saved_since_the_start(notes, save), there_before


def test_a_checkpoint_from_before_is_not_the_jobs_own_where_the_first_attempt_left_no_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died on its way there, or this node has come in later."""
    tracker = tmp_path / iteration_folder.TRACKER
    tracker.write_text("12")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert not saved_since_the_start(tmp_path, tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    assert not saved_since_the_start(tmp_path, tmp_path)
    tracker.write_text("15")
    assert saved_since_the_start(tmp_path, tmp_path)


def test_what_has_no_copy_is_said(tmp_path: Path) -> None:
    rank = Rank(tmp_path, use_distributed_optimizer=True)
    rank.persist._say_start()
    assert "group tp0 pp0 has no second copy of its optimizer state" in rank.said[0]
    assert "16.00 bytes per parameter" in rank.said[1]


def test_deaths_are_read_back() -> None:
    deaths = [Death(1, "update", 5), Death(0, "emergency_save", run=2, delay_ms=1.5, by="STOP")]
    environment = {**to_environment(deaths), "RANK": "0", "TORCHELASTIC_RESTART_COUNT": "2"}
    assert [parse(str(death)) for death in deaths] == deaths
    injector = from_environment(environment)
    assert injector.expects("emergency_save")
    assert not injector.expects("update")
    FaultInjector().at("update", 5)


@pytest.mark.parametrize(
    "spec",
    ["rank=1", "rank=x:phase=save", "rank=1:phase=never", "rank=1:phase=save:by=HUP", "?"],
)
def test_what_is_no_death_is_refused(spec: str) -> None:
    with pytest.raises(UsageProblem, match="RELKIT_TTP_INJECT"):
        parse(spec)
