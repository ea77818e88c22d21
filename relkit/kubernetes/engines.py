"""The object that runs the launchers, for each engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from relkit.kubernetes.pod import metadata, template
from relkit.kubernetes.values import Values

# docs/exit-codes.md: what no new pod can mend, ...
_LOOK_FIRST = [2, 76, 77]
# ... a node that is to be replaced, and a job that has been saved.
_NODE_LEFT, _SAVED = 5, 75


def engine_objects(values: Values) -> list[dict[str, Any]]:
    """The job, and what its engine needs beside it."""
    return _MAKERS[values["engine"]](values)


def _job(values: Values) -> list[dict[str, Any]]:
    job = _object(values, "batch/v1", "Job", _job_spec(values))
    return [job, *_volcano_group(values)]


def _job_spec(values: Values) -> dict[str, Any]:
    pods = values["replicas"] + values["spares"]
    spec = {
        "completions": pods,
        "parallelism": pods,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": values["restartCounts"],
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {"rules": _failure_rules(values)},
        "template": template(values),
    }
    return _suspended(values, spec) if values["engine"] == "job" else spec


def _failure_rules(values: Values) -> list[dict[str, Any]]:
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        _on_exit("FailJob", _LOOK_FIRST),
    ]
    if values["engine"] == "job":
        return [*rules, _on_exit("Count", [_NODE_LEFT, _SAVED])]
    # All launchers have saved and ended: once their Job has failed, the JobSet starts all anew.
    return [*rules, _on_exit("Count", [_NODE_LEFT]), _on_exit("FailIndex", [_SAVED])]


def _on_exit(action: str, codes: list[int]) -> dict[str, Any]:
    return {"action": action, "onExitCodes": {"operator": "In", "values": codes}}


def _jobset(values: Values) -> list[dict[str, Any]]:
    spec = _jobset_spec(values, "worker", {})
    jobset = _object(values, "jobset.x-k8s.io/v1alpha2", "JobSet", _suspended(values, spec))
    return [jobset, *_volcano_group(values)]


def _jobset_spec(values: Values, name: str, job_labels: Mapping[str, str]) -> dict[str, Any]:
    job: dict[str, Any] = {"spec": _job_spec(values)}
    if job_labels:
        job = {"metadata": {"labels": dict(job_labels)}, **job}
    rule = {
        "name": "lookfirst",
        "action": "FailJobSet",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    return {
        "failurePolicy": {"maxRestarts": values["jobSetRestarts"], "rules": [rule]},
        "replicatedJobs": [{"name": name, "replicas": 1, "template": job}],
    }


def _trainjob(values: Values) -> list[dict[str, Any]]:
    pods = values["replicas"] + values["spares"]
    step = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    # No torch policy: that would have torchrun's variables say where and how many nodes meet.
    runtime = {
        "mlPolicy": {"numNodes": pods},
        "template": {"spec": _jobset_spec(values, "node", step)},
    }
    api = "trainer.kubeflow.org/v1alpha1"
    reference = {
        "apiGroup": "trainer.kubeflow.org",
        "kind": "TrainingRuntime",
        "name": values["name"],
    }
    spec = {"runtimeRef": reference, "trainer": {"numNodes": pods}}
    return [
        _object(values, api, "TrainingRuntime", runtime, is_queued=False),
        _object(values, api, "TrainJob", _suspended(values, spec)),
        *_volcano_group(values),
    ]


def _pytorchjob(values: Values) -> list[dict[str, Any]]:
    pods, gang = values["replicas"] + values["spares"], values["gang"]
    policy: dict[str, Any] = {"backoffLimit": values["restartCounts"]}
    if values["suspend"]:
        policy["suspend"] = True
    if gang["scheduler"] == "volcano":
        scheduling: dict[str, Any] = {"minAvailable": values["replicas"]}
        if gang["queue"]:
            scheduling["queue"] = gang["queue"]
        policy["schedulingPolicy"] = scheduling
    replicas = {"Master": _replicas(values, 1)}
    if pods > 1:
        replicas["Worker"] = _replicas(values, pods - 1)
    spec = {"runPolicy": policy, "pytorchReplicaSpecs": replicas}
    return [_object(values, "kubeflow.org/v1", "PyTorchJob", spec)]


def _replicas(values: Values, count: int) -> dict[str, Any]:
    return {"replicas": count, "restartPolicy": "OnFailure", "template": template(values)}


def _volcano_group(values: Values) -> list[dict[str, Any]]:
    gang = values["gang"]
    if gang["scheduler"] != "volcano":
        return []
    spec: dict[str, Any] = {"minMember": values["replicas"]}
    if gang["queue"]:
        spec["queue"] = gang["queue"]
    if gang["topology"]:
        mode = "hard" if gang["required"] else "soft"
        spec["networkTopology"] = {"mode": mode, "highestTierAllowed": gang["highestTier"]}
    api = "scheduling.volcano.sh/v1beta1"
    return [_object(values, api, "PodGroup", spec, is_queued=False)]


def _suspended(values: Values, spec: dict[str, Any]) -> dict[str, Any]:
    return {"suspend": True, **spec} if values["suspend"] else spec


def _object(
    values: Values, api: str, kind: str, spec: dict[str, Any], *, is_queued: bool = True
) -> dict[str, Any]:
    made = metadata(values, values["name"], "trainer")
    gang = values["gang"]
    if is_queued and gang["scheduler"] == "kueue" and gang["queue"]:
        made["labels"] = {**made["labels"], "kueue.x-k8s.io/queue-name": gang["queue"]}
    return {"apiVersion": api, "kind": kind, "metadata": made, "spec": spec}


_MAKERS: Mapping[str, Callable[[Values], list[dict[str, Any]]]] = {
    "job": _job,
    "jobset": _jobset,
    "trainjob": _trainjob,
    "pytorchjob": _pytorchjob,
}
