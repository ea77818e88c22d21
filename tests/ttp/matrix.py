"""Jobs that are killed again and again, and what must be true of each end."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import relkit.trainer.checkpointing.persist  # noqa: F401 (loaded once, before ranks are forked)
from relkit.checkpoint import iteration_folder
from relkit.data.indexed_writer import IndexedWriter
from relkit.trainer.config.config import (
    DatasetConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    TrainerConfig,
    TrainingConfig,
)
from relkit.trainer.run.loop import pretrain
from relkit.ttp.fault_injector import PHASES, Death, to_environment
from relkit.ttp.replicas import replica_map
from relkit.ttp.save_outcome import EXIT_REFUSED, EXIT_SAVED
from tests.patience import PATIENCE
from tests.ttp.compare import latest_differs, numbers
from tests.ttp.forked_ranks import Ended, load_what_ranks_load, run_ranks

CHECKOUT = Path(__file__).resolve().parents[2]
TEXT = CHECKOUT / "examples" / "data" / "sonnets.txt"
LIMIT_S = 90.0 * PATIENCE
SAVE_EVERY = 4
AT = re.compile(
    r"injecting run=\d+:rank=(\d+):step=\d+:phase=(\w+):delay_ms=([\d.]+)\S* .* at ([\d.]+)"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks and degrees."""

    ranks: int
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    virtual: int = 1
    sequence: bool = False

    @property
    def data(self) -> int:
        """Data-parallel ranks."""
        return self.ranks // (self.tensor * self.pipeline)

    def groups(self) -> list[list[int]]:
        """Global ranks of each data-parallel group, and of each expert-data-parallel one."""
        dense = [
            [t + self.tensor * (d + self.data * p) for d in range(self.data)]
            for p in range(self.pipeline)
            for t in range(self.tensor)
        ]
        if self.expert == 1:
            return dense
        return dense + [ranks[e :: self.expert] for ranks in dense for e in range(self.expert)]

    def survives(self, dead: set[int]) -> bool:
        """Whether every shard has a living holder."""
        return all(
            set(held_by) - dead
            for ranks in self.groups()
            for held_by in replica_map("", ranks, copies=2).holders
        )


LAYOUTS = {
    "DP4": Layout(4),
    "DP3": Layout(3),
    "TP2xDP2": Layout(4, tensor=2),
    "PP2xDP2": Layout(4, pipeline=2),
    "TP2xPP2xDP2": Layout(8, tensor=2, pipeline=2),
    "EP2xDP4": Layout(4, expert=2),
    "TP2xDP2 SP": Layout(4, tensor=2, sequence=True),
    "PP2xDP2 VPP2": Layout(4, pipeline=2, virtual=2),
}


@dataclass(slots=True)
class Tally:
    """What was seen of one layout."""

    kills: int = 0
    phases: Counter[str] = field(default_factory=Counter)
    saved: int = 0
    refused: int = 0
    ended: int = 0
    again: int = 0
    seconds: list[float] = field(default_factory=list)
    slowest: str = ""
    wrong: list[str] = field(default_factory=list)


def configured(
    layout: Layout,
    data: str,
    folder: Path,
    steps: int,
    **training: Any,  # noqa: ANN401
) -> TrainerConfig:
    """A small GPT with dropout."""
    return TrainerConfig(
        training=TrainingConfig(
            training_iters=steps,
            output_dir=str(folder / "out"),
            save=str(folder / "save"),
            use_distributed_optimizer=True,
            log_interval=None,
            eval_interval=10,
            eval_iters=1,
            **training,
        ),
        model=ModelConfig(
            num_layers=2 * layout.virtual,
            hidden_size=64,
            num_attention_heads=4,
            vocab_size=128,
            seq_length=32,
            hidden_dropout=0.1,
            attention_dropout=0.1,
            num_moe_experts=4 if layout.expert > 1 else None,
        ),
        parallel=ParallelConfig(
            tensor_model_parallel_size=layout.tensor,
            pipeline_model_parallel_size=layout.pipeline,
            expert_model_parallel_size=layout.expert,
            virtual_pipeline_model_parallel_size=layout.virtual if layout.virtual > 1 else None,
            sequence_parallel=layout.sequence,
        ),
        dataset=DatasetConfig(
            data_path=data,
            micro_batch_size=1,
            global_batch_size=2 * layout.data,
            split="90,5,5",
        ),
        optimizer=OptimizerConfig(learning_rate=3e-3, lr_decay_style="cosine", warmup_steps=5),
    )


def draw(dice: random.Random, layout: Layout, run: int, step: int) -> list[Death]:
    """One rank or two at once, now or a little later; sometimes another one while they save."""
    phase = dice.choice(PHASES[:-1])
    ranks = dice.sample(range(layout.ranks), 2 if dice.random() < 0.2 else 1)
    due = step + dice.randrange(1, 4)
    if phase == "save":
        due = -(-due // SAVE_EVERY) * SAVE_EVERY
    delay_ms = dice.choice((0.0, 0.0, round(dice.uniform(0, 12), 2)))
    deaths = [Death(rank, phase, due, run, delay_ms) for rank in ranks]
    if dice.random() < 0.2:
        other = dice.choice([rank for rank in range(layout.ranks) if rank not in ranks])
        late_ms = dice.choice((0.0, round(dice.uniform(0, 8), 2)))
        deaths.append(Death(other, "emergency_save", 0, run, late_ms))
    return deaths


def check(layout: Layout, before: int, save: Path, ended: Ended) -> tuple[list[str], list[str]]:
    """What is wrong with an attempt's end; and the phases of the deaths that happened."""
    happened = [(int(r), phase, float(late)) for r, phase, late, _ in AT.findall(ended.said)]
    killed = {rank for rank, code in enumerate(ended.codes) if code == -9}
    phases = [phase for rank, phase, _ in happened if rank in killed]
    if "silent corruption" in ended.said:
        return ["the audit saw what is not there"], phases
    if ended.hung:
        return [f"a rank had to be killed after {LIMIT_S:g} s: {ended.codes}"], phases
    codes = {code for code in ended.codes if code != -9}
    tracker = iteration_folder.latest(save) or 0
    wrong = []
    if codes <= {0} and not killed:
        return [], phases
    # Survivors remove what a killed save has begun, whatever comes of their own.
    if any(save.glob("iter_*_tmp")) and codes & {EXIT_SAVED, EXIT_REFUSED}:
        wrong.append(f"left {[path.name for path in save.glob('iter_*_tmp')]}")
    at_once = {rank for rank, phase, late in happened if phase != "emergency_save" and not late}
    loose = any(phase == "emergency_save" or late for _, phase, late in happened)
    step = int(ended.outcome.get("step", -1))
    # Of a run in which not even all ranks had begun, all is in the checkpoint that it began with.
    early = "not every rank had begun" in str(ended.outcome.get("sentence"))
    nothing_done = before == 0 or (early and tracker == before)
    if not layout.survives(killed) and (loose or not layout.survives(at_once)):
        if codes - {EXIT_REFUSED, EXIT_SAVED} or (EXIT_SAVED in codes and not loose):
            wrong.append(f"both holders were killed, and it ended with {sorted(codes)}")
    elif codes != {EXIT_SAVED} and not (nothing_done and codes == {EXIT_REFUSED}):
        wrong.append(f"it could have been saved, and ended with {sorted(codes)}: {ended.outcome}")
    if EXIT_SAVED in codes and (tracker != step or step < before):
        wrong.append(f"the saved step {step} is not what the tracker names ({tracker})")
    return wrong, phases


def from_kill_to_rename(ended: Ended, save: Path, step: int) -> float:
    """Seconds from the last death to the renamed folder's tracker."""
    last = max(float(at) for _, _, _, at in AT.findall(ended.said))
    return (save / iteration_folder.TRACKER).stat().st_mtime - last


def run_layout(
    name: str,
    layout: Layout,
    kills: int,
    dice: random.Random,
    data: str,
    folder: Path,
    form: Mapping[str, bool],
) -> Tally:
    """Jobs of a layout until that many deaths have happened.

    Args:
        kills: how many; dice: decide which; data: prefix of a data set; folder: for everything.
        form: of the replicated optimizer, more keys of the training section.
    """
    tally, job = Tally(), 0
    steps = max(24, min(120, 3 * kills))
    reference = folder / name / "undisturbed"
    config = configured(layout, data, reference, steps, save_interval=1)
    ended = _run(config, layout, 0, {"ENABLE_TTP": "False"}, reference)
    if any(ended.codes):
        raise SystemExit(f"{name}: the undisturbed run failed: {ended.said[-2000:]}")
    load_what_ranks_load(reference / "notes")
    wanted = numbers(reference)
    while tally.kills < kills and not tally.wrong:
        place = folder / name / f"job {job}"
        config = configured(
            layout, data, place, steps, save_interval=SAVE_EVERY, ttp_audit_interval=3, **form
        )
        save = Path(config.training.save)
        for run in range(10 * steps):
            before = iteration_folder.latest(save) or 0
            deaths = draw(dice, layout, run, before) if tally.kills < kills else []
            ended = _run(config, layout, run, to_environment(deaths), place)
            wrong, phases = check(layout, before, save, ended)
            tally.kills += len(phases)
            tally.phases.update(phases)
            step = int(ended.outcome.get("step", -1))
            if EXIT_SAVED in ended.codes:
                tally.saved += 1
                tally.again += int(ended.outcome.get("epochs", 1)) > 1
                tally.seconds.append(from_kill_to_rename(ended, save, step))
                if tally.seconds[-1] == max(tally.seconds):
                    tally.slowest = f"{[str(d) for d in deaths]}: {ended.outcome}"
            elif EXIT_REFUSED in ended.codes:
                tally.refused += 1
            # Refused or not: what is resumed from is what an undisturbed run has written.
            if differs := latest_differs(save, reference / "save"):
                wrong.append(differs)
            if wrong:
                tally.wrong += [
                    f"{name} job {job} run {run} {[str(d) for d in deaths]}: {w}" for w in wrong
                ]
                tally.wrong.append(ended.said[-3000:])
                break
            if not any(ended.codes):
                tally.ended += 1
                break
        found = numbers(place)
        if not tally.wrong and found != wanted:
            bad = [key for key in wanted if found.get(key) != wanted[key]]
            tally.wrong.append(f"{name} job {job}: numbers differ, first at {bad[:3]}")
        if not tally.wrong:
            shutil.rmtree(place)
        job += 1
    return tally


def _run(
    config: TrainerConfig, layout: Layout, run: int, environment: dict[str, str], place: Path
) -> Ended:
    notes = place / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    return run_ranks(
        partial(pretrain, config),
        layout.ranks,
        attempt=run,
        environment=environment,
        notes=notes,
        limit_s=LIMIT_S,
    )


def write_text(folder: Path) -> str:
    """The sonnets as a data set of bytes."""
    prefix = folder / "sonnets"
    with IndexedWriter(prefix, np.uint16) as writer:
        for poem in TEXT.read_bytes().replace(b"\xe2\x80\x99", b"'").split(b"\n\n"):
            if poem:
                writer.add_document(np.frombuffer(poem, dtype=np.uint8) % 128)
    return str(prefix)
