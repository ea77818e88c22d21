"""The whole loop: what it says and writes, how it stops, and that going on from a save is exact."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relkit import faults
from relkit.data.indexed_writer import IndexedWriter
from relkit.errors import EXIT_UNKNOWN, EXIT_USAGE
from relkit.trainer.config.config import (
    DatasetConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    TrainerConfig,
    TrainingConfig,
)
from relkit.trainer.core.hooks import ReadyStep
from relkit.trainer.core.mesh import build_mesh
from relkit.trainer.core.progress import Progress
from relkit.trainer.core.trainer import Trainer
from relkit.trainer.data.samples import MicroBatch
from relkit.trainer.run.flops import flops_per_token
from relkit.trainer.run.loop import pretrain
from relkit.trainer.telemetry.events import PHASES, EventStream, read_events
from relkit.trainer.telemetry.log import RankLog, step_line
from tests.trainer.layouts import ALONE, SONNETS, micro_batches
from tests.trainer.processes import Place, long_ones_run, run_ranks

STEPS = 8
STOPPED = 4
SEQ_LENGTH = 32
MODEL = ModelConfig(
    num_layers=2,
    hidden_size=32,
    num_attention_heads=4,
    vocab_size=128,
    seq_length=SEQ_LENGTH,
    hidden_dropout=0.1,
    attention_dropout=0.1,
)

# The lines that the tutorial shows, to the letter.
TUTORIAL = (
    "train: Epoch:0, Step:5, Loss: 10.341485, Finite_grads: True, Loss_scale: 4096.0,"
    " Learning_rate: (1.250000e-06,1.250000e-06,), Time: 1403.24 ms",
    "train: Epoch:0, Step:6, Loss: 10.38118, Finite_grads: True, Loss_scale: 4096.0,"
    " Learning_rate: (1.250000e-06,1.250000e-06,), Time: 1378.19 ms",
)
LINE = re.compile(
    r"train: Epoch:(\d+), Step:(\d+), Loss: ([\d.]+), Finite_grads: (True|False), Loss_scale:"
    r" ([\d.]+), Learning_rate: \((\S+),(\S+),\), Time: ([\d.]+) ms, Tokens/s: (\d+),"
    r" MFU: ([\d.]+) %"
)


def write_data(folder: Path) -> str:
    """The sonnets as a data set, each a document of bytes."""
    prefix = folder / "sonnets"
    with IndexedWriter(prefix, np.uint16) as writer:
        for poem in SONNETS.read_bytes().replace(b"\xe2\x80\x99", b"'").split(b"\n\n"):
            if poem:
                writer.add_document(np.frombuffer(poem, dtype=np.uint8) % 128)
    return str(prefix)


def configured(
    data: str,
    output: Path,
    parallel: ParallelConfig | None = None,
    **training: Any,  # noqa: ANN401
) -> TrainerConfig:
    chosen = {"training_iters": STEPS, "eval_interval": 3, "eval_iters": 1, **training}
    return TrainerConfig(
        training=TrainingConfig(output_dir=str(output), **chosen),
        model=MODEL,
        parallel=parallel or ParallelConfig(),
        dataset=DatasetConfig(
            data_path=data, micro_batch_size=2, global_batch_size=8, split="90,5,5"
        ),
        optimizer=OptimizerConfig(learning_rate=1e-2, lr_decay_style="cosine", warmup_steps=2),
    )


class NoHooks:
    """Hooks that do nothing, for tests to do one thing more."""

    def phase(self, name: str) -> None: ...

    def gradients_ready(self, ready: ReadyStep) -> None: ...

    def before_update(self, ready: ReadyStep) -> None: ...

    def after_commit(self, progress: Progress) -> None: ...


class Terminated(NoHooks):
    """SIGTERM arrives on this rank in the step before STOPPED is committed."""

    def gradients_ready(self, ready: ReadyStep) -> None:
        if ready.outcome.step == STOPPED - 1:
            os.kill(os.getpid(), signal.SIGTERM)


def events_of(folder: Path, rank: int = 0, kind: str = "step") -> list[dict[str, Any]]:
    found = read_events(folder / "events" / f"rank_{rank}.jsonl")
    return [event for event in found if event["event"] == kind]


def losses_of(folder: Path, rank: int = 0) -> dict[int, str]:
    return {event["step"]: event["loss"].hex() for event in events_of(folder, rank)}


LAYOUTS: dict[str, tuple[ParallelConfig, dict[str, Any]]] = {
    "DP2": (ParallelConfig(), {}),
    "DP2 with distributed optimizer": (ParallelConfig(), {"use_distributed_optimizer": True}),
    "TP2": (ParallelConfig(tensor_model_parallel_size=2), {}),
    "TP2 with sequence parallel": (
        ParallelConfig(tensor_model_parallel_size=2, sequence_parallel=True),
        {"use_distributed_optimizer": True},
    ),
    "PP2": (ParallelConfig(pipeline_model_parallel_size=2), {}),
}


def one_undisturbed(place: Place) -> None:
    os.environ["RANK"] = str(place.rank)
    output = place.folder / "TP2" / "undisturbed"
    chosen = configured(
        str(place.folder / "sonnets"), output, LAYOUTS["TP2"][0], save=str(output / "save")
    )
    with place.world("TP2", 2):
        assert pretrain(chosen) == 0


def stop_and_go_on(place: Place) -> None:
    data = str(place.folder / "sonnets")
    for name, (parallel, training) in LAYOUTS.items():
        os.environ["RANK"] = str(place.rank)
        undisturbed, stopped = place.folder / name / "undisturbed", place.folder / name / "stopped"
        codes: list[int] = []
        for output, hooks in (
            (undisturbed, []),
            (stopped, [Terminated()] * place.rank),
            (stopped, []),
        ):
            chosen = configured(
                data,
                output,
                parallel,
                save=str(output / "save"),
                resume_training=True,
                **training,
            )
            with place.world(f"{name} {len(codes)}", 2):
                codes.append(pretrain(chosen, hooks=hooks))
        assert codes == [0, 0, 0]
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL

        if name == "DP2":
            # Each rank looks into a folder of its own; rank 1's is empty.
            load = stopped / "save" if place.rank == 0 else place.folder / "elsewhere"
            apart = configured(data, stopped, resume_training=True, load=str(load))
            with place.world("apart", 2):
                assert pretrain(apart) == EXIT_UNKNOWN


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Every layout: a run that is left alone, and one that is stopped and goes on."""
    folder = tmp_path_factory.mktemp("runs")
    write_data(folder)
    job = stop_and_go_on if long_ones_run(request) else one_undisturbed
    run_ranks(job, 2, folder, deadline_s=150)
    return folder


@pytest.mark.long
@pytest.mark.timeout(170)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_run_that_is_stopped_and_resumed_has_the_losses_of_one_left_alone(
    runs: Path, name: str
) -> None:
    undisturbed = losses_of(runs / name / "undisturbed")
    assert sorted(undisturbed) == list(range(1, STEPS + 1))
    for rank in range(2):
        assert losses_of(runs / name / "stopped", rank) == undisturbed
    evaluations = [
        [
            (e["split"], e["step"], e["loss"].hex())
            for e in events_of(runs / name / kind, 0, "evaluate")
        ]
        for kind in ("undisturbed", "stopped")
    ]
    assert evaluations[0] == evaluations[1]
    assert [(split, step) for split, step, _ in evaluations[0]] == [
        ("validation", 3),
        ("validation", 6),
        ("validation", 8),
        ("test", 8),
    ]
    shutil.rmtree(runs / name / "undisturbed" / "save")


@pytest.mark.long
@pytest.mark.timeout(170)
def test_sigterm_on_one_rank_stops_all_after_the_next_step_with_a_checkpoint(runs: Path) -> None:
    for rank in range(2):
        stopped = events_of(runs / "DP2" / "stopped", rank, "stop")
        assert [event["step"] for event in stopped] == [STOPPED]
        resumed = events_of(runs / "DP2" / "stopped", rank, "resume")
        assert [event["step"] for event in resumed] == [STOPPED]
    said = (runs / "DP2" / "stopped" / "log" / "rank_0" / "info.log").read_text()
    assert f"stopped after step {STOPPED}, as asked by a signal" in said
    assert f"resumed from step {STOPPED} of" in said


@pytest.mark.timeout(170)
def test_every_rank_keeps_a_log_and_its_events(runs: Path) -> None:
    folder = runs / "TP2" / "undisturbed"
    for rank in range(2):
        lines = (folder / "log" / f"rank_{rank}" / "info.log").read_text().splitlines()
        steps = [found for line in lines if (found := LINE.fullmatch(line))]
        assert [int(found[2]) for found in steps] == list(range(1, STEPS + 1))
        assert (folder / "log" / f"rank_{rank}" / "error.log").read_text() == ""
        events = events_of(folder, rank)
        for found, event in zip(steps, events, strict=True):
            assert float(found[3]) == pytest.approx(event["loss"], rel=1e-6)
            assert tuple(event["phases_s"]) == PHASES
            assert 0 < sum(event["phases_s"].values()) <= event["step_s"] * 1.01
            assert event["finite"] is True
            assert event["tokens"] == 8 * SEQ_LENGTH
        assert [e["world_size"] for e in events_of(folder, rank, "start")] == [2]
        assert len(events_of(folder, rank, "save")) == 1


@pytest.mark.parametrize("expected", TUTORIAL)
def test_a_line_is_the_tutorials_to_the_letter(expected: str) -> None:
    step, loss, took_ms = re.findall(r"Step:(\d+), Loss: ([\d.]+).*Time: ([\d.]+) ms", expected)[0]
    metrics = {"loss": float(loss), "finite": 1.0, "loss_scale": 4096.0, "learning_rate": 1.25e-6}
    line = step_line(
        0, int(step), metrics, step_s=float(took_ms) / 1e3, tokens_per_s=1234.5, mfu=0.3333
    )
    assert line == f"{expected}, Tokens/s: 1234, MFU: 33.3 %"
    assert LINE.fullmatch(line)


def test_a_single_process_says_its_steps_on_stdout(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configured(write_data(tmp_path), tmp_path / "out", log_interval=2, eval_interval=None)
    assert pretrain(config) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [int(LINE.fullmatch(line)[2]) for line in lines] == [2, 4, 6, 8]  # type: ignore[index]
    losses = [event["loss"] for event in events_of(tmp_path / "out")]
    assert losses[-1] < losses[0] - 0.5
    assert events_of(tmp_path / "out", kind="end")[0]["step"] == STEPS


def test_a_first_step_that_was_saved_but_not_told_of_is_told_of_on_resuming(tmp_path: Path) -> None:
    data, output, save = write_data(tmp_path), tmp_path / "out", str(tmp_path / "save")
    first = configured(data, output, training_iters=1, eval_interval=None, save=save)
    assert pretrain(first) == 0
    (told,) = events_of(output)
    # What survivors of a fault right after the commit leave: a checkpoint, and no line of its step.
    stream = output / "events" / "rank_0.jsonl"
    stream.write_text(stream.read_text().splitlines(keepends=True)[0])
    more: dict[str, Any] = {"eval_interval": None, "save": save, "resume_training": True}
    assert pretrain(configured(data, output, training_iters=2, **more)) == 0
    made_up, second = events_of(output)
    assert (made_up["step"], made_up["made_up"], second["step"]) == (1, True, 2)
    assert made_up["loss"].hex() == told["loss"].hex()
    # Where no run has been before, nothing is missing.
    assert pretrain(configured(data, tmp_path / "new", training_iters=3, **more)) == 0
    assert [event["step"] for event in events_of(tmp_path / "new")] == [3]
    stream = tmp_path / "new" / "events" / "rank_0.jsonl"
    stream.unlink()
    shutil.rmtree(save)
    shutil.rmtree(output)
    assert pretrain(first) == 0
    assert pretrain(configured(data, tmp_path / "new", training_iters=2, **more)) == 0
    assert [event["step"] for event in events_of(tmp_path / "new")] == [2]


def test_rates_scales_and_skipped_steps_of_fp16(tmp_path: Path) -> None:
    """A loss scale far too high: steps are skipped until it fits, and do not count for the rate."""
    config = configured(
        write_data(tmp_path), tmp_path, loss_scale=2.0**40, loss_scale_window=3, training_iters=30
    )
    config = replace(config, model=replace(config.model, compute_dtype="float16"))
    assert pretrain(config) == 0
    events = events_of(tmp_path)
    skipped = [event for event in events if not event["finite"]]
    assert 0 < len(skipped) < len(events)
    assert all(event["learning_rate"] == 0 for event in events[: len(skipped)])
    for before, after in pairwise(events):
        if not before["finite"]:
            assert after["loss_scale"] == before["loss_scale"] / 2
    assert events[-1]["loss"] < events[0]["loss"]


def test_a_ready_step_can_be_finished_by_a_rank_alone() -> None:
    """What try-to-persist builds on: the update needs nobody, and commits in one assignment."""

    class Left(Exception):
        pass

    class Dies(NoHooks):
        ready: ReadyStep | None = None

        def gradients_ready(self, ready: ReadyStep) -> None:
            self.ready = ready
            raise Left

    config = ALONE.config("llama", OptimizerConfig(learning_rate=1e-2))
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    batches: list[MicroBatch] = micro_batches(0, rank=0, ranks=1)
    hooks = Dies()
    left, undisturbed = Trainer(config, mesh, hooks=[hooks]), Trainer(config, mesh)
    undisturbed.train_step(batches)
    before = left.progress
    left.restore(before)
    with pytest.raises(Left):
        left.train_step(batches)
    assert left.progress is before
    assert hooks.ready is not None
    left.finish(hooks.ready)
    assert left.progress == undisturbed.progress
    assert left.progress.step == 1
    for one, other in zip(
        left.chunks[0].parameters(), undisturbed.chunks[0].parameters(), strict=True
    ):
        assert torch.equal(one, other)


def test_hooks_are_told_in_order(tmp_path: Path) -> None:
    seen: list[str] = []

    class Told:
        def phase(self, name: str) -> None:
            seen.append(name)

        def gradients_ready(self, ready: ReadyStep) -> None:
            seen.append(f"ready for {ready.outcome.step}")

        def before_update(self, ready: ReadyStep) -> None:
            seen.append("before update")

        def after_commit(self, progress: Progress) -> None:
            seen.append(f"committed {progress.step}")

    config = configured(write_data(tmp_path), tmp_path, training_iters=1, eval_interval=None)
    assert pretrain(config, hooks=[Told()]) == 0
    assert seen == [
        "data",
        "forward_backward",
        "reduce",
        "prepare",
        "barrier",
        "ready for 1",
        "update",
        "before update",
        "committed 1",
        "gather",
    ]


def test_an_error_is_named_on_stderr_and_kept_in_error_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = configured(str(tmp_path / "missing"), tmp_path)
    assert pretrain(config) == 3
    said = capfd.readouterr().err
    assert said.startswith("relkit: ")
    assert "missing.bin" in said
    assert "missing.bin" in (tmp_path / "log" / "rank_0" / "error.log").read_text()
    assert "missing.bin" in events_of(tmp_path, kind="error")[0]["what"]


def test_an_injected_exception_leaves_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(faults.VARIABLE, "crash:rank=0:step=2:kind=exception")
    config = configured(write_data(tmp_path), tmp_path, save=str(tmp_path / "save"))
    with pytest.raises(RuntimeError, match="injected exception"):
        pretrain(config)
    assert len(events_of(tmp_path)) == 2
    error = (tmp_path / "log" / "rank_0" / "error.log").read_text()
    assert "RuntimeError: relkit: injected exception" in error
    assert not (tmp_path / "save").exists()


def test_output_that_cannot_be_written_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file where a folder should be")
    assert pretrain(configured("data", tmp_path)) == 3


def test_a_reader_of_stdout_that_leaves_does_not_end_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as nowhere, RankLog(tmp_path, 0) as log:
        monkeypatch.setattr("sys.stdout", nowhere)
        log.info("one")
        log.info("two")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)
    assert (tmp_path / "log" / "rank_0" / "info.log").read_text() == "one\ntwo\n"


def test_events_are_json_whatever_the_numbers(tmp_path: Path) -> None:
    with EventStream(tmp_path, 3) as events:
        events.write("step", step=1, loss=float("nan"), grad_norm=float("inf"), rate=0.1)
        with events.path.open("a") as half_written:
            half_written.write('{"event":')
        found = read_events(events.path)
    assert [(e["loss"], e["grad_norm"], e["rate"], e["rank"]) for e in found] == [
        (None, None, 0.1, 3)
    ]
    assert json.loads(events.path.read_text().splitlines()[0])["event"] == "step"


def test_flops_are_megatrons() -> None:
    """GPT-3 175B with 2,048 tokens and 51,200 rows: 96 B s l h^2 (1 + s / 6h + V / 16lh)."""
    layers, hidden, length, rows = 96, 12288, 2048, 51200
    config = ModelConfig(
        num_layers=layers,
        hidden_size=hidden,
        num_attention_heads=96,
        seq_length=length,
        vocab_size=rows,
    )
    # The paper recomputes activations, 4 passes instead of 3, and counts attention in full.
    paper = 72 * layers * hidden**2 * (1 + length / (12 * hidden) + rows / (12 * layers * hidden))
    assert flops_per_token(config) == pytest.approx(paper, rel=1e-12)


def test_nccl_without_a_gpu_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    config = configured(write_data(tmp_path), tmp_path, distributed_backend="nccl")
    assert pretrain(config) == EXIT_USAGE
    assert "Write --distributed-backend gloo" in capfd.readouterr().err
