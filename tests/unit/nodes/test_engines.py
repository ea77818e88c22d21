"""Slurm's and Kubernetes' own words for nodes, read; and the commands that act on them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from relkit.fleet.bounded_run import HelperFailed
from relkit.nodes import kubernetes_engine, slurm_engine
from relkit.nodes.kubernetes_engine import KubernetesEngine
from relkit.nodes.model import NodeState

SLURM = """\
NodeName=h1 Arch=x86_64 State=IDLE+DRAIN ThreadsPerCore=1 \
Reason=relkit RK-LNK-002: a link [is] slow [root@2026-11-29T12:00:00]
NodeName=h2 State=MIXED Comment=none
NodeName=h3 State=DOWN* Reason=power [slurm@2026-11-29T11:00:00] Comment=x
NodeName=h4 State=DRAINED
"""


def test_slurms_nodes_with_their_reasons() -> None:
    noon = time.mktime((2026, 11, 29, 12, 0, 0, 0, 0, -1))
    first, *others = slurm_engine.read_nodes(SLURM)
    assert first == NodeState("h1", True, "relkit RK-LNK-002: a link [is] slow", noon)
    assert first.finding == "RK-LNK-002"
    assert [(n.name, n.is_out, n.reason) for n in others] == [
        ("h2", False, ""), ("h3", False, "power"), ("h4", True, ""),
    ]  # fmt: skip
    assert slurm_engine.read_nodes("") == ()


def test_kubernetes_nodes_with_their_annotations() -> None:
    notes = {"relkit/reason": "relkit RK-NET-002: slow", "relkit/since": "2026-11-29T12-00-00Z"}
    items = [
        {"metadata": {"name": "a", "annotations": notes}, "spec": {"unschedulable": True}},
        {"metadata": {"name": "b"}, "spec": {}},
        {"metadata": {"name": "c", "annotations": 3}, "spec": {"unschedulable": True}},
        "no object", {"metadata": {}},
    ]  # fmt: skip
    first, second, third = kubernetes_engine.read_nodes(json.dumps({"items": items}))
    assert first == NodeState("a", True, "relkit RK-NET-002: slow", 1795953600.0)
    assert (second, third) == (NodeState("b", False), NodeState("c", True))
    with pytest.raises(HelperFailed):
        kubernetes_engine.read_nodes("[1")


def test_kubectl_is_told_the_reason_before_the_node_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "kubectl"
    tool.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/called\n')
    tool.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    engine = KubernetesEngine("--context prod")
    engine.take_out("a", "relkit RK-NET-002: slow")
    engine.put_back("a")
    said = (tmp_path / "called").read_text().splitlines()
    assert [line.split()[2] for line in said] == ["annotate", "cordon", "uncordon", "annotate"]
    assert all(line.startswith("--context prod ") for line in said)
    assert "relkit/reason=relkit RK-NET-002: slow" in said[0]
    assert said[3].endswith("node a relkit/reason- relkit/since-")
