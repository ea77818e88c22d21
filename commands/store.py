"""relkit store: a rendezvous store that no node of a job can take with it."""

from __future__ import annotations

import signal
import socket

import click

from relkit.errors import EXIT_INTERRUPTED, EXIT_OK
from relkit.log_lines import say, warning


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=29400,
    show_default=True,
    metavar="PORT",
    help="Listen on this TCP port; 0 takes one that is free, and says which.",
)
@click.option(
    "--bind",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Listen on this address of this host only; 0.0.0.0 is all of them.",
)
def store(port: int, bind: str) -> int:
    """Serve a rendezvous store that no node of a job can take with it.

    Launchers meet in a store, which is usually in the launcher of the first node: if that node is
    lost, the job ends. With this one on a host outside of the job, such as a login node, any
    node may be lost. Jobs go on without this store, too, but their workers cannot be started again
    then. It is torch's own TCPStore, serves any number of jobs, each under an --rdzv-id
    of its own, and runs until SIGTERM (exit code 0). It keeps everything in memory.

    \b
    Examples:
      relkit store
      relkit store --bind 10.0.0.5 --port 29400
      relkit launch --nnodes 3:4 --nproc-per-node 8 --max-restarts 3 --rdzv-backend c10d \\
          --rdzv-endpoint 10.0.0.5:29400 --rdzv-conf is_host=0 --rdzv-id run-7 train.py
    """
    from relkit.launch.rendezvous_store import is_open_to_others, serve

    def ready(endpoint: str) -> None:
        # All addresses of this host are none that another host could connect to.
        host, _, bound = endpoint.rpartition(":")
        is_all = host in ("0.0.0.0", "[::]")  # noqa: S104 (asked for by --bind)
        reached = f"{socket.gethostname() if is_all else host}:{bound}"
        say(f"the rendezvous store listens on {endpoint} until SIGTERM")
        say(
            "start each launcher (torchrun's, too) with: --rdzv-backend c10d --rdzv-endpoint "
            f"{reached} --rdzv-conf is_host=0 --rdzv-id NAME, a new NAME for each run"
        )
        if is_open_to_others(bind):
            say(warning("whoever reaches this port can take part in any job that meets here"))

    number = serve(bind, port, ready)
    return EXIT_INTERRUPTED if number is signal.SIGINT else EXIT_OK
