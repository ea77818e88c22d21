"""The options that `launch` and `run` share: their names, defaults, environment and help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from relkit.commands.shared.options import Decorated, seconds_option
from relkit.launch.job.on_hang import OnHang

# Anything shorter is certainly a typing error.
MIN_TIMEOUT_S = 0.5


def hang_timeout(command: str) -> Callable[[Decorated], Decorated]:
    """--hang-timeout; the original tool's variable comes just before the default."""
    return seconds_option(
        "--hang-timeout",
        MIN_TIMEOUT_S,
        300.0,
        "How long without progress counts as a hang. Choose it longer than the "
        "longest compile, evaluation or checkpoint phase.",
        # Named here, not left to the automatic prefix, so that they go before XPU_TIMER_*.
        envvar=[f"RELKIT_{command}_HANG_TIMEOUT", "XPU_TIMER_HANG_TIMEOUT"],
    )


def timeline_path(command: str) -> Callable[[Decorated], Decorated]:
    """--timeline-path."""
    return click.option(
        "--timeline-path",
        type=click.Path(path_type=Path, file_okay=False),
        metavar="DIR",
        envvar=[f"RELKIT_{command}_TIMELINE_PATH", "XPU_TIMER_TIMELINE_PATH"],
        help="Where stacks, SVGs and reports of a hang go. "
        "[default: /root/timeline, or ~/timeline where that is not writable]",
    )


def on_hang(choices: tuple[OnHang, ...], default: OnHang) -> Callable[[Decorated], Decorated]:
    """--on-hang; with `save` where the job may run under try-to-persist."""
    about_save = ""
    if OnHang.SAVE in choices:
        about_save = (
            " save: a job under try-to-persist saves its last committed step and ends, or restarts"
            " where --max-restarts allows; any other job is only reported."
        )
    return click.option(
        "--on-hang",
        type=click.Choice([choice.value for choice in choices]),
        default=default.value,
        show_default=True,
        help="What to do with a hung job, once all ranks are captured and the verdict is shown."
        + about_save,
    )
