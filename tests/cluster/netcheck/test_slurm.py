"""relkit netcheck through one srun of a real Slurm: the same verdicts as over ssh."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Start
from tests.cluster.hosts import some_hosts
from tests.cluster.slurm import Slurm, a_slurm

pytestmark = [pytest.mark.root, pytest.mark.slurm, pytest.mark.timeout(120)]

RATE_MBIT = 80.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    """Four slurmd, each in a host of 80 Mbit/s.

    As little as that, so that a pair waits for the rate and not for one of this machine's cores:
    where these are busy, a pair that is alone in its round would be faster than two at a time.
    """
    folder = tmp_path_factory.mktemp("slurm")
    with (
        some_hosts(folder, 4, rate_mbit=RATE_MBIT, sshd=False) as hosts,
        a_slurm(folder / "slurm", hosts) as slurm,
    ):
        yield slurm


def check(start: Start, cluster: Slurm, *options: str | Path) -> dict[str, Any]:
    done = start(
        "netcheck", "--nodes", cluster.hosts.hosts_file(), "--via", "slurm", "--partition", "all",
        "--duration", "0.3", "--json", *options, **cluster.environ,
    ).wait(90)  # fmt: skip
    assert done.out, done.err
    report: dict[str, Any] = json.loads(done.out)
    return report


@pytest.mark.long
def test_verdicts_through_slurm(start: Start, cluster: Slurm) -> None:
    daemons = cluster.hosts.processes()
    report = check(start, cluster)
    assert report["verdict"] == {"nodes": [], "links": [], "groups": []}, report["findings"]
    assert report["coverage"]["tested_links"] == 6

    cluster.hosts.limit("h3", out_mbit=0.4 * RATE_MBIT, in_mbit=0.4 * RATE_MBIT)
    report = check(start, cluster)
    assert report["verdict"] == {"nodes": ["h3"], "links": [], "groups": []}, report["findings"]

    cluster.hosts.limit("h3", out_mbit=RATE_MBIT, in_mbit=RATE_MBIT)
    cluster.hosts.cut_pair("h1", "h4")
    report = check(start, cluster)
    assert report["verdict"] == {"nodes": [], "links": [["h1", "h4"]], "groups": []}, report[
        "findings"
    ]
    assert cluster.hosts.processes() == daemons
