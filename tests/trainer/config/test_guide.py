"""The migration guide, followed on a machine without GPUs: data, training, going on from a save."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.ports import free_port

EXAMPLES = Path(__file__).parents[3] / "examples"
STEPS = 12
SAVED = 10

pytestmark = [pytest.mark.job, pytest.mark.timeout(180)]

# The tutorial's line, with what relkit says behind it.
LINE = re.compile(
    r"train: Epoch:\d+, Step:(\d+), Loss: ([\d.]+), Finite_grads: (True|False),"
    r" Loss_scale: ([\d.]+), Learning_rate: \(([\d.e+-]+),([\d.e+-]+),\), Time: ([\d.]+) ms"
)

# The guide's script as a user leaves it who has changed sizes, launcher, backend and script: with
# its spaces behind a backslash, and its last array.
EDITED = r"""#!/bin/bash

export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=2 # cards of a node
# Change for multinode config
MASTER_ADDR=localhost
MASTER_PORT=@PORT@
NNODES=1
NODE_RANK=0
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))

CHECKPOINT_PATH=./ckpt
VOCAB_FILE=./gpt-tokenizer/gpt2-vocab.json
MERGE_FILE=./gpt-tokenizer/gpt2-merges.txt
DATA_PATH=./gpt_pretrain_data/sonnets_text_document

DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --node_rank $NODE_RANK \
    --master_addr $MASTER_ADDR \
    --master_port $MASTER_PORT \
"

GPT_ARGS="
    --num-layers 1 \
    --hidden-size 32 \ @
    --num-attention-heads 4 \
    --seq-length 16 \
    --max-position-embeddings 16 \
    --micro-batch-size 1 \
    --global-batch-size 2 \
    --lr 0.003 \
    --train-iters 3 \
    --lr-decay-iters 1000 \
    --lr-decay-style cosine \
    --min-lr 1.0e-5 \
    --weight-decay 1e-2 \
    --lr-warmup-fraction .01 \
    --clip-grad 1.0 \
    --fp16 \
    --transformer-impl local \
"

DATA_ARGS="
    --data-path $DATA_PATH \
    --vocab-file $VOCAB_FILE \
    --merge-file $MERGE_FILE \
    --split 949,50,1 \
"

OUTPUT_ARGS=(
    --log-interval 1
    --save-interval 100
    --eval-interval 1000 @
    --eval-iters 10
)

relkit launch $DISTRIBUTED_ARGS @SCRIPT@ \
    $GPT_ARGS \
    $DATA_ARGS \
    $OUTPUT_ARGS \
    --distributed-backend gloo \
    --save $CHECKPOINT_PATH \
    --load $CHECKPOINT_PATH \
    --ckpt-format torch
"""


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the corpus, the tokenizer and the tokens, made by the documented commands."""
    folder = tmp_path_factory.mktemp("guide")
    run(folder, [sys.executable, str(EXAMPLES / "prepare_data.py")])
    out = run(
        folder,
        [
            "relkit", "data", "preprocess", "--input", "corpus.json",
            "--output-prefix", "./gpt_pretrain_data/sonnets",
            "--tokenizer-type", "GPT2BPETokenizer",
            "--vocab-file", "./gpt-tokenizer/gpt2-vocab.json",
            "--merge-file", "./gpt-tokenizer/gpt2-merges.txt",
            "--append-eod", "--log-interval", "1000", "--workers", "2",
        ],
    )  # fmt: skip
    files = {path.name for path in (folder / "gpt_pretrain_data").iterdir()}
    assert {"sonnets_text_document.bin", "sonnets_text_document.idx"} <= files, out
    return folder


def run(folder: Path, command: list[str], environ: Mapping[str, str] | None = None) -> str:
    """Run a command there, and return all that it printed; it must succeed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment() | dict(environ or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def environment() -> dict[str, str]:
    """This test's own, with relkit's command on the path, and its reports in the test's folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "RELKIT_LAUNCH_TIMELINE_PATH": "timeline"}


def steps_of(text: str) -> dict[int, tuple[str, ...]]:
    """Step -> loss, finiteness, scale and rates, as printed."""
    return {int(found[0]): found[1:6] for found in LINE.findall(text)}


@pytest.mark.long
def test_the_guide_from_data_to_going_on(workspace: Path) -> None:
    sizes = {"TRAIN_ITERS": str(STEPS), "SAVE_INTERVAL": str(SAVED), "LOG_INTERVAL": "1"}
    sizes |= {"SEQ_LENGTH": "32", "HIDDEN_SIZE": "32", "MICRO_BATCH_SIZE": "8", "LR": "0.01"}
    script = ["bash", str(EXAMPLES / "pretrain_single.sh")]
    text = run(workspace, script, sizes | {"MASTER_PORT": str(free_port())})
    whole = steps_of(text)
    assert sorted(whole) == list(range(1, STEPS + 1)), text
    assert all(line[1] == "True" for line in whole.values()), text
    losses = [float(line[0]) for line in whole.values()]
    assert losses[-1] < losses[0] - 0.2, losses
    tracker = workspace / "ckpt" / "latest_checkpointed_iteration.txt"
    assert (workspace / "ckpt/iter_0000010/mp_rank_00/model_optim_rng.pt").is_file()
    assert tracker.read_text(encoding="utf-8") == str(STEPS)
    for rank in (0, 1):
        logs = workspace / "output" / "log" / f"rank_{rank}"
        assert steps_of((logs / "info.log").read_text(encoding="utf-8")) == whole
        assert (logs / "error.log").read_text(encoding="utf-8") == ""

    # A user who goes back to an older save: the same steps come again, to the last digit.
    tracker.write_text(str(SAVED), encoding="utf-8")
    port = {"MASTER_PORT": str(free_port())}
    text = run(workspace, [*script, "--load", "./ckpt"], sizes | port)
    again = steps_of(text)
    assert again == {step: whole[step] for step in range(SAVED + 1, STEPS + 1)}, text


@pytest.mark.long
def test_the_guides_own_script_with_its_slips(workspace: Path) -> None:
    script = workspace / "own" / "pretrain_single.sh"
    script.parent.mkdir()
    for name in ("gpt-tokenizer", "gpt_pretrain_data"):
        (script.parent / name).symlink_to(workspace / name)
    text = EDITED.replace("@PORT@", str(free_port())).replace("@\n", "\n")
    script.write_text(text.replace("@SCRIPT@", str(EXAMPLES / "pretrain_gpt.py")), encoding="utf-8")
    assert "\\ \n" in script.read_text(encoding="utf-8")
    said = run(script.parent, ["bash", script.name])
    assert said.count("a lone backslash is left out") == 1
    assert said.count("--log-interval has no value, so it is 100") == 1
    assert (script.parent / "ckpt/iter_0000003/mp_rank_00/model_optim_rng.pt").is_file(), said


@pytest.mark.long
def test_the_tutorials_way_in_one_process(workspace: Path) -> None:
    folder = workspace / "tutorial"
    folder.mkdir()
    for name in ("gpt-tokenizer", "gpt_pretrain_data"):
        (folder / name).symlink_to(workspace / name)
    script = [sys.executable, str(EXAMPLES / "pretrain_gpt.py")]
    config = f"--config_path={EXAMPLES / 'gpt_tiny.yaml'}"
    sizes = ["--train-iters", "4", "--save-interval", "2", "--seq-length", "16"]
    said = run(folder, [*script, config, *sizes])
    assert sorted(steps_of(said)) == [1, 2, 3, 4], said
    saves = folder / "output" / "checkpoint"
    for step in ("0000002", "0000004"):
        files = {path.name for path in (saves / f"iter_{step}" / "mp_rank_00").iterdir()}
        assert files == {"model_optim_rng.pt", "distrib_optim.pt"}


@pytest.mark.long
def test_an_unknown_flag_is_said_once(workspace: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "pretrain_gpt.py"), "--num-layer", "2"],
        cwd=workspace,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "pretrain_gpt: unknown flag --num-layer; the nearest known one is --num-layers",
        "  next: Correct or remove it; --help lists all flags.",
    ]
