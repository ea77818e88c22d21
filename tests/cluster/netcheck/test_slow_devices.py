"""`relkit launch --network-check --exclude-straggler` and a node whose CPU computes slowly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from relkit.errors import EXIT_CONVICTED
from tests.cluster.conftest import EXAMPLE, Done, Start, Started
from tests.cluster.hosts import Hosts, some_hosts
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.root, pytest.mark.timeout(150 * PATIENCE)]

RATE_MBIT = 200.0
# Arithmetic as of 2004: the same products take more than twice as long on any CPU since.
SLOW_CPU = {"OPENBLAS_CORETYPE": "Prescott"}
_BUSY = "while True: pass"


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Three hosts of 200 Mbit/s each, on cores on which others work as well."""
    cores = len(os.sched_getaffinity(0))
    others = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(cores)]
    try:
        with some_hosts(tmp_path, 3, rate_mbit=RATE_MBIT, sshd=False) as fleet:
            yield fleet
    finally:
        for other in others:
            other.kill()
            other.wait()


def on_hosts(
    start: Start, hosts: Hosts, folder: Path, *options: str, slow: str = "", one_boot: bool = False
) -> dict[str, Done]:
    """One launcher a host, each of which looks like a machine of its own unless `one_boot`."""

    def launch(name: str) -> Started:
        host, boot_id = hosts[name], folder / f"boot-id-{name}"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        own = f"mount --bind {boot_id} /proc/sys/kernel/random/boot_id && " * (not one_boot)
        return start(
            "launch", "--nnodes", "2:3", "--rdzv-backend", "c10d",
            "--rdzv-id", f"devices-{os.getpid()}",
            "--rdzv-endpoint", f"{hosts['h1'].address}:29400",
            # The last call is long enough for launchers that begin apart on a busy machine.
            "--rdzv-conf", f"is_host={int(name == 'h1')},last_call_timeout=8",
            "--local-addr", host.address, "--timeline-path", folder / f"t-{name}",
            "--network-check", "--exclude-straggler", *options, EXAMPLE, "--steps", "4",
            program=("ip", "netns", "exec", host.namespace, "unshare", "--mount", "sh", "-c",
                     f'{own}exec "$@"', "sh", sys.executable, "-m", "relkit"),
            GLOO_SOCKET_IFNAME="eth0", RELKIT_NODE_NAME=name,
            **(SLOW_CPU if name == slow else {}),
        )  # fmt: skip

    jobs = {name: launch(name) for name in hosts.names}
    return {name: job.wait(130) for name, job in jobs.items()}


def report_of(folder: Path) -> dict[str, Any]:
    """netcheck.json of whichever node became node 0."""
    (path,) = folder.glob("t-*/netcheck.json")
    plain = json.loads(path.read_text())
    assert isinstance(plain, dict)
    return plain


@pytest.mark.long
def test_a_node_that_computes_slowly_leaves_and_the_others_train(
    start: Start, hosts: Hosts, tmp_path: Path
) -> None:
    done = on_hosts(start, hosts, tmp_path, slow="h3")
    text = "\n".join(one.err for one in done.values())
    assert {name: one.code for name, one in done.items()} == {
        "h1": 0, "h2": 0, "h3": EXIT_CONVICTED,
    }, text  # fmt: skip
    why = "this node (h3) failed the network check and leaves the job: slow device: cpu computes at"
    assert why in done["h3"].err, text
    assert "h3 leaves the job: slow device: cpu computes at" in done["h1"].err, text
    assert "done: 4 steps" in done["h1"].out + done["h2"].out
    assert "Traceback" not in text
    report = report_of(tmp_path)
    assert report["verdict"]["nodes"] == [], text
    (slow,) = (f for f in report["findings"] if f["id"] == "RK-NET-022")
    assert (slow["nodes"], slow["status"]) == ("h3", "fail")
    assert {row["node"] for row in report["devices"]} == {"h1", "h2", "h3"}


@pytest.mark.long
def test_where_nothing_is_slow_nobody_is_named(start: Start, hosts: Hosts, tmp_path: Path) -> None:
    done = on_hosts(start, hosts, tmp_path)
    text = "\n".join(one.err for one in done.values())
    assert {one.code for one in done.values()} == {0}, text
    report = report_of(tmp_path)
    assert {row["node"] for row in report["devices"]} == {"h1", "h2", "h3"}
    assert not [f for f in report["findings"] if f["id"] in ("RK-NET-022", "RK-NET-023")], text


@pytest.mark.long
def test_nodes_of_one_host_are_not_compared(start: Start, hosts: Hosts, tmp_path: Path) -> None:
    done = on_hosts(start, hosts, tmp_path, slow="h3", one_boot=True)
    text = "\n".join(one.err for one in done.values())
    assert {one.code for one in done.values()} == {0}, text
    assert "devices" not in report_of(tmp_path)
