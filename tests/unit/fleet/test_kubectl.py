"""Agents in pods, against a stand-in for kubectl (no Kubernetes runs here)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from relkit.errors import RelkitError, ToolMissing, UsageProblem
from relkit.fleet.kubectl import is_selector, pods, with_addresses
from relkit.fleet.open import open_channel
from relkit.hosts import NodeSpec

UP_S = 20.0


def pod(name: str, phase: str = "Running", address: str = "") -> dict[str, object]:
    return {"metadata": {"name": name}, "status": {"phase": phase, "podIP": address}}


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    script = folder / "kubectl"
    program = Path(__file__).with_name("kubectl_standin.py")
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {program} "$@"\n')
    script.chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("STANDIN_PODS", str(tmp_path / "pods.json"))
    items = [
        pod("trainer-1"),
        pod("trainer-0", address="10.1.0.4"),
        pod("trainer-old", "Succeeded"),
    ]
    (tmp_path / "pods.json").write_text(json.dumps({"items": items}))
    return tmp_path


def test_pods_come_by_label_without_the_finished_ones(standin: Path) -> None:
    found = pods("app=trainer", "-n training -c worker --context=prod")
    assert found == (NodeSpec("trainer-0", "10.1.0.4"), NodeSpec("trainer-1"))
    # `get` knows no -c; the other options are passed on.
    assert (standin / "log").read_text() == (
        "get pods -n training --context=prod -l app=trainer -o json\n"
    )


def test_agents_run_in_pods(standin: Path) -> None:
    channel = open_channel("kubectl", kubectl_args="-n training -c worker")
    try:
        answers = channel.start([*pods("app=trainer"), NodeSpec("trainer-lost")], UP_S)
        assert answers["trainer-0"].answered, answers["trainer-0"].detail
        assert answers["trainer-1"].answered, answers["trainer-1"].detail
        assert "no such pod" in answers["trainer-lost"].detail
        channel.send({"op": "ping", "id": 1, "to": {"trainer-1": {}}})
        heard = channel.receive(10)
        assert heard is not None
        assert heard[0] == "trainer-1"
    finally:
        channel.close(5)
    assert "exec -i -n training -c worker trainer-0 -- sh -c" in (standin / "log").read_text()


def test_pods_that_are_named_get_their_addresses(standin: Path) -> None:
    named = (NodeSpec("trainer-0"), NodeSpec("elsewhere"), NodeSpec("trainer-1", "10.9.9.9"))
    assert with_addresses(named) == (
        NodeSpec("trainer-0", "10.1.0.4"),
        NodeSpec("elsewhere"),
        NodeSpec("trainer-1", "10.9.9.9"),
    )


def test_a_pod_without_relkit_says_so(standin: Path) -> None:
    channel = open_channel("kubectl", relkit="no-such-relkit")
    try:
        answers = channel.start([NodeSpec("trainer-0")], UP_S)
        assert "relkit is not installed there" in answers["trainer-0"].detail
    finally:
        channel.close(5)


def test_no_pod_is_an_error(standin: Path) -> None:
    with pytest.raises(UsageProblem, match="no pod has the labels"):
        pods("app=nothing")


@pytest.mark.parametrize("selector", ["", "-l", "--all", "a=b;id", "$(id)", "a\nb"])
def test_what_is_no_selector_is_refused(standin: Path, selector: str) -> None:
    with pytest.raises(UsageProblem):
        pods(selector)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"items":[1]}',
        '{"items":[{"metadata":{}}]}',
        '{"items":[{"metadata":{"name":"a"},"status":{"podIP":"x;y"}}]}',
    ],
)
def test_a_list_that_is_none_is_an_error(standin: Path, text: str) -> None:
    (standin / "pods.json").write_text(text)
    with pytest.raises(RelkitError, match="cannot be read"):
        pods("app=trainer")


def test_a_pod_with_an_impossible_name_is_refused(standin: Path) -> None:
    (standin / "pods.json").write_text(json.dumps({"items": [pod("--kubeconfig=x")]}))
    with pytest.raises(RelkitError, match="not a pod name"):
        pods("app=trainer")


def test_no_kubectl_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissing, match="kubectl"):
        pods("app=trainer")


@pytest.mark.parametrize(
    ("text", "selects"),
    [
        ("app=trainer", True),
        ("app!=trainer,tier in (a, b)", True),
        ("!old", True),
        ("trainer-[0-7]", False),
        ("@trainers", False),
        ("-", False),
    ],
)
def test_selectors_are_told_from_names(text: str, selects: bool) -> None:
    assert is_selector(text) is selects


def test_a_file_is_a_file_whatever_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("app=trainer").write_text("trainer-0\n")
    assert not is_selector("app=trainer")
