"""Kills from outside, at moments that nothing in the job chooses: no step is lost, no bit differs.

A hundred of them: `python benchmarks/ttp/megatron_kills.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.conftest import Start, orphans_come_to_us, start
from tests.megatron_adaptor.killed_jobs import killed_job
from tests.megatron_adaptor.programs import LAYOUTS, MEGATRON_PATH, mini, real

__all__ = ["orphans_come_to_us", "start"]
pytestmark = [pytest.mark.job, pytest.mark.long, pytest.mark.timeout(900)]
MINI = ("DP4", "TP2xDP2", "PP2xDP2", "EP2")
# Megatron-LM's own experts want a GPU.
REAL = ("DP2", "TP2xDP2", "PP2xDP2", "DP4 sharded", "DP4 bf16 sharded")


@pytest.mark.parametrize("name", MINI)
def test_no_step_of_a_loop_over_megatron_core_is_lost(
    start: Start, tmp_path: Path, name: str
) -> None:
    seen = killed_job(start, tmp_path, mini(LAYOUTS[name]), LAYOUTS[name].ranks, 2)
    assert seen.wrong == []
    assert len(seen.killed) == 2


@pytest.mark.megatron_lm
@pytest.mark.skipif(not MEGATRON_PATH, reason="MEGATRON_PATH names no checkout of Megatron-LM")
@pytest.mark.parametrize("name", REAL)
def test_no_step_of_megatrons_own_program_is_lost(start: Start, tmp_path: Path, name: str) -> None:
    """Its pretrain_gpt.py, with the one line."""
    program = real(LAYOUTS[name], tmp_path)
    seen = killed_job(start, tmp_path, program, LAYOUTS[name].ranks, 2)
    assert seen.wrong == []
    assert len(seen.killed) == 2
    assert "megatron_adaptor:" not in seen.err.replace("goes on from what it has saved", "")
