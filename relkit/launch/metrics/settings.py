"""Where a launcher's metrics go, and how often they are made."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from relkit.errors import UsageProblem
from relkit.files.given_secret import take_given_secret

TOKEN = "RELKIT_METRICS_TOKEN"  # noqa: S105 (the name of a variable)
EVERY_S = 10.0
# Numbers that are older are taken for those of a launcher that was killed, by Prometheus too.
MOST_EVERY_S = 300.0
_LOOPBACK = "127.0.0.1"
_HOW = (
    "Make one with: (umask 077; head -c 32 /dev/urandom | base64 > ~/.relkit-metrics-token), and"
    " give it with --metrics-token-file; Prometheus reads it by `authorization:"
    " {credentials_file: ...}`."
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where metrics are served.

    Args:
        host: a numeric address; port: 0 for any that is free.
        token: that who asks has to show; "" for none.
    """

    host: str
    port: int
    token: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """What a launcher does with its metrics.

    Args:
        folder: of the text file; is_public: others may read it, as node_exporter has to.
        endpoint: where they are served as well; None for nowhere.
        every_s: time between two times that they are made, s.
        otlp: URL of a collector that gets them as well, "" for none.
    """

    folder: Path
    is_public: bool = False
    endpoint: Endpoint | None = None
    every_s: float = EVERY_S
    otlp: str = ""


def parse_endpoint(
    text: str, token_file: Path | None, environ: MutableMapping[str, str]
) -> Endpoint:
    """The endpoint of `--metrics-port`; the token is removed from the environment.

    Args:
        text: PORT, or ADDRESS:PORT.
        token_file: where the token is; goes before RELKIT_METRICS_TOKEN.
        environ: of this process.

    Raises:
        UsageProblem: it is no endpoint, or one that others reach and that has no token.
    """
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or _LOOPBACK
    try:
        address = ipaddress.ip_address(host)
        if not port.isascii() or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{port!r} is no port")
    except ValueError as error:
        raise UsageProblem(
            f"--metrics-port {text!r}: {error}",
            next_step="Write a port, as 9401, or a numeric address of this host and a port, as"
            " 10.0.0.3:9401.",
        ) from error
    token = take_token(token_file, environ)
    if not token and not address.is_loopback:
        raise UsageProblem(
            f"--metrics-port {text}: other hosts can reach {host}, and there is no token",
            next_step=_HOW,
        )
    return Endpoint(host, int(port), token)


def take_token(file: Path | None, environ: MutableMapping[str, str]) -> str:
    """The token, "" where there is none; it is removed from the environment.

    Args:
        file: goes before RELKIT_METRICS_TOKEN; environ: of this process.

    Raises:
        UsageProblem: as of take_given_secret, or it cannot stand in a header of HTTP.
    """
    given = take_given_secret(
        file, environ, TOKEN, option="--metrics-token-file", what="token", how=_HOW
    )
    token = given.decode("ascii", "replace")
    if not (token.isascii() and token.isprintable()):
        raise UsageProblem("the token for metrics is no line of ASCII text", next_step=_HOW)
    return token


def take_settings(
    textfile: Path | None,
    port: str | None,
    token_file: Path | None,
    every_s: float,
    otlp: str | None = None,
) -> Callable[[Path], MetricsSettings]:
    """Read what the options ask for; the timeline folder, which is chosen later, is still needed.

    Args:
        textfile: --metrics-textfile; port: --metrics-port; token_file: --metrics-token-file.
        every_s: --metrics-every; otlp: --otlp-endpoint.

    Raises:
        UsageProblem: see parse_endpoint and take_otlp_endpoint; or the folder is not there.
        MissingExtra: see take_otlp_endpoint.
    """
    if port is None and token_file is not None:
        raise UsageProblem(
            "--metrics-token-file has nothing to protect: --metrics-port is not given",
            next_step="Add --metrics-port PORT, or leave it out.",
        )
    endpoint = None if port is None else parse_endpoint(port, token_file, os.environ)
    if textfile is not None and not textfile.is_dir():
        raise UsageProblem(
            f"--metrics-textfile {textfile} is not a folder",
            next_step="Name the one of node_exporter's --collector.textfile.directory.",
        )
    pushed = ""
    if otlp is not None:
        from relkit.launch.metrics.otlp import take_otlp_endpoint

        pushed = take_otlp_endpoint(otlp)
    if textfile is None:
        return lambda timeline: MetricsSettings(timeline, False, endpoint, every_s, pushed)
    return lambda _timeline: MetricsSettings(textfile, True, endpoint, every_s, pushed)
