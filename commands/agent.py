"""relkit agent: one node's end of a fleet."""

from __future__ import annotations

import os
import sys

import click


@click.command()
@click.option(
    "--name",
    required=True,
    envvar=["RELKIT_AGENT_NAME", "SLURMD_NODENAME"],
    help="This node's name; the tag on every line. Under Slurm its own name for the node.",
)
@click.option(
    "--part-bytes",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Send longer lines in parts, for channels that keep only short ones whole.",
)
def agent(name: str, part_bytes: int) -> int:
    """Serve one node of a fleet over stdin and stdout (started by other commands).

    Reads requests and writes replies as JSON lines, opens no port for control, and ends when
    stdin does. docs/fleet.md has the protocol.

    \b
    Example:
      relkit agent --name n1 < /dev/null
    """
    from relkit.fleet.agent import end_children, serve
    from relkit.hang.collect import evidence_files
    from relkit.netcheck.measure.serve import handlers

    # The channel gets file descriptors of its own: a library that prints, or a child that reads
    # stdin, must not get between controller and agent.
    requests, replies = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb")
    silence = os.open(os.devnull, os.O_RDONLY)
    os.dup2(silence, 0)
    os.dup2(2, 1)
    try:
        operations = {**handlers(), **evidence_files.handlers()}
        code = serve(name, operations, requests, replies, part_bytes=part_bytes)
    except KeyboardInterrupt:
        code = 130
    end_children()
    sys.stderr.flush()
    # Handlers may be deep in a library; an ordinary exit would wait for them, or crash in them.
    os._exit(code)
