"""relkit ttp: look at a job under try-to-persist, or have it saved and ended."""

from __future__ import annotations

import json
import os
import secrets
import time
from pathlib import Path
from typing import Any

import click

from relkit.command_group import CommandGroup
from relkit.commands.shared.options import FiniteRange
from relkit.errors import EXIT_PROBLEM, EXIT_UNKNOWN, NoSuchProcess, RelkitError
from relkit.output import shown, table

_POLL_S = 0.05


@click.group(cls=CommandGroup)
def ttp() -> None:
    """Look at a job under try-to-persist on this host, or have it saved and ended.

    \b
    Examples:
      relkit ttp status my-run
      relkit ttp save my-run
    """


class NoAnswer(RelkitError):
    """The launcher did not say how the save ended."""

    exit_code = EXIT_UNKNOWN
    next_step = "See the launcher's own output, and latest_checkpointed_iteration.txt."


@ttp.command()
@click.argument("job")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object per line, for each launcher."
)
def status(job: str, as_json: bool) -> int:
    """Say where a job stands: each rank's committed step, and what is being done about a fault.

    JOB is the job's id, as the launcher prints it (torchrun's --rdzv-id).

    \b
    Example:
      relkit ttp status my-run
    """
    for _, state in _launchers(job):
        if as_json:
            click.echo(json.dumps({"schema": "relkit.ttp.status/1", **state}))
            continue
        led = state.get("engaged") or state.get("ranks")
        where = (
            f"job {state['job_id']}, node {state['node']}: {state.get('phase', 'led elsewhere')},"
            f" controller {state['role']}, attempt {state['attempt']},"
            f" {state['world_size']} ranks"
        )
        click.echo(shown(where) + ("" if led else "; no rank is under try-to-persist"))
        ranks = state.get("ranks", [])
        if ranks:
            rows = [[str(r["rank"]), str(r["step"]), r["phase"]] for r in ranks]
            click.echo(table(rows, ["rank", "step", "phase"]))
        if state.get("dead"):
            click.echo("lost: " + shown(", ".join(map(str, state["dead"]))))
    return 0


@ttp.command()
@click.argument("job")
@click.option(
    "--timeout",
    type=FiniteRange(min=1.0),
    default=150.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the end.",
)
def save(job: str, timeout: float) -> int:
    """Have a job saved at the end of a step and ended (or restarted, with --max-restarts).

    JOB is the job's id, as the launcher prints it (torchrun's --rdzv-id). Any node will do.

    \b
    Example:
      relkit ttp save my-run
    """
    from relkit.ttp.save_outcome import EXIT_SAVED

    folder, state = _launchers(job)[0]
    if not state.get("engaged"):
        raise NoSuchProcess(
            f"no rank of job {job} on this host is under try-to-persist",
            next_step="See `relkit ttp status`; a plain script has to be adapted (docs/ttp.md).",
        )
    outcome = _ask(folder, int(state["pid"]), int(state["start_ticks"]), timeout)
    click.echo(shown(outcome["sentence"]))
    if outcome["folder"]:
        click.echo("  " + shown(outcome["folder"]))
    return 0 if outcome["code"] == EXIT_SAVED else EXIT_PROBLEM


def _launchers(job: str) -> list[tuple[Path, dict[str, Any]]]:
    from relkit.launch.recovery.persist_folder import launchers_of

    launchers = list(launchers_of(job))
    if not launchers:
        raise NoSuchProcess(
            f"no launcher of a job {job!r} runs on this host",
            next_step="The id is in the launcher's first lines; run this on a node of the job.",
        )
    # The one with the controller first: it alone knows how a save ends.
    return sorted(launchers, key=lambda pair: pair[1].get("role") != "active")


def _ask(folder: Path, pid: int, ticks: int, timeout_s: float) -> dict[str, Any]:
    """Leave a request, and read the answer out of it."""
    from relkit.launch.recovery.persist_folder import REQUEST
    from relkit.process import procfs

    path = folder / f"{REQUEST}{secrets.token_hex(4)}"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    until_s = time.monotonic() + timeout_s
    try:
        while time.monotonic() < until_s:
            # Looked at before the answer: what a launcher writes before its end is read.
            lives = procfs.is_same_process(pid, ticks)
            text = os.pread(handle, 1 << 20, 0)
            if text:
                outcome = json.loads(text)
                assert isinstance(outcome, dict)
                return outcome
            if not lives:
                raise NoAnswer("the launcher has ended without an answer")
            time.sleep(_POLL_S)
    except ValueError as error:
        raise NoAnswer(f"the launcher's answer cannot be read: {error}") from error
    finally:
        os.close(handle)
        path.unlink(missing_ok=True)
    raise NoAnswer(f"no answer for {timeout_s:g} s")
