"""Training throughput: relkit's trainer against nanoGPT's step, in turn on the same cores.

    python benchmarks/training/trainer.py                  both sizes, one process and two, 5 rounds
    python benchmarks/training/trainer.py --size char --rounds 9   one of them
    python benchmarks/training/trainer.py --at-least 1.0   exit 1 where a ratio is below

Every run is processes of its own: `relkit.trainer.run.loop.pretrain` as it stands, log lines and
event stream included, or the loop around the step of trainer_peer.py. The cores are two; a single
process has a thread on each, of two data-parallel processes (gloo) each has one. Model, batch,
tokens and hyperparameters are the same. A run's throughput is that of its median step; a round's
ratio is ours over the peer's, run one after the other, and which is first alternates. Beside it
stands the ratio of tokens per second of processor time (of the first process), which a busy machine
disturbs less."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
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


class Result(NamedTuple):
    """One run: tokens a second over all its processes, those a second of processor time of the
    first, and the loss of its last step."""

    tokens_per_s: float
    tokens_per_cpu_s: float
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


def run_peer(size: Size, folder: Path, world: int) -> tuple[Times, float]:
    """The same of the peer."""
    from torch import distributed

    from benchmarks.training.trainer_peer import PeerGPT, make_step, random_batches

    if world > 1:
        distributed.init_process_group("gloo")
    rank = int(os.environ.get("RANK", "0"))
    model = PeerGPT(size.layers, size.width, size.heads, size.vocab, size.length)
    data = np.memmap(folder / "text.bin", dtype=np.uint16, mode="r")
    batches = random_batches(data, size.samples, size.length, seed=1337 + rank)
    step = make_step(model, batches, 1, learning_rate)
    loss, times = 0.0, Times([], [])
    for number in range(WARM_UP + size.steps):
        started_s = time.perf_counter()
        loss = step(number)
        elapsed_ms = (time.perf_counter() - started_s) * 1e3
        print(f"iter {number}: loss {loss:.4f}, time {elapsed_ms:.2f} ms", flush=True)
        times.note()
    if world > 1:
        distributed.destroy_process_group()
    return times, loss


def work(who: str, size: Size, folder: Path, world: int) -> None:
    """One process of one run; the first writes the result."""
    import torch

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    times, loss = {"ours": run_ours, "peer": run_peer}[who](size, folder, world)
    if os.environ.get("RANK", "0") == "0":
        tokens = size.samples * size.length * world
        median_s = statistics.median(np.diff(times.wall_s[WARM_UP - 1 :]))
        cpu_s = times.cpu_s[-1] - times.cpu_s[WARM_UP - 1]
        result = Result(tokens / float(median_s), tokens * size.steps / cpu_s, loss)
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
    """The median ratio over the rounds, printed with what it is made of."""
    runs: dict[str, list[Result]] = {"ours": [], "peer": []}
    for number in range(rounds):
        for who in ("ours", "peer") if number % 2 else ("peer", "ours"):
            runs[who].append(launch(who, name, folder, world))
    pairs = list(zip(runs["ours"], runs["peer"], strict=True))
    ratios = [ours.tokens_per_s / peer.tokens_per_s for ours, peer in pairs]
    ours_per_s, peer_per_s = (
        statistics.median(run.tokens_per_s for run in runs[who]) for who in ("ours", "peer")
    )
    ratio = statistics.median(ratios)
    cpu_ratio = statistics.median(
        ours.tokens_per_cpu_s / peer.tokens_per_cpu_s for ours, peer in pairs
    )
    processes = "1 process" if world == 1 else f"DP{world}"
    print(
        f"{name:<11} {processes:<10} {ours_per_s:>9,.0f} {peer_per_s:>9,.0f} {ratio:>7.2f}"
        f"   {min(ratios):.2f} to {max(ratios):.2f} {cpu_ratio:>9.2f}"
        f"    {pairs[-1][0].loss:.3f} {pairs[-1][1].loss:.3f}",
        flush=True,
    )
    return ratio


def main() -> int:
    """Run the comparison, or one process of it."""
    parser = argparse.ArgumentParser(description="Training throughput against nanoGPT's step.")
    parser.add_argument("--size", choices=SIZES, action="append")
    parser.add_argument("--processes", type=int, choices=(1, 2), action="append")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--at-least", type=float, default=0.0)
    parser.add_argument("--worker", choices=("ours", "peer"), help=argparse.SUPPRESS)
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
    print(f"{'':<22} {'ours':>9} {'nanoGPT':>9}   ratio   of rounds    of cpu time  losses")
    print(f"{'':<22} {'tokens/s':>9} {'tokens/s':>9}")
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
