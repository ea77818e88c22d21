"""Options that several commands share, so that they look and behave the same everywhere."""

from __future__ import annotations

from pathlib import Path

import click

from relkit.commands._decorated import Decorated
from relkit.findings import Report
from relkit.output import emit


def report_options(function: Decorated) -> Decorated:
    """--json, --jsonl, -o and --force: how and where the report goes."""
    for decorate in (
        click.option("--force", "-f", is_flag=True, help="Replace an existing -o file."),
        click.option(
            "--output",
            "-o",
            type=click.Path(path_type=Path, dir_okay=False),
            help="Write the report there instead of to stdout.",
        ),
        click.option("--jsonl", "fmt", flag_value="jsonl", help="One finding a line, as JSON."),
        click.option("--json", "fmt", flag_value="json", default=None, help="One JSON document."),
    ):
        function = decorate(function)
    return function


def finish(report: Report, fmt: str | None, output: Path | None, force: bool) -> int:
    """Emit the report and return its exit code, which the command returns to the CLI."""
    emit(report, fmt or "table", output, force=force)
    return report.exit_code
