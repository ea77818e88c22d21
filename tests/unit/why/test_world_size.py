"""How many ranks a job has, as programs and libraries say it."""

from __future__ import annotations

import pytest

from relkit.why.rules.world_size import world_size_of


@pytest.mark.parametrize(
    ("lines", "size"),
    [
        (["using world size: 8, data-parallel size: 2"], 8),
        (["WORLD_SIZE=16"], 16),
        (['{"world_size": 4}'], 4),
        (["  global_world_sizes=[4, 4]"], 4),
        (["h1:7:9 [0] NCCL INFO comm 0x5 rank 3 nranks 8 cudaDev 3", "... nranks 2 ..."], 8),
        (["GLOBAL_RANK: 0, MEMBER: 1/4"], 4),
        (["starting rank 0 of 2", "starting rank 1/2"], 2),
        (["step 3 of 100", "loss 2.0", "rank 3 failed"], 0),
        ([], 0),
    ],
)
def test_said(lines: list[str], size: int) -> None:
    assert world_size_of(lines) == size
