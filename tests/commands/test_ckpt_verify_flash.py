"""relkit ckpt verify: folders that training loops save to with relkit.flash_checkpoint."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from relkit.checkpoint.iteration_folder import iteration_name
from relkit.cli import cli
from relkit.flash_checkpoint.ddp import DdpCheckpointer
from relkit.flash_checkpoint.fsdp import FsdpShardCheckpointer, StorageType
from relkit.flash_checkpoint.memory_saver import MemorySaver
from relkit.flash_checkpoint.on_disk.disk import TRACKER
from relkit.launch.flash_checkpoint.persist_round import PersistSettings
from tests.flash_checkpoint.test_persister import node, persist

__all__ = ["node"]
# Saving in the formats of DCP imports much of torch.
pytestmark = pytest.mark.timeout(150)
STATE = {"w": torch.arange(300.0), "step": 3}


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["ckpt", "verify", *map(str, arguments)], standalone_mode=False)


def facts(folder: Path) -> tuple[int, list[int], list[int]]:
    """Exit code, steps, and those of them that are whole."""
    result = invoke(folder, "--json")
    said = json.loads(result.stdout)
    return result.return_value, said["steps"], said["whole"]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of each kind, with steps 3 and 4."""
    home = tmp_path_factory.mktemp("saved")
    with (
        closing(DdpCheckpointer(home / "ddp")) as ddp,
        closing(FsdpShardCheckpointer(home / "fsdp")) as fsdp,
    ):
        for step in (3, 4):
            state, path = {**STATE, "step": step}, home / "fsdp" / f"step-{step}"
            ddp.save_checkpoint(step, state).wait()
            fsdp.save_checkpoint(step, state, path, StorageType.DISK).wait()
    return home


@pytest.fixture
def of_ddp(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved / "ddp", tmp_path / "ddp"))


@pytest.fixture
def of_fsdp(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved / "fsdp", tmp_path / "fsdp"))


@pytest.mark.long
def test_the_file_that_the_tracker_names(of_ddp: Path) -> None:
    assert facts(of_ddp) == (0, [4], [4])
    assert "files without a checksum, not checked: 1" in invoke(of_ddp).stdout
    (of_ddp / "checkpoint-4.pt").write_bytes(b"something else")
    assert facts(of_ddp) == (1, [4], [])
    (of_ddp / "checkpoint-4.pt").unlink()
    result = invoke(of_ddp)
    assert result.return_value == 1
    assert "No such file" in result.stdout


@pytest.mark.long
def test_a_tracker_that_is_none(of_ddp: Path) -> None:
    (of_ddp / TRACKER).write_text("{}")
    result = invoke(of_ddp)
    assert result.return_value == 1
    assert "names no checkpoint" in result.stdout


def test_each_folder_in_dcps_format(of_fsdp: Path) -> None:
    assert facts(of_fsdp) == (0, [3, 4], [3, 4])
    assert facts(of_fsdp / "step-3") == (0, [3], [3])
    part = next((of_fsdp / "step-3").glob("*.distcp"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    assert facts(of_fsdp) == (1, [3, 4], [4])
    assert facts(of_fsdp / "step-3") == (1, [3], [])
    assert facts(of_fsdp / "step-4") == (0, [4], [4])


def test_a_manifest_that_is_not_the_one_that_was_written(of_fsdp: Path) -> None:
    manifest = of_fsdp / "step-4" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("4", "5", 1))
    assert facts(of_fsdp)[0] == 1


def spoil(folder: Path) -> None:
    (folder / "rank-0.pt").write_bytes(b"")


@pytest.mark.parametrize(("change", "whole"), [(lambda _folder: None, [7]), (spoil, [])])
def test_what_launchers_have_written_from_memory(
    tmp_path: Path,
    node: tuple[Path, MemorySaver],
    change: Callable[[Path], None],
    whole: list[int],
) -> None:
    folder, saver = node
    saver.save(7, STATE).wait()
    persist(folder, PersistSettings())
    root = tmp_path / "ck"
    change(root / "from-memory" / iteration_name(7))
    assert facts(root) == (0 if whole else 1, [7], whole)


def test_it_needs_no_torch(of_ddp: Path) -> None:
    code = "import sys; sys.modules['torch'] = None\nfrom relkit.cli import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", code, "ckpt", "verify", str(of_ddp)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "is whole (step 4)" in done.stdout
