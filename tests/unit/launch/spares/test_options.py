"""--spares and what belongs to it: what they set, and what they need."""

from __future__ import annotations

from argparse import Namespace

import pytest

from relkit.commands.launch import launch
from relkit.commands.launch_parts.spare_options import spare_settings
from relkit.commands.launch_parts.torchrun_command import PARSED
from relkit.errors import UsageProblem
from relkit.launch.spares.settings import SpareSettings

C10D = ("--rdzv-backend", "c10d", "--rdzv-endpoint", "host:29400")


def settings(*line: str) -> tuple[SpareSettings, Namespace]:
    argv = [*line, "t.py"]
    with launch.make_context("launch", argv, auto_envvar_prefix="RELKIT_LAUNCH") as ctx:
        options: Namespace = ctx.meta[PARSED][0]
        return spare_settings(ctx, options), options


def test_without_them_a_job_of_fixed_size_is_left_alone() -> None:
    asked, options = settings(*C10D, "--nnodes", "4")
    assert asked == SpareSettings()
    assert options.rdzv_conf == ""


@pytest.mark.parametrize(
    "more",
    [
        ("--nnodes", "4", "--spares", "2", "--max-restarts", "1"),
        ("--nnodes", "4", "--replacement-timeout", "30"),
        ("--nnodes", "2:4"),
    ],
)
def test_a_dead_node_is_seen_soon(more: tuple[str, ...]) -> None:
    asked, options = settings(*C10D, "--rdzv-conf", "is_host=1", *more)
    assert asked.is_on
    assert options.rdzv_conf == "is_host=1,keep_alive_interval=2,keep_alive_max_attempt=8"


def test_many_nodes_send_heartbeats_as_often_as_torch_has_them() -> None:
    asked, options = settings(*C10D, "--nnodes", "60", "--spares", "5", "--max-restarts", "1")
    assert asked.is_on
    assert options.rdzv_conf == ""


def test_what_was_typed_stays() -> None:
    conf = "keep_alive_interval=4"
    assert settings(*C10D, "--nnodes", "2:4", "--rdzv-conf", conf)[1].rdzv_conf == conf


def test_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    line = ("--nnodes", "4", "--spares", "2", "--max-restarts", "1", "--node-restarts", "0")
    assert settings(*C10D, *line)[0] == SpareSettings(2, None, 0, is_on=True)
    monkeypatch.setenv("RELKIT_LAUNCH_REPLACEMENT_TIMEOUT", "20")
    assert settings(*C10D, "--nnodes", "4")[0] == SpareSettings(0, 20.0, 3, is_on=True)


@pytest.mark.parametrize(
    ("nnodes", "unit", "taken", "node_unit"),
    [
        ("2:6", "2", "2:6", 2),
        ("1:5", "2", "2:4", 2),
        ("3:5", "4", "4:4", 4),
        ("4", "2", "4", 1),
        ("2:4", "1", "2:4", 1),
    ],
)
def test_the_number_of_nodes_is_a_multiple_of_the_unit(
    nnodes: str, unit: str, taken: str, node_unit: int
) -> None:
    asked, options = settings(*C10D, "--nnodes", nnodes, "--node_unit", unit)
    assert (options.nnodes, asked.node_unit, asked.is_on) == (taken, node_unit, ":" in nnodes)


def test_a_unit_of_a_job_of_fixed_size_needs_nothing() -> None:
    line = ("--nnodes", "4", "--master-addr", "h", "--node-rank", "0", "--node-unit", "2")
    assert settings(*line)[0] == SpareSettings()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (("--nnodes", "2", "--master-addr", "h", "--spares", "1"), "takes other nodes in"),
        (("--standalone", "--spares", "1"), "--spares needs a rendezvous"),
        (("--standalone", "--replacement-timeout", "9"), "--replacement-timeout needs"),
        ((*C10D, "--nnodes", "2", "--spares", "1"), "--max-restarts is 0"),
        ((*C10D, "--nnodes", "3", "--node-unit", "2"), "3 allows no multiple of --node-unit 2"),
        ((*C10D, "--nnodes", "5:7", "--node-unit", "4"), "5:7 allows no multiple of --node-unit 4"),
        (("--standalone", "--nnodes", "2:4", "--node-unit", "2"), "--node-unit needs"),
    ],
)
def test_what_cannot_be_is_refused(line: tuple[str, ...], words: str) -> None:
    with pytest.raises(UsageProblem, match=words):
        settings(*line)
