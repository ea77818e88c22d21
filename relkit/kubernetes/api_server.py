"""What relkit asks of Kubernetes' API server from inside a pod, and nothing else.

Three requests, so that a service account needs three rights at most: see node_objects.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from relkit.errors import RelkitError, UsageProblem
from relkit.text.foreign_json import parse_object

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_STRATEGIC = "application/strategic-merge-patch+json"
_MERGE = "application/merge-patch+json"
_MAX_BYTES = 16 << 20
_TIMEOUT_S = 10.0


class ApiRefused(RelkitError):
    """The API server does not answer, or says no."""

    next_step = "See the rights of this pod's service account, and whether it reaches the server."


class ApiServer:
    """The API server, as a service account of a pod.

    Args:
        address: https://HOST:PORT.
        account: the folder with the account's `token` and the server's `ca.crt`.
    """

    def __init__(self, address: str, account: Path = _ACCOUNT) -> None:
        self._address, self._account = address, account

    @classmethod
    def of_pod(cls, environ: Mapping[str, str]) -> ApiServer:
        """The one that started this pod.

        Raises:
            UsageProblem: this is no pod, or it has no service account.
        """
        host = environ.get("KUBERNETES_SERVICE_HOST", "")
        port = environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not host or not (_ACCOUNT / "token").exists():
            raise UsageProblem(
                "this is no pod with a service account: conditions have nowhere to go",
                next_step="Run it as the chart does (nodeCheck.enabled), or with --dry-run.",
            )
        return cls(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")

    def set_conditions(self, node: str, conditions: Sequence[Mapping[str, str]]) -> None:
        """Set these conditions of a node, by their types; others stay as they are.

        Raises:
            ApiRefused: see there.
        """
        body = {"status": {"conditions": list(conditions)}}
        self._ask("PATCH", f"{_path(node)}/status", _STRATEGIC, body)

    def taints(self, node: str) -> tuple[list[dict[str, Any]], str]:
        """A node's taints, and the version of the node that has them.

        Raises:
            ApiRefused: see there.
        """
        told = self._ask("GET", _path(node))
        taints = told.get("spec", {}).get("taints") or []
        return list(taints), str(told.get("metadata", {}).get("resourceVersion", ""))

    def set_taints(self, node: str, taints: Sequence[Mapping[str, Any]], version: str) -> None:
        """Replace a node's taints, unless somebody has changed the node since.

        Raises:
            ApiRefused: see there.
        """
        body = {"metadata": {"resourceVersion": version}, "spec": {"taints": list(taints)}}
        self._ask("PATCH", _path(node), _MERGE, body)

    def _ask(
        self, method: str, path: str, kind: str = "", body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        request = urllib.request.Request(self._address + path, method=method)  # noqa: S310
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", kind)
        try:
            # Read each time: the kubelet replaces it before it is too old.
            token = (self._account / "token").read_text(encoding="ascii").strip()
            request.add_header("Authorization", f"Bearer {token}")
            context = None
            if self._address.startswith("https:"):
                context = ssl.create_default_context(cafile=str(self._account / "ca.crt"))
            with urllib.request.urlopen(  # noqa: S310  (the address is the cluster's own)
                request, timeout=_TIMEOUT_S, context=context
            ) as answer:
                return parse_object(answer.read(_MAX_BYTES))
        except urllib.error.HTTPError as error:
            raise ApiRefused(f"{method} {path}: {error.code} {_reason(error)}") from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise ApiRefused(f"{method} {path}: {reason}") from error


def _path(node: str) -> str:
    return f"/api/v1/nodes/{urllib.parse.quote(node, safe='')}"


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(parse_object(error.read(_MAX_BYTES)).get("message", error.reason))[:300]
    except (OSError, ValueError, http.client.HTTPException):
        return str(error.reason)
