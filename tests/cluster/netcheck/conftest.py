"""What tests of `relkit netcheck` over real ssh share; each module has a `fleet` of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Done, Start
from tests.cluster.hosts import Hosts
from tests.patience import PATIENCE

RATE_MBIT = 200.0
Check = Callable[..., tuple[dict[str, Any], Done]]


@pytest.fixture
def check(start: Start, fleet: Hosts) -> Check:
    """Run netcheck over ssh; its report, and that it left nothing on any host."""

    def run(*options: str | Path) -> tuple[dict[str, Any], Done]:
        done = start(
            "netcheck", "--nodes", fleet.hosts_file(), "--ssh-args", fleet.ssh_args,
            "--duration", "0.3", "--timeout", str(8 * PATIENCE), "--json", *options,
            PATH=f"{fleet.ssh_folder}:{os.environ['PATH']}",
        ).wait(90)  # fmt: skip
        left = {name: pids for name, pids in fleet.processes().items() if pids}
        assert not left, (left, done.code, done.err)
        assert done.code in (0, 1, 3), done.err
        assert done.out, done.err
        return json.loads(done.out), done

    return run
