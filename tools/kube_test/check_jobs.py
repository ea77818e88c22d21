"""Checks with jobs that train."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.kube_test import pause_image
from tools.kube_test.cluster import Cluster
from tools.kube_test.programs import environment, say, wait
from tools.kube_test.runs import NAMESPACE, Run

_TAKEN = ("network check", "steps in", "is a spare", "lost node", "order", "kept")
# How long Kubernetes may take to notice a lost node (40 s) and to give its pods up (300 s).
_GIVEN_UP_S = 480.0
# A step that is on disk before anything is broken.
_ON_DISK = 20


def check_order(cluster: Cluster) -> None:
    """Three pods check their network, and train in the order of the ConfigMap."""
    # The first and the last node are behind one switch.
    switches = dict(zip((node.name for node in cluster.nodes), ("a", "b", "a"), strict=True))
    lines = [f"{switches[node.name]} up {node.address}" for node in cluster.nodes]
    mapper = {"enabled": True, "topology_config": "\n".join(lines) + "\n"}
    run = Run(cluster, "order", steps=100_000, nodes=3, more={"topoMapper": mapper})
    run.start()
    run.wait_for_steps()
    seen = [switches[name] for name in run.active()]
    say(f"  ranks are on {', '.join(run.active())}; switches {', '.join(seen)}")
    assert seen in (["a", "a", "b"], ["b", "a", "a"]), seen
    _say_lines(run.log())
    _check_topology_files(cluster)
    _check_netcheck(run)
    run.end()


def _check_topology_files(cluster: Cluster) -> None:
    """What kubectl shows of the ConfigMap is read too, in both of its forms."""
    orders = []
    for words in (["get", "-o", "yaml"], ["describe"]):
        text = cluster.kubectl(
            words[0], "configmap", "node-topology-config", "-n", NAMESPACE, *words[1:]
        )
        file = cluster.folder / f"network-{words[0]}.txt"
        file.write_text(text, encoding="utf-8")
        orders.append(_relkit("topology", "sort", str(file)).split())
    assert orders[0] == orders[1] == ["10.99.0.1", "10.99.0.3", "10.99.0.2"], orders
    say(f"  the ConfigMap as kubectl shows it gives {', '.join(orders[0])}")


def _check_netcheck(run: Run) -> None:
    label = f"app.kubernetes.io/instance={run.name},app.kubernetes.io/component=trainer"
    started_s = time.monotonic()
    told = _relkit(
        "netcheck", "--via", "kubectl", "--nodes", label,
        "--kubectl-args", f"--kubeconfig {run.cluster.kubeconfig} -n {NAMESPACE} -c main",
        # Nodes that share a busy machine may well be unequal.
        codes=(0, 1),
    )  # fmt: skip
    took_s = time.monotonic() - started_s
    assert "all 3 pairs were measured" in told, told
    last = [line.strip() for line in told.splitlines() if line.strip()]
    say(f"  netcheck through kubectl, {took_s:.1f} s: {' / '.join(last[:4])[:200]}")


def check_replaced(cluster: Cluster) -> None:
    """A pod that is killed is replaced by its Job, and training goes on where it was."""
    run = Run(cluster, "killed", steps=100_000)
    run.start()
    before = run.wait_for_steps(least=_ON_DISK + 20)
    node = run.active()[0]
    pod = run.pod_on(node)
    container = pod["status"]["containerStatuses"][0]["containerID"].partition("://")[2]
    killed_at_s = time.time()
    cluster.node(node).kill_container(container)
    after = run.wait_for_steps(killed_at_s + 0.5)
    fresh = [each["metadata"]["name"] for each in run.pods()]
    assert len(fresh) == 3, fresh
    _say_resumed(f"rank 0's container on {node} killed", killed_at_s, before, after)
    _say_lines(run.log())
    run.end()


def check_lost_pod(cluster: Cluster) -> None:
    """A pod that is deleted hands its place to the spare; what replaces it is the next spare."""
    run = _lost(cluster)
    run.start()
    before = run.wait_for_steps(least=_ON_DISK + 20)
    node = run.active()[0]
    pod = run.pod_on(node)["metadata"]["name"]
    deleted_at_s = time.time()
    cluster.kubectl("delete", "pod", pod, "-n", NAMESPACE, "--wait=false")
    others = [each.name for each in cluster.nodes if each.name != node]
    after = run.wait_for_steps(deleted_at_s + 0.5, others)
    _say_resumed(f"rank 0's pod on {node} deleted", deleted_at_s, before, after)
    wait("another spare", lambda: "is a spare" in run.log([node]))
    _say_lines(run.log())


def check_cut_node(cluster: Cluster) -> None:
    """A node is cut off: when training goes on, and when a plain Job's pod runs elsewhere."""
    run = _lost(cluster)
    node = next(name for name in run.active() if name != "n1")
    others = [each.name for each in cluster.nodes if each.name != node]
    cluster.apply([_plain_job(node)])
    wait("the plain Job", lambda: _plain_nodes(cluster) == [node])
    before = run.wait_for_steps(time.time(), least=_ON_DISK + 20)
    cut_at_s = time.time()
    cluster.node(node).cut()
    after = run.wait_for_steps(cut_at_s + 1.0, others)
    _say_resumed(f"{node} cut", cut_at_s, before, after)
    _say_lines(run.log(others))
    wait("not ready", lambda: not cluster.is_ready(node))
    say(f"  the cluster calls {node} not ready after {time.time() - cut_at_s:.1f} s")
    wait(
        "the plain Job elsewhere",
        lambda: any(n != node for n in _plain_nodes(cluster)),
        _GIVEN_UP_S,
    )
    say(f"  a plain Job's pod runs elsewhere after {time.time() - cut_at_s:.1f} s")
    made = run.wait_for_steps(time.time() - 2.0, others)
    say(f"  the job has gone on meanwhile: step {made[-1].step}")


def check_done(cluster: Cluster) -> None:
    """A job that has done its work is complete, with its spare, and says nothing odd at its end."""
    run = Run(cluster, "done", steps=60, spares=1)
    run.start()
    run.wait_for_steps()
    wait("the job is complete", lambda: "Complete" in _job_conditions(run))
    phases = [str(pod["status"]["phase"]) for pod in run.pods()]
    assert phases == ["Succeeded"] * 3, phases
    text = run.log()
    assert "the job has ended, and with it this spare" in text, text[-3000:]
    assert "frame #" not in text, text[-3000:]
    say(f"  {', '.join(_job_conditions(run))}: {', '.join(phases)}")
    run.end()


def _job_conditions(run: Run) -> list[str]:
    told = run.cluster.get("job", run.name, "-n", NAMESPACE)["status"].get("conditions", [])
    return [str(each["type"]) for each in told if each["status"] == "True"]


def check_pre_stop(cluster: Cluster) -> None:
    """A pod whose process 1 is a shell saves before it is ended."""
    run = Run(cluster, "saved", steps=100_000, nodes=1)
    kept = Path(os.environ["KUBE_JOB"]) / run.name / "from-memory"
    run.start()
    run.wait_for_steps()
    assert not kept.exists()
    (pod,) = run.pods()
    last = run.steps()[-1].step
    words = ["delete", "pod", pod["metadata"]["name"], "-n", NAMESPACE, "--timeout=280s"]
    started_s = time.monotonic()
    cluster.kubectl(*words)
    took_s = time.monotonic() - started_s
    assert took_s < 250.0, f"{took_s:.0f} s: the pod was killed"
    saved = [int(each.name.removeprefix("iter_")) for each in kept.glob("iter_*")]
    assert max(saved, default=-1) >= last, (last, saved)
    say(f"  step {last} was the last one said, {max(saved)} is kept; the end took {took_s:.1f} s")
    after = run.wait_for_steps()
    say(f"  the pod in its place began with step {after[0].step}")
    assert after[0].step > last, after[0]
    run.end()


def _lost(cluster: Cluster) -> Run:
    return Run(cluster, "lost", steps=100_000, spares=1)


def _say_resumed(what: str, at_s: float, before: list[Any], after: list[Any]) -> None:
    first = max(after[:2], key=lambda step: float(step.at_s))
    assert after[0].step > _ON_DISK, (before[0], after[0])
    say(
        f"  {what}: training goes on after {first.at_s - at_s:.1f} s, with step {after[0].step}; "
        f"{before[-1].step} was one of the last"
    )


def _say_lines(text: str) -> None:
    for line in text.splitlines():
        if line.startswith("relkit:") and any(words in line for words in _TAKEN):
            say(f"    {line[:170]}")


def _relkit(*words: str, codes: Sequence[int] = (0,)) -> str:
    program = shutil.which("relkit", path=str(Path(sys.executable).parent)) or "relkit"
    done = subprocess.run(
        [program, *words], env=environment(),
        capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode in codes, f"relkit {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def _plain_job(node: str) -> dict[str, Any]:
    """A Job that would rather be on this node."""
    wish = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    term = {"weight": 100, "preference": {"matchExpressions": [wish]}}
    container = {
        "name": "main",
        "image": pause_image.NAME,
        "imagePullPolicy": "Never",
        "command": ["/pause"],
    }
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [term]}
    pod = {
        "restartPolicy": "Never",
        "affinity": {"nodeAffinity": affinity},
        "containers": [container],
    }
    template = {"metadata": {"labels": {"plain": "yes"}}, "spec": pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "plain", "namespace": NAMESPACE},
        "spec": {"template": template},
    }


def _plain_nodes(cluster: Cluster) -> list[str]:
    listed = cluster.get("pods", "-n", NAMESPACE, "-l", "plain=yes")["items"]
    return [
        str(each["spec"]["nodeName"]) for each in listed if each["status"]["phase"] == "Running"
    ]
