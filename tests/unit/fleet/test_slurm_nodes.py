"""Nodes that srun is not asked for, since it would wait for them (with stand-in Slurm tools)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from relkit.fleet.channel import Answer
from relkit.fleet.slurm import SlurmChannel
from relkit.hosts import NodeSpec

STATES = "c1 idle\nc2 IDLE*\nc3 drained\nc4 down\nc5 mixed\nc5 mixed\nc6 allocated\nc7 down*\n"


def asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, nodes: list[str], **environ: str
) -> tuple[Mapping[str, Answer], str]:
    """The answers for these nodes, and the node list that srun was called with."""
    (folder / "states").write_text(STATES)
    sinfo = f'#!/bin/sh\n[ "$*" = "-h -N -o %N %T" ] && cat {folder}/states\n'
    srun = f'#!/bin/sh\nprintf "%s\\n" "$@" | grep ^--nodelist= > {folder}/asked\nexit 1\n'
    for name, text in (("sinfo", sinfo), ("srun", srun)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    partition = "" if environ else "all"
    channel = SlurmChannel(partition=partition, environ=environ)
    try:
        answers = channel.start([NodeSpec(name) for name in nodes], 20)
    finally:
        channel.close(5)
    nodelist = folder / "asked"
    return answers, nodelist.read_text().strip().partition("=")[2] if nodelist.exists() else ""


def test_outside_of_a_job_only_usable_nodes_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = ["c1", "c2", "c3", "c4", "c5", "c6", "ghost"]
    answers, nodelist = asked(tmp_path, monkeypatch, nodes)
    assert nodelist == "c1,c5,c6"
    assert not any(answer.answered for answer in answers.values())
    assert answers["ghost"].detail == "Slurm has no node of this name"
    assert "does not respond (idle*)" in answers["c2"].detail
    assert "reports it as drained" in answers["c3"].detail
    assert "reports it as down" in answers["c4"].detail
    assert {name for name in nodes if answers[name].host_down} == {"c2", "c4"}


def test_inside_a_job_its_own_nodes_are_asked_for_whatever_their_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "c[1,3,7]"}
    answers, nodelist = asked(tmp_path, monkeypatch, ["c1", "c3", "c6", "c7"], **job)
    # A node that is drained finishes the job that it has; one that does not respond cannot.
    assert nodelist == "c1,c3"
    assert answers["c6"].detail == "is not part of this Slurm job"
    assert "does not respond (down*)" in answers["c7"].detail
    assert answers["c7"].host_down
    assert not answers["c6"].host_down
