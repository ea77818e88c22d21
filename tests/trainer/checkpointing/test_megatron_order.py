"""The flat order of a distributed optimizer's checkpoint is megatron-core's own, on every rank."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.trainer.checkpointing.megatron_order import cases

NAMES = [name + odd for name, _, _ in cases() for odd in ("", " odd")]

pytestmark = pytest.mark.timeout(200)


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    child = subprocess.run(
        [sys.executable, "-m", "tests.trainer.checkpointing.megatron_order"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    found: dict[str, Any] = json.loads(child.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_lies_where_megatron_core_has_it(seen: dict[str, Any], name: str) -> None:
    for rank, (ours, theirs) in enumerate(seen[name]):
        assert ours == theirs, f"rank {rank}"
