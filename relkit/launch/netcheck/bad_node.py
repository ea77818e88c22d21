"""What is done about a node that failed the network check: the site's own command, or advice."""

from __future__ import annotations

import shlex
import subprocess

from relkit.launch.job.node_name import is_node_name
from relkit.launch.job.settings import Log
from relkit.process.bounded_child import end_group
from relkit.process.held_signals import signals_held

HOOK_S = 30.0
_REAP_S = 5.0
_RECIPES = (
    "kubectl taint --overwrite nodes {node} relkit/network-check=failed:NoSchedule",
    "scontrol update NodeName={node} State=DRAIN Reason=relkit-network-check",
)


def hook_argv(words: tuple[str, ...], node: str) -> list[str]:
    """The command with {node} replaced in every word; each word stays one word."""
    return [word.replace("{node}", node) for word in words]


def act(words: tuple[str, ...], node: str, log: Log, timeout_s: float = HOOK_S) -> None:
    """Run the site's command on this node, or print suggestions.

    It never raises, unless a signal's handler does; then the command is ended as well, and so is
    what it has started.

    Args:
        words: of the command; empty to print suggestions.
        node: this node's name for the scheduler.
        log: writes one line to the terminal.
        timeout_s: the command is ended after that.
    """
    if not is_node_name(node):
        log(f"this node's name {node!r} is not safe to pass to a command; nothing was run")
        return
    if not words:
        log("--on-bad-node is not given, so nothing was done; it could run one of these:")
        for recipe in _RECIPES:
            log(f"  {recipe.replace('{node}', node)}")
        return
    argv = hook_argv(words, node)
    how_it_ended = "was ended with the launcher"
    child = None
    try:
        with signals_held():
            # Its output goes to our stderr: a pipe could be kept open by what it leaves behind.
            child = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=2, start_new_session=True
            )
        code = child.wait(timeout_s)
        how_it_ended = "ran" if code == 0 else f"ended with code {code}"
    except OSError as error:
        log(f"--on-bad-node: cannot run {argv[0]!r}: {error.strerror}")
    except subprocess.TimeoutExpired:
        how_it_ended = f"took longer than {timeout_s:g} s and was ended"
    finally:
        if child is not None:
            if child.returncode is None:
                end_group(child, _REAP_S)
            log(f"--on-bad-node: `{shlex.join(argv)}` {how_it_ended}")
