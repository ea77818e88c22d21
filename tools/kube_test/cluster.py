"""etcd, kube-apiserver, containerd and a kubelet in namespaces of their own."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tools.kube_test import pause_image

CACHE = Path(os.environ.get("KUBE_CACHE") or Path.home() / ".cache" / "relkit-kube")
NODE, NODE_IP = "n1", "10.99.0.1"
API = "https://127.0.0.1:6443"
CHECKER = "system:serviceaccount:relkit:relkit-node-check"
_WAIT_S = 300.0


class Cluster:
    """A cluster of one node.

    Args:
        folder: of its files, empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root = CACHE / "apt" / "root" / "usr"
        self._path = f"{CACHE / 'bin'}:{root / 'bin'}:{root / 'sbin'}:{os.environ['PATH']}"
        self._socket = folder / "containerd.sock"

    def kubectl(self, *words: str, given: str = "", check: bool = True) -> str:
        """Run kubectl; its stdout."""
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.folder / "kubeconfig"), *words],
            input=given, env=self._environment(), capture_output=True, text=True,
            check=False, timeout=_WAIT_S,
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

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start everything, and end it."""
        with ExitStack() as stack:
            self._network()
            self._files()
            stack.enter_context(self._started("etcd", self._etcd()))
            stack.enter_context(self._started("kube-apiserver", self._api_server()))
            wait(
                "the API server",
                lambda: "ok" in self.kubectl("get", "--raw", "/readyz", check=False),
            )
            stack.enter_context(
                self._started("containerd", ["containerd", "-c", str(self.folder / "cd.toml")])
            )
            wait("containerd", self._socket.exists)
            image = pause_image.write(self.folder)
            wait("the image", lambda: self._ctr("images", "import", str(image)).returncode == 0)
            stack.callback(self._end_containers)
            stack.enter_context(self._started("kubelet", self._kubelet()))
            wait("the node", self._is_ready)
            yield

    def _is_ready(self) -> bool:
        told = self.kubectl("get", "node", NODE, "-o", "json", check=False)
        return '"type": "Ready"' in told and '"KubeletReady"' in told

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "PATH": self._path}

    @contextmanager
    def _started(self, name: str, argv: Sequence[str]) -> Iterator[None]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                argv, cwd=self.folder, env=self._environment(), stdout=log, stderr=log
            )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(20)

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ctr", "-a", str(self._socket), "-n", "k8s.io", *words],
            env=self._environment(), capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    def _end_containers(self) -> None:
        for task in self._ctr("tasks", "ls", "-q").stdout.split():
            self._ctr("tasks", "kill", "-s", "SIGKILL", task)

    def _network(self) -> None:
        for line in (
            "link set lo up",
            "link add d0 type veth peer name d1",
            f"addr add {NODE_IP}/24 dev d0",
            "link set d0 up",
            "link set d1 up",
        ):
            subprocess.run(["ip", *line.split()], check=True, timeout=10)

    def _files(self) -> None:
        folder, plugins = self.folder, CACHE / "apt" / "root" / "usr" / "lib" / "cni"
        (folder / "cni").mkdir()
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "ptp",
                    "ipam": {
                        "type": "host-local",
                        "subnet": "10.244.0.0/24",
                        "routes": [{"dst": "0.0.0.0/0"}],
                        "dataDir": str(folder / "ipam"),
                    },
                }
            ],
        }
        (folder / "cni" / "10-pods.conflist").write_text(json.dumps(network), encoding="ascii")
        (folder / "cd.toml").write_text(
            f"""version = 2
root = "{folder}/containerd"
state = "{folder}/state"
[grpc]
  address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image.NAME}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{folder}/cni"
""",
            encoding="ascii",
        )
        tokens = f'admin,admin,1,"system:masters"\nchecker,{CHECKER},2\nother,other,3\n'
        (folder / "tokens.csv").write_text(tokens, encoding="ascii")
        subprocess.run(
            ["openssl", "genrsa", "-out", str(folder / "sa.key"), "2048"],
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
        (folder / "kubeconfig").write_text(json.dumps(config), encoding="ascii")

    def _etcd(self) -> list[str]:
        client, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        return [
            "etcd", "--data-dir", "etcd", "--unsafe-no-fsync",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        ]  # fmt: skip

    def _api_server(self) -> list[str]:
        issuer = "https://kubernetes.default.svc"
        return [
            "kube-apiserver", "--etcd-servers", "http://127.0.0.1:2379",
            "--service-cluster-ip-range", "10.0.0.0/24", "--bind-address", "127.0.0.1",
            "--advertise-address", NODE_IP, "--secure-port", "6443", "--cert-dir", "certs",
            "--token-auth-file", "tokens.csv", "--authorization-mode", "RBAC",
            "--allow-privileged", "--service-account-issuer", issuer,
            "--service-account-signing-key-file", "sa.key",
            "--service-account-key-file", "sa.key",
            "--disable-admission-plugins", "ServiceAccount",
            "--kubelet-preferred-address-types", "InternalIP",
        ]  # fmt: skip

    def _kubelet(self) -> list[str]:
        return [
            "kubelet", "--kubeconfig", "kubeconfig", "--root-dir", str(self.folder / "kubelet"),
            "--container-runtime=remote", f"--container-runtime-endpoint=unix://{self._socket}",
            "--cgroup-driver=cgroupfs", "--cgroups-per-qos=false",
            "--enforce-node-allocatable=", "--fail-swap-on=false", "--oom-score-adj=0",
            f"--hostname-override={NODE}", f"--node-ip={NODE_IP}",
            "--make-iptables-util-chains=false", "--anonymous-auth=true",
            "--authorization-mode=AlwaysAllow", "--cert-dir", str(self.folder / "kubelet-certs"),
            "--resolv-conf=", "--image-gc-high-threshold=100", "--eviction-hard=",
            "--protect-kernel-defaults=false", "--read-only-port=0",
        ]  # fmt: skip


def wait(what: str, condition: Callable[[], bool], limit_s: float = _WAIT_S) -> None:
    """Wait until it holds.

    Raises:
        AssertionError: it does not within the time.
    """
    end_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end_s:
            raise AssertionError(f"{what}: not within {limit_s:g} s")
        time.sleep(0.5)
