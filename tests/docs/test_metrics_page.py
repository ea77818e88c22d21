"""The alert rules and the dashboard name the metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from relkit.metrics.table import METRICS

EXAMPLES = Path(__file__).parents[2] / "examples"
RULES = EXAMPLES / "prometheus" / "relkit.rules.yml"
DASHBOARD = EXAMPLES / "grafana" / "relkit.json"


@pytest.mark.parametrize("path", [RULES, DASHBOARD], ids=lambda path: str(path.name))
def test_every_metric_that_is_asked_for_exists(path: Path) -> None:
    named = set(re.findall(r"\brelkit_[a-z_]+", path.read_text()))
    assert len(named) > 10
    assert named <= {metric.name for metric in METRICS}


def test_the_dashboard_shows_what_operators_ask_first() -> None:
    board = json.loads(DASHBOARD.read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids) >= 12
    assert board["panels"][0]["title"] == "Hangs"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_the_rules_are_clean() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", "--lint=all", "--lint-fatal", str(RULES)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
