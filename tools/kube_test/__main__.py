"""`make kube-test`: what relkit makes for Kubernetes, in a real API server and kubelet."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from relkit.kubernetes.api_server import ApiRefused, ApiServer
from relkit.kubernetes.node_check import NodeCheck, Watch
from relkit.kubernetes.node_conditions import parse_taint
from relkit.kubernetes.objects import objects
from relkit.kubernetes.values import Values, read_document, settle
from tools.kube_test import pause_image
from tools.kube_test.cluster import API, NODE, Cluster, wait

ROOT = Path(__file__).resolve().parents[2]
_BAD = {
    "status": "fail",
    "findings": [{"id": "RK-LNK-004", "status": "fail", "title": "a link is slow"}],
}
_GOOD = {"status": "ok", "findings": []}
# A step is saved in memory each 0.1 s; the launchers persist what is there when they are ended.
_SCRIPT = """
import os, sys, time, torch, torch.distributed as dist
from relkit.flash_checkpoint.ddp import DdpCheckpointer, StorageType
dist.init_process_group("gloo")
model = torch.nn.Linear(4, 4)
checkpointer = DdpCheckpointer("/job/ck")
told = checkpointer.load_checkpoint()
first = told["step"] + 1 if told else 0
for step in range(first, int(os.environ["STEPS"])):
    total = torch.ones(1)
    dist.all_reduce(total)
    state = {"model": model.state_dict(), "step": step}
    checkpointer.save_checkpoint(step, state, f"/job/ck/{step}.pt", storage_type=StorageType.MEMORY)
    if step % 20 == 0:
        sys.stdout.write(f"rank {dist.get_rank()} step {step} sum {total.item():g}\\n")
        sys.stdout.flush()
    time.sleep(0.1)
dist.destroy_process_group()
"""


def say(line: str) -> None:
    """One line of the log."""
    print(f"{time.strftime('%H:%M:%S')} {line}", flush=True)


def check_manifests(cluster: Cluster) -> None:
    """The server takes the objects that it knows; 1.20 has no indexed Jobs."""
    for name in ("job", "node-check"):
        values = settle(read_document(ROOT / "deploy" / f"{name}.yaml"), name)
        known = [each for each in objects(values) if each["kind"] != "Job"]
        cluster.kubectl("create", "namespace", values["namespace"])
        cluster.apply(known, "--dry-run=server", "--validate=true")
        say(f"  taken: {', '.join(each['kind'] for each in known)}")


def check_node_conditions(cluster: Cluster) -> None:
    """The node check's own rights do: conditions, a taint twice, and off again."""
    taint = "relkit.io/bad-node=true:NoSchedule"
    given = {**read_document(ROOT / "deploy" / "node-check.yaml")}
    given["nodeCheck"] = {"enabled": True, "taint": taint}
    rights = [
        each
        for each in objects(settle(given, "node-check"))
        if each["kind"] in ("ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    ]
    cluster.apply(rights)
    report: dict[str, Any] = _BAD
    server = ApiServer(API, _account(cluster, "checker"))
    check = NodeCheck(NODE, True, parse_taint(taint), None)
    watch = Watch(check, server, lambda line: say(f"  {line}"), lambda _: report)
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for status, is_tainted in ((_BAD, True), (_BAD, True), (_GOOD, False)):
        report = status
        code = watch.look(now)
        assert code == (1 if is_tainted else 0), code
        node = cluster.get("node", NODE)
        taints = [each["key"] for each in node["spec"].get("taints", [])]
        assert ("relkit.io/bad-node" in taints) is is_tainted, taints
        of_links = [c for c in node["status"]["conditions"] if c["type"] == "RelkitLinksReady"]
        assert [each["status"] for each in of_links] == ["False" if is_tainted else "True"]
    try:
        ApiServer(API, _account(cluster, "other")).taints(NODE)
        raise AssertionError("an account without rights was let in")
    except ApiRefused as error:
        say(f"  without the rights: {error}")


def _account(cluster: Cluster, token: str) -> Path:
    folder = cluster.folder / f"account-{token}"
    folder.mkdir()
    (folder / "token").write_text(token, encoding="ascii")
    shutil.copy(cluster.folder / "certs" / "apiserver.crt", folder / "ca.crt")
    return folder


def check_job(cluster: Cluster) -> None:
    """Two pods and a spare meet at a store; the first one is deleted, and the others go on."""
    values = _job_values("lost", steps=600)
    store = _pod(values, "Deployment", "lost-store")
    cluster.apply([store])
    address = _address(cluster, "lost-store")
    names = [f"lost-{index}" for index in range(3)]
    cluster.apply([_pod(values, "Job", name, address) for name in names])
    wait("training", lambda: "step 20 " in _logs(cluster, names))
    host = next(name for name in names if "rank 0 step" in _logs(cluster, [name]))
    started = time.monotonic()
    cluster.kubectl("delete", "pod", host, "-n", "training", "--wait=false")
    rest = [name for name in names if name != host]
    wait("the spare", lambda: "steps in" in _logs(cluster, rest))
    wait("rank 0 elsewhere", lambda: "rank 0 step" in _logs(cluster, rest))
    say(f"  {host} deleted; rank 0 trains elsewhere after {time.monotonic() - started:.1f} s")
    wait("the end", lambda: _phases(cluster, rest) == {"Succeeded"}, 600)
    for line in _logs(cluster, rest).splitlines():
        if line.startswith("relkit:") and ("network check" in line or "steps in" in line):
            say(f"  {line[:160]}")


def check_pre_stop(cluster: Cluster) -> None:
    """A pod whose process 1 is a shell saves before it is ended."""
    values = _job_values("saved", steps=100_000, nodes=1)
    kept = cluster.folder / "job" / "ck" / "from-memory"
    shutil.rmtree(kept, ignore_errors=True)
    cluster.apply([_pod(values, "Deployment", "saved-store")])
    cluster.apply([_pod(values, "Job", "saved-0", _address(cluster, "saved-store"))])
    wait("training", lambda: "step 20 " in _logs(cluster, ["saved-0"]))
    assert not kept.exists()
    cluster.kubectl("delete", "pod", "saved-0", "-n", "training", "--wait=true", "--timeout=120s")
    steps = sorted(each.name for each in kept.iterdir())
    assert steps, "nothing was saved"
    say(f"  kept: {steps[-1]}")


def _job_values(name: str, *, steps: int, nodes: int = 2) -> Values:
    check = "--network-check " if nodes > 1 else ""
    # Not exec: a shell is process 1, and passes no signal on.
    text = (
        f"cd /job && relkit launch {check}--local-addr $POD_IP --timeline-path /tmp/timeline "
        "/job/train.py; echo ended with $?"
    )
    field = {"fieldRef": {"fieldPath": "status.podIP"}}
    return settle(
        {
            "name": name,
            "namespace": "training",
            "image": pause_image.NAME,
            "imagePullPolicy": "Never",
            "command": ["/bin/bash", "-c", text],
            "replicas": nodes,
            "spares": 1 if nodes > 1 else 0,
            "nprocPerNode": "1",
            "flashTimeoutSeconds": 30,
            "env": [
                {"name": "POD_IP", "valueFrom": field},
                {"name": "STEPS", "value": str(steps)},
                {"name": "HOME", "value": "/tmp"},
            ],
        },
        name,
    )


def _pod(values: Values, kind: str, name: str, store: str = "") -> dict[str, Any]:
    """The pod that an engine would make of an object's template, with this host's programs."""
    (template,) = (each["spec"]["template"] for each in objects(values) if each["kind"] == kind)
    spec = {**template["spec"], "nodeName": NODE, "restartPolicy": "Never"}
    spec.pop("subdomain", None)
    if store:
        spec["hostAliases"] = [{"ip": store, "hostnames": [f"{values['name']}-store"]}]
    (container,) = spec["containers"]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    container["env"] = [*container.get("env", ()), {"name": "PATH", "value": path}]
    volumes, mounts = _host_folders()
    spec["volumes"] = [*spec.get("volumes", ()), *volumes]
    container["volumeMounts"] = [*container.get("volumeMounts", ()), *mounts]
    labels = {
        **template["metadata"]["labels"],
        "batch.kubernetes.io/controller-uid": values["name"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "training", "labels": labels},
        "spec": spec,
    }


def _host_folders() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    folders = dict.fromkeys(("/usr", str(ROOT), sys.prefix, sys.base_prefix))
    places = {folder: folder for folder in folders}
    places[os.environ["KUBE_JOB"]] = "/job"
    volumes, mounts = [], []
    for number, (source, target) in enumerate(places.items()):
        volumes.append({"name": f"host-{number}", "hostPath": {"path": source}})
        mounts.append({"name": f"host-{number}", "mountPath": target})
    return volumes, mounts


def _address(cluster: Cluster, pod: str) -> str:
    def address() -> str:
        told = cluster.get("pod", pod, "-n", "training")["status"]
        return str(told.get("podIP", "")) if told.get("phase") == "Running" else ""

    wait(f"{pod}'s address", lambda: bool(address()))
    return address()


def _logs(cluster: Cluster, pods: list[str]) -> str:
    return "".join(cluster.kubectl("logs", "-n", "training", pod, check=False) for pod in pods)


def _phases(cluster: Cluster, pods: list[str]) -> set[str]:
    return {str(cluster.get("pod", pod, "-n", "training")["status"]["phase"]) for pod in pods}


def main() -> int:
    """Run all checks, and say what came of each."""
    checks: tuple[Callable[[Cluster], None], ...] = (
        check_manifests,
        check_node_conditions,
        check_job,
        check_pre_stop,
    )
    folder = Path(tempfile.mkdtemp(prefix="relkit-kube-"))
    cluster, failed = Cluster(folder), 0
    os.environ["KUBE_JOB"] = str(folder / "job")
    (folder / "job").mkdir()
    (folder / "job" / "train.py").write_text(_SCRIPT, encoding="ascii")
    say(f"starting; logs are in {folder}")
    with cluster.running():
        say("a node is ready")
        for check in checks:
            say(f"{check.__name__}: {check.__doc__}")
            try:
                check(cluster)
                say(f"{check.__name__}: ok")
            except AssertionError as error:
                failed += 1
                say(f"{check.__name__}: FAILED: {error}")
    if not failed:
        shutil.rmtree(folder, ignore_errors=True)
    say(f"{len(checks) - failed} of {len(checks)} checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
