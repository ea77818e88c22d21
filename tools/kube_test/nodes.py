"""A node of the cluster: containerd and a kubelet in namespaces of their own, on a cable."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tools.kube_test import pause_image
from tools.kube_test.programs import CACHE, environment, started, wait

BRIDGE, GATEWAY = "pods0", "10.99.0.254"
API_ADDRESS = "10.0.0.1"
_MASK = 24
# What containerd and the kubelet keep outside of their folders, so that none of it is left behind.
_PRIVATE = ("/run", "/var/log", "/var/lib")


class Node:
    """A node; how() is that of a machine: a cut() one is neither reached nor stopped.

    Args:
        folder: of its files, made here.
        number: 1 to 9.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self.name, self.address = f"n{number}", f"10.99.0.{number}"
        self._pods = f"10.244.{number}.0/24"
        self._cable = f"cable{number}"
        self._folder = folder / self.name
        self._socket = self._folder / "containerd.sock"
        self._holder: subprocess.Popen[str] | None = None
        self._kubelet: subprocess.Popen[bytes] | None = None

    @contextmanager
    def running(self, others: Sequence[Node]) -> Iterator[None]:
        """Start it, and end all that runs on it.

        Args:
            others: the nodes whose pods are to be reached, itself too.
        """
        self._folder.mkdir()
        self._files()
        with ExitStack() as stack:
            stack.enter_context(self._namespaces())
            self._connect(others)
            argv = ["containerd", "-c", str(self._folder / "containerd.toml")]
            stack.enter_context(self._started("containerd", argv))
            wait("containerd", self._socket.exists)
            image = str(self._folder.parent / pause_image.FILE)
            wait("the image", lambda: self._ctr("images", "import", image).returncode == 0)
            stack.callback(self._end_containers)
            self._kubelet = stack.enter_context(self._started("kubelet", self._kubelets()))
            yield

    def cut(self) -> None:
        """Stop its kubelet, and pull the cable: as a machine that is lost looks to the others."""
        assert self._kubelet is not None
        self._kubelet.send_signal(signal.SIGKILL)
        _ip("link", "set", self._cable, "down")

    def kill_container(self, container_id: str) -> None:
        """SIGKILL to a container's first process, as by the kernel that is out of memory.

        Args:
            container_id: as in a pod's status, without containerd://.
        """
        done = self._ctr("tasks", "kill", "-s", "SIGKILL", container_id)
        assert done.returncode == 0, done.stderr

    @contextmanager
    def _namespaces(self) -> Iterator[None]:
        mounts = " && ".join(f"mkdir -p {at} && mount -t tmpfs none {at}" for at in _PRIVATE)
        text = f"{mounts} && echo ready && exec sleep infinity"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--mount", "sh", "-c", text],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert self._holder.stdout is not None
            assert self._holder.stdout.readline() == "ready\n", "no namespaces"
            yield
        finally:
            self._holder.kill()
            self._holder.wait(20)

    def _inside(self, argv: Sequence[str]) -> list[str]:
        assert self._holder is not None
        return ["nsenter", "-t", str(self._holder.pid), "--net", "--mount", *argv]

    def _connect(self, others: Sequence[Node]) -> None:
        assert self._holder is not None
        _ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0",
            "netns", str(self._holder.pid))  # fmt: skip
        _ip("link", "set", self._cable, "master", BRIDGE, "up")
        lines = ["link set lo up", f"addr add {self.address}/{_MASK} dev eth0", "link set eth0 up"]
        lines.append(f"route add default via {GATEWAY}")
        lines += [
            f"route add {each._pods} via {each.address}" for each in others if each is not self
        ]
        for line in lines:
            subprocess.run(self._inside(["ip", *line.split()]), check=True, timeout=10)
        # A namespace's own, whoever asks.
        forward = ["sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"]
        subprocess.run(self._inside(forward), check=True, timeout=10)
        _ip("route", "add", self._pods, "via", self.address)

    @contextmanager
    def _started(self, name: str, argv: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        with started(self._folder / f"{name}.log", self._inside(argv)) as process:
            yield process

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["ctr", "-a", str(self._socket), "-n", "k8s.io", *words],
            env=environment(), capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    def _end_containers(self) -> None:
        # "rm" also takes away the control groups, which are the machine's own.
        for task in self._ctr("tasks", "ls", "-q").stdout.split():
            self._ctr("tasks", "kill", "-s", "SIGKILL", task)
        for task in self._ctr("tasks", "ls", "-q").stdout.split():
            self._ctr("tasks", "rm", "-f", task)

    def _files(self) -> None:
        plugins = CACHE / "apt" / "root" / "usr" / "lib" / "cni"
        ipam = {
            "type": "host-local",
            "subnet": self._pods,
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(self._folder / "ipam"),
        }
        network = {
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [{"type": "ptp", "ipam": ipam}],
        }
        (self._folder / "cni").mkdir()
        (self._folder / "cni" / "10-pods.conflist").write_text(json.dumps(network), "ascii")
        (self._folder / "containerd.toml").write_text(
            f"""version = 2
root = "{self._folder}/containerd"
state = "{self._folder}/state"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self._folder}/opt"
[grpc]
  address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause_image.NAME}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{self._folder}/cni"
""",
            encoding="ascii",
        )

    def _kubelets(self) -> list[str]:
        kubeconfig = self._folder.parent / "kubeconfig"
        return [
            "kubelet", f"--kubeconfig={kubeconfig}", f"--root-dir={self._folder / 'kubelet'}",
            "--container-runtime=remote", f"--container-runtime-endpoint=unix://{self._socket}",
            "--cgroup-driver=cgroupfs", "--cgroups-per-qos=false",
            "--enforce-node-allocatable=", "--fail-swap-on=false", "--oom-score-adj=0",
            f"--hostname-override={self.name}", f"--node-ip={self.address}",
            "--make-iptables-util-chains=false", "--anonymous-auth=true",
            "--authorization-mode=AlwaysAllow", f"--cert-dir={self._folder / 'certs'}",
            "--resolv-conf=", "--image-gc-high-threshold=100", "--eviction-hard=",
            "--protect-kernel-defaults=false", "--read-only-port=0",
        ]  # fmt: skip


def make_bridge() -> None:
    """The network between nodes, and the address of the API server for all of them."""
    for line in (
        "link set lo up",
        f"addr add {API_ADDRESS}/32 dev lo",
        f"link add {BRIDGE} type bridge",
        f"addr add {GATEWAY}/{_MASK} dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ):
        _ip(*line.split())
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, timeout=10)
