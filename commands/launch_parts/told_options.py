"""The options of `relkit launch` by which others see its job, or are told of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from relkit.commands.shared.options import FiniteRange, KeptOptions, seconds_option
from relkit.hook.traced_calls import take_functions
from relkit.process.command_words import command_words

if TYPE_CHECKING:
    from collections.abc import Callable

    from relkit.launch.incidents.service import IncidentService
    from relkit.launch.metrics.service import MetricsService
    from relkit.launch.metrics.settings import MetricsSettings
    from relkit.launch.metrics.sources import Sources, ToldIncidents
    from relkit.launch.traced_calls.service import TracedCallsService

_KEPT = KeptOptions("told")
# The most: relkit.launch.metrics.settings.MOST_EVERY_S, which is not loaded here.
_EVERY_S = FiniteRange(1.0, 300.0)
_MIN_TIMEOUT_S = 1.0

TOLD = (
    click.option(
        "--on-incident",
        metavar="COMMAND",
        help="Run this when a hang, a failure or a network check that finds something was judged: "
        "it gets the report as JSON on stdin, and its path in RELKIT_INCIDENT_REPORT. No shell "
        "sees it, and the job does not wait for it.",
    ),
    seconds_option(
        "--on-incident-timeout",
        _MIN_TIMEOUT_S,
        30.0,
        "The command of --on-incident is killed after that.",
    ),
    _KEPT.option("--metrics-textfile", type=click.Path(path_type=Path, file_okay=False),
                 metavar="DIR",
                 help="Keep the job's metrics in a file there that others can read, for "
                 "node_exporter's --collector.textfile.directory. [default: a private file in the "
                 "timeline folder]"),
    _KEPT.option("--metrics-port", metavar="[ADDRESS:]PORT",
                 help="Serve them to Prometheus as well: on this host alone, or at ADDRESS to who "
                 "has the token."),
    _KEPT.option("--metrics-token-file", type=click.Path(path_type=Path, dir_okay=False),
                 metavar="PATH",
                 help="The token of --metrics-port, in a file of mode 0600. RELKIT_METRICS_TOKEN "
                 "in the environment does as well."),
    _KEPT.option("--metrics-every", type=_EVERY_S, metavar="SECONDS",
                 default=10.0, show_default=True, help="How often metrics are made."),
    _KEPT.option("--otlp-endpoint", metavar="URL",
                 help="Push them to a collector of OpenTelemetry as well, by OTLP over HTTP, as "
                 "http://127.0.0.1:4318. Needs: pip install 'relkit-cluster[otlp]'"),
    _KEPT.option("--no-metrics", is_flag=True, help="Make no metrics."),
    click.option("--trace-python", metavar="MODULE:FUNCTION,...",
                 help="Show calls of these functions in `relkit timeline` too; of a method, "
                 "MODULE:CLASS.FUNCTION. Input waits, collections, steps of optimizers and "
                 "checkpoints are shown anyway."),
)  # fmt: skip


def check_told(ctx: click.Context) -> None:
    """Refuse what could not work, before anything starts.

    Raises:
        UsageProblem: says what.
    """
    if ctx.params["on_incident"] is not None:
        command_words("--on-incident", ctx.params["on_incident"])
    if ctx.params["trace_python"] is not None:
        take_functions(ctx.params["trace_python"])
    ctx.meta[_SETTINGS] = _settings(ctx)


_SETTINGS = "relkit.launch.metrics_settings"


def _settings(ctx: click.Context) -> Callable[[Path], MetricsSettings] | None:
    from relkit.launch.metrics.settings import TOKEN, take_settings

    asked = _KEPT.of(ctx)
    settings = None
    if not asked["no_metrics"]:
        settings = take_settings(
            asked["metrics_textfile"],
            asked["metrics_port"],
            asked["metrics_token_file"],
            asked["metrics_every"],
            asked["otlp_endpoint"],
        )
    # Also where nothing is served: neither workers nor the site's command are to have it.
    os.environ.pop(TOKEN, None)
    return settings


def incident_service(
    ctx: click.Context, log: Callable[[str], None], told: ToldIncidents
) -> IncidentService:
    """Has the site's command run, where there is one, and metrics note what was told.

    Args:
        log: writes one line to the terminal.
        told: what metrics know of incidents.
    """
    from relkit.launch.incidents.command import IncidentCommand
    from relkit.launch.incidents.service import IncidentService

    asked, command = ctx.params, None
    if asked["on_incident"] is not None:
        words = command_words("--on-incident", asked["on_incident"])
        command = IncidentCommand(words, log, asked["on_incident_timeout"])
    return IncidentService(command, told)


def metrics_service(
    ctx: click.Context, folder: Path, log: Callable[[str], None], sources: Sources
) -> MetricsService | None:
    """Makes the metrics; None where they are not wanted.

    Args:
        folder: the timeline folder.
        log: writes one line to the terminal.
        sources: what they are made of.
    """
    settings: Callable[[Path], MetricsSettings] | None = ctx.meta[_SETTINGS]
    if settings is None:
        return None
    from relkit.launch.metrics.service import MetricsService

    return MetricsService(settings(folder), sources, log)


def traced_calls_service(
    ctx: click.Context, log: Callable[[str], None]
) -> TracedCallsService | None:
    """Has workers mark calls of the functions of --trace-python; None where none is named.

    Args:
        log: writes one line to the terminal.
    """
    if ctx.params["trace_python"] is None:
        return None
    from relkit.launch.traced_calls.service import TracedCallsService

    return TracedCallsService(take_functions(ctx.params["trace_python"]), log)
