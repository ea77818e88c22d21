"""Checks of what is published about nodes: objects, conditions, taints, rights."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

from relkit.kubernetes.api_server import ApiRefused, ApiServer
from relkit.kubernetes.node_check import NodeCheck, Watch
from relkit.kubernetes.node_conditions import parse_taint
from relkit.kubernetes.objects import as_yaml, objects
from relkit.kubernetes.values import Values, read_document, settle
from relkit.launch.netcheck.bad_node import act
from tools.kube_test import pause_image
from tools.kube_test.cluster import API, Cluster
from tools.kube_test.programs import environment, say, wait
from tools.kube_test.runs import ROOT, adapted, older

_BAD = {
    "status": "fail",
    "findings": [{"id": "RK-LNK-004", "status": "fail", "title": "a link is slow"}],
}
_GOOD = {"status": "ok", "findings": []}
_TAINT = "relkit.io/bad-node=true:NoSchedule"
_OURS = ("RelkitHostReady", "RelkitLinksReady")
_PAGE = ROOT / "docs" / "how-to" / "kubernetes.md"
_ACCOUNT = "relkit-node-check"


def check_manifests(cluster: Cluster) -> None:
    """The server takes the objects; of a Job without what 1.20 does not know."""
    for name in ("job", "node-check"):
        values = settle(read_document(ROOT / "deploy" / f"{name}.yaml"), name)
        known = [older(each) for each in objects(values)]
        cluster.make_namespace(values["namespace"])
        cluster.apply(known, "--dry-run=server", "--validate=true")
        say(f"  taken: {', '.join(each['kind'] for each in known)}")


def check_chart(cluster: Cluster) -> None:
    """helm installs the node check in the cluster, and takes all of it away again."""
    given = {**read_document(ROOT / "deploy" / "node-check.yaml"), "name": "charted"}
    given["nodeCheck"] = {"enabled": True, "taint": _TAINT}
    file = cluster.folder / "charted.yaml"
    file.write_text(as_yaml([given]), encoding="utf-8")
    chart = cluster.folder / "chart"
    shutil.copytree(ROOT / "deploy" / "helm" / "relkit", chart)
    about = (chart / "Chart.yaml").read_text(encoding="utf-8")
    # It asks for a newer one, for its Jobs; there is none among these objects.
    lines = [line for line in about.splitlines() if not line.startswith("kubeVersion:")]
    (chart / "Chart.yaml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    label = "app.kubernetes.io/instance=charted"
    kinds = "serviceaccount,daemonset,clusterrole,clusterrolebinding"
    for words in (
        ["install", "charted", str(chart), "-n", "relkit", "--values", str(file)],
        ["uninstall", "charted", "-n", "relkit"],
    ):
        done = subprocess.run(
            ["helm", "--kubeconfig", str(cluster.kubeconfig), *words],
            env=environment(), capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        left = cluster.kubectl("get", kinds, "-n", "relkit", "-l", label, "-o", "name").split()
        assert len(left) == (4 if words[0] == "install" else 0), left
        say(f"  helm {words[0]}: {len(left)} objects there")


def check_node_pods(cluster: Cluster) -> None:
    """A pod on each node checks it, and publishes conditions with its own account."""
    values = _node_values()
    cluster.apply([adapted(each, values) for each in objects(values)])
    names = [each.name for each in cluster.nodes]

    def are_as_expected() -> bool:
        told = [[each["status"] for each in _ours(cluster, name)] for name in names]
        return all(each == ["True", "Unknown"] for each in told)

    # A pod of the chart is a place where relkit works; here are no GPUs with links. On a machine
    # that is too busy, the first look may not be able to tell.
    wait("conditions", are_as_expected)
    for name in names:
        told = _ours(cluster, name)
        say(
            "  "
            + name
            + ": "
            + ", ".join(f"{c['type']}={c['status']} ({c['reason']})" for c in told)
        )
    pods = cluster.get("pods", "-n", "relkit")["items"]
    assert all(not c["restartCount"] for p in pods for c in p["status"]["containerStatuses"])
    started_s = time.monotonic()
    cluster.kubectl("delete", "daemonset", "relkit-node-check", "-n", "relkit", "--timeout=60s")
    wait("the pods' end", lambda: not cluster.get("pods", "-n", "relkit")["items"])
    took_s = time.monotonic() - started_s
    say(f"  deleted: the pods have ended after {took_s:.1f} s")


def check_taint(cluster: Cluster) -> None:
    """The node check's own rights do: conditions, a taint twice, and off again."""
    node = cluster.nodes[0].name
    report: dict[str, Any] = _BAD
    server = ApiServer(API, _account(cluster))
    check = NodeCheck(node, True, parse_taint(_TAINT), None)
    watch = Watch(check, server, lambda line: say(f"  {line}"), lambda _: report, lambda: "")
    for given, is_tainted in ((_BAD, True), (_BAD, True), (_GOOD, False)):
        report = given
        code = watch.look(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        assert code == (1 if is_tainted else 0), code
        assert ("relkit.io/bad-node" in _taints(cluster, node)) is is_tainted
        statuses = [each["status"] for each in _ours(cluster, node)]
        assert statuses == ["False" if is_tainted else "True"] * 2, statuses
    folder = cluster.folder / "other"
    folder.mkdir()
    (folder / "token").write_text("other", encoding="ascii")
    (folder / "ca.crt").write_bytes((cluster.folder / "certs" / "apiserver.crt").read_bytes())
    try:
        ApiServer(API, folder).taints(node)
    except ApiRefused as error:
        say(f"  without the rights: {error}")
    else:
        raise AssertionError("an account without rights was let in")


def check_recipe(cluster: Cluster) -> None:
    """The page's recipe taints a node twice, with the page's rights and no others."""
    text = _PAGE.read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (rights,) = (block for block in blocks if "kind: ClusterRole\n" in block)
    cluster.apply(list(yaml.safe_load_all(rights)))
    match = re.search(r'"(kubectl taint [^"]+)"', text)
    assert match is not None, f"{_PAGE} has no recipe"
    words = match[1].split()
    user = ["--as", "system:serviceaccount:training:trainer"]
    lines: list[str] = []
    node = cluster.nodes[1].name
    for _ in range(2):
        act((words[0], *user, *words[1:]), node, lines.append)
        assert "relkit/network-check" in _taints(cluster, node), lines
    assert not [line for line in lines if "code" in line or "cannot" in line], lines
    for line in lines:
        say(f"  {line}")
    cluster.kubectl("taint", "nodes", node, "relkit/network-check-")


def check_conditions_stay(cluster: Cluster) -> None:
    """The kubelet's own reports leave relkit's conditions as they are."""
    told = cluster.get("node", cluster.nodes[0].name)["status"]["conditions"]
    beats = {each["type"]: each["lastHeartbeatTime"] for each in told}
    assert beats["Ready"] > beats["RelkitLinksReady"], beats
    say(f"  RelkitLinksReady of {beats['RelkitLinksReady']}, the kubelet's of {beats['Ready']}")


def _node_values() -> Values:
    given = {**read_document(ROOT / "deploy" / "node-check.yaml")}
    given["image"], given["imagePullPolicy"] = pause_image.NAME, "Never"
    given["nodeCheck"] = {"enabled": True, "taint": _TAINT, "intervalSeconds": 20}
    return settle(given, "node-check")


def _account(cluster: Cluster) -> Path:
    """The folder that the kubelet gives to the account's pods."""
    told = cluster.get("serviceaccount", _ACCOUNT, "-n", "relkit")
    secret = cluster.get("secret", told["secrets"][0]["name"], "-n", "relkit")["data"]
    folder = cluster.folder / "account"
    folder.mkdir()
    for name in ("token", "ca.crt"):
        (folder / name).write_bytes(base64.b64decode(secret[name]))
    return folder


def _taints(cluster: Cluster, node: str) -> list[str]:
    return [each["key"] for each in cluster.get("node", node)["spec"].get("taints", [])]


def _ours(cluster: Cluster, node: str) -> list[dict[str, Any]]:
    told = cluster.get("node", node)["status"].get("conditions", [])
    return sorted((c for c in told if c["type"] in _OURS), key=lambda c: str(c["type"]))
