"""Agents over the system's ssh, with the user's own configuration."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from relkit.errors import UsageProblem
from relkit.fleet.exit_reason import ExitReason, how_it_ended, last_line
from relkit.fleet.remote_command import MISSING, missing, remote_words
from relkit.hosts import NodeSpec

_TRANSPORT = 255
# First match wins; the text is OpenSSH's, which is not translated.
_COMPLAINTS = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the one in known_hosts: the host was reinstalled, or someone "
        "intercepts the connection. If you know why, remove the old key with `ssh-keygen -R`",
    ),
    (
        "Host key verification failed",
        "its host key is unknown here. Log in once with ssh and accept the key, or add it to "
        "known_hosts",
    ),
    (
        "Permission denied",
        "ssh refused the login. Set up a key without a passphrase, or an ssh agent: relkit never "
        "asks for a password",
    ),
    ("Too many authentication failures", "ssh refused the login after too many keys"),
    ("Could not resolve hostname", "its name cannot be resolved"),
    ("Connection refused", "no ssh server listens there (connection refused)"),
    ("No route to host", "there is no route to it, or it is down"),
    ("Network is unreachable", "there is no route to it"),
    ("timed out", "no answer on the ssh port: it is down, or a firewall drops the packets"),
    ("Timeout, server", "the connection went silent: it is down, or its network is"),
    ("UNKNOWN port 65535", "the connection broke"),
)
# Nothing answered at all. A refused connection or key comes from a machine that is up.
_HOST_IS_DOWN = ("No route to host", "Network is unreachable", "timed out", "Timeout, server")


class SshCarrier:
    """One ssh a node.

    Args:
        ssh_args: the user's options, split like in a shell; they stand before relkit's own and so
            win over them, except for BatchMode.
        relkit: the command there; "" for the path of the running one, else `relkit`.
        connect_timeout_s: for the connection alone, at least 1 s.

    Raises:
        UsageProblem: ssh_args has an open quote.
    """

    name = "ssh"

    def __init__(
        self, ssh_args: str = "", relkit: str = "", *, connect_timeout_s: float = 10.0
    ) -> None:
        try:
            theirs = shlex.split(ssh_args)
        except ValueError as error:
            raise UsageProblem(f"--ssh-args {ssh_args!r}: {error}") from error
        self._relkit = relkit
        self._options = [
            *("-T", "-o", "BatchMode=yes"),
            *theirs,
            *("-o", f"ConnectTimeout={max(1, round(connect_timeout_s))}"),
            *("-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"),
            # A forwarded port or display of the user's configuration must not fail 64 logins.
            *("-o", "ClearAllForwardings=yes", "-o", "ForwardX11=no"),
        ]

    def argv(self, node: NodeSpec) -> Sequence[str]:
        """ssh, its options, `--`, the host, and one word for the login shell there."""
        where = ["-l", node.user] if node.user else []
        where += ["-p", str(node.port)] if node.port else []
        words = remote_words(self._relkit, ["agent", f"--name={node.name}"])
        # The login shell may be csh or fish: single quotes and `exec` mean the same in all.
        return ["ssh", *where, *self._options, "--", node.target, "exec " + shlex.join(words)]

    def explain(self, node: NodeSpec, code: int, complaint: str) -> ExitReason:
        """What ssh's exit code and complaint mean."""
        if code != _TRANSPORT:
            return ExitReason(
                MISSING
                if missing(complaint, code)
                else f"its agent {how_it_ended(code, complaint)}"
            )
        for text, meaning in _COMPLAINTS:
            if text in complaint:
                return ExitReason(meaning, text in _HOST_IS_DOWN)
        last = last_line(complaint)
        # ssh gives 255 without a word where a signal ended the command there.
        return ExitReason(
            f"ssh failed: {last}" if last else "its agent was killed, or the connection broke"
        )
