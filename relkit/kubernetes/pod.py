"""The pod of a launcher."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from relkit.kubernetes.launch_command import RUN_ID, TOPOLOGY_FOLDER, pod_command
from relkit.kubernetes.values import Values

_SHM = "/dev/shm"
# How long a launcher may take beyond --flash-timeout to end its workers, s.
_ENDING_S = 60
_CONTAINERS = {"trainjob": "node", "pytorchjob": "pytorch"}
_KUEUE = "kueue.x-k8s.io/podset-{}-topology"


def selector(values: Values, component: str) -> dict[str, str]:
    """The labels by which pods are chosen: `component` tells a job's from those of its store."""
    return {
        "app.kubernetes.io/name": "relkit",
        "app.kubernetes.io/instance": values["name"],
        "app.kubernetes.io/component": component,
    }


def labels(values: Values, component: str) -> dict[str, str]:
    """Labels of an object: the user's, and those of selector()."""
    return {**values["labels"], **selector(values, component)}


def metadata(values: Values, name: str, component: str) -> dict[str, Any]:
    """Name, namespace and labels of an object."""
    made: dict[str, Any] = {"name": name}
    if values["namespace"]:
        made["namespace"] = values["namespace"]
    return {**made, "labels": labels(values, component)}


def template(values: Values) -> dict[str, Any]:
    """The pod template of the job's launchers."""
    annotations = {**values["annotations"], **_annotations(values)}
    made: dict[str, Any] = {"labels": labels(values, "trainer")}
    if annotations:
        made["annotations"] = annotations
    return {"metadata": made, "spec": _spec(values)}


def _annotations(values: Values) -> dict[str, str]:
    gang = values["gang"]
    if gang["scheduler"] == "volcano" and values["engine"] != "pytorchjob":
        return {"scheduling.k8s.io/group-name": values["name"]}
    if gang["scheduler"] == "kueue" and gang["topology"]:
        kind = "required" if gang["required"] else "preferred"
        return {_KUEUE.format(kind): gang["topology"]}
    return {}


def _spec(values: Values) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": values["flashTimeoutSeconds"] + _ENDING_S,
        "automountServiceAccountToken": False,
    }
    if values["engine"] == "job":
        spec["subdomain"] = values["name"]
    if values["engine"] == "pytorchjob":
        # It has one of its own for each kind of replica.
        del spec["restartPolicy"]
    if values["gang"]["scheduler"] == "volcano":
        spec["schedulerName"] = "volcano"
    spec["containers"] = [_container(values)]
    spec["volumes"] = [*_volumes(values), *values["volumes"]]
    if not spec["volumes"]:
        del spec["volumes"]
    return {**spec, **values["podSpec"]}


def _container(values: Values) -> dict[str, Any]:
    container = {
        "name": _CONTAINERS.get(values["engine"], "main"),
        "image": values["image"],
        "imagePullPolicy": values["imagePullPolicy"],
        "command": pod_command(values),
        "env": [*_environment(values), *values["env"]],
        "lifecycle": {"preStop": {"exec": {"command": ["relkit", "k8s", "stop"]}}},
    }
    if values["resources"]:
        container["resources"] = values["resources"]
    if values["securityContext"]:
        container["securityContext"] = values["securityContext"]
    mounts = [*_mounts(values), *values["volumeMounts"]]
    if mounts:
        container["volumeMounts"] = mounts
    return {**container, **values["container"]}


def _environment(values: Values) -> list[dict[str, Any]]:
    made = [
        _from_field("NODE_NAME", "spec.nodeName"),
        _from_field("NODE_IP", "status.hostIP"),
        {"name": "NODE_NUM", "value": str(values["replicas"])},
    ]
    if values["store"]["enabled"]:
        made.append(_run_id(values))
    if values["secretName"]:
        key = {"name": values["secretName"], "key": "secret"}
        made.append({"name": "RELKIT_SECRET", "valueFrom": {"secretKeyRef": key}})
    return made


def _run_id(values: Values) -> dict[str, Any]:
    if values["engine"] == "pytorchjob":
        return {"name": RUN_ID, "value": values["name"]}
    # Another one for each Job that is made, also by a JobSet that starts all over.
    return _from_field(RUN_ID, "metadata.labels['batch.kubernetes.io/controller-uid']")


def _from_field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _has_own_shm(values: Values) -> bool:
    mounts: Sequence[Mapping[str, Any]] = values["volumeMounts"]
    return any(mount.get("mountPath") == _SHM for mount in mounts)


def _volumes(values: Values) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if not _has_own_shm(values):
        memory = {"medium": "Memory", "sizeLimit": values["shmSize"]}
        made.append({"name": "relkit-shm", "emptyDir": memory})
    if values["topoMapper"]["enabled"]:
        config_map = {"name": values["topoMapper"]["configMap"]}
        made.append({"name": "relkit-topology", "configMap": config_map})
    return made


def _mounts(values: Values) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    if not _has_own_shm(values):
        made.append({"name": "relkit-shm", "mountPath": _SHM})
    if values["topoMapper"]["enabled"]:
        made.append({"name": "relkit-topology", "mountPath": TOPOLOGY_FOLDER, "readOnly": True})
    return made
