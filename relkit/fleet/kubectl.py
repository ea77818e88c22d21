"""Agents in Kubernetes pods, through `kubectl exec`."""

from __future__ import annotations

import ipaddress
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from relkit.errors import UsageProblem
from relkit.fleet.bounded_run import HelperFailed, output_of
from relkit.fleet.exit_reason import ExitReason, how_it_ended
from relkit.fleet.remote_command import MISSING, missing, remote_words
from relkit.hosts import NodeSpec
from relkit.text.foreign_json import parse_json

_LIST_LIMIT_S = 30.0
_SELECTOR = re.compile(r"[A-Za-z0-9._/=!,() -]+")
# What distinguishes a label selector from pod names: "app=trainer", "!old", "tier in (a, b)".
_LABELS = re.compile(r"[=!(]")


class KubectlCarrier:
    """One `kubectl exec -i` a pod; the names of the nodes are those of the pods.

    Args:
        kubectl_args: options for every kubectl, e.g. "--context prod -n training -c worker".
        relkit: the command in the pod; "" for the path of the running one, else `relkit`.

    Raises:
        UsageProblem: kubectl_args has an open quote.
    """

    name = "kubectl"

    def __init__(self, kubectl_args: str = "", relkit: str = "") -> None:
        self._relkit = relkit
        self._options = _split(kubectl_args)

    def argv(self, node: NodeSpec) -> Sequence[str]:
        """exec with stdin, `--`, and the agent."""
        words = remote_words(self._relkit, ["agent", f"--name={node.name}"])
        return ["kubectl", "exec", "-i", *self._options, node.name, "--", *words]

    def explain(self, node: NodeSpec, code: int, complaint: str) -> ExitReason:
        """What kubectl's exit code and stderr mean."""
        if missing(complaint, code):
            return ExitReason(MISSING)
        ended = how_it_ended(code, complaint)
        if "NotFound" in complaint or "not found" in complaint:
            return ExitReason(f"there is no such pod, or no such container: {ended}")
        return ExitReason(f"kubectl exec {ended}")


def pods(selector: str, kubectl_args: str = "") -> tuple[NodeSpec, ...]:
    """The pods with these labels that have not finished, by name, with their addresses.

    Args:
        selector: as for `kubectl get -l`, e.g. "app=trainer".
        kubectl_args: options for kubectl; "-c NAME" is left out here, `get` does not know it.

    Raises:
        UsageProblem: the selector is invalid, or no pod has these labels.
        ToolMissing: there is no kubectl.
        HelperFailed: it gave no usable answer.
    """
    if not _SELECTOR.fullmatch(selector) or selector.startswith("-"):
        raise UsageProblem(f"{selector!r} is not a label selector")
    usable = _listed(["-l", selector], kubectl_args)
    if not usable:
        raise UsageProblem(f"no pod has the labels {selector!r}")
    return tuple(usable[name] for name in sorted(usable))


def is_selector(text: str) -> bool:
    """This is a label selector, not a node set or a file with names."""
    return bool(_LABELS.search(text)) and not os.path.isfile(text)  # noqa: PTH113 (any length)


def with_addresses(nodes: Sequence[NodeSpec], kubectl_args: str = "") -> tuple[NodeSpec, ...]:
    """Nodes that are named after pods, with the addresses of these pods where they have one.

    The name of a pod cannot be resolved by other pods; probes need its address.

    Raises:
        As pods().
    """
    known = _listed([], kubectl_args)
    return tuple(
        replace(node, address=known[node.name].address)
        if not node.address and node.name in known
        else node
        for node in nodes
    )


def _listed(which: list[str], kubectl_args: str) -> dict[str, NodeSpec]:
    argv = ["kubectl", "get", "pods", *_without_container(_split(kubectl_args))]
    text = output_of([*argv, *which, "-o", "json"], _LIST_LIMIT_S)
    try:
        listed = [_pod(item) for item in parse_json(text)["items"]]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise HelperFailed(f"kubectl's list of pods cannot be read: {error}") from error
    return {spec.name: spec for spec in listed if spec is not None}


def _pod(item: Mapping[str, Any]) -> NodeSpec | None:
    if item.get("status", {}).get("phase") in ("Succeeded", "Failed"):
        return None
    name = item["metadata"]["name"]
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,252}", name):
        raise ValueError(f"{name!r} is not a pod name")
    address = item.get("status", {}).get("podIP") or ""
    return NodeSpec(name, str(ipaddress.ip_address(address)) if address else "")


def _without_container(options: list[str]) -> list[str]:
    kept: list[str] = []
    skip = False
    for word in options:
        if skip:
            skip = False
        elif word in ("-c", "--container"):
            skip = True
        elif not word.startswith(("--container=", "-c=")):
            kept.append(word)
    return kept


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise UsageProblem(f"--kubectl-args {text!r}: {error}") from error
