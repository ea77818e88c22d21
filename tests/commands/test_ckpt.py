"""relkit ckpt on folders that were written, damaged, and made by others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy
import pytest
import torch
from click.testing import CliRunner, Result

from relkit.checkpoint import iteration_folder as files
from relkit.cli import cli, run
from relkit.text.printable import UNSAFE

FACTS = {
    "tensor_model_parallel_size": 2,
    "pipeline_model_parallel_size": 1,
    "virtual_pipeline_model_parallel_size": None,
    "expert_model_parallel_size": 1,
    "data_parallel_size": 4,
    "optimizer": "AdamW",
    "use_distributed_optimizer": True,
    "consumed_train_samples": 640,
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for step in (5, 10):
        folder = files.begin(tmp_path, step)
        plain = {"model": {"a": torch.zeros(2, 3)}, "flat": {(torch.float32,) * 2: torch.ones(4)}}
        name = "mp_rank_00/model_optim_rng.pt"
        record = files.write_file(folder, name, lambda out, plain=plain: torch.save(plain, out))  # type: ignore[misc]
        files.commit(folder, step, [record], FACTS)
    return tmp_path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["ckpt", *arguments], standalone_mode=False)


def test_inspect_lists_what_is_there(root: Path) -> None:
    result = invoke("inspect", str(root))
    assert result.return_value == 0
    head, first, last = result.stdout.splitlines()
    assert " ".join(head.split()) == "STEP TP PP VPP EP DP OPTIMIZER SHARDED SAMPLES FILES SIZE"
    assert first.split()[:10] == ["5", "2", "1", "1", "1", "4", "AdamW", "yes", "640", "1"]
    assert last.split()[0] == "10*"


def test_inspect_lists_tensors_of_one_iteration(root: Path) -> None:
    result = invoke("inspect", str(root / "iter_0000005"), "--tensors")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["mp_rank_00/model_optim_rng.pt", "model/a", "float32", "2x3"] in rows
    assert ["mp_rank_00/model_optim_rng.pt", "flat/float32,float32", "float32", "4"] in rows


def test_inspect_shows_names_from_elsewhere_harmlessly(tmp_path: Path) -> None:
    hostile = "\x1b[2J\x1b]0;owned\x07\n5"
    folder = files.begin(tmp_path, 5)
    record = files.write_file(
        folder, "mp_rank_00/model_optim_rng.pt",
        lambda out: torch.save({"model": {hostile: torch.zeros(2)}}, out),
    )  # fmt: skip
    files.commit(folder, 5, [record], {**FACTS, "optimizer": hostile})
    result = invoke("inspect", str(tmp_path), "--tensors")
    assert "owned" in result.stdout.split("\n")[1]
    assert not UNSAFE.search(result.stdout.replace("\n", ""))


def test_inspect_as_json(root: Path) -> None:
    document = json.loads(invoke("inspect", str(root), "--json").stdout)
    assert document["schema"] == "relkit.ckpt/1"
    assert [row["step"] for row in document["iterations"]] == [5, 10]
    assert [row["tracked"] for row in document["iterations"]] == [False, True]
    assert document["iterations"][0]["facts"] == FACTS


def test_inspect_and_verify_need_no_torch(root: Path) -> None:
    script = (
        "import sys\nfrom relkit.cli import run\n"
        f"codes = [run(['ckpt', name, {str(root)!r}]) for name in ('inspect', 'verify')]\n"
        "print(codes, 'torch' in sys.modules, file=sys.stderr)"
    )
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert child.stderr.splitlines()[-1] == "[0, 0] False"


def test_verify_of_whole_iterations(root: Path) -> None:
    result = invoke("verify", str(root), "--json")
    assert result.return_value == 0
    document = json.loads(result.stdout)
    assert document["steps"] == document["whole"] == [5, 10]
    assert [finding["id"] for finding in document["findings"]] == ["RK-CKPT-001"] * 2


def test_verify_names_every_damaged_file(root: Path) -> None:
    path = root / "iter_0000010" / "mp_rank_00" / "model_optim_rng.pt"
    path.write_bytes(path.read_bytes()[:-1])
    result = invoke("verify", str(root), "--json")
    assert result.return_value == 1
    document = json.loads(result.stdout)
    assert document["whole"] == [5]
    worst = document["findings"][0]
    assert (worst["id"], worst["status"]) == ("RK-CKPT-002", "fail")
    assert worst["reasons"][0].startswith("mp_rank_00/model_optim_rng.pt has ")
    assert invoke("verify", str(root / "iter_0000005")).return_value == 0


@pytest.mark.parametrize(
    ("tracker", "sentence"),
    [(None, "has no latest"), ("99", "iter_0000099 is not there"), ("release", "no step")],
)
def test_verify_looks_at_the_tracker(root: Path, tracker: str | None, sentence: str) -> None:
    (root / files.TRACKER).unlink()
    if tracker is not None:
        (root / files.TRACKER).write_text(tracker)
    result = invoke("verify", str(root))
    assert result.return_value == 1
    assert "RK-CKPT-005" in result.stdout
    assert sentence in result.stdout


def test_verify_warns_of_what_a_killed_save_left(root: Path) -> None:
    files.begin(root, 15)
    result = invoke("verify", str(root))
    assert result.return_value == 0
    assert "RK-CKPT-004" in result.stdout
    assert "iter_0000015_tmp is half-written" in result.stdout


def test_without_a_manifest_nothing_is_claimed(root: Path) -> None:
    (root / "iter_0000005" / "manifest.json").unlink()
    result = invoke("verify", str(root))
    assert result.return_value == 3
    assert "RK-CKPT-003" in result.stdout
    listed = invoke("inspect", str(root))
    assert listed.return_value == 3
    assert listed.stdout.splitlines()[1].split() == ["5", *["-"] * 10]


def as_megatron_writes(root: Path) -> Path:
    """A model file with arguments in an iteration without a manifest."""
    (root / "iter_0000005" / "manifest.json").unlink()
    path = root / "iter_0000005" / "mp_rank_00" / "model_optim_rng.pt"
    arguments = Namespace(**FACTS, backend=numpy.random.get_state())
    torch.save({"args": arguments, "model": {"a": torch.zeros(2, 3)}}, path)
    return path


def test_the_degrees_of_megatrons_own_files_are_read(root: Path) -> None:
    as_megatron_writes(root)
    result = invoke("inspect", str(root), "--tensors")
    assert result.return_value == 3
    row = result.stdout.splitlines()[1].split()
    assert row[:10] == ["5", "2", "1", "1", "1", "4", "AdamW", "yes", "640", "1"]
    assert "model/a" in result.stdout


def test_a_file_of_megatrons_that_is_cut_is_named(root: Path) -> None:
    path = as_megatron_writes(root)
    path.write_bytes(path.read_bytes()[:-100])
    result = invoke("inspect", str(root), "--json")
    assert result.return_value == 1
    finding = json.loads(result.stdout)["findings"][1]
    assert (finding["id"], finding["status"]) == ("RK-CKPT-002", "fail")
    assert "mp_rank_00/model_optim_rng.pt" in finding["title"]


def test_a_manifest_that_is_none_is_a_finding(root: Path) -> None:
    (root / "iter_0000005" / "manifest.json").write_text("{}")
    for command in ("verify", "inspect"):
        result = invoke(command, str(root), "--json")
        assert result.return_value == 1
        assert json.loads(result.stdout)["findings"][0]["id"] == "RK-CKPT-002"


def test_a_folder_without_checkpoints_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["ckpt", "verify", str(tmp_path)]) == 3
    assert "is not a folder of checkpoints" in capsys.readouterr().err
    assert run(["ckpt", "verify", str(tmp_path / "nowhere")]) == 2


@contextmanager
def ordinary_user() -> Iterator[None]:
    """The test is nobody, where it was root: what others may not read, it may not."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def unreadable_run(root: Path, named: Path, mode: int, command: str) -> tuple[int | None, str]:
    """Exit code and words of a command on a folder, of which a part has that mode."""
    for path in (*root.parents[:2], root, *root.rglob("*")):
        path.chmod(0o755)
    before = named.stat().st_mode
    named.chmod(mode)
    try:
        with ordinary_user():
            done = CliRunner().invoke(cli, ["ckpt", command, str(root)], standalone_mode=False)
    finally:
        named.chmod(before)
    error = "" if done.exception is None else f"{done.exception}"
    code = getattr(done.exception, "exit_code", None) if done.exception else done.return_value
    return code, done.stdout + done.stderr + error


@pytest.mark.parametrize("command", ["verify", "inspect"])
@pytest.mark.parametrize("mode", [0o000, 0o444, 0o311])
def test_a_folder_that_cannot_be_read_is_not_said_to_be_missing(
    root: Path, command: str, mode: int
) -> None:
    code, said = unreadable_run(root, root, mode, command)
    assert f"cannot read {root}: Permission denied" in said
    assert "does not exist" not in said
    assert code == 3


def test_nor_is_one_that_lies_in_such_a_folder(root: Path) -> None:
    inner = root / "iter_0000005"
    root.chmod(0o700)
    with ordinary_user():
        done = invoke("verify", str(inner))
    assert "cannot read" in f"{done.exception}"
    assert "does not exist" not in f"{done.exception}"


@pytest.mark.parametrize("part", ["", "manifest.json", "mp_rank_00/model_optim_rng.pt"])
def test_an_iteration_that_cannot_be_read_is_not_said_to_be_damaged(root: Path, part: str) -> None:
    code, said = unreadable_run(root, root / "iter_0000005" / part, 0o000, "verify")
    assert "iter_0000005 cannot be checked" in said
    assert "Permission denied" in said
    assert "damaged" not in said
    assert "has no manifest" not in said
    assert "iter_0000010 is whole" in said
    assert code == 3


def test_a_folder_that_is_not_there_is_said_to_be_missing(tmp_path: Path) -> None:
    for path, words in ((tmp_path / "none", "does not exist"), (tmp_path / "file", "is a file")):
        (tmp_path / "file").touch()
        result = CliRunner().invoke(cli, ["ckpt", "verify", str(path)])
        assert (result.exit_code, words in result.output) == (2, True)
