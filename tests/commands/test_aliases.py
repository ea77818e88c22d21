"""Old spellings: they work in their old unit, warn once on stderr, and are shown nowhere."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner, Result

from relkit.cli import cli
from relkit.command_group import CommandGroup
from relkit.commands._aliases import (
    OldSpelling,
    RenamedChoice,
    RenamedOption,
    gbps_of_mb_s,
    renamed_option,
)


@click.group(
    cls=CommandGroup, renamed={"dump": "save"}, context_settings={"auto_envvar_prefix": "TOOL"}
)
def tool() -> None:
    """A tool with a past."""


@tool.command()
@renamed_option(
    "--min-bandwidth-gbps",
    old=OldSpelling("--min-bandwidth", "--min_bandwidth", unit="MB/s", convert=gbps_of_mb_s),
    type=click.FloatRange(min=0),
    default=80.0,
    show_default=True,
)
@renamed_option("--min-slowdown", old=OldSpelling("--slowdown"), type=click.FloatRange(0.01))
@click.option("--on-hang", type=RenamedChoice(["report", "save"], {"dump": "save"}))
def save(min_bandwidth_gbps: float, min_slowdown: float | None, on_hang: str | None) -> None:
    """Say what was read."""
    click.echo(f"{min_bandwidth_gbps:g} {min_slowdown} {on_hang}")


@tool.command()
@renamed_option("--timeout", old=OldSpelling(variable="TOOL_DUMP_TIMEOUT"), type=float, default=9.0)
def wait(timeout: float) -> None:
    """Say how long."""
    click.echo(f"{timeout:g}")


def run(*args: str, **env: str) -> Result:
    return CliRunner().invoke(tool, args, env=env, prog_name="tool")


def test_new_spellings_are_taken_without_a_word() -> None:
    result = run("save", "--min-bandwidth-gbps", "40", "--min-slowdown", "0.1", "--on-hang", "save")
    assert (result.stdout, result.stderr) == ("40 0.1 save\n", "")


def test_defaults_are_the_new_options() -> None:
    result = run("save")
    assert (result.stdout, result.stderr) == ("80 None None\n", "")


@pytest.mark.parametrize("flag", ["--min-bandwidth", "--min_bandwidth"])
def test_an_old_flag_keeps_its_unit_and_says_the_value_in_the_new_one(flag: str) -> None:
    result = run("save", flag, "10000")
    assert result.stdout == "80 None None\n"
    assert result.stderr == (
        "relkit: --min-bandwidth (MB/s) is now --min-bandwidth-gbps; 10000 MB/s is 80\n"
    )


def test_an_old_flag_of_the_same_unit_only_says_its_new_name() -> None:
    result = run("save", "--slowdown=0.2")
    assert result.stdout == "80 0.2 None\n"
    assert result.stderr == "relkit: --slowdown is now --min-slowdown\n"


def test_an_old_flag_given_twice_warns_once_and_the_last_one_counts() -> None:
    result = run("save", "--slowdown", "0.2", "--slowdown", "0.3")
    assert result.stdout == "80 0.3 None\n"
    assert result.stderr.count("is now") == 1


def test_an_old_value_is_judged_like_a_new_one() -> None:
    result = run("save", "--slowdown", "0")
    assert result.exit_code == 2
    assert "Invalid value for '--min-slowdown'" in result.stderr
    assert run("save", "--min-bandwidth", "much").exit_code == 2
    assert run("save", "--min-bandwidth", "-8").exit_code == 2


def test_both_spellings_at_once_are_a_usage_error() -> None:
    result = run("save", "--slowdown", "0.2", "--min-slowdown", "0.3")
    assert result.exit_code == 2
    assert "--slowdown is the old name of --min-slowdown: give only one" in result.stderr


def test_the_old_variable_keeps_its_unit_and_any_flag_goes_before_it() -> None:
    old = {"TOOL_SAVE_MIN_BANDWIDTH": "5000"}
    assert run("save", **old).stdout == "40 None None\n"
    for result in (
        run("save", "--min-bandwidth-gbps", "1", **old),
        run("save", TOOL_SAVE_MIN_BANDWIDTH_GBPS="1", **old),
    ):
        assert (result.stdout, result.stderr) == ("1 None None\n", "")


def test_an_old_variable_says_the_new_ones_name_once() -> None:
    assert run("save", TOOL_SAVE_MIN_BANDWIDTH="5000").stderr == (
        "relkit: TOOL_SAVE_MIN_BANDWIDTH (MB/s) is now TOOL_SAVE_MIN_BANDWIDTH_GBPS;"
        " 5000 MB/s is 40\n"
    )
    result = run("save", TOOL_SAVE_SLOWDOWN="0.2")
    assert result.stdout == "80 0.2 None\n"
    assert result.stderr == "relkit: TOOL_SAVE_SLOWDOWN is now TOOL_SAVE_MIN_SLOWDOWN\n"


def test_an_old_variable_that_is_no_number_is_named() -> None:
    result = run("save", TOOL_SAVE_MIN_BANDWIDTH="much")
    assert result.exit_code == 2
    assert "Invalid value for TOOL_SAVE_MIN_BANDWIDTH: 'much' is not a number." in result.stderr


def test_an_option_may_have_changed_its_variable_alone() -> None:
    old = {"TOOL_DUMP_TIMEOUT": "3"}
    assert run("wait").stdout == "9\n"
    result = run("wait", **old)
    assert result.stdout == "3\n"
    assert result.stderr == "relkit: TOOL_DUMP_TIMEOUT is now TOOL_WAIT_TIMEOUT\n"
    for result in (run("wait", "--timeout=4", **old), run("wait", TOOL_WAIT_TIMEOUT="4", **old)):
        assert (result.stdout, result.stderr) == ("4\n", "")


@pytest.mark.parametrize(
    ("line", "variable", "value", "said"),
    [
        (
            "linkcheck", "RELKIT_LINKCHECK_MIN_BANDWIDTH", "5000",
            "RELKIT_LINKCHECK_MIN_BANDWIDTH (MB/s) is now RELKIT_LINKCHECK_MIN_BANDWIDTH_GBPS;"
            " 5000 MB/s is 40",
        ),
        (
            "launch", "RELKIT_LAUNCH_MIN_BANDWIDTH", "5000",
            "RELKIT_LAUNCH_MIN_BANDWIDTH (MB/s) is now RELKIT_LAUNCH_MIN_BANDWIDTH_GBPS;"
            " 5000 MB/s is 40",
        ),
        (
            "launch", "RELKIT_LAUNCH_STRAGGLER_SLOWDOWN", "0.1",
            "RELKIT_LAUNCH_STRAGGLER_SLOWDOWN is now RELKIT_LAUNCH_STRAGGLER_MIN_SLOWDOWN",
        ),
        (
            "netcheck", "RELKIT_NETCHECK_MIN_BANDWIDTH", "40",
            "RELKIT_NETCHECK_MIN_BANDWIDTH is now RELKIT_NETCHECK_MIN_BANDWIDTH_GBPS",
        ),
        (
            "straggler tune", "RELKIT_STRAGGLER_TUNE_SLOWDOWN", "0.1",
            "RELKIT_STRAGGLER_TUNE_SLOWDOWN is now RELKIT_STRAGGLER_TUNE_MIN_SLOWDOWN",
        ),
        (
            "ttp save", "RELKIT_TTP_DUMP_TIMEOUT", "3",
            "RELKIT_TTP_DUMP_TIMEOUT is now RELKIT_TTP_SAVE_TIMEOUT",
        ),
    ],
)  # fmt: skip
def test_every_old_variable_of_relkit_says_its_new_name(
    line: str, variable: str, value: str, said: str
) -> None:
    command: click.Command = cli
    ctx = click.Context(cli, info_name="relkit", auto_envvar_prefix="RELKIT")
    for word in line.split():
        assert isinstance(command, click.Group)
        inner = command.get_command(ctx, word)
        assert inner is not None
        command, ctx = inner, click.Context(inner, info_name=word, parent=ctx)
    options = [param for param in command.params if isinstance(param, RenamedOption)]
    with CliRunner().isolation(env={variable: value}) as (_, stderr, _):
        for option in options:
            option.consume_value(ctx, {})
        assert stderr.getvalue().decode() == f"relkit: {said}\n"


def test_an_old_value_of_a_choice_is_the_new_one() -> None:
    result = run("save", "--on-hang", "dump")
    assert result.stdout == "80 None save\n"
    assert result.stderr == "relkit: --on-hang dump is now --on-hang save\n"


def test_an_old_command_runs_the_new_one() -> None:
    result = run("dump", "--min-slowdown", "0.5")
    assert result.stdout == "80 0.5 None\n"
    assert result.stderr == "relkit: `tool dump` is now `tool save`\n"


def test_help_and_suggestions_know_only_new_names() -> None:
    assert "dump" not in run("--help").output
    shown = run("save", "--help").output
    assert "--min-bandwidth-gbps" in shown
    assert "--min-slowdown" in shown
    assert "--slowdown" not in shown
    assert "dump" not in shown
    assert "--min-bandwidth " not in shown
    result = run("dumb")
    assert result.exit_code == 2
    assert "Did you mean" not in result.stderr
