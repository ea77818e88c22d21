"""Jobs that are killed again and again, and what must be true of each end."""

from __future__ import annotations

import random
import re
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
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
from relkit.ttp.save_outcome import EXIT_REFUSED, EXIT_SAVED
from tests.patience import PATIENCE
from tests.ttp.jobs.compare import latest_differs, numbers
from tests.ttp.jobs.forked_ranks import Ended, load_what_ranks_load, run_ranks
from tests.ttp.jobs.witness import KillOnCommit, LeftBehind, Seen, read, witnessed

CHECKOUT = Path(__file__).resolve().parents[3]
TEXT = CHECKOUT / "examples" / "data" / "sonnets.txt"
LIMIT_S = 90.0 * PATIENCE
SAVE_EVERY = 4
# Share of faults after which the only holder of a shard is one step behind.
BEHIND = 0.15
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

    def holders(self) -> list[tuple[int, int]]:
        """The two ranks of each shard: half a group apart, or neighbours where its size is odd."""
        return [
            (rank, ranks[(place + (len(ranks) // 2 if len(ranks) % 2 == 0 else 1)) % len(ranks)])
            for ranks in self.groups()
            for place, rank in enumerate(ranks)
        ]

    def can_save(self, step: int, seen: Sequence[Seen], able: Set[int]) -> bool:
        """Whether every shard of that step has a holder among these ranks."""
        return all(
            any(rank in able and seen[rank].can_give(step) for rank in held_by)
            for held_by in self.holders()
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
    forward: int = 0
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


def draw_behind(dice: random.Random, layout: Layout, step: int) -> LeftBehind:
    """A holder of the victim's shard has yet to make the step that the victim had committed."""
    victim, rank = dice.choice(layout.holders())
    return LeftBehind(rank, step + dice.randrange(1, 4), victim)


@dataclass(frozen=True, slots=True)
class Duty:
    """What must come of a fault, known from the layout, the deaths and each rank's last step.

    Args:
        steps: that may be saved; empty: it must be refused.
        must: one of them has to be.
        forward: only with ranks that make the step themselves.
    """

    steps: Set[int]
    must: bool
    forward: bool = False

    @classmethod
    def of(cls, layout: Layout, seen: Sequence[Seen], killed: Set[int], late: Set[int]) -> Duty:
        """Work it out.

        Args:
            seen: of every rank; killed: ranks; late: those of them that may have died when the save
                had begun already, and so may have given what they had, or not.
        """
        living = frozenset(range(layout.ranks)) - killed
        steps: set[int] = set()
        must = forward = False
        for able in (living, living | late):
            if not able:
                continue
            due = max(seen[rank].step for rank in able)
            # With a kept copy, and only then, all may go back by one.
            if not layout.can_save(due, seen, able) and any(seen[rank].kept for rank in able):
                due -= 1
            if due < 1 or not layout.can_save(due, seen, able):
                continue
            steps.add(due)
            if able == living:
                must = True
                without_gradients = [replace(rank, ready=0) for rank in seen]
                forward = not layout.can_save(due, without_gradients, able)
        return cls(frozenset(steps), must, forward)


def check(
    layout: Layout, before: int, save: Path, ended: Ended, seen: Sequence[Seen], victim: int = -1
) -> tuple[list[str], list[str], Duty]:
    """Hold an attempt's end against what had to come of it.

    Args:
        before: step of the checkpoint that it began with; save: folder of checkpoints.
        seen: how far each rank had come, by its own word; victim: killed from outside.

    Returns:
        What is wrong; the phases of the deaths that happened; and what had to come of them.
    """
    happened = [(int(r), phase, float(late)) for r, phase, late, _ in AT.findall(ended.said)]
    killed = {rank for rank, code in enumerate(ended.codes) if code == -9}
    phases = [phase for rank, phase, _ in happened if rank in killed]
    phases += ["behind"] * (victim in killed)
    at_once = {rank for rank, phase, late in happened if phase != "emergency_save" and not late}
    duty = Duty.of(layout, seen, killed, killed - at_once - {victim})
    if "silent corruption" in ended.said:
        return ["the audit saw what is not there"], phases, duty
    if ended.hung:
        return [f"a rank had to be killed after {LIMIT_S:g} s: {ended.codes}"], phases, duty
    codes = {code for code in ended.codes if code != -9}
    tracker = iteration_folder.latest(save) or 0
    wrong = []
    if not codes or (codes <= {0} and not killed):
        return [], phases, duty
    # Survivors remove what a killed save has begun, whatever comes of their own.
    if any(save.glob("iter_*_tmp")) and codes & {EXIT_SAVED, EXIT_REFUSED}:
        wrong.append(f"left {[path.name for path in save.glob('iter_*_tmp')]}")
    step = int(ended.outcome.get("step", -1))
    # Of a run in which not even all ranks had begun, all is in the checkpoint that it began with.
    # Once one has reduced its gradients, all have.
    early = "not every rank had begun" in str(ended.outcome.get("sentence"))
    nothing_done = early and tracker == before and not any(rank.ready for rank in seen)
    if codes == {EXIT_SAVED} and duty.steps:
        if not (tracker == step and step in duty.steps and step >= before):
            wrong.append(f"saved is {step}, tracked {tracker}, due was {sorted(duty.steps)}")
    elif codes != {EXIT_REFUSED} or (duty.must and not nothing_done):
        due = "saved" if duty.must else "refused"
        wrong.append(f"it was to be {due}, and ended with {sorted(codes)}: {ended.outcome}")
    elif tracker != before and (tracker % SAVE_EVERY or tracker > max(rank.step for rank in seen)):
        wrong.append(f"refused, it went from step {before} to {tracker}")
    if wrong:
        wrong.append(f"killed {sorted(killed)}, of {list(enumerate(seen))}")
    return wrong, phases, duty


def from_kill_to_rename(ended: Ended, save: Path, killed_s: float = 0.0) -> float:
    """Seconds from the last death to the renamed folder's tracker.

    Args:
        killed_s: when a rank was killed from outside, seconds since the epoch; 0.0: none was.
    """
    last = max(killed_s, *(float(at) for _, _, _, at in AT.findall(ended.said)), 0.0)
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
    ended, _, _ = _run(config, layout, 0, {"ENABLE_TTP": "False"}, reference)
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
            deaths, behind = [], None
            # The first one always: whatever the dice say, some rank is the only holder, and behind.
            if (job, run) == (0, 0) or (tally.kills < kills and dice.random() < BEHIND):
                behind = draw_behind(dice, layout, before)
            elif tally.kills < kills:
                deaths = draw(dice, layout, run, before)
            injected = to_environment(deaths)
            ended, seen, killed_s = _run(config, layout, run, injected, place, before, behind)
            victim = behind.victim if behind and killed_s else -1
            wrong, phases, duty = check(layout, before, save, ended, seen, victim)
            tally.kills += len(phases)
            tally.phases.update(phases)
            if EXIT_SAVED in ended.codes:
                tally.saved += 1
                tally.again += int(ended.outcome.get("epochs", 1)) > 1
                tally.forward += duty.forward
                tally.seconds.append(from_kill_to_rename(ended, save, killed_s))
                if tally.seconds[-1] == max(tally.seconds):
                    tally.slowest = f"{[str(d) for d in deaths]} {behind}: {ended.outcome}"
            elif EXIT_REFUSED in ended.codes:
                tally.refused += 1
            # Refused or not: what is resumed from is what an undisturbed run has written.
            if differs := latest_differs(save, reference / "save"):
                wrong.append(differs)
            if wrong:
                what = f"{name} job {job} run {run} {[str(d) for d in deaths]} {behind}"
                tally.wrong += [f"{what}: {sentence}" for sentence in wrong]
                tally.wrong.append(ended.said[-3000:])
                break
            if not any(ended.codes):
                tally.ended += 1
                break
        found = numbers(place)
        if not tally.wrong and found != wanted:
            bad = [key for key in wanted if found.get(key) != wanted[key]]
            first = [f"{key}: {found.get(key)}, not {wanted[key]}" for key in bad[:3]]
            tally.wrong.append(f"{name} job {job}: {len(bad)} numbers differ: {first}")
        if not tally.wrong:
            shutil.rmtree(place)
        job += 1
    return tally


def _run(
    config: TrainerConfig,
    layout: Layout,
    run: int,
    environment: dict[str, str],
    place: Path,
    before: int = 0,
    behind: LeftBehind | None = None,
) -> tuple[Ended, list[Seen], float]:
    """One attempt; with how far each rank had come, and when one was killed from outside."""
    notes = place / "notes"
    notes.mkdir(parents=True, exist_ok=True)
    told = notes / f"witness-{run}.txt"
    kill = None if behind is None else KillOnCommit(behind, told, range(layout.ranks))
    ended = run_ranks(
        partial(witnessed, partial(pretrain, config), told, behind),
        layout.ranks,
        attempt=run,
        environment=environment,
        notes=notes,
        limit_s=LIMIT_S,
        meanwhile=kill,
    )
    return ended, read(told, layout.ranks, before), 0.0 if kill is None else kill.at_s


def write_text(folder: Path) -> str:
    """The sonnets as a data set of bytes."""
    prefix = folder / "sonnets"
    with IndexedWriter(prefix, np.uint16) as writer:
        for poem in TEXT.read_bytes().replace(b"\xe2\x80\x99", b"'").split(b"\n\n"):
            if poem:
                writer.add_document(np.frombuffer(poem, dtype=np.uint8) % 128)
    return str(prefix)
