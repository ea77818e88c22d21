"""A Kubernetes cluster as an engine: kubectl cordons nodes, with the reason as an annotation."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from typing import Any

from relkit.errors import UsageProblem
from relkit.fleet.bounded_run import HelperFailed, output_of
from relkit.nodes.model import NodeState
from relkit.text.foreign_json import parse_object

_LIMIT_S = 60.0
_REASON, _SINCE = "relkit/reason", "relkit/since"
_FORMAT = "%Y-%m-%dT%H-%M-%SZ"


class KubernetesEngine:
    """Kubernetes, through kubectl; pods that run on a node go on.

    Args:
        kubectl_args: as in --kubectl-args.
    """

    name = "kubernetes"

    def __init__(self, kubectl_args: str = "") -> None:
        try:
            self._kubectl = ["kubectl", *shlex.split(kubectl_args)]
        except ValueError as error:
            raise UsageProblem(f"--kubectl-args {kubectl_args!r}: {error}") from error

    def nodes(self) -> tuple[NodeState, ...]:
        """All nodes that the API server lists."""
        return read_nodes(output_of([*self._kubectl, "get", "nodes", "-o", "json"], _LIMIT_S))

    def take_out(self, node: str, reason: str) -> None:
        """Cordon it. The reason first: a node without one would seem to be somebody else's."""
        since = time.strftime(_FORMAT, time.gmtime())
        self._annotate(node, f"{_REASON}={reason}", f"{_SINCE}={since}")
        output_of([*self._kubectl, "cordon", node], _LIMIT_S)

    def put_back(self, node: str) -> None:
        """Uncordon it, and take the reason off."""
        output_of([*self._kubectl, "uncordon", node], _LIMIT_S)
        self._annotate(node, f"{_REASON}-", f"{_SINCE}-")

    def _annotate(self, node: str, *words: str) -> None:
        output_of([*self._kubectl, "annotate", "--overwrite", "node", node, *words], _LIMIT_S)


def read_nodes(text: str) -> tuple[NodeState, ...]:
    """The nodes in the output of `kubectl get nodes -o json`.

    Raises:
        HelperFailed: it is no such list.
    """
    try:
        plain = parse_object(text.encode())
    except ValueError as error:
        raise HelperFailed(f"kubectl get nodes: {error}") from error
    items = plain.get("items")
    return tuple(
        state
        for item in (items if isinstance(items, list) else [])
        if (state := _state(_object(item)))
    )


def _state(item: Mapping[str, Any]) -> NodeState | None:
    metadata = _object(item.get("metadata"))
    notes = _object(metadata.get("annotations"))
    name, reason = metadata.get("name"), notes.get(_REASON)
    if not isinstance(name, str):
        return None
    is_out = _object(item.get("spec")).get("unschedulable") is True
    return NodeState(
        name, is_out, reason if isinstance(reason, str) else "", _unix_s(notes.get(_SINCE))
    )


def _unix_s(value: object) -> float:
    try:
        import calendar

        return float(calendar.timegm(time.strptime(str(value), _FORMAT)))
    except (ValueError, OverflowError):
        return 0.0


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
