"""The check of nodes: a pod on each, and the few rights that it needs."""

from __future__ import annotations

from typing import Any

from relkit.kubernetes.pod import labels, metadata, selector
from relkit.kubernetes.values import Values

# What relkit.kubernetes.api_server asks of the API server, and nothing else: a test compares.
REPORT = {"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"]}
TAINT = {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}


def node_objects(values: Values) -> list[dict[str, Any]]:
    """Service account, its rights, and the DaemonSet; none where it is not asked for."""
    check = values["nodeCheck"]
    if not check["enabled"]:
        return []
    name = f"{values['name']}-node-check"
    account = metadata(values, name, "node-check")
    # Cluster roles have no namespace: releases of one name in two namespaces must not share one.
    wide = {
        "name": f"{values['namespace']}-{name}" if values["namespace"] else name,
        "labels": account["labels"],
    }
    subject = {
        "kind": "ServiceAccount",
        "name": name,
        "namespace": values["namespace"] or "default",
    }
    reference = {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": wide["name"],
    }
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account},
        {
            "apiVersion": rbac,
            "kind": "ClusterRole",
            "metadata": wide,
            "rules": [REPORT, TAINT] if check["taint"] else [REPORT],
        },
        {
            "apiVersion": rbac,
            "kind": "ClusterRoleBinding",
            "metadata": wide,
            "roleRef": reference,
            "subjects": [subject],
        },
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": account,
            "spec": _daemon_set(values, name),
        },
    ]


def _daemon_set(values: Values, name: str) -> dict[str, Any]:
    check = values["nodeCheck"]
    spec = {
        "serviceAccountName": name,
        "containers": [_container(values)],
        # A node that was tainted must be checked again.
        "tolerations": [{"operator": "Exists"}],
        **check["podSpec"],
    }
    return {
        "selector": {"matchLabels": selector(values, "node-check")},
        "template": {"metadata": {"labels": labels(values, "node-check")}, "spec": spec},
    }


def _container(values: Values) -> dict[str, Any]:
    check = values["nodeCheck"]
    command = ["relkit", "k8s", "node-check", "--every", str(check["intervalSeconds"])]
    if not check["linkcheck"]:
        command.append("--no-linkcheck")
    if check["taint"]:
        command += ["--taint", check["taint"]]
    field = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    return {
        "name": "node-check",
        "image": check["image"] or values["image"],
        "imagePullPolicy": values["imagePullPolicy"],
        "command": command,
        "env": [{"name": "NODE_NAME", "valueFrom": field}],
        "resources": check["resources"],
        "securityContext": check["securityContext"],
    }
