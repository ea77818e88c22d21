"""A pod is deleted: its launcher saves, although process 1 is a shell, which tells it nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE

SCRIPT = """
import time, torch, torch.distributed as dist
from pathlib import Path
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
dist.init_process_group("gloo")
checkpointer = DdpCheckpointer("ck")
step = 0
while True:
    step += 1
    checkpointer.save_checkpoint(
        step, {"step": step}, f"ck/{step}.pt", storage_type=StorageType.MEMORY
    )
    if step == 5:
        Path("trains").touch()
    time.sleep(0.1)
"""
# What the kubelet does: preStop in the container, and SIGTERM to process 1 only afterwards.
CONTAINER = """
(
    until [ -e trains ] || [ -e ended ]; do sleep 0.1; done
    relkit k8s stop
    echo "preStop: $?"
) &
cd . && relkit launch --nproc-per-node 1 --flash-timeout 30 --timeline-path timeline train.py
echo "launcher: $?"
touch ended
wait
"""


@pytest.mark.root
@pytest.mark.job
def test_a_pod_that_ends_saves_behind_a_shell(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT, encoding="ascii")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        # A container: processes of others are not to be seen.
        ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", "bash", "-c", CONTAINER],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "KUBERNETES_SERVICE_HOST": "10.0.0.1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120 * PATIENCE,
    )
    said = done.stdout + done.stderr
    assert "asked to save and end: process" in said
    assert "is kept in" in said
    assert "preStop: 0" in said
    assert "launcher: 143" in said
    (kept,) = (tmp_path / "ck" / "from-memory").glob("iter_*")
    assert int(kept.name.removeprefix("iter_")) >= 5
