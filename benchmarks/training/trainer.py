"""Training throughput: relkit's trainer, nanoGPT's step and megatron-core's, in turn.

    python benchmarks/training/trainer.py                  both sizes, one process and two, 5 rounds
    python benchmarks/training/trainer.py --size char --rounds 9   one of them
    python benchmarks/training/trainer.py --at-least 1.0   exit 1 where a ratio is below

Every run is processes of its own: `relkit.trainer.run.loop.pretrain` as it stands, log lines and
event stream included, or the loop around the step of trainer_peer.py (plain torch code) or
trainer_megatron.py. The cores are two; a single process has a thread on each, of two data-parallel
processes (gloo) each has one. Model, batch, tokens and hyperparameters are the same. A round runs
all three one after the other, and which is first alternates; its ratios are ours over a peer's.
Throughput is that of a run's median step. Processor time is that of the first process in all
steps together, which a busy machine disturbs less: a ratio above 1 is less time than the peer's."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.ports import free_port

CHECKOUT = Path(__file__).resolve().parents[2]
LIMIT_S = 900
WARM_UP = 3
CORES = 2


class Size(NamedTuple):
    """One model and its batch on each data-parallel rank."""

    layers: int
    width: int
    heads: int
    vocab: int
    length: int
    samples: int
    steps: int


SIZES = {
    # nanoGPT's own recipe for a CPU; its vocabulary of 65 characters is padded here for both.
    "char": Size(layers=4, width=128, heads=4, vocab=128, length=64, samples=12, steps=60),
    # The same depth with GPT-2's vocabulary, where the head and the optimizer weigh more.
    "gpt2-vocab": Size(layers=4, width=256, heads=4, vocab=50304, length=256, samples=4, steps=8),
}


WHO = {"ours": "relkit", "peer": "nanoGPT", "megatron": "megatron-core"}


class Result(NamedTuple):
    """One run: tokens a second over all its processes, milliseconds of processor time that the
    first takes for a step, and the loss of its last step."""

    tokens_per_s: float
    cpu_ms: float
    loss: float


class Times(NamedTuple):
    """When steps ended: on the wall, and on this process's own processor clock."""

    wall_s: list[float]
    cpu_s: list[float]

    def note(self) -> None:
        """A step ends now."""
        self.wall_s.append(time.perf_counter())
        self.cpu_s.append(time.process_time())


def corpus(vocab: int) -> np.ndarray:
    """The example text's bytes, several times over."""
    text = b"".join(
        path.read_bytes() for path in sorted((CHECKOUT / "examples/data").glob("*.txt"))
    )
    return np.tile(np.frombuffer(text, np.uint8).astype(np.uint16) % vocab, 20)


def learning_rate(_step: int) -> float:
    """Constant: what a schedule costs is nothing beside a step."""
    return 1e-3


def run_ours(size: Size, folder: Path, world: int) -> tuple[Times, float]:
    """When each step ended, and the last loss."""
    from relkit.trainer.config.config import (
        DatasetConfig,
        ModelConfig,
        OptimizerConfig,
        TrainerConfig,
        TrainingConfig,
    )
    from relkit.trainer.core.progress import Progress
    from relkit.trainer.run.loop import pretrain

    times = Times([], [])
    losses: list[float] = []

    class Clock:
        """Notes when each step was committed."""

        def phase(self, name: str) -> None:
            """Nothing to note."""

        def gradients_ready(self, ready: object) -> None:
            """Nothing to note."""

        def before_update(self, ready: object) -> None:
            """Nothing to note."""

        def after_commit(self, progress: Progress) -> None:
            """A step is done."""
            times.note()
            losses.append(progress.metrics["loss"])

    config = TrainerConfig(
        model=ModelConfig(
            num_layers=size.layers,
            hidden_size=size.width,
            num_attention_heads=size.heads,
            vocab_size=size.vocab,
            make_vocab_size_divisible_by=1,
            seq_length=size.length,
            hidden_dropout=0.0,
            attention_dropout=0.0,
        ),
        dataset=DatasetConfig(
            data_path=str(folder / "text"),
            micro_batch_size=size.samples,
            global_batch_size=size.samples * world,
            split="1,0,0",
        ),
        optimizer=OptimizerConfig(
            betas=(0.9, 0.95),
            weight_decay=0.1,
            learning_rate=learning_rate(0),
            lr_decay_style="constant",
        ),
        training=TrainingConfig(
            training_iters=WARM_UP + size.steps, output_dir=str(folder / "output"), eval_iters=0
        ),
    )
    assert pretrain(config, hooks=[Clock()]) == 0
    return times, losses[-1]


def run_peer(who: str, size: Size, folder: Path, world: int) -> tuple[Times, float]:
    """The same of a peer."""
    from torch import distributed

    from benchmarks.training import trainer_megatron
    from benchmarks.training.trainer_peer import PeerGPT, make_step, random_batches

    if world > 1:
        distributed.init_process_group("gloo")
    rank = int(os.environ.get("RANK", "0"))
    data = np.memmap(folder / "text.bin", dtype=np.uint16, mode="r")
    batches = random_batches(data, size.samples, size.length, seed=1337 + rank)
    shape = (size.layers, size.width, size.heads, size.vocab)
    if who == "megatron":
        step = trainer_megatron.make_step(*shape, batches)
    else:
        step = make_step(PeerGPT(*shape, size.length), batches, 1, learning_rate)
    loss, times = 0.0, Times([], [])
    for number in range(WARM_UP + size.steps):
        started_s = time.perf_counter()
        loss = step(number)
        elapsed_ms = (time.perf_counter() - started_s) * 1e3
        print(f"iter {number}: loss {loss:.4f}, time {elapsed_ms:.2f} ms", flush=True)
        times.note()
    if distributed.is_initialized():
        distributed.destroy_process_group()
    return times, loss


def work(who: str, size: Size, folder: Path, world: int) -> None:
    """One process of one run; the first writes the result."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    run = run_ours if who == "ours" else partial(run_peer, who)
    times, loss = run(size, folder, world)
    if os.environ.get("RANK", "0") == "0":
        tokens = size.samples * size.length * world
        median_s = statistics.median(np.diff(times.wall_s[WARM_UP - 1 :]))
        cpu_s = times.cpu_s[-1] - times.cpu_s[WARM_UP - 1]
        result = Result(tokens / float(median_s), 1e3 * cpu_s / size.steps, loss)
        (folder / "result.json").write_text(json.dumps(result))


def launch(who: str, name: str, folder: Path, world: int) -> Result:
    """One run in processes of its own, which are gone when it returns."""
    port = free_port()
    processes = []
    for rank in range(world):
        environment = os.environ | {"OMP_NUM_THREADS": str(CORES // world)}
        if world > 1:
            environment |= {"RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank)}
            environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        argv = [sys.executable, __file__, "--worker", who, "--size", name]
        argv += ["--folder", str(folder), "--world", str(world)]
        with (folder / f"{who}-{rank}.log").open("w") as log:
            processes.append(
                subprocess.Popen(argv, env=environment, stdout=log, stderr=subprocess.STDOUT)
            )
    try:
        codes = [process.wait(timeout=LIMIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if any(codes):
        sys.exit(f"{who} exited {codes}:\n" + (folder / f"{who}-0.log").read_text()[-2000:])
    return Result(*json.loads((folder / "result.json").read_text()))


def compare(name: str, world: int, rounds: int, folder: Path) -> float:
    """The lowest of our median ratios of processor time; all figures are printed."""
    runs: dict[str, list[Result]] = {who: [] for who in WHO}
    for number in range(rounds):
        for who in list(WHO) if number % 2 else reversed(WHO):
            runs[who].append(launch(who, name, folder, world))
    processes = "1 process" if world == 1 else f"DP{world}"
    ours, lowest = runs["ours"], float("inf")
    for who, results in runs.items():
        pairs = list(zip(ours, results, strict=True))
        cpu = [theirs.cpu_ms / mine.cpu_ms for mine, theirs in pairs]
        wall = [mine.tokens_per_s / theirs.tokens_per_s for mine, theirs in pairs]
        lowest = min(lowest, statistics.median(cpu))
        print(
            f"{name:<11} {processes:<10} {WHO[who]:<14}"
            f" {statistics.median(result.cpu_ms for result in results):>8.1f}"
            f" {statistics.median(cpu):>6.2f}   {min(cpu):.2f} to {max(cpu):.2f}"
            f" {statistics.median(result.tokens_per_s for result in results):>10,.0f}"
            f" {statistics.median(wall):>6.2f}   {results[-1].loss:.3f}",
            flush=True,
        )
    return lowest


def main() -> int:
    """Run the comparison, or one process of it."""
    parser = argparse.ArgumentParser(description="Training throughput, beside two other steps.")
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument("--processes", type=int, choices=(1, 2), action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at-least", type=float, default=0.0)
    parser.add_argument("--worker", choices=WHO, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--world", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, SIZES[options.size[0]], options.folder, options.world)
        return 0

    from relkit.data.indexed import IndexedWriter

    cores = sorted(os.sched_getaffinity(0))[:CORES]
    if len(cores) < CORES:
        sys.exit(f"this needs {CORES} cores")
    os.sched_setaffinity(0, cores)
    print(
        f"{'':<37} {'CPU ms':>8} {'ours':>6}   {'of rounds':<12} {'tokens/s':>10} {'ours':>6}"
        "   loss"
    )
    lowest = float("inf")
    for name in options.size or SIZES:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            with IndexedWriter(folder / "text", np.uint16) as writer:
                writer.add_document(corpus(SIZES[name].vocab))
            for world in options.processes or (1, 2):
                lowest = min(lowest, compare(name, world, options.rounds, folder))
    return int(lowest < options.at_least)


if __name__ == "__main__":
    sys.exit(main())
