"""Which worker a standby can become, and what it needs for that."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from relkit.launch.warm_standby.handover import (
    FOLDER,
    WorkerCommand,
    changes,
    is_python,
    standby_environment,
    why_not_for,
)

_ENVIRONMENT = {"RANK": "1", "MASTER_PORT": "29400", "OMP_NUM_THREADS": "4", "PYTHONPATH": "/a"}


def worker(**changed: str) -> WorkerCommand:
    return WorkerCommand(("python", "-u", "train.py"), {**_ENVIRONMENT, **changed})


def test_what_belongs_to_the_attempt_may_change() -> None:
    later = worker(MASTER_PORT="1", TORCHELASTIC_RESTART_COUNT="2", RELKIT_TTP="x")
    assert why_not_for(worker(), later) == ""


@pytest.mark.parametrize(
    "name", ["OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "HOME", "RANK", "WORLD_SIZE"]
)
def test_what_an_import_may_have_read_may_not(name: str) -> None:
    assert why_not_for(worker(), worker(**{name: "other"})) == f"{name} has changed"


def test_the_command_is_the_same() -> None:
    other = WorkerCommand(("python", "-u", "train.py", "--more"), _ENVIRONMENT)
    assert "command" in why_not_for(worker(), other)


def test_the_changes_lead_from_one_environment_to_the_other() -> None:
    standby = standby_environment(_ENVIRONMENT, 7, 99)
    assert standby is not None
    assert standby["PYTHONPATH"] == f"{FOLDER}{os.pathsep}/a"
    assert standby["RELKIT_STANDBY"] == "7:99"
    wanted = {"RANK": "0", "PYTHONPATH": "/a", "NEW": "1"}
    to_set, to_unset = changes(standby, wanted)
    left = {name: value for name, value in standby.items() if name not in to_unset}
    assert {**left, **to_set} == wanted
    assert "RELKIT_STANDBY" in to_unset


def test_only_an_interpreter_is_python(tmp_path: Path) -> None:
    wrapper = tmp_path / "python"
    wrapper.write_text("#!/bin/sh\n")
    assert is_python(sys.executable)
    assert not is_python(str(wrapper))
    assert not is_python("/bin/sh")
    assert not is_python(str(tmp_path / "python3"))
