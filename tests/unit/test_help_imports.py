"""A page of help needs none of the libraries that take long to import."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import json, sys
import click
from relkit.cli import cli

slow, seen = {"torch", "numpy", "zmq", "asyncio", "jinja2"}, {}

def visit(command, context):
    before = set(sys.modules)
    command.get_help(context)
    seen[context.command_path] = sorted(slow & (set(sys.modules) - before))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            visit(below, click.Context(below, info_name=name, parent=context))

visit(cli, click.Context(cli, info_name="relkit"))
print(json.dumps(seen))
"""


def test_no_help_imports_a_slow_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, timeout=60, check=True
    )
    seen = json.loads(done.stdout)
    assert {"relkit", "relkit launch", "relkit ttp save", "relkit straggler tune"} <= set(seen)
    assert {command: found for command, found in seen.items() if found} == {}
