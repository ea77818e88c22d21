"""Weights in other forms: nothing is lost on the way, and transformers computes the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor
from torch.testing import assert_close

from relkit.checkpoint.convert import folders
from relkit.checkpoint.convert.cuts import Degrees
from relkit.checkpoint.convert.folders import Whole
from relkit.cli import cli
from relkit.errors import BadInputFile, UnwritablePath
from tests.checkpoint.convert.models import CONFIGS, whole

ROWS = 16
CUTS = {
    "one": Degrees(),
    "tp2": Degrees(tensor=2),
    "pp2": Degrees(pipeline=2),
    "pp2vpp2": Degrees(pipeline=2, virtual=2),
    "all": Degrees(tensor=2, pipeline=2, virtual=2),
}


def same(one: Whole, other: Whole) -> None:
    assert one.weights.keys() == other.weights.keys()
    for name, value in one.weights.items():
        assert torch.equal(value, other.weights[name]), name


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("degrees", CUTS.values(), ids=CUTS)
def test_a_release_of_any_degrees_has_every_bit(
    tmp_path: Path, name: str, degrees: Degrees
) -> None:
    _, given = whole(name)
    folders.write_release(given, tmp_path / "out", degrees, ROWS)
    back = folders.read_megatron(tmp_path / "out")
    assert back.shape == given.shape
    same(given, back)


def test_experts_are_spread_and_brought_together(tmp_path: Path) -> None:
    _, given = whole("mixtral")
    degrees = Degrees(tensor=2, pipeline=2, expert=2)
    folders.write_release(given, tmp_path / "out", degrees, ROWS)
    files = {path.parent.name for path in tmp_path.glob("out/release/*/*.pt")}
    assert len(files) == 8
    same(given, folders.read_megatron(tmp_path / "out"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, of what loading imports
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "llama" else pytest.mark.long) for n in CONFIGS]
)
def test_transformers_computes_the_same(tmp_path: Path, name: str) -> None:
    import transformers

    ours, given = whole(name)
    folders.write_hugging_face(given, tmp_path / "hf", None)
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    kind = getattr(transformers, config["architectures"][0])
    theirs = kind.from_pretrained(tmp_path / "hf").eval()
    numbers = torch.randint(0, 96, (2, 24), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected: Tensor = theirs(numbers, use_cache=False).logits
        assert_close(ours(numbers), expected, rtol=1e-5, atol=1e-5)
    assert expected.std() > 0.1
    # And what transformers itself writes comes back, to the bit.
    theirs.save_pretrained(tmp_path / "again")
    back = folders.read_hugging_face(tmp_path / "again")
    assert back.shape == given.shape
    same(given, back)


def test_rows_that_pad_the_embedding_come_and_go(tmp_path: Path) -> None:
    _, given = whole("llama")
    folders.write_release(given, tmp_path / "out", Degrees(tensor=2), 128)
    padded = folders.read_megatron(tmp_path / "out")
    embedding = padded.weights["embedding.word_embeddings.weight"]
    assert embedding.shape[0] == 256
    assert not embedding[96:].any()
    folders.write_hugging_face(padded, tmp_path / "hf", None)
    same(given, folders.read_hugging_face(tmp_path / "hf"))


def test_the_command_goes_there_and_back(tmp_path: Path) -> None:
    _, given = whole("gpt2")
    folders.write_release(given, tmp_path / "start", Degrees(pipeline=2), ROWS)
    run = CliRunner()
    there = ["ckpt", "convert", str(tmp_path / "start"), str(tmp_path / "hf"), "--to", "hf"]
    done = run.invoke(cli, there)
    assert done.exit_code == 0, done.output
    done = run.invoke(cli, ["ckpt", "inspect", str(tmp_path / "start")])
    assert done.exit_code == 0, done.output
    assert "release*  1   2" in done.output
    back = ["ckpt", "convert", str(tmp_path / "hf"), str(tmp_path / "back"), "--from", "hf"]
    narrow = ["--tensor-model-parallel-size", "2", "--make-vocab-size-divisible-by", str(ROWS)]
    done = run.invoke(cli, [*back, *narrow])
    assert done.exit_code == 0, done.output
    same(given, folders.read_megatron(tmp_path / "back"))
    done = run.invoke(cli, back)
    assert isinstance(done.exception, UnwritablePath)


def test_what_cannot_be_converted_is_said(tmp_path: Path) -> None:
    _, given = whole("gpt2")
    with pytest.raises(BadInputFile, match="4 layers cannot be cut into 3"):
        folders.write_release(given, tmp_path / "three", Degrees(pipeline=3), ROWS)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "model").mkdir()
    with pytest.raises(BadInputFile, match=r"cannot read .*config.json"):
        folders.read_hugging_face(tmp_path / "model")
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(BadInputFile, match="'bert' is not converted"):
        folders.read_hugging_face(tmp_path / "model")
    with pytest.raises(UnwritablePath, match="is not empty"):
        folders.write_hugging_face(given, tmp_path / "model", None)
    folders.write_release(given, tmp_path / "out", Degrees(tensor=2), ROWS)
    (tmp_path / "out" / "release" / "mp_rank_01" / "model_optim_rng.pt").unlink()
    with pytest.raises(BadInputFile, match=r"mp_rank_01/model_optim_rng.pt is missing"):
        folders.read_megatron(tmp_path / "out")
