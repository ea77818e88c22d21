"""etcd, kube-apiserver, its controllers and scheduler, and nodes, in namespaces of their own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from tools.kube_test import pause_image
from tools.kube_test.nodes import API_ADDRESS, GATEWAY, Node, make_bridge
from tools.kube_test.programs import WAIT_S, environment, started, wait

# Of containerd's namespace: the machine's own, whatever namespaces we are in.
_GROUPS = ("k8s.io", "*/k8s.io")
_SHARES = 8192
API = f"https://{API_ADDRESS}:443"
_NODES = 3


class Cluster:
    """A cluster of three nodes.

    Args:
        folder: of its files, empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self.nodes = [Node(folder, number + 1) for number in range(_NODES)]

    def kubectl(self, *words: str, given: str = "", check: bool = True) -> str:
        """Run kubectl; its stdout."""
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), *words],
            input=given, env=environment(), capture_output=True, text=True,
            check=False, timeout=WAIT_S,
        )  # fmt: skip
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout if check else done.stdout + done.stderr

    def get(self, *words: str) -> dict[str, Any]:
        """`kubectl get -o json`."""
        told: dict[str, Any] = json.loads(self.kubectl("get", *words, "-o", "json"))
        return told

    def apply(self, documents: Sequence[Mapping[str, Any]], *words: str) -> str:
        """`kubectl apply`."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        return self.kubectl("apply", "-f", "-", *words, given=text)

    def make_namespace(self, name: str) -> None:
        """A namespace whose pods may start at once."""
        self.kubectl("create", "namespace", name)
        wait("its account", lambda: self._has_account(name))

    def _has_account(self, name: str) -> bool:
        told = self.kubectl(
            "get", "serviceaccount", "default", "-n", name, "-o", "json", check=False
        )
        return '"secrets"' in told

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start everything, and end it."""
        with ExitStack() as stack:
            stack.enter_context(_control_groups())
            make_bridge()
            self._files()
            pause_image.write(self.folder)
            for argv in (self._etcd(), self._api_server()):
                stack.enter_context(started(self.folder / f"{argv[0]}.log", argv))
            wait(
                "the API server",
                lambda: "ok" in self.kubectl("get", "--raw", "/readyz", check=False),
            )
            for argv in (self._controllers(), self._scheduler()):
                stack.enter_context(started(self.folder / f"{argv[0]}.log", argv))
            for node in self.nodes:
                stack.enter_context(node.running(self.nodes))
            wait("the nodes", lambda: all(self.is_ready(node.name) for node in self.nodes))
            yield

    def is_ready(self, node: str) -> bool:
        """Whether a node has the condition Ready."""
        told = self.kubectl("get", "node", node, "-o", "json", check=False)
        if not told.startswith("{"):
            return False
        conditions = json.loads(told)["status"].get("conditions", ())
        return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def node(self, name: str) -> Node:
        """The node of this name."""
        return next(each for each in self.nodes if each.name == name)

    def _files(self) -> None:
        tokens = 'admin,admin,1,"system:masters"\nother,other,2\n'
        (self.folder / "tokens.csv").write_text(tokens, encoding="ascii")
        subprocess.run(
            ["openssl", "genrsa", "-out", str(self.folder / "sa.key"), "2048"],
            check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": API, "insecure-skip-tls-verify": True}}
            ],
            "users": [{"name": "u", "user": {"token": "admin"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self.kubeconfig.write_text(json.dumps(config), encoding="ascii")

    def _etcd(self) -> list[str]:
        client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        return [
            "etcd", "--data-dir", "etcd", "--unsafe-no-fsync",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        ]  # fmt: skip

    def _api_server(self) -> list[str]:
        # Pods reach it at the first address of the services, which is the machine's own here: no
        # kube-proxy is needed for that.
        return [
            "kube-apiserver", "--etcd-servers", "http://127.0.0.1:2379",
            "--service-cluster-ip-range", "10.0.0.0/24", "--bind-address", "0.0.0.0",  # noqa: S104
            "--advertise-address", GATEWAY, "--secure-port", "443", "--cert-dir", "certs",
            "--token-auth-file", "tokens.csv", "--authorization-mode", "RBAC",
            "--allow-privileged", "--service-account-issuer", "https://kubernetes.default.svc",
            "--service-account-signing-key-file", "sa.key",
            "--service-account-key-file", "sa.key",
            "--kubelet-preferred-address-types", "InternalIP",
        ]  # fmt: skip

    def _controllers(self) -> list[str]:
        return [
            "kube-controller-manager", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false",
            "--service-account-private-key-file=sa.key", "--root-ca-file=certs/apiserver.crt",
        ]  # fmt: skip

    def _scheduler(self) -> list[str]:
        return ["kube-scheduler", f"--kubeconfig={self.kubeconfig}", "--leader-elect=false"]


@contextmanager
def _control_groups() -> Iterator[None]:
    """Take away the control groups that containers leave, unless some were there before."""
    root = Path("/sys/fs/cgroup")
    before = {each for pattern in _GROUPS for each in root.glob(pattern)}
    if (root / "cpu").is_dir() and not before:
        # Else all pods together weigh as much as one program beside them.
        (root / "cpu" / "k8s.io").mkdir(exist_ok=True)
        (root / "cpu" / "k8s.io" / "cpu.shares").write_text(str(_SHARES), encoding="ascii")
    try:
        yield
    finally:
        made = {each for pattern in _GROUPS for each in root.glob(pattern)} - before
        for top in made:
            for folder in sorted(top.rglob("*/"), reverse=True):
                with suppress(OSError):
                    folder.rmdir()
            with suppress(OSError):
                top.rmdir()
