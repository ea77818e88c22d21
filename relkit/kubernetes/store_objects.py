"""The pod of `relkit store`: where launchers meet, so that each of their pods may be replaced."""

from __future__ import annotations

from typing import Any

from relkit.kubernetes.pod import labels, metadata, selector
from relkit.kubernetes.values import Values


def store_objects(values: Values) -> list[dict[str, Any]]:
    """Its Deployment and Service, and who may reach it."""
    store, name = values["store"], f"{values['name']}-store"
    chosen, port = selector(values, "store"), store["port"]
    service = {
        "selector": chosen,
        # The address stays while the pod is not ready: launchers try again.
        "publishNotReadyAddresses": True,
        "ports": [{"name": "store", "port": port, "targetPort": "store"}],
    }
    deployment = {
        "replicas": 1,
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": chosen},
        "template": {
            "metadata": {"labels": labels(values, "store")},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [_container(values)],
                **store["podSpec"],
            },
        },
    }
    made = [
        _object(values, name, "v1", "Service", service),
        _object(values, name, "apps/v1", "Deployment", deployment),
    ]
    if store["networkPolicy"]:
        policy = {
            "podSelector": {"matchLabels": chosen},
            "policyTypes": ["Ingress"],
            "ingress": [
                {
                    "from": [{"podSelector": {"matchLabels": selector(values, "trainer")}}],
                    "ports": [{"protocol": "TCP", "port": port}],
                }
            ],
        }
        made.append(_object(values, name, "networking.k8s.io/v1", "NetworkPolicy", policy))
    return made


def _container(values: Values) -> dict[str, Any]:
    port = values["store"]["port"]
    return {
        "name": "store",
        "image": values["image"],
        "imagePullPolicy": values["imagePullPolicy"],
        # All addresses of the pod: the policy says who reaches them.
        "command": ["relkit", "store", "--bind", "0.0.0.0", "--port", str(port)],  # noqa: S104
        "ports": [{"name": "store", "containerPort": port}],
        "readinessProbe": {"tcpSocket": {"port": "store"}},
        "resources": values["store"]["resources"],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _object(values: Values, name: str, api: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    made = metadata(values, name, "store")
    return {"apiVersion": api, "kind": kind, "metadata": made, "spec": spec}
