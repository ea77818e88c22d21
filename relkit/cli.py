"""The command line: the table of commands, and the exit code of whatever goes wrong in one."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from relkit import __version__
from relkit.command_group import SETTINGS, HelpFormatter, LazyGroup
from relkit.errors import EXIT_INTERRUPTED, EXIT_UNKNOWN, RelkitError, SystemProblem
from relkit.log_lines import JSON, TEXT, Level, say, say_error, set_up, warning, writes_json
from relkit.process.process_exit import leave
from relkit.process.standard_streams import hold_standard_descriptors
from relkit.text.nearest import no_such

if TYPE_CHECKING:
    from relkit.config.document import Table

# Of every command: each makes its context itself.
click.Context.formatter_class = HelpFormatter

# name -> (module:attribute, help line). The help lines live here so that `relkit --help`
# imports no command at all; a test holds them against each command's own first line.
COMMANDS: dict[str, tuple[str, str]] = {
    "agent": (
        "relkit.commands.agent:agent",
        "Serve one node of a fleet over stdin and stdout (started by other commands).",
    ),
    "ckpt": (
        "relkit.commands.ckpt:ckpt",
        "Look into the trainer's checkpoints, and compare them with their checksums.",
    ),
    "data": (
        "relkit.commands.data:data",
        "Make token data sets from text; inspect, merge and verify them.",
    ),
    "demo": (
        "relkit.commands.demo:demo",
        "Watch a real job hang, and see relkit name the rank at fault.",
    ),
    "doctor": (
        "relkit.commands.doctor:doctor",
        "Check what works on this host, and how to fix what does not.",
    ),
    "hang": (
        "relkit.commands.hang:hang",
        "Name the rank that made a job hang, from files that the job left.",
    ),
    "history": (
        "relkit.commands.history:history",
        "Say which nodes were named how often, and what happened to the jobs of this host.",
    ),
    "k8s": (
        "relkit.commands.k8s:k8s",
        "Render jobs for Kubernetes, check its nodes, and end a pod's launcher in time.",
    ),
    "launch": (
        "relkit.commands.launch:launch",
        "Run a training job like torchrun, with hang detection and a verdict.",
    ),
    "linkcheck": (
        "relkit.commands.linkcheck:linkcheck",
        "Check the links between this host's GPUs and their switch boxes.",
    ),
    "netcheck": (
        "relkit.commands.netcheck:netcheck",
        "Find the nodes, links and uplinks of a fleet that are dead or slow.",
    ),
    "nodes": (
        "relkit.commands.nodes:nodes",
        "Drain nodes with a finding as the reason, and put them back once they pass its test.",
    ),
    "page": (
        "relkit.commands.page:page",
        "Make one page of a job: what happened, hang, stragglers, network, checkpoints, restarts.",
    ),
    "report": (
        "relkit.commands.report:report",
        "Make the page of a hang: who is at fault, what relkit did, what to do, and the proof.",
    ),
    "run": (
        "relkit.commands.run:run",
        "Put any other launcher's command under the same hook and monitor.",
    ),
    "slurm": (
        "relkit.commands.slurm:slurm",
        "Make job scripts for Slurm that save before their time is over; check its nodes.",
    ),
    "stacks": (
        "relkit.commands.stacks:stacks",
        "Capture the stacks of all ranks, and merge them into flame SVGs.",
    ),
    "status": (
        "relkit.commands.status:status",
        "Say where a job stands, what each restart took, and how much of the time was productive.",
    ),
    "store": (
        "relkit.commands.store:store",
        "Serve a rendezvous store that no node of a job can take with it.",
    ),
    "straggler": (
        "relkit.commands.straggler:straggler",
        "Find the slow rank, device, host or link, before a job and while it runs.",
    ),
    "timeline": (
        "relkit.commands.timeline:timeline",
        "Show what all ranks of a job did, side by side on one clock.",
    ),
    "top": (
        "relkit.commands.top:top",
        "Watch the jobs of this host on one live screen: health, step, rate, who is slow, saves.",
    ),
    "topology": (
        "relkit.commands.topology:topology",
        "Order nodes so that neighbours in the network are neighbours in rank.",
    ),
    "ttp": (
        "relkit.commands.ttp:ttp",
        "Look at a job under try-to-persist on this host, or have it saved and ended.",
    ),
    "why": (
        "relkit.commands.why:why",
        "Say why a job failed or hung, from whatever it left behind.",
    ),
}

# Started by other commands, and by nobody who would look for it in `relkit --help`.
HIDDEN = frozenset({"agent"})


def _version(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from relkit.hook.layout import VERSION

    click.echo(f"relkit {__version__} (hook ABI {VERSION})")
    ctx.exit()


def _name_settings(ctx: click.Context, _param: click.Parameter, named: Path | None) -> None:
    if not ctx.resilient_parsing:
        ctx.meta[SETTINGS] = lambda: _read_settings(ctx, named)


def _read_settings(ctx: click.Context, named: Path | None) -> Table:
    from relkit.config.files import read_settings

    # Once more below: what the files say of lines holds for the lines about the files.
    _set_up_lines(ctx)
    settings = read_settings(named, os.environ, lambda line: say(warning(line)))
    if settings:
        from relkit.config.apply import check_commands, take_own

        settings = take_own(ctx, settings)
        check_commands(settings, COMMANDS)
        _set_up_lines(ctx)
    return settings


def _set_up_lines(ctx: click.Context) -> None:
    asked = ctx.params
    level = Level.ERROR if asked["quiet"] else Level[asked["log_level"].upper()]
    set_up(level, is_json=asked["log_format"] == JSON)


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    hidden=HIDDEN,
    context_settings={
        "auto_envvar_prefix": "RELKIT",
        "help_option_names": ["-h", "--help"],
        # As wide as the terminal; longer lines are hard to read.
        "max_content_width": 120,
    },
    epilog="Exit codes: 0 nothing wrong, 1 problem found, 2 usage, 3 could not tell, "
    "124 own timeout, 130 interrupted.  Shell completion: "
    'eval "$(_RELKIT_COMPLETE=bash_source relkit)" (or zsh_source, fish_source).',
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    # A variable of that name is a site's own.
    allow_from_autoenv=False,
    callback=_version,
    help="Show the version of relkit and of the hook's layout.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    expose_value=False,
    callback=_name_settings,
    help="A file of options, with a table for each command: [launch], and below it "
    "hang-timeout = 120.  [default: relkit.toml here; ~/.config/relkit/relkit.toml and "
    "/etc/relkit/relkit.toml are read too]",
)
@click.option(
    "--log-level",
    type=click.Choice([str(level) for level in Level]),
    default=str(Level.INFO),
    show_default=True,
    help="Leave out relkit's own lines on stderr below this level. Verdicts and errors are always "
    "shown, and the job's own output is never touched.",
)
@click.option(
    "--log-format",
    type=click.Choice([TEXT, JSON]),
    default=TEXT,
    show_default=True,
    help="json: each line, and each finding of a verdict, is one JSON object.",
)
@click.option("--quiet", "-q", is_flag=True, help="Only verdicts and errors: --log-level error.")
def cli(**_of_lines: object) -> None:
    """Which node, link or rank of a distributed training job is broken, and how we know.

    \b
    Examples:
      relkit demo --fault hang
      relkit launch --nproc-per-node 8 --hang-timeout 300 train.py
      relkit stacks merge /root/timeline
      relkit --log-format json launch --nproc-per-node 8 train.py
    """


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point: run the command, turn expected errors into two lines and an exit code."""
    hold_standard_descriptors()
    leave(run(list(sys.argv[1:] if argv is None else argv)))


def run(argv: list[str]) -> int:
    """Run one command line and return its exit code. Tracebacks only with RELKIT_DEBUG=1."""
    try:
        result: Any = cli.main(args=argv, prog_name="relkit", standalone_mode=False)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.Abort:
        return EXIT_INTERRUPTED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except click.UsageError as error:
        return _refused(_with_place(_with_nearest(error)))
    except click.ClickException as error:
        error.show()
        return EXIT_UNKNOWN
    except BrokenPipeError:
        # The reader of our stdout has gone (`| head`): say nothing, and let nothing flush later.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (RelkitError, OSError) as error:
        if os.environ.get("RELKIT_DEBUG") == "1":
            raise
        return _said(SystemProblem.of(error) if isinstance(error, OSError) else error)
    return result if isinstance(result, int) else 0


def _with_place(error: click.UsageError) -> click.UsageError:
    """Name the line of a file or the variable that a refused value comes from."""
    if isinstance(error, click.BadParameter) and error.ctx is not None:
        from relkit.config.apply import place_of

        if place := place_of(error):
            return click.BadParameter(f"{error.message} (from {place})", error.ctx, error.param)
    return error


def _said(error: RelkitError) -> int:
    """Two lines on stderr; the error's exit code."""
    say_error(str(error), error.next_step)
    return error.exit_code


def _refused(error: click.UsageError) -> int:
    """Click's own lines, or the same for machines; the error's exit code."""
    if writes_json():
        say_error(error.format_message())
    else:
        error.show()
    return error.exit_code


def _with_nearest(error: click.UsageError) -> click.UsageError:
    """An unknown option in the same words as an unknown command, whatever Click's version says."""
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    listed = [
        flag
        for param in error.ctx.command.get_params(error.ctx)
        if isinstance(param, click.Option) and not param.hidden
        for flag in (*param.opts, *param.secondary_opts)
    ]
    return click.UsageError(no_such("option", error.option_name, listed), ctx=error.ctx)
