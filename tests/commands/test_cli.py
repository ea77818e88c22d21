"""The CLI contract: help everywhere, no torch at start-up, errors as two lines and a code."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from relkit import cli as cli_module
from relkit import errors
from relkit.cli import COMMANDS, HIDDEN, cli, run
from relkit.commands.shared.options import FiniteRange
from relkit.errors import DeadlineExceeded, RelkitError
from tests.unit.layout.test_layout import ROOT


def all_commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []

    def visit(command: click.Command, path: tuple[str, ...]) -> None:
        found.append(path)
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                child = command.get_command(context, name)
                assert child is not None
                visit(child, (*path, name))

    visit(cli, ())
    return found


@pytest.mark.parametrize("path", all_commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"])
    assert result.exit_code == 0, result.output
    assert "Example" in result.output
    assert f"relkit {' '.join(path)}".strip() in result.output


@pytest.mark.parametrize("path", all_commands(), ids=" ".join)
def test_no_help_breaks_the_name_of_an_option(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli, [*path, "--help"], terminal_width=60, max_content_width=60)
    broken = re.compile(r"(?:^|[^\w-])--(?:[a-z][a-z0-9-]*-)?$")
    assert [line for line in result.output.splitlines() if broken.search(line)] == []
    assert "\N{NON-BREAKING HYPHEN}" not in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("why", ""), ("why", "x.log", ""), ("report", "-o", "r", ""), ("page", "-o", "p", ""),
        ("hang", "analyze", ""), ("timeline", "diff", "", "x"),
        ("timeline", "merge", "-o", "t", ""),
        ("stacks", "merge", ""), ("ckpt", "verify", ""), ("history", "--job", ""),
        ("history", "--node", " "),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_variable_that_is_not_set_is_not_the_current_folder(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 2
    assert "it is empty. Was a variable not set?" in result.output


@pytest.mark.parametrize("path", all_commands(), ids=" ".join)
def test_no_number_of_the_command_line_may_be_nan(path: tuple[str, ...]) -> None:
    command: click.Command = cli
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), name)
        assert found is not None
        command = found
    numbers = [p for p in command.params if isinstance(p.type, click.types.FloatParamType)]
    assert [p.name for p in numbers if not isinstance(p.type, FiniteRange)] == []
    for parameter in numbers:
        for text in ("nan", "inf", "-inf"):
            with pytest.raises(click.BadParameter):
                parameter.type.convert(text, parameter, None)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_line_in_the_table_is_the_commands_own(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.help is not None
    assert command.help.strip().splitlines()[0] == COMMANDS[name][1]


def test_the_agent_runs_and_is_not_listed() -> None:
    runner = CliRunner()
    assert "\n  agent " not in runner.invoke(cli, ["--help"]).output
    assert runner.invoke(cli, ["agent", "--help"]).exit_code == 0
    # Nobody is led to it.
    assert "'agent'" not in runner.invoke(cli, ["agnet"]).output


def test_help_imports_no_torch_no_numpy_and_no_command() -> None:
    script = (
        "import sys\nfrom relkit.cli import run\ncode = run(['--help'])\n"
        "heavy = {'torch', 'numpy', 'rich', 'jinja2', 'psutil'} & set(sys.modules)\n"
        "print(code, sorted(heavy), file=sys.stderr)"
    )
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert child.stderr.strip() == "0 []"


def test_no_command_waits_for_torch_before_it_knows_what_to_do() -> None:
    script = (
        "import importlib, sys\nfrom relkit.cli import COMMANDS\n"
        "for where, _ in COMMANDS.values():\n"
        "    importlib.import_module(where.partition(':')[0])\n"
        "print(len(COMMANDS), sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert child.stdout.strip() == f"{len(COMMANDS)} []"


def test_unknown_command_is_usage_and_names_the_fault() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "relkit", "nosuch"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert child.returncode == 2
    assert "nosuch" in child.stderr
    assert child.stdout == ""


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("lanch", "No such command 'lanch'. Did you mean 'launch'?"),
        ("stacks merg", "No such command 'merg'. Did you mean 'merge'?"),
        ("straggler prefligt", "No such command 'prefligt'. Did you mean 'preflight'?"),
        ("data verfy", "No such command 'verfy'. Did you mean 'verify'?"),
        ("ttp statsu", "No such command 'statsu'. Did you mean 'status'?"),
        ("ckpt inspct", "No such command 'inspct'. Did you mean 'inspect'?"),
        ("topology srot", "No such command 'srot'. Did you mean 'sort'?"),
        ("xyzzy", "No such command 'xyzzy'."),
        ("--versoin", "No such option '--versoin'. Did you mean '--version'?"),
        ("netcheck --slwo 3", "No such option '--slwo'. Did you mean '--slow'?"),
        ("stacks merge --jobid=x", "No such option '--jobid'. Did you mean '--job-id'?"),
        ("straggler watch --xyzzy", "No such option '--xyzzy'."),
        (
            "run --hang-timout 5 -- true",
            "No such option '--hang-timout'. Did you mean '--hang-timeout'?",
        ),
    ],
)
def test_an_unknown_name_is_usage_and_names_the_nearest(
    typed: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(typed.split()) == 2
    said = capsys.readouterr()
    assert said.err.splitlines()[-1] == f"Error: {sentence}"
    assert said.out == ""


def test_a_typing_error_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom relkit.cli import run\ncode = run(['lanch'])\n"
        "heavy = {'torch', 'numpy', 'rich', 'jinja2', 'psutil'} & set(sys.modules)\n"
        "print(code, sorted(heavy))"
    )
    child = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert child.stdout.strip() == "2 []"


def test_version_names_the_hook_layout() -> None:
    result = CliRunner().invoke(cli, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("relkit 0.")
    assert "hook ABI" in result.output


def test_expected_errors_are_two_lines_and_a_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise DeadlineExceeded("the capture took longer than 5 s")

    monkeypatch.setattr(cli_module.cli, "main", fail)
    assert run(["stacks"]) == 124
    assert capsys.readouterr().err == (
        "relkit: the capture took longer than 5 s\n  next: Give it longer with --timeout.\n"
    )
    monkeypatch.setenv("RELKIT_DEBUG", "1")
    with pytest.raises(RelkitError):
        run(["stacks"])


def test_every_error_class_says_what_to_do_next() -> None:
    for path in (ROOT / "relkit").rglob("*.py"):
        if "(RelkitError)" in path.read_text():
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    documented = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    for error in RelkitError.__subclasses__():
        assert error.next_step, error
        assert error.exit_code in documented - {errors.EXIT_OK}, error


def test_completion_lists_the_commands() -> None:
    child = subprocess.run(
        [sys.executable, "-m", "relkit"],
        env={
            "PATH": "/usr/bin:/bin",
            "_RELKIT_COMPLETE": "bash_complete",
            "COMP_WORDS": "relkit ",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert {line.split(",")[1] for line in child.stdout.splitlines()} == set(COMMANDS) - HIDDEN


def test_doctor_reports_on_this_host_as_one_json_document(tmp_path: Path) -> None:
    child = subprocess.run(
        [sys.executable, "-m", "relkit", "doctor", "--json", "--timeline-path", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    document = json.loads(child.stdout)
    assert document["schema"] == "relkit.doctor/1"
    found = {finding["id"]: finding["status"] for finding in document["findings"]}
    assert found["RK-DOC-001"] == found["RK-DOC-002"] == found["RK-DOC-004"] == "ok"
    assert child.returncode in (0, 1, 3)


@pytest.mark.parametrize(
    ("error", "said", "step"),
    [
        (
            PermissionError(13, "Permission denied", "/root/x\n"),
            "/root/x\n: Permission denied",
            "Run it as the user",
        ),
        (OSError(28, "No space left on device", "a", None, "b"), "a -> b: No space", "Free space"),
        (OSError(24, "Too many open files"), "Too many open files", "ulimit -n"),
        (TimeoutError("timed out"), "timed out", "RELKIT_DEBUG=1"),
        (ConnectionRefusedError(), "ConnectionRefusedError", "RELKIT_DEBUG=1"),
        (OSError(9, "Bad file descriptor", 7), "Bad file descriptor", "RELKIT_DEBUG=1"),
        (
            OSError(2, "No such file or directory", b"/\xff"),
            "/\ufffd: No such file",
            "RELKIT_DEBUG=1",
        ),
    ],
)
def test_whatever_the_operating_system_refuses_is_two_lines_and_exit_code_3(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: OSError,
    said: str,
    step: str,
) -> None:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    monkeypatch.setattr(cli_module.cli, "main", fail)
    assert run(["stacks"]) == 3
    err = capsys.readouterr().err
    # A further line of it cannot pass for a line of ours.
    further = said.replace("\n", "\n      ")
    assert f"relkit: {further}" in err
    assert "\n  next: " in err
    assert step in err
    assert "Traceback" not in err
    monkeypatch.setenv("RELKIT_DEBUG", "1")
    with pytest.raises(type(error)):
        run(["stacks"])
