"""The Megatron programs that tests start, and the layouts that they start them in."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.megatron_adaptor.killed_jobs import JOBS, Program

MEGATRON_PATH = os.environ.get("MEGATRON_PATH", "")
SHARDED = "--use-distributed-optimizer --num-distributed-optimizer-instances 2"


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout.

    Args:
        ranks: of the job; mini: options of the loop over megatron-core; real: of Megatron-LM.
    """

    ranks: int
    mini: str = ""
    real: str = ""


LAYOUTS = {
    "DP2": Layout(2),
    "DP4": Layout(4),
    "TP2xDP2": Layout(4, "--tp 2", "--tensor-model-parallel-size 2"),
    "PP2xDP2": Layout(4, "--pp 2", "--pipeline-model-parallel-size 2"),
    "EP2": Layout(
        4,
        "--ep 2",
        "--num-experts 4 --expert-model-parallel-size 2 --disable-bias-linear"
        " --moe-token-dispatcher-type allgather",
    ),
    "DP4 sharded": Layout(4, SHARDED, SHARDED),
    "DP4 bf16 sharded": Layout(4, f"--type bfloat16 {SHARDED}", f"--bf16 {SHARDED}"),
}
# A model so small that a step takes a twentieth of a second, on CPUs, without what has to be
# compiled for GPUs; with dropout.
_SMALL = """
--num-layers 2 --hidden-size 16 --num-attention-heads 2 --seq-length 16
--max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 8 --lr 0.01
--lr-decay-iters 1000 --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2
--lr-warmup-fraction .01 --clip-grad 1.0 --transformer-impl local --mock-data --tokenizer-type
NullTokenizer --vocab-size 127 --num-workers 0 --log-interval 1 --eval-interval 100000
--eval-iters 1 --distributed-backend gloo --ckpt-format torch --no-gradient-accumulation-fusion
--no-persist-layer-norm --no-masked-softmax-fusion --attention-backend unfused
--no-bias-gelu-fusion --no-bias-dropout-fusion --no-rope-fusion
"""


def mini(layout: Layout) -> Program:
    """A training loop over megatron-core from PyPI."""

    def words(save: Path, steps: int, every: int, adapted: bool) -> Sequence[str | Path]:
        return (
            JOBS / "pretrain_mini.py", "--adaptor", "yes" if adapted else "no", "--save", save,
            "--load", save, "--train-iters", str(steps), "--save-interval", str(every),
            *layout.mini.split(),
        )  # fmt: skip

    return Program(words)


def real(layout: Layout, folder: Path) -> Program:
    """Megatron-LM's own pretrain_gpt.py, with the one line in it.

    Args:
        folder: for the program with that line.
    """
    theirs = Path(MEGATRON_PATH) / "pretrain_gpt.py"
    line = "\nimport torch\n"
    source = theirs.read_text(encoding="utf-8")
    assert source.count(line) == 1
    folder.mkdir(parents=True, exist_ok=True)
    ours = folder / "pretrain_gpt.py"
    ours.write_text(source.replace(line, f"{line}import relkit.megatron_adaptor\n"))

    def words(save: Path, steps: int, every: int, adapted: bool) -> Sequence[str | Path]:
        return (
            JOBS / "run_megatron.py", ours if adapted else theirs, *_SMALL.split(),
            "--data-cache-path", folder / "cache", "--train-iters", str(steps),
            "--save-interval", str(every), "--save", save, "--load", save, *layout.real.split(),
        )  # fmt: skip

    return Program(words, path=MEGATRON_PATH, averages=True)
