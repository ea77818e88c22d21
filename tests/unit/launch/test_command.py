"""How the launch, run and demo commands read their options; nothing is started here."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from relkit import demo as demonstration
from relkit.cli import cli
from relkit.commands.launch import launch
from relkit.commands.run import run
from relkit.errors import UsageProblem
from relkit.launch.job.socket_folder import WANTED


def params(command: click.Command, line: list[str]) -> dict[str, object]:
    with command.make_context(command.name or "", line) as ctx:
        return dict(ctx.params)


def test_defaults() -> None:
    found = params(launch, ["t.py"])
    assert found == {
        "hang_timeout": 300.0,
        "timeline_path": None,
        "on_hang": "save",
        "on_hang_netcheck": False,
        "no_hook": False,
        "no_warm_standby": False,
        "inject": (),
        "secret_file": None,
        "straggler": "warn",
        "straggler_min_slowdown": 0.04,
        "trace_python": None,
        "ttp_timeout": 120.0,
        "ttp_heartbeat": 1.0,
        "flash_keep": 2,
        "flash_max_mb_per_s": 0.0,
        "flash_timeout": 600.0,
        "nodes": None,
        "no_history": False,
        "on_incident": None,
        "on_incident_timeout": 30.0,
    }


def test_links_of_the_suspects_are_measured_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    assert params(launch, ["--on-hang-netcheck", "t.py"])["on_hang_netcheck"] is True
    monkeypatch.setenv("RELKIT_LAUNCH_ON_HANG_NETCHECK", "1")
    with launch.make_context("launch", ["t.py"], auto_envvar_prefix="RELKIT_LAUNCH") as ctx:
        assert ctx.params["on_hang_netcheck"] is True


@pytest.mark.parametrize(
    ("line", "environ", "timeout_s"),
    [
        ([], {}, 300.0),
        ([], {"XPU_TIMER_HANG_TIMEOUT": "40"}, 40.0),
        ([], {"XPU_TIMER_HANG_TIMEOUT": "40", "RELKIT_LAUNCH_HANG_TIMEOUT": "50"}, 50.0),
        (["--hang-timeout", "60"], {"RELKIT_LAUNCH_HANG_TIMEOUT": "50"}, 60.0),
    ],
)
def test_precedence(
    line: list[str], environ: dict[str, str], timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert params(launch, [*line, "t.py"])["hang_timeout"] == timeout_s


@pytest.mark.parametrize(
    ("line", "environ", "share"),
    [
        (["--straggler-min-slowdown", "0.2"], {}, 0.2),
        (["--straggler_min_slowdown=0.3"], {}, 0.3),
        ([], {"RELKIT_LAUNCH_STRAGGLER_MIN_SLOWDOWN": "0.5"}, 0.5),
    ],
)
def test_the_smallest_slowdown_by_option_and_by_variable(
    line: list[str], environ: dict[str, str], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with launch.make_context("launch", [*line, "t.py"], auto_envvar_prefix="RELKIT_LAUNCH") as ctx:
        assert ctx.params["straggler_min_slowdown"] == share


def test_the_original_tools_variables_serve_run_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XPU_TIMER_HANG_TIMEOUT", "40")
    monkeypatch.setenv("XPU_TIMER_TIMELINE_PATH", "/there")
    found = params(run, ["--", "true"])
    assert (found["hang_timeout"], found["timeline_path"]) == (40.0, Path("/there"))


@pytest.mark.parametrize("line", [["--", "a", "--b", "-c"], ["a", "--b", "-c"]])
def test_the_command_of_run_keeps_its_options(line: list[str]) -> None:
    assert params(run, ["--hang-timeout", "9", *line])["command"] == ("a", "--b", "-c")


@pytest.mark.parametrize(
    "line",
    [
        ["--hang-timeout", "soon", "t.py"],
        ["--hang-timeout", "0", "t.py"],
        ["--hang-timeout=-3", "t.py"],
        ["--on-hang", "panic", "t.py"],
        ["--straggler", "shout", "t.py"],
        ["--straggler-min-slowdown", "0", "t.py"],
    ],
)
def test_bad_values(line: list[str]) -> None:
    with pytest.raises(click.UsageError):
        params(launch, line)


EXAMPLE = str(demonstration.example())


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["launch", "--inject", "explode:rank=1:step=1", "t.py"], "explode"),
        (["launch", "--on-hang", "restart", "t.py"], "--max-restarts is 0"),
        (["launch"], "script"),
        (["launch", "--nnodes", "2", EXAMPLE], "2 nodes need a host where they meet"),
        (["launch", "--nodes", "n[1-2]", "--master-addr", "n1", EXAMPLE], "--nodes says where"),
        (["launch", "--nodes", "n[1-2]", "--standalone", EXAMPLE], "--nodes says where"),
        (["launch", "--nodes", "n[1-2]", "--node-rank", "1", EXAMPLE], "--nodes says where"),
        (["launch", "--nodes", "n[1-2]", "--rdzv-backend=etcd", EXAMPLE], "--nodes says where"),
        (["launch", "--nodes", "n[1-2]", "--rdzv-endpoint=:1", EXAMPLE], "--nodes says where"),
        (["launch", "nosuch.py"], "no training script"),
    ],
)
def test_refused_with_a_reason(
    line: list[str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MASTER_ADDR", "PET_MASTER_ADDR", "SLURM_JOB_ID", "JOB_COMPLETION_INDEX"):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(cli, line)
    assert isinstance(result.exception, UsageProblem)
    assert words in str(result.exception)


def restarting(*options: str) -> str:
    line = ["launch", "--on-hang", "restart", "--max-restarts=1", *options, "nosuch.py"]
    result = CliRunner().invoke(cli, line)
    assert isinstance(result.exception, UsageProblem)
    return str(result.exception)


def test_a_restart_after_a_hang_needs_one_way_to_see_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(WANTED, raising=False)
    assert "no training script" in restarting("--no-hook")
    monkeypatch.setenv(WANTED, "0")
    assert "no training script" in restarting()
    assert f"--no-hook and {WANTED}=0 turn that off" in restarting("--no-hook")


def test_help_shows_both_sets_of_options() -> None:
    result = CliRunner().invoke(cli, ["launch", "--help"])
    assert result.exit_code == 0
    assert result.output.index("--hang-timeout SECONDS") < result.output.index(
        "--rdzv-backend RDZV"
    )
    assert "--inject" in result.output
    # One --help is enough: torchrun's own is left out.
    assert "show this help message" not in result.output


def test_the_example_is_found() -> None:
    assert demonstration.example().parts[-2:] == ("examples", "train.py")


@pytest.mark.parametrize(
    ("fault", "processes", "rank", "words"),
    [
        ("explode", 4, -1, "explode"),
        ("hang", 1, -1, "--nproc 2 or more"),
        ("hang", 4, 4, "no rank 4"),
    ],
)
def test_demos_that_cannot_be(
    fault: str, processes: int, rank: int, words: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageProblem, match=words):
        demonstration.check(demonstration.Demo(fault, processes, 10.0, tmp_path, rank))


@pytest.mark.parametrize(
    ("guilty", "culprits", "code", "right"),
    [
        (2, (2,), 1, True),
        (2, (2, 0), 1, True),
        (2, (0, 2), 1, False),
        (2, (), 1, False),
        (2, None, 0, False),
        (None, None, 0, True),
        (None, (1,), 0, False),
        (None, None, 1, False),
    ],
)
def test_when_a_demo_is_right(
    guilty: int | None, culprits: tuple[int, ...] | None, code: int, right: bool
) -> None:
    assert demonstration.DemoResult(guilty, culprits, code, 1.0).right is right


def test_a_demos_command_line_can_be_typed(tmp_path: Path) -> None:
    line = demonstration.command_line(demonstration.Demo("crash", 4, 10.0, tmp_path, kind="abort"))
    assert line[1:4] == ["-m", "relkit", "launch"]
    assert "crash:rank=2:step=5:kind=abort" in line
    assert params(launch, line[4:])["on_hang"] == "abort"


def test_an_earlier_report_is_not_this_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = tmp_path / "report.json"
    report.write_text('{"culprits": [2]}')
    monkeypatch.setattr(demonstration, "_run", lambda *_: 0)
    healthy = demonstration.Demo("none", 2, 10.0, tmp_path)
    assert demonstration.run(healthy, environ={}).right

    def job(*_: object) -> int:
        report.unlink()
        report.write_text('{"culprits": [1]}')
        return 1

    monkeypatch.setattr(demonstration, "_run", job)
    assert demonstration.run(demonstration.Demo("hang", 2, 10.0, tmp_path), environ={}).right
