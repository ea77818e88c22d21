"""Megatron-LM's own pretrain_gpt.py and relkit's trainer, each going on from the other's files.

Of each layout: both train, and save a step. Then each loads what the other has saved, saves it once
more without a step, and the other goes on from that: to every printed digit as it had gone on
before. No virtual stages: over gloo, two stages of Megatron's take each other's tensors for their
own, and no two of its runs are the same.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from relkit.data.indexed import IndexedWriter
from tests.cluster.conftest import Start, orphans_come_to_us, start
from tests.megatron_adaptor.killed_jobs import JOBS, ROOT
from tests.megatron_adaptor.programs import MEGATRON_PATH

__all__ = ["orphans_come_to_us", "start"]
pytestmark = [
    pytest.mark.job,
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.megatron_lm,
    pytest.mark.skipif(not MEGATRON_PATH, reason="MEGATRON_PATH names no checkout of Megatron-LM"),
]
STEPS, SAVED, LIMIT_S = 8, 4, 240.0
_COMMON = """
--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 32
--max-position-embeddings 32 --micro-batch-size 2 --global-batch-size 8 --lr 0.003
--lr-decay-iters 100 --lr-decay-style cosine --min-lr 1.0e-5 --weight-decay 1e-2
--lr-warmup-fraction .01 --clip-grad 1.0 --hidden-dropout 0 --attention-dropout 0
--split 900,50,50 --log-interval 1 --eval-interval 1000 --eval-iters 1
--distributed-backend gloo --ckpt-format torch --no-bias-gelu-fusion
"""
# Nothing is padded: Megatron's loss counts rows that pad the vocabulary, ours does not.
_OURS = "--vocab-size 128"
_THEIRS = """
--transformer-impl local --tokenizer-type NullTokenizer --vocab-size 127 --num-workers 0
--attention-backend unfused --no-gradient-accumulation-fusion --no-persist-layer-norm
--no-masked-softmax-fusion --no-bias-dropout-fusion --no-rope-fusion
--override-opt_param-scheduler
"""
_LLAMA = """
--group-query-attention --num-query-groups 2 --position-embedding-type rope --normalization RMSNorm
--swiglu --disable-bias-linear --untie-embeddings-and-output-weights
"""
_SHARDED, _BF16 = "--use-distributed-optimizer", "--bf16 --use-distributed-optimizer"
_TP2, _PP2 = "--tensor-model-parallel-size 2", "--pipeline-model-parallel-size 2"


@dataclass(frozen=True, slots=True)
class Layout:
    """Ranks, and flags that both programs take."""

    ranks: int
    flags: str = ""


LAYOUTS = {
    "DP2": Layout(2),
    "DP2 sharded": Layout(2, _SHARDED),
    "TP2 Llama": Layout(2, _TP2 + _LLAMA),
    "PP2": Layout(2, _PP2),
    "PP2 sharded": Layout(2, f"{_PP2} {_SHARDED}"),
    "DP2 bf16 sharded": Layout(2, _BF16),
    "PP2xDP2 bf16 sharded": Layout(4, f"{_PP2} {_BF16}"),
    "TP2xPP2xDP2 bf16 sharded": Layout(8, f"{_TP2} {_PP2} {_BF16}"),
}


class Both:
    """The two programs in one layout; each call gives the printed loss of each step."""

    def __init__(self, start: Start, folder: Path, layout: Layout) -> None:
        self._start, self._folder, self._layout = start, folder, layout

    def ours(self, steps: int, **folders: str) -> dict[int, str]:
        """Train to so many steps."""
        program = (ROOT / "examples" / "pretrain_gpt.py",)
        more = f"{_OURS} --output-dir {self._folder / 'output'}"
        out = self._run(program, more, str(ROOT), steps, folders)
        return {int(step): loss for step, loss in re.findall(r"Step:(\d+), Loss: ([\d.]+)", out)}

    def theirs(self, steps: int, **folders: str) -> dict[int, str]:
        """Likewise. The second line after a start has the mean of two losses, and is left out."""
        program = (JOBS / "run_megatron.py", Path(MEGATRON_PATH) / "pretrain_gpt.py")
        more = f"{_THEIRS} --data-cache-path {self._folder / 'cache'}"
        out = self._run(program, more, f"{MEGATRON_PATH}:{ROOT}", steps, folders)
        lines = re.findall(r"iteration +(\d+)/.*?lm loss: (\S+)", out)
        return {int(step): loss for n, (step, loss) in enumerate(lines) if n != 1}

    def given(self, source: str, target: str) -> None:
        """A folder with one step of another."""
        name = f"iter_{SAVED:07d}"
        shutil.copytree(self._folder / source / name, self._folder / target / name)
        (self._folder / target / "latest_checkpointed_iteration.txt").write_text(str(SAVED))

    def _run(
        self,
        program: tuple[Path, ...],
        flags: str,
        paths: str,
        steps: int,
        folders: Mapping[str, str],
    ) -> str:
        named = [
            word for key, name in folders.items() for word in (f"--{key}", str(self._folder / name))
        ]
        # Megatron saves once more after the last step, unless it has just done so.
        every = SAVED if steps > SAVED else 100
        done = self._start(
            *program, *_COMMON.split(), *flags.split(), *self._layout.flags.split(),
            "--data-path", self._folder / "sonnets", "--train-iters", str(steps),
            "--save-interval", str(every), *named,
            program=(
                "env", f"PYTHONPATH={paths}", sys.executable, "-m", "torch.distributed.run",
                "--standalone", "--nproc-per-node", str(self._layout.ranks),
            ),
        ).wait(LIMIT_S)  # fmt: skip
        assert done.code == 0, (done.out + done.err)[-4000:]
        return done.out + done.err


@pytest.fixture(params=LAYOUTS)
def both(start: Start, tmp_path: Path, request: pytest.FixtureRequest) -> Both:
    text = (ROOT / "examples" / "data" / "sonnets.txt").read_bytes()
    with IndexedWriter(tmp_path / "sonnets", np.uint16) as writer:
        for poem in filter(None, text.split(b"\n\n")):
            writer.add_document(np.frombuffer(poem, dtype=np.uint8) % 128)
    return Both(start, tmp_path, LAYOUTS[request.param])


def through(both: Both, own: Callable[..., dict[int, str]], other: Callable[..., dict[int, str]],
            name: str) -> None:  # fmt: skip
    undisturbed = own(STEPS, save=name)
    both.given(name, f"{name} there")
    # No step is made: what was loaded is saved.
    other(SAVED, load=f"{name} there", save=f"{name} back")
    resumed = own(STEPS, load=f"{name} back", save=f"{name} on")
    assert resumed
    assert min(resumed) == SAVED + 1
    assert resumed.items() <= undisturbed.items()


def test_their_losses_are_the_same_after_a_way_through_ours(both: Both) -> None:
    through(both, both.theirs, both.ours, "theirs")


def test_our_losses_are_the_same_after_a_way_through_theirs(both: Both) -> None:
    through(both, both.ours, both.theirs, "ours")
