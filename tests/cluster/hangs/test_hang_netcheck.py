"""Three hosts and `--on-hang-netcheck`: the links of the suspects are cleared or convicted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import NODE_CPU_S, Start, Started, report_of, until
from tests.cluster.hosts import Hosts, some_hosts
from tests.cluster.link_sockets import wait_for_links
from tests.patience import PATIENCE

pytestmark = [pytest.mark.job, pytest.mark.root, pytest.mark.timeout(150 * PATIENCE)]

JOB = Path(__file__).parents[1] / "jobs" / "stall_job.py"
NAMES = ("h1", "h2", "h3")


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with some_hosts(tmp_path, 3, sshd=False) as fleet:
        yield fleet


def begin(start: Start, hosts: Hosts, folder: Path, *options: str) -> list[Started]:
    """One rank on each host, all of them in operations; the first host is node 0."""
    jobs = [
        start(
            "launch", "--nnodes", "3", "--node-rank", str(number),
            "--master-addr", hosts["h1"].address, "--local-addr", hosts[name].address,
            "--timeline-path", folder / f"t-{name}", "--hang-timeout", "8", "--on-hang", "abort",
            *options, JOB, folder,
            program=("ip", "netns", "exec", hosts[name].namespace, sys.executable, "-m", "relkit"),
            GLOO_SOCKET_IFNAME="eth0", RELKIT_NODE_NAME=name,
        )
        for number, name in enumerate(NAMES)
    ]  # fmt: skip
    until(lambda: len(list(folder.glob("pid-*"))) == 3, *jobs, timeout_s=3 * NODE_CPU_S)
    jobs[0].wait_for("watching rank 0 of 3")
    wait_for_links(jobs, 29500)
    return jobs


def ended(jobs: list[Started], folder: Path) -> tuple[dict[str, Any], str]:
    """The report, and all that the launchers have printed, once the job was ended."""
    codes = [job.wait(90).code for job in jobs]
    told = "\n".join(job.text for job in jobs)
    assert all(codes), told
    # Ranks may end with one of their own, once their peers are gone.
    assert "\nTraceback" not in told, told
    return report_of(folder / "t-h1"), told


def finding(report: dict[str, Any], number: str) -> dict[str, Any]:
    """The finding on the links."""
    fitting = [each for each in report["findings"] if each["id"] == number]
    assert len(fitting) == 1, report["findings"]
    assert isinstance(fitting[0], dict)
    return fitting[0]


@pytest.mark.long
def test_good_links_are_excluded_as_the_cause(start: Start, hosts: Hosts, tmp_path: Path) -> None:
    jobs = begin(start, hosts, tmp_path, "--on-hang-netcheck")
    (tmp_path / "sleep-2").touch()
    report, told = ended(jobs, tmp_path)
    assert report["culprits"] == [2], told
    good = finding(report, "RK-HANG-025")
    assert "the 3 measured links between h1, h2 and h3 are good" in good["title"]
    assert good["title"] in report["verdict"]
    assert good["title"] in report["culprit_details"][0]["reasons"]
    assert {each["health"] for each in report["links"]["measured"]} == {"good"}
    # The other nodes learn it with the verdict.
    assert all(good["title"] in job.text for job in jobs), told


@pytest.mark.long
def test_a_slow_link_is_convicted_and_joined(start: Start, hosts: Hosts, tmp_path: Path) -> None:
    jobs = begin(start, hosts, tmp_path, "--on-hang-netcheck")
    hosts.limit_pair("h1", "h3", 8)
    (tmp_path / "sleep-2").touch()
    report, told = ended(jobs, tmp_path)
    assert report["culprits"] == [2], told
    bad = finding(report, "RK-HANG-024")
    assert bad["title"].startswith("the link h1-h3 carries "), bad
    assert bad["nodes"] == "h1,h3"
    assert bad["title"] in report["verdict"]
    html = (tmp_path / "t-h1" / "report.html").read_text(encoding="utf-8")
    assert "the link h1-h3 carries " in html


@pytest.mark.long
def test_a_cut_link_is_what_the_hang_is_from(start: Start, hosts: Hosts, tmp_path: Path) -> None:
    jobs = begin(start, hosts, tmp_path, "--on-hang-netcheck")
    hosts.cut_pair("h2", "h3")
    report, _ = ended(jobs, tmp_path)
    bad = finding(report, "RK-HANG-024")
    assert bad["title"].startswith("the link h2-h3 does not answer, the others carry "), bad
    assert bad["title"] in report["verdict"]


@pytest.mark.long
def test_a_host_that_is_gone_is_told_beside_good_links(
    start: Start, hosts: Hosts, tmp_path: Path
) -> None:
    jobs = begin(start, hosts, tmp_path, "--on-hang-netcheck")
    hosts.cut("h3")
    report, told = ended(jobs, tmp_path)
    bad = finding(report, "RK-HANG-024")
    assert bad["title"] == "node 2 does not answer the other launchers", told
    assert bad["ranks"] == "2"
    assert {tuple(each["nodes"]) for each in report["links"]["measured"]} == {(0, 1)}


@pytest.mark.long
def test_without_the_option_nothing_is_measured(start: Start, hosts: Hosts, tmp_path: Path) -> None:
    jobs = begin(start, hosts, tmp_path)
    (tmp_path / "sleep-2").touch()
    report, told = ended(jobs, tmp_path)
    assert report["culprits"] == [2], told
    assert "links" not in report
    assert "measuring" not in told


@pytest.mark.long
def test_the_successor_of_node_0_has_them_measured(
    start: Start, hosts: Hosts, tmp_path: Path
) -> None:
    jobs = begin(start, hosts, tmp_path, "--on-hang-netcheck")
    (tmp_path / "sleep-2").touch()
    until((tmp_path / "asleep-2").exists, *jobs)
    hosts.cut("h1")
    second, third = jobs[1:]
    second.wait_for("this node leads the watch over the job from here on")
    done = [second.wait(90), third.wait(90)]
    told = "\n".join(job.text for job in jobs)
    report = report_of(tmp_path / "t-h2")
    assert 2 in report["culprits"], told
    gone = finding(report, "RK-HANG-024")
    assert gone["title"] == "node 0 does not answer the other launchers", told
    assert gone["ranks"] == "0"
    (link,) = report["links"]["measured"]
    assert (link["nodes"], link["health"]) == ([1, 2], "good")
    assert gone["title"] in third.text, told
    assert all(each.code for each in done), told
