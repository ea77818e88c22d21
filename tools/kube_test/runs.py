"""A training job in the cluster: relkit's objects with this machine's programs in their pods."""

from __future__ import annotations

import copy
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relkit.kubernetes.objects import objects
from relkit.kubernetes.pod import selector
from relkit.kubernetes.values import Values, settle
from tools.kube_test import pause_image
from tools.kube_test.cluster import Cluster
from tools.kube_test.programs import wait

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "training"
# Pods start slowly on a busy machine.
_STEPS_S = 420.0
# Two nodes have one link, and no third one that could say which is slow.
_PAIR = 2
# What Kubernetes 1.20 does not know of a Job.
_NEWER = ("completionMode", "backoffLimitPerIndex", "podReplacementPolicy", "podFailurePolicy")
_UID = "batch.kubernetes.io/controller-uid"
# Each twentieth step is saved on disk, the others in memory: what is there launchers persist when
# they are ended, and a container that is killed takes it along.
SCRIPT = """
import os, sys, time, torch, torch.distributed as dist
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
checkpointer = DdpCheckpointer("/job/" + os.environ["RUN"])
told = checkpointer.load_checkpoint()
first = told["step"] + 1 if told else 0
for step in range(first, int(os.environ["STEPS"])):
    total = torch.ones(1)
    dist.all_reduce(total)
    state = {"model": model.state_dict(), "step": step}
    path = f"/job/{os.environ['RUN']}/{step}.pt"
    kind = StorageType.MEMORY if step % 20 else StorageType.DISK
    checkpointer.save_checkpoint(step, state, path, storage_type=kind)
    if step % 5 == 0 or step == first:
        words = dist.get_rank(), os.environ["NODE_NAME"], step, total.item(), time.time()
        sys.stdout.write("rank %d on %s step %d sum %g at %.3f\\n" % words)
        sys.stdout.flush()
    time.sleep(0.1)
dist.destroy_process_group()
"""
_STEP = re.compile(
    r"^rank (?P<rank>\d+) on (?P<node>\S+) step (?P<step>\d+) sum (?P<sum>\S+) at (?P<at>\S+)$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Step:
    """A line of the script's.

    Args:
        rank: of the process; node: on which it runs; step: its number.
        nodes: what all ranks together added up: how many they are.
        at_s: when, seconds since 1970.
    """

    rank: int
    node: str
    step: int
    nodes: int
    at_s: float


class Run:
    """A job of one rank a pod, no two pods on one node.

    Args:
        cluster: where it runs; name: of the job.
        steps: so many; nodes: that train; spares: beside them.
        more: keys of the job file.
    """

    def __init__(
        self, cluster: Cluster, name: str, *, steps: int, nodes: int = 2, spares: int = 0,
        more: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.cluster, self.name = cluster, name
        check = "--network-check " if nodes > _PAIR else ""
        # Not exec: a shell is process 1, and passes no signal on.
        text = (
            f"cd /job && relkit launch {check}--local-addr $POD_IP "
            "--timeline-path /tmp/timeline /job/train.py; code=$?; echo ended with $code; "
            "exit $code"
        )
        self.values = _settled(name, text, steps, nodes, spares, more or {})

    def start(self) -> None:
        """Make its objects: first the store's, whose address no DNS tells here."""
        made = [adapted(each, self.values) for each in objects(self.values)]
        jobs = [each for each in made if each["kind"] == "Job"]
        self.cluster.apply([each for each in made if each["kind"] != "Job"])
        alias = {"ip": self._store_address(), "hostnames": [f"{self.name}-store"]}
        for job in jobs:
            job["spec"]["template"]["spec"]["hostAliases"] = [alias]
        self.cluster.apply(jobs)

    def end(self) -> None:
        """Delete its objects, all at once; its pods end meanwhile."""
        for kind in ("job", "deployment", "service", "networkpolicy"):
            label = f"app.kubernetes.io/instance={self.name}"
            self.cluster.kubectl("delete", kind, "-n", NAMESPACE, "-l", label, "--wait=false")

    def pods(self) -> list[dict[str, Any]]:
        """Its launchers' pods."""
        return self._pods("trainer")

    def pod_on(self, node: str) -> dict[str, Any]:
        """Its newest pod on this node."""
        here = [each for each in self.pods() if each["spec"].get("nodeName") == node]
        return max(here, key=lambda each: str(each["metadata"]["creationTimestamp"]))

    def log(self, nodes: Sequence[str] = ()) -> str:
        """What its pods on these nodes have written, or on all."""
        return "".join(
            self.cluster.kubectl(
                "logs", "-n", NAMESPACE, pod["metadata"]["name"], "-c", "main", check=False
            )
            for pod in self.pods()
            if not nodes or pod["spec"].get("nodeName") in nodes
        )

    def steps(self, nodes: Sequence[str] = ()) -> list[Step]:
        """The steps in log(), by their time."""
        found = [
            Step(int(m["rank"]), m["node"], int(m["step"]), round(float(m["sum"])), float(m["at"]))
            for m in _STEP.finditer(self.log(nodes))
        ]
        return sorted(found, key=lambda step: step.at_s)

    def wait_for_steps(
        self, after_s: float = 0.0, nodes: Sequence[str] = (), least: int = 0
    ) -> list[Step]:
        """The first steps that all its ranks have made since.

        Args:
            after_s: seconds since 1970; nodes: see log().
            least: no earlier ones.
        """
        made: list[Step] = []

        def all_have() -> bool:
            made[:] = [
                each for each in self.steps(nodes) if each.at_s > after_s and each.step >= least
            ]
            return {each.rank for each in made} == set(range(self.values["replicas"]))

        wait(f"{self.name} trains", all_have, _STEPS_S)
        return made

    def active(self) -> list[str]:
        """The nodes that train now: those of the latest steps."""
        made = self.steps()
        last = {step.rank: step.node for step in made}
        return [last[rank] for rank in sorted(last)]

    def _pods(self, component: str) -> list[dict[str, Any]]:
        chosen = ",".join(f"{k}={v}" for k, v in selector(self.values, component).items())
        listed: list[dict[str, Any]] = self.cluster.get("pods", "-n", NAMESPACE, "-l", chosen)[
            "items"
        ]
        return listed

    def _store_address(self) -> str:
        def address() -> str:
            ready = [
                str(each["status"]["podIP"])
                for each in self._pods("store")
                if each["status"].get("phase") == "Running"
                and each["status"].get("podIP")
                and all(told["ready"] for told in each["status"]["containerStatuses"])
            ]
            return ready[0] if ready else ""

        wait(f"{self.name}'s store is ready", lambda: bool(address()))
        return address()


def _settled(
    name: str, text: str, steps: int, nodes: int, spares: int, more: Mapping[str, Any]
) -> Values:
    apart = {
        "labelSelector": {"matchLabels": selector({"name": name}, "trainer")},
        "topologyKey": "kubernetes.io/hostname",
    }
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    pod_ip = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    given = {
        "name": name,
        "namespace": NAMESPACE,
        "image": pause_image.NAME,
        "imagePullPolicy": "Never",
        "command": ["/bin/bash", "-c", text],
        "replicas": nodes,
        "spares": spares,
        "nprocPerNode": "1",
        "flashTimeoutSeconds": 200,
        "env": [
            pod_ip,
            {"name": "RUN", "value": name},
            {"name": "STEPS", "value": str(steps)},
            {"name": "HOME", "value": "/tmp"},
        ],
        "podSpec": {"affinity": rule},
        # The node that is cut has no store.
        "store": {"podSpec": {"nodeSelector": {"kubernetes.io/hostname": "n1"}}},
    }
    return settle({**given, **more}, name)


def older(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document as Kubernetes 1.20 knows it: a Job without indexes."""
    made = copy.deepcopy(dict(document))
    if made["kind"] == "Job":
        made["spec"]["backoffLimit"] = made["spec"]["backoffLimitPerIndex"]
        for key in _NEWER:
            del made["spec"][key]
        template = made["spec"]["template"]["metadata"]
        # Newer ones put it there, with the uid.
        template["labels"][_UID] = made["metadata"]["name"]
    return made


def adapted(document: Mapping[str, Any], values: Values) -> dict[str, Any]:
    """The same object for this cluster, whose image has only links to this machine's folders.

    Args:
        document: of objects(); values: of the same job file.
    """
    made = older(document)
    template = made.get("spec", {}).get("template")
    if template:
        spec = template["spec"]
        volumes, mounts = _host_folders()
        spec["volumes"] = [*spec.get("volumes", ()), *volumes]
        for container in spec["containers"]:
            path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
            container["env"] = [*container.get("env", ()), {"name": "PATH", "value": path}]
            container["volumeMounts"] = [*container.get("volumeMounts", ()), *mounts]
            # Requests for a machine that has this cluster alone.
            container["resources"] = {}
    return made


def _host_folders() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    folders = dict.fromkeys(("/usr", str(ROOT), sys.prefix, sys.base_prefix))
    places = {folder: folder for folder in folders}
    places[os.environ["KUBE_JOB"]] = "/job"
    volumes, mounts = [], []
    for number, (source, target) in enumerate(places.items()):
        volumes.append({"name": f"host-{number}", "hostPath": {"path": source}})
        mounts.append({"name": f"host-{number}", "mountPath": target})
    return volumes, mounts
