"""The lines `asw psw node` within what Kubernetes shows of the ConfigMap that holds them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

KEY = "topology_config"
# Labels of nodes by which clouds and DRA drivers tell where a node is, the upper one first.
LABEL_PAIRS = (
    ("network.topology.nvidia.com/spine", "network.topology.nvidia.com/leaf"),
    ("cloud.google.com/gce-topology-block", "cloud.google.com/gce-topology-subblock"),
    ("topology.k8s.aws/network-node-layer-2", "topology.k8s.aws/network-node-layer-3"),
)
_DESCRIBED = re.compile(r"^Name: .*\n(?:.*\n)*?Data\n====\n", re.MULTILINE)
_OBJECT = re.compile(r"^\s*(?:kind|apiVersion)\s*:|^\s*\{", re.MULTILINE)
_HEADING = re.compile(r"(?P<key>\S+):\n-{2,}\n")


def lines_of(text: str) -> str:
    """The lines themselves, whatever they stand in; a text without such a frame as it is.

    Known are a ConfigMap as YAML or JSON, what `kubectl describe configmap` prints, and a list of
    nodes (`kubectl get nodes -o yaml`) whose labels name their switches.

    Args:
        text: of the file.

    Raises:
        ValueError: a ConfigMap or a list of nodes, without what is looked for.
    """
    text = text.replace("\r\n", "\n")
    described = _DESCRIBED.match(text)
    if described is not None:
        return _of_description(text[described.end() :])
    if _OBJECT.search(text):
        return _of_object(text)
    return text


def _of_description(data: str) -> str:
    headings = list(_HEADING.finditer(data))
    if not headings:
        # As it is until somebody writes into it.
        return ""
    for match in headings:
        if match["key"] == KEY:
            rest = data[match.end() :]
            # The next key, and what kubectl prints behind the data.
            end = re.search(r"^(?:\S+:\n-{2,}$|BinaryData$|Events: )", rest, re.MULTILINE)
            return rest[: end.start()] if end else rest
    raise ValueError(f"the ConfigMap has no key {KEY}")


def _of_object(text: str) -> str:
    import yaml  # only files that need it wait for it

    try:
        documents = [each for each in yaml.safe_load_all(text) if isinstance(each, dict)]
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is no YAML: {' '.join(str(error).split())[:200]}") from error
    for document in documents:
        if document.get("kind") == "ConfigMap":
            data = document.get("data") or {}
            if not isinstance(data, dict) or not isinstance(data.get(KEY, ""), str):
                raise ValueError(f"the ConfigMap's {KEY} is no text")
            if data and KEY not in data:
                raise ValueError(f"the ConfigMap has no key {KEY}")
            return str(data.get(KEY, ""))
        items = document.get("items")
        if document.get("kind") in ("List", "NodeList") and isinstance(items, list):
            return _of_nodes([each for each in items if isinstance(each, dict)])
    raise ValueError("it is neither a ConfigMap nor a list of nodes")


def _of_nodes(nodes: Sequence[Mapping[str, Any]]) -> str:
    lines = [line for node in nodes if (line := _of_node(node))]
    if nodes and not lines:
        pairs = "; ".join(f"{upper} and {lower}" for upper, lower in LABEL_PAIRS)
        raise ValueError(f"no node has the labels of its switches: {pairs}")
    return "\n".join(lines)


def _of_node(node: Mapping[str, Any]) -> str:
    metadata, status = _table(node.get("metadata")), _table(node.get("status"))
    labels = _table(metadata.get("labels"))
    addresses = status.get("addresses")
    internal = next(
        (
            str(each.get("address"))
            for each in (addresses if isinstance(addresses, list) else ())
            if isinstance(each, dict) and each.get("type") == "InternalIP"
        ),
        str(metadata.get("name", "")),
    )
    for upper, lower in LABEL_PAIRS:
        if labels.get(upper) and labels.get(lower):
            return f"{labels[lower]} {labels[upper]} {internal}"
    return ""


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
