"""What takes long to import is not waited for: by a page of help, or by a job's first workers."""

from __future__ import annotations

import json
import subprocess
import sys

HELP = """
import json, sys
import click
from relkit.cli import cli

slow, seen = {"torch", "numpy", "zmq", "asyncio", "jinja2"}, {}

def visit(command, context):
    command.get_help(context)
    seen[context.command_path] = sorted(slow & set(sys.modules))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            visit(below, click.Context(below, info_name=name, parent=context))

visit(cli, click.Context(cli, info_name="relkit"))
print(json.dumps(seen))
"""


def test_no_help_imports_a_slow_library() -> None:
    done = subprocess.run([sys.executable, "-c", HELP], capture_output=True, timeout=60, check=True)
    seen = json.loads(done.stdout)
    assert {"relkit", "relkit launch", "relkit ttp save", "relkit straggler tune"} <= set(seen)
    assert {command: found for command, found in seen.items() if found} == {}


LAUNCHER = """
import json, sys
from relkit.commands import launch
from relkit.commands.launch_parts import services
from relkit.commands.shared import incident
from relkit.launch import job_run
print(json.dumps(sorted(sys.modules)))
"""


def test_workers_start_before_the_diagnosis_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LAUNCHER], capture_output=True, timeout=60, check=True
    )
    imported = json.loads(done.stdout)
    assert "relkit.launch.hang.monitor" in imported
    diagnosis = (
        "relkit.hang.attribute",
        "relkit.hang.suspicion",
        "relkit.launch.hang.watch",
        "relkit.reports",
        "relkit.stacks.merge",
        "relkit.straggler.score",
        "jinja2",
        "graphviz",
        "ClusterShell",
    )
    assert [name for name in imported if name.startswith(diagnosis)] == []
