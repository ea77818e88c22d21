"""Options in a file: who wins, what a wrong one is told, and whose file is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from relkit.cli import run
from relkit.command_group import SETTINGS, CommandGroup
from relkit.config.document import Setting, read_document
from relkit.config.files import read_settings
from relkit.errors import ConfigProblem

Write = Callable[[str], Path]


@pytest.fixture
def job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write the relkit.toml of the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    path = tmp_path / "relkit.toml"

    def write(text: str) -> Path:
        path.write_text(text)
        path.chmod(0o644)
        return path

    return write


def refused(words: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """Run a command line that is refused, and give back what it says."""
    assert run(words) == 2
    return capfd.readouterr().err


def values(settings: object) -> object:
    """Strip the places from a table."""
    if isinstance(settings, Setting):
        return settings.value
    assert isinstance(settings, dict)
    return {key: values(value) for key, value in settings.items()}


def test_the_job_wins_over_the_user_and_the_user_over_the_site(tmp_path: Path) -> None:
    texts = {"site": "a=1\nb=1\nc=1\n[x]\ny=1", "user/relkit": "b=2\nc=2", "job": "c=3\n[x]\nz=3"}
    paths = {name: tmp_path / name / "relkit.toml" for name in texts}
    for name, text in texts.items():
        paths[name].parent.mkdir(parents=True)
        paths[name].write_text("[launch]\n" + text.replace("[x]", "[launch.x]"))
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "user")}
    found = read_settings(paths["job"], environ, pytest.fail, paths["site"])
    assert values(found) == {"launch": {"a": 1, "b": 2, "c": 3, "x": {"y": 1, "z": 3}}}


def test_each_value_knows_its_line(tmp_path: Path) -> None:
    path = tmp_path / "relkit.toml"
    path.write_text(
        '# hang-timeout = 1\n\n[ launch ]  # the job\n"hang_timeout" = 5\nspares= 1\n\n'
        '[stacks.dump]\ntimeout = 3\n[netcheck]\nnodes = """\nspares = 9\n"""\n'
    )
    table = read_document(path)
    lines = {
        (name, key): setting.line
        for name, below in table.items()
        if not isinstance(below, Setting)
        for key, setting in below.items()
        if isinstance(setting, Setting)
    }
    assert lines == {
        ("launch", "hang-timeout"): 4,
        ("launch", "spares"): 5,
        ("netcheck", "nodes"): 10,
    }


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("[launch]\nhang-timeout = 0.1\n", ["launch", "t.py"], "relkit.toml, line 2"),
        ("[launch]\n\nhang-timeout = true\n", ["launch", "t.py"], "line 3: --hang-timeout takes a"),
        ("[launch]\nhang-timeout = [1]\n", ["launch", "t.py"], "line 2: --hang-timeout takes one"),
        ("[launch]\nno-hook = 'x'\n", ["launch", "t.py"], "line 2: --no-hook is a switch"),
        ("[launch]\nno-hok = true\n", ["launch", "t.py"], "Did you mean '--no-hook'"),
        ("[launch]\nmax-restart = 2\n", ["launch", "t.py"], "Did you mean '--max-restarts'"),
        ("[launch]\nnnodes = [2]\n", ["launch", "t.py"], "line 2: --nnodes takes one value"),
        ("[launch]\nnnodes = 0\n", ["launch", "t.py"], "line 2: --nnodes '0' is neither"),
        (
            "[launch]\nstandalone = true\nmax-restarts = 'x'\n",
            ["launch", "t.py"],
            "line 3: argument --max-restarts",
        ),
        ("[launch]\nstandalone = 'x'\n", ["launch", "t.py"], "line 2: argument --standalone"),
        ("[lanch]\na = 1\n", ["status"], "line 2: No such command 'lanch'"),
        ("hang-timeout = 1\n", ["status"], "line 1: hang-timeout belongs to a command"),
        ("[stacks.dmp]\na = 1\n", ["stacks", "dump"], "line 2: No such command 'dmp'"),
        ("[launch]\nlaunch = [\n", ["status"], "relkit.toml: "),
        ("status = 1\n", ["status"], "line 1: status belongs to a command"),
    ],
)
def test_a_wrong_line_is_named(
    job_file: Write, capfd: pytest.CaptureFixture[str], text: str, words: list[str], said: str
) -> None:
    (job_file(text).parent / "t.py").touch()
    assert said in refused(words, capfd)


@pytest.mark.parametrize("text", ["[launch]\nno-hok = true\n", "[lanch]\na = 1\n", "a = [\n"])
@pytest.mark.parametrize("words", [["launch", "-h"], ["stacks", "dump", "--help"], ["--help"]])
def test_help_is_shown_whatever_a_file_says(
    job_file: Write, capfd: pytest.CaptureFixture[str], text: str, words: list[str]
) -> None:
    """The message on a wrong line sends people there."""
    job_file(text)
    assert run(words) == 0
    assert capfd.readouterr().out.startswith("Usage: relkit ")


def test_the_help_of_a_script_is_not_relkits(
    job_file: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    job_file("[launch]\nno-hok = true\n")
    assert "no-hok" in refused(["launch", "t.py", "--help"], capfd)


def test_a_wrong_variable_is_named(
    job_file: Write, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELKIT_LAUNCH_FLASH_KEEP", "many")
    job_file("[launch]\nflash-keep = 1\n")
    assert "from RELKIT_LAUNCH_FLASH_KEEP" in refused(["launch", "t.py"], capfd)


@click.command()
@click.option("--times", type=int, default=1)
@click.option("--names", multiple=True)
@click.option("--quiet", is_flag=True)
@click.option("--json", "fmt", flag_value="json", default=None)
def show(times: int, names: tuple[str, ...], quiet: bool, fmt: str | None) -> None:
    """Show what has arrived."""
    click.echo(repr((times, names, quiet, fmt)))


@pytest.mark.parametrize(
    ("words", "variable", "shown"),
    [
        ([], None, (2, ("a", "b"), True, "json")),
        ([], "3", (3, ("a", "b"), True, "json")),
        (["--times", "4", "--names", "c"], "3", (4, ("c",), True, "json")),
    ],
)
def test_the_command_line_wins_over_a_variable_and_that_over_the_file(
    job_file: Write, words: list[str], variable: str | None, shown: tuple[object, ...]
) -> None:
    path = job_file('[show]\ntimes = 2\nnames = ["a", "b"]\nquiet = true\njson = true\n')
    group = CommandGroup(commands={"show": show}, context_settings={"auto_envvar_prefix": "TRIED"})
    group.params = [
        click.Option(
            ["--config"],
            expose_value=False,
            callback=lambda ctx, _param, _value: ctx.meta.update(
                {SETTINGS: lambda: read_settings(path, {}, pytest.fail)}
            ),
        )
    ]
    result = CliRunner().invoke(group, ["show", *words], env={"TRIED_SHOW_TIMES": variable})
    assert result.output == f"{shown!r}\n"


def test_a_file_that_others_can_write_is_passed_over_unless_it_is_named(
    job_file: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    path = job_file("[launch]\nno-hok = true\n")
    path.chmod(0o646)
    assert "is not read: it is another user" in refused(["launch", "t.py"], capfd)
    assert "no-hok" in refused(["--config", "relkit.toml", "launch", "t.py"], capfd)


def test_a_file_that_is_not_there_is_no_wrong_line(
    job_file: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    said = refused(["--config", "none.toml", "launch", "t.py"], capfd)
    assert "there is no none.toml" in said
    assert "line" not in said


@pytest.mark.root
def test_a_file_of_another_user_is_passed_over(
    job_file: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    os.chown(job_file("[launch]\nno-hok = true\n"), 65534, 65534)
    assert "is not read" in refused(["launch", "t.py"], capfd)


@pytest.mark.root
def test_a_home_of_somebody_else_has_no_file_for_this_user(tmp_path: Path) -> None:
    home, here = tmp_path / "home", tmp_path / "here"
    (home / ".config" / "relkit").mkdir(parents=True)
    (home / ".config" / "relkit" / "relkit.toml").write_text("[launch]\nspares = 1\n")
    here.mkdir()
    home.chmod(0o700)
    environ = {"HOME": str(home)}
    assert read_settings(None, environ, pytest.fail, here / "none.toml")
    before = Path.cwd()
    os.chdir(here)
    os.seteuid(65534)
    try:
        assert read_settings(None, environ, pytest.fail, here / "none.toml") == {}
    finally:
        os.seteuid(0)
        os.chdir(before)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe", b"a = " + b"[" * 100_000, b"\0", b"a = 1" * 400_000]
)
def test_what_is_no_toml_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "relkit.toml"
    path.write_bytes(content)
    with pytest.raises(ConfigProblem, match=r"relkit\.toml"):
        read_document(path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "relkit.toml")
    with pytest.raises(ConfigProblem):
        read_document(tmp_path / "relkit.toml")


def test_torchruns_options_too_and_its_own_variables_win(
    job_file: Write, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job_file("[launch]\nnnodes = '0'\nstandalone = false\nno_hook = true\n")
    assert "--nnodes '0'" in refused(["launch", "t.py"], capfd)
    # Each gets further: to the script, which does not exist.
    assert "no training script 't.py'" in refused(["launch", "--nnodes", "1", "t.py"], capfd)
    monkeypatch.setenv("PET_NNODES", "1")
    assert "no training script 't.py'" in refused(["launch", "t.py"], capfd)
