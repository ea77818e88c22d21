"""One job that hangs, as Prometheus and node_exporter see it, and as somebody is told of it."""

from __future__ import annotations

import json
import re
import shutil
import stat
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ports
from tests.cluster.conftest import ENDLESS, EXAMPLE, Started, report_of, starter
from tests.waiting import eventually

EXAMPLES = Path(__file__).parents[2] / "examples"
RULES = EXAMPLES / "prometheus" / "relkit.rules.yml"
DASHBOARD = EXAMPLES / "grafana" / "relkit.json"
# What a job of two ranks with gloo, that hangs, has no numbers of.
NOT_HERE = re.compile(
    "straggler|checkpoint|network_check|tokens|mfu|restarts|suspect|input|gc|_steps?_"
)
pytestmark = pytest.mark.job


@dataclass(frozen=True, slots=True)
class Hung:
    """A job that hangs.

    Args:
        job: its launcher; folder: where its files are; url: of its metrics; text: of a scrape.
        prometheus: address of one that scrapes it since it began; "" where none is installed.
    """

    job: Started
    folder: Path
    url: str
    text: str
    prometheus: str

    def value(self, name: str) -> float:
        """Of the first series whose line begins so."""
        line = next(each for each in self.text.splitlines() if each.startswith(name))
        return float(line.rpartition(" ")[2])


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=30) as reply:  # noqa: S310 (our own)
        text: str = reply.read().decode()
        return text


@pytest.fixture(scope="module")
def hung(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hung]:
    """It hangs until the module's end."""
    folder = tmp_path_factory.mktemp("hung")
    (folder / "textfiles").mkdir()
    command = folder / "told.sh"
    command.write_text(
        f'#!/bin/sh\ncat > "{folder}/new"\necho "$RELKIT_INCIDENT_REPORT" > "{folder}/path"\n'
        f'mv "{folder}/new" "{folder}/told"\nexit 7\n'
    )
    command.chmod(0o755)
    with starter(folder) as start:
        job = start(
            "launch", "--nproc-per-node", "2", "--hang-timeout", "5", "--on-hang", "report",
            "--timeline-path", folder / "t", "--metrics-textfile", folder / "textfiles",
            "--metrics-port", "0", "--metrics-every", "1", "--on-incident", command,
            "--inject", "hang:rank=1:step=60", EXAMPLE, *ENDLESS,
        )  # fmt: skip
        job.wait_for("metrics are at http://")
        match = re.search(r"metrics are at (\S+)", job.text)
        assert match
        url = match[1]
        with prometheus_of(url, folder / "prometheus") as prometheus:
            job.wait_for("ended with code 7", 90)

            def scrape() -> str:
                text = get(url)
                return text if re.search(r"^relkit_hung_rank\{.*rank=\"1\"", text, re.M) else ""

            text = eventually(scrape, lambda: get(url), 30)
            yield Hung(job, folder, url, text, prometheus)
        job.stop()
        # A file that stays would be told as if the job ran on.
        assert list((folder / "textfiles").iterdir()) == []


def test_a_scrape_during_the_hang(hung: Hung) -> None:
    assert hung.value("relkit_hung{") == 1
    assert hung.value("relkit_hung_ranks{") == 1
    assert hung.value("relkit_in_flight_seconds{") > 5
    assert hung.value("relkit_local_ranks{") == 2
    assert hung.value("relkit_incidents_total{") == 1
    assert hung.value("relkit_operations_total{") > 60
    assert 0 < hung.value("relkit_ettr_ratio{") < 1
    # Of what is not known there is nothing, and no 0.
    assert "relkit_checkpoint" not in hung.text
    assert "relkit_mfu" not in hung.text
    if shutil.which("promtool"):
        checked = subprocess.run(["promtool", "check", "metrics"], input=hung.text.encode(),
                                 capture_output=True, timeout=60, check=False)  # fmt: skip
        assert (checked.returncode, checked.stderr) == (0, b"")


def test_the_file_of_node_exporter_says_the_same(hung: Hung) -> None:
    (path,) = (hung.folder / "textfiles").glob("*.prom")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert re.search(r"^relkit_hung\{.*\} 1\.0$", path.read_text(), re.M)


def test_somebody_was_told_and_the_job_goes_on(hung: Hung) -> None:
    told = json.loads((hung.folder / "told").read_text())
    assert (told["kind"], told["report"]["culprits"]) == ("hang", [1])
    assert told["report_path"] == (hung.folder / "path").read_text().strip()
    assert report_of(hung.folder / "t")["culprits"] == [1]
    assert hung.job.text.count("ended with code 7") == 1
    assert hung.job.process.poll() is None


@contextmanager
def prometheus_of(job_url: str, folder: Path) -> Iterator[str]:
    """Address of a Prometheus that scrapes a job, with the rules of the examples; "" for none."""
    binary = shutil.which("prometheus")
    if binary is None:
        yield ""
        return
    folder.mkdir()
    port, target = ports.free_port(), urllib.parse.urlsplit(job_url).netloc
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "relkit", "static_configs": [{"targets": [target]}]}],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(
            [binary, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address=127.0.0.1:{port}"],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture
def prometheus(hung: Hung) -> str:
    """Of the job."""
    if not hung.prometheus:
        pytest.skip("prometheus is not installed (tools/debian_packages.sh)")
    return hung.prometheus


def answer(url: str, query: str, over_s: float) -> list[dict[str, Any]]:
    """Of Prometheus, to a query over the time until now; it raises where that is refused."""
    now_s = time.time()
    asked = {"query": query, "start": now_s - over_s, "end": now_s + 1.0, "step": 1}
    reply = json.loads(get(f"{url}/api/v1/query_range?{urllib.parse.urlencode(asked)}"))
    assert reply["status"] == "success", reply
    rows: list[dict[str, Any]] = reply["data"]["result"]
    return rows


def test_every_query_of_the_dashboard_is_answered(hung: Hung, prometheus: str) -> None:
    # It may have been scraped last just before the verdict.
    eventually(lambda: answer(prometheus, "relkit_hung_rank", 60.0), "a scrape of the hang")
    board = json.loads(DASHBOARD.read_text())
    over_s = time.monotonic() - hung.job.began
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    empty = [
        query for query in queries if not answer(prometheus, query.replace("$job", ".*"), over_s)
    ]
    assert [each for each in empty if not NOT_HERE.search(each)] == [], f"of {len(queries)}"
    assert len(queries) - len(empty) >= 9


def test_every_rule_is_evaluated_and_the_hang_is_an_alert(prometheus: str) -> None:
    def states() -> dict[str, str]:
        groups = json.loads(get(f"{prometheus}/api/v1/rules"))["data"]["groups"]
        rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
        assert [rule["lastError"] for rule in rules.values() if rule.get("lastError")] == []
        if any(rule["health"] != "ok" for rule in rules.values()):
            return {}
        return {name: rule["state"] for name, rule in rules.items()}

    eventually(lambda: states().get("RelkitJobHung") == "firing", lambda: str(states()), 40)
    named = {rule["alert"] for rule in yaml.safe_load(RULES.read_text())["groups"][0]["rules"]}
    now = states()
    assert set(now) == named
    assert {name for name, state in now.items() if state == "firing"} == {"RelkitJobHung"}
