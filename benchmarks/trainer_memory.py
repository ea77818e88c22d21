"""Memory of a rank: parameters, gradients and optimizer state under each layout, and as reckoned.

    python benchmarks/trainer_memory.py
    python benchmarks/trainer_memory.py --layout tp2 --layout dp2-dist

Every layout is real processes (gloo) that build the model and make one step. Held: the bytes of the
tensors. Reckoned: 4 bytes for each parameter and its gradient and 8 for Adam's moments, of the part
of the model that the layout leaves to the rank. Grown: by how much the process's private resident
memory grew from before the model was built to after the step; activations, what the allocator keeps
and buffers of the communication are in it. The rank that holds most is shown. Exit code 1: held and
reckoned differ by more than 1 %.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from relkit.trainer.config.config import (
    DatasetConfig,
    ModelConfig,
    ParallelConfig,
    TrainerConfig,
    TrainingConfig,
)
from tests.ports import free_port

LIMIT_S = 300
MB = 1e6
TOLERANCE = 0.01

MODEL = ModelConfig(
    num_layers=8,
    hidden_size=512,
    num_attention_heads=8,
    group_query_attention=True,
    num_query_groups=4,
    vocab_size=16384,
    seq_length=32,
    position_embedding_type="rope",
    normalization="RMSNorm",
    activation="swiglu",
    add_bias_linear=False,
    untie_embeddings_and_output_weights=True,
    hidden_dropout=0.0,
    attention_dropout=0.0,
)


class Layout(NamedTuple):
    """Degrees; `virtual` counts the chunks on each pipeline rank."""

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    virtual: int = 1
    sharded: bool = False

    @property
    def world(self) -> int:
        """How many processes."""
        return self.tensor * self.pipeline * self.data

    def config(self) -> TrainerConfig:
        """One micro-batch of one sample for each stage of the pipeline."""
        return TrainerConfig(
            model=MODEL,
            parallel=ParallelConfig(
                tensor_model_parallel_size=self.tensor,
                pipeline_model_parallel_size=self.pipeline,
                virtual_pipeline_model_parallel_size=self.virtual if self.virtual > 1 else None,
            ),
            dataset=DatasetConfig(micro_batch_num=self.pipeline),
            training=TrainingConfig(training_iters=1, use_distributed_optimizer=self.sharded),
        )


LAYOUTS = {
    "single": Layout(),
    "tp2": Layout(tensor=2),
    "tp4": Layout(tensor=4),
    "pp2": Layout(pipeline=2),
    "pp2-virtual2": Layout(pipeline=2, virtual=2),
    "pp4": Layout(pipeline=4),
    "dp2": Layout(data=2),
    "dp2-dist": Layout(data=2, sharded=True),
    "dp4-dist": Layout(data=4, sharded=True),
    "tp2-pp2": Layout(tensor=2, pipeline=2),
    "tp2-pp2-dp2-dist": Layout(tensor=2, pipeline=2, data=2, sharded=True),
}


class Held(NamedTuple):
    """Bytes of a rank."""

    parameters: int
    gradients: int
    moments: int
    grown: int

    @property
    def state(self) -> int:
        """All tensors."""
        return self.parameters + self.gradients + self.moments


def reckon(layout: Layout) -> float:
    """Bytes of state on the rank with most: one at an end of the pipeline, where there is one."""
    hidden, head = MODEL.hidden_size, MODEL.head_size
    attention = hidden * head * (2 * MODEL.num_attention_heads + 2 * MODEL.query_groups)
    layer = (attention + 3 * hidden * MODEL.ffn_size) / layout.tensor + 2 * hidden
    table = MODEL.vocab_size * hidden / layout.tensor
    tables = 2 * table if layout.pipeline == 1 else table
    elements = layer * MODEL.num_layers / layout.pipeline + tables + hidden
    return elements * (8 + 8 / (layout.data if layout.sharded else 1))


def private_bytes() -> int:
    """Resident memory of this process that is neither a file's nor shared."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no RssAnon")


def work(layout: Layout, folder: Path) -> None:
    """One rank: build, make a step, write what it holds."""
    import torch
    from torch import distributed

    from relkit.trainer.core.mesh import build_mesh
    from relkit.trainer.core.trainer import Trainer
    from relkit.trainer.data.samples import MicroBatch

    torch.set_num_threads(1)
    if layout.world > 1:
        distributed.init_process_group("gloo")
    config = layout.config()
    mesh = build_mesh(config.parallel, config.model, backend="gloo")
    # What torch keeps from its first pass on is no part of the model.
    torch.nn.functional.linear(torch.ones(2, 2), torch.ones(2, 2))
    before = private_bytes()
    trainer = Trainer(config, mesh)
    tokens = torch.randint(0, MODEL.vocab_size, (1, MODEL.seq_length))
    batch = MicroBatch(tokens, tokens, torch.ones(tokens.shape))
    trainer.train_step([replace(batch) for _ in range(layout.pipeline)])
    gc.collect()
    optimizer = trainer.optimizer
    moments = [m for kept in optimizer.moments for shards in kept.values() for m in shards]
    held = Held(
        parameters=sum(buffer.parameters.nbytes for buffer in optimizer.buffers),
        gradients=sum(buffer.gradients.nbytes for buffer in optimizer.buffers),
        moments=sum(moment.nbytes for moment in moments),
        grown=private_bytes() - before,
    )
    (folder / f"{os.environ.get('RANK', '0')}.json").write_text(json.dumps(held))
    if layout.world > 1:
        distributed.barrier()
        distributed.destroy_process_group()


def measure(name: str) -> Held:
    """The rank that holds most, of processes that are gone when this returns."""
    world = LAYOUTS[name].world
    port = free_port()
    with tempfile.TemporaryDirectory() as temporary:
        processes = []
        for rank in range(world):
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            if world > 1:
                environment |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
                environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            argv = [sys.executable, __file__, "--layout", name, "--folder", temporary]
            processes.append(subprocess.Popen(argv, env=environment))
        try:
            codes = [process.wait(timeout=LIMIT_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if any(codes):
            sys.exit(f"{name}: the ranks exited {codes}")
        ranks = [Held(*json.loads(p.read_text())) for p in Path(temporary).glob("*.json")]
    assert len(ranks) == world
    return max(ranks, key=lambda held: held.state)


def main() -> int:
    """Print the table, or be one rank."""
    parser = argparse.ArgumentParser(description="Memory of a rank under each layout.")
    parser.add_argument("--layout", choices=LAYOUTS, action="append")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.folder:
        work(LAYOUTS[options.layout[0]], options.folder)
        return 0
    print(
        f"{'MB of the fullest rank':<22} {'ranks':>5} {'params':>7} {'grads':>7} {'moments':>8}"
        f" {'held':>7} {'reckoned':>9} {'of single':>9} {'grown':>7}"
    )
    wrong = 0
    whole = reckon(LAYOUTS["single"])
    for name in options.layout or LAYOUTS:
        held, reckoned = measure(name), reckon(LAYOUTS[name])
        wrong += abs(held.state / reckoned - 1) > TOLERANCE
        print(
            f"{name:<22} {LAYOUTS[name].world:>5} {held.parameters / MB:>7.1f}"
            f" {held.gradients / MB:>7.1f} {held.moments / MB:>8.1f} {held.state / MB:>7.1f}"
            f" {reckoned / MB:>9.1f} {held.state / whole:>9.2f} {held.grown / MB:>7.1f}",
            flush=True,
        )
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
