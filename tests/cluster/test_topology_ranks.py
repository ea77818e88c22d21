"""An elastic job on hosts of its own whose ranks follow a topology file, over a replacement."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Start, until
from tests.cluster.hosts import Hosts, some_hosts
from tests.cluster.restarts.test_spares import SpareJob
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.root, pytest.mark.timeout(150 * PATIENCE)]

# torch's order is that of the addresses, h1 first. The file has more nodes, and not h5.
NETWORK = "s1 p h3\ns2 p h2\ns1 p h8\ns2 p h1\ns1 p h4\ns3 p h9\n"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Five hosts."""
    with some_hosts(tmp_path, 5, sshd=False) as fleet:
        yield fleet


@pytest.mark.long
def test_ranks_follow_the_file_also_after_a_node_was_replaced(
    start: Start, hosts: Hosts, tmp_path: Path
) -> None:
    file = tmp_path / "network.txt"
    file.write_text(NETWORK)
    options = ("--spares", "1", "--no-warm-standby", "--topology", str(file))
    run = SpareJob(start, hosts, tmp_path, "4", *options)
    run.add("h2", "h5", "h1", "h3")
    run.trains_on("h1", "h2", "h3", "h5", world=4)
    assert ranks(run, "h3", "h2", "h1", "h5") == [0, 1, 2, 3], run.text
    assert "order of nodes: h3 h2 h1 h5" in run.launchers["h3"].text, run.text
    assert f"warning: {file} does not name node h5" in run.launchers["h3"].text
    assert f"this is node 2 of 4, by {file}" in run.launchers["h1"].text
    run.add("h4")
    run.launchers["h4"].wait_for("is a spare: it waits")
    run.launchers["h5"].process.send_signal(signal.SIGKILL)
    run.trains_on("h1", "h2", "h3", "h4", world=4)
    assert ranks(run, "h3", "h4", "h2", "h1") == [0, 1, 2, 3], run.text
    until(lambda: "order of nodes: h3 h4 h2 h1" in run.text, *run.launchers.values())
    assert run.end("h5") == dict.fromkeys(("h1", "h2", "h3", "h4"), 0), run.text


def ranks(run: SpareJob, *names: str) -> list[int]:
    """Of these nodes."""
    rows = run.trained()
    return [rows[name]["rank"] for name in names]
