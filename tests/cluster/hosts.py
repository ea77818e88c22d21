"""Hosts on one machine: network namespaces on one bridge, rates limited by tc, an sshd in each.

A host is a namespace with one interface, eth0, whose other end is a port of the bridge. The bridge
lives in a namespace of its own, so nothing here touches the machine's network.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_LIMIT_S = 10.0
# Several fleets may live in one test run.
_NUMBERS = itertools.count()
_PORT = 22
_LATENCY = "50ms"
_UNLIMITED_MBIT = 40_000.0
# 64 bytes, and the headers of IP and TCP with time stamps.
_PING_PACKET_BYTES = 64 + 20 + 32
_NOBODY = "02:00:00:00:00:99"


@dataclass(frozen=True, slots=True)
class Host:
    """One host of the fleet: its name, and what it is called and reached by."""

    name: str
    namespace: str
    address: str
    uplink: str


class Hosts:
    """Some hosts, what may be done to them, and their end.

    Args:
        folder: private to the test; keys, logs and configurations go there.
        count: how many, 1 to 200.
        rate_mbit: what each may send and receive, Mbit/s, through tc's token bucket; 0 for any.
        sshd: start an ssh server in each.
    """

    def __init__(
        self, folder: Path, count: int, *, rate_mbit: float = 0.0, sshd: bool = True
    ) -> None:
        tag = f"{os.getpid()}-{next(_NUMBERS)}-"
        self.folder = folder
        self._switch = f"rk{tag}sw"
        self.hosts = tuple(
            Host(f"h{n}", f"rk{tag}h{n}", f"10.77.0.{n}", f"port{n}") for n in range(1, count + 1)
        )
        self.key = folder / "id_ed25519"
        self.known_hosts = folder / "known_hosts"
        # An `ssh` for PATH that runs where the hosts can be reached: on the switch.
        self.ssh_folder = folder / "bin"
        self._servers: dict[str, subprocess.Popen[bytes]] = {}
        self._out_mbit: dict[str, float] = {}
        self._pair_mbit: dict[str, dict[str, float]] = {}
        try:
            self._build(rate_mbit)
            if sshd:
                self._make_keys()
                for host in self.hosts:
                    self._start_sshd(host)
                for host in self.hosts:
                    self._await_sshd(host)
        except BaseException:
            self.close()
            raise

    def __getitem__(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(host.name for host in self.hosts)

    @property
    def prefix(self) -> tuple[str, ...]:
        """The command prefix to work on a machine that sees all hosts: the switch itself."""
        return ("ip", "netns", "exec", self._switch)

    @property
    def ssh_args(self) -> str:
        """What --ssh-args needs: the throw-away key, and this fleet's known_hosts."""
        return (
            f"-F none -i {self.key} -o IdentitiesOnly=yes -o UserKnownHostsFile={self.known_hosts} "
            "-o GlobalKnownHostsFile=/dev/null -o StrictHostKeyChecking=yes"
        )

    def hosts_file(self, names: Sequence[str] = ()) -> Path:
        """A file for --nodes: a line a host, with its address."""
        path = self.folder / "hosts.txt"
        lines = [
            f"{h.name} address={h.address}" for h in self.hosts if not names or h.name in names
        ]
        path.write_text("\n".join(["# the fleet of a test", *lines]) + "\n", encoding="utf-8")
        return path

    def limit(self, name: str, *, out_mbit: float = 0.0, in_mbit: float = 0.0) -> None:
        """Rates of one host, Mbit/s, by direction; 0 leaves that direction as it is."""
        host = self[name]
        if out_mbit:
            self._out_mbit[name] = out_mbit
            self._shape_out(host)
        if in_mbit:
            self._shape(self._switch, host.uplink, in_mbit)

    def limit_pair(self, one: str, other: str, mbit: float) -> None:
        """The rate between two hosts, both ways; their traffic with all others is not held up."""
        for here, there in ((one, other), (other, one)):
            self._pair_mbit.setdefault(here, {})[there] = mbit
            self._shape_out(self[here])

    def limit_across(self, left: Sequence[str], mbit: float) -> None:
        """A shared slow way between these hosts and all others, as a switch's uplink is.

        A second bridge takes the hosts of `left`; one wire of this rate joins it to the first.
        """
        switch = self._switch
        self._ip(switch, "link", "add", "br1", "type", "bridge")
        self._ip(switch, "link", "set", "br1", "up")
        self._ip(switch, "link", "add", "up0", "type", "veth", "peer", "name", "up1")
        for end, bridge in (("up0", "br0"), ("up1", "br1")):
            self._ip(switch, "link", "set", end, "master", bridge, "up")
            self._shape(switch, end, mbit)
        for name in left:
            self._ip(switch, "link", "set", self[name].uplink, "master", "br1")

    def add_second_network(self) -> None:
        """Each host gets an address in a second network on the same wire, see second_address."""
        for host in self.hosts:
            address = self.second_address(host.name)
            self._ip(host.namespace, "addr", "add", f"{address}/24", "dev", "eth0")

    def second_address(self, name: str) -> str:
        """Of a host, once the second network is there; cuts of pairs leave it alone."""
        return self[name].address.replace("10.77.", "10.88.")

    def own_ports(self, name: str, low: int, high: int) -> None:
        """The ports that this host gives to sockets which ask for any."""
        setting = f"net.ipv4.ip_local_port_range={low} {high}"
        _run("ip", "netns", "exec", self[name].namespace, "sysctl", "-w", setting)

    def delay_pings(self, name: str, delay_ms: float) -> None:
        """Each small packet of the probe's ping-pong leaves the host this much later.

        The kernel may lack netem: packets of just this size wait for tokens instead.
        """
        dev = ("dev", "eth0")
        tc = ("tc", "-n", self[name].namespace)
        most = self._out_mbit.get(name, _UNLIMITED_MBIT)
        bits = 8 * (_PING_PACKET_BYTES + 14)
        slow = ("rate", f"{bits / delay_ms * 1000:.0f}bit", "burst", "1", "cburst", "1")
        _unshape(self[name].namespace)
        _run(*tc, "qdisc", "add", *dev, "root", "handle", "1:", "htb", "default", "2")
        _run(*tc, "class", "add", *dev, "parent", "1:", "classid", "1:2", "htb", *_htb(most))
        _run(*tc, "class", "add", *dev, "parent", "1:", "classid", "1:3", "htb", *slow)
        _run(
            *(*tc, "filter", "add", *dev, "parent", "1:", "protocol", "ip", "u32"),
            *("match", "u16", str(_PING_PACKET_BYTES), "0xffff", "at", "2", "flowid", "1:3"),
        )

    def cut_pair(self, one: str, other: str) -> None:
        """No packet passes between these two, nothing is refused; all others reach both."""
        for here, there in ((one, other), (other, one)):
            self._ip(
                *(self[here].namespace, "neigh", "replace", self[there].address),
                *("lladdr", _NOBODY, "dev", "eth0", "nud", "permanent"),
            )

    def exclude(self, here: str, there: str, kind: str) -> None:
        """One host's route that excludes another: blackhole, unreachable, prohibit or throw."""
        self._ip(self[here].namespace, "route", "add", kind, f"{self[there].address}/32")

    def cut(self, name: str) -> None:
        """The host is off the net: packets to it are lost, nothing is refused."""
        self._ip(self._switch, "link", "set", self[name].uplink, "down")

    def mend(self, name: str) -> None:
        """The host is on the net again."""
        self._ip(self._switch, "link", "set", self[name].uplink, "up")

    def stop_sshd(self, name: str) -> None:
        """Nobody listens on this host's ssh port any more."""
        server = self._servers.pop(name)
        server.terminate()
        server.wait(_LIMIT_S)

    def processes(self) -> dict[str, list[int]]:
        """Processes in each host besides its sshd: what a fleet must have left behind: none."""
        return {
            h.name: [p for p in self._pids(h.namespace) if not self._is_sshd(p)] for h in self.hosts
        }

    def close(self) -> None:
        """End the servers and whatever else runs in the namespaces, then remove these."""
        for server in self._servers.values():
            server.terminate()
        for server in self._servers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(_LIMIT_S)
        self._servers.clear()
        for namespace in [*(host.namespace for host in self.hosts), self._switch]:
            for pid in self._pids(namespace):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(
                ["ip", "netns", "del", namespace],
                timeout=_LIMIT_S,
                capture_output=True,
                check=False,
            )

    def _build(self, rate_mbit: float) -> None:
        _run("ip", "netns", "add", self._switch)
        self._ip(self._switch, "link", "set", "lo", "up")
        self._ip(self._switch, "link", "add", "br0", "type", "bridge")
        self._ip(self._switch, "addr", "add", "10.77.0.254/24", "dev", "br0")
        self._ip(self._switch, "link", "set", "br0", "up")
        for host in self.hosts:
            _run("ip", "netns", "add", host.namespace)
            self._ip(host.namespace, "link", "set", "lo", "up")
            self._ip(
                *(self._switch, "link", "add", host.uplink, "type", "veth"),
                *("peer", "name", "eth0", "netns", host.namespace),
            )
            self._ip(self._switch, "link", "set", host.uplink, "master", "br0", "up")
            self._ip(host.namespace, "addr", "add", f"{host.address}/24", "dev", "eth0")
            self._ip(host.namespace, "link", "set", "eth0", "up")
            if rate_mbit:
                self.limit(host.name, out_mbit=rate_mbit, in_mbit=rate_mbit)

    def _shape(self, namespace: str, device: str, mbit: float) -> None:
        _run(
            *("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "handle", "1:"),
            *("tbf", "rate", f"{mbit:g}mbit", "burst", str(_burst(mbit)), "latency", _LATENCY),
        )

    def _shape_out(self, host: Host) -> None:
        """What the host sends: a token bucket, or classes where single pairs have rates too."""
        whole = self._out_mbit.get(host.name, 0.0)
        pairs = self._pair_mbit.get(host.name, {})
        if not pairs:
            self._shape(host.namespace, "eth0", whole)
            return
        most = whole or _UNLIMITED_MBIT
        tc = ("tc", "-n", host.namespace)
        dev = ("dev", "eth0")
        _unshape(host.namespace)
        _run(*tc, "qdisc", "add", *dev, "root", "handle", "1:", "htb", "default", "2")
        _run(*tc, "class", "add", *dev, "parent", "1:", "classid", "1:1", "htb", *_htb(most))
        _run(*tc, "class", "add", *dev, "parent", "1:1", "classid", "1:2", "htb", *_htb(most))
        for number, (peer, mbit) in enumerate(pairs.items(), 16):
            child = f"1:{number:x}"
            _run(*tc, "class", "add", *dev, "parent", "1:1", "classid", child, "htb", *_htb(mbit))
            _run(
                *(*tc, "filter", "add", *dev, "parent", "1:", "protocol", "ip", "u32"),
                *("match", "ip", "dst", f"{self[peer].address}/32", "flowid", child),
            )

    def _make_keys(self) -> None:
        _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.key))
        lines = []
        for host in self.hosts:
            path = self.folder / f"host_key_{host.name}"
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
            public = path.with_suffix(".pub").read_text(encoding="utf-8").split()[:2]
            lines.append(f"{host.address} {' '.join(public)}\n")
        self.known_hosts.write_text("".join(lines), encoding="utf-8")
        wrapper = self.ssh_folder / "ssh"
        self.ssh_folder.mkdir(mode=0o700)
        wrapper.write_text(f'#!/bin/sh\nexec {" ".join(self.prefix)} /usr/bin/ssh "$@"\n')
        wrapper.chmod(0o700)
        # sshd's own separation folder; Debian's service makes it, and no service runs here.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)

    def _start_sshd(self, host: Host) -> None:
        config = self.folder / f"sshd_{host.name}"
        config.write_text(
            f"ListenAddress {host.address}:{_PORT}\n"
            f"HostKey {self.folder / f'host_key_{host.name}'}\n"
            f"AuthorizedKeysFile {self.folder / 'id_ed25519.pub'}\n"
            "PidFile none\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
            "StrictModes no\nPrintMotd no\nMaxStartups 100\nUseDNS no\n"
            # Nothing that the user's shell does when it starts is done on a host.
            f"SetEnv HOME={self.folder}\n",
            encoding="utf-8",
        )
        with (self.folder / f"sshd_{host.name}.log").open("wb") as log:
            self._servers[host.name] = subprocess.Popen(
                [
                    "ip",
                    "netns",
                    "exec",
                    host.namespace,
                    "/usr/sbin/sshd",
                    "-D",
                    "-e",
                    "-f",
                    str(config),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _await_sshd(self, host: Host) -> None:
        end = time.monotonic() + _LIMIT_S
        while time.monotonic() < end:
            done = subprocess.run(
                ["ip", "netns", "exec", host.namespace, "ss", "-Hltn", f"sport = :{_PORT}"],
                capture_output=True,
                timeout=_LIMIT_S,
                check=False,
            )
            if done.stdout.strip():
                return
            assert self._servers[host.name].poll() is None, (
                self.folder / f"sshd_{host.name}.log"
            ).read_text(encoding="utf-8")
            time.sleep(0.02)
        raise AssertionError(f"no sshd in {host.name}")

    def _ip(self, namespace: str, *words: str) -> None:
        _run("ip", "-n", namespace, *words)

    def _pids(self, namespace: str) -> list[int]:
        done = subprocess.run(
            ["ip", "netns", "pids", namespace], capture_output=True, timeout=_LIMIT_S, check=False
        )
        return [int(word) for word in done.stdout.split()]

    @staticmethod
    def _is_sshd(pid: int) -> bool:
        try:
            return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").startswith("sshd")
        except OSError:
            return True


def _unshape(namespace: str) -> None:
    """Another kind of queue cannot replace one; there may be none."""
    subprocess.run(
        ["tc", "-n", namespace, "qdisc", "del", "dev", "eth0", "root"],
        timeout=_LIMIT_S, capture_output=True, check=False,
    )  # fmt: skip


def _burst(mbit: float) -> int:
    """Bytes: 10 ms at this rate, and never less than two offloaded packets of 64 KiB."""
    return max(128 * 1024, int(mbit * 1e6 / 8 * 0.01))


def _htb(mbit: float) -> tuple[str, ...]:
    burst = str(_burst(mbit))
    return ("rate", f"{mbit:g}mbit", "burst", burst, "cburst", burst, "quantum", "60000")


def _run(*argv: str) -> None:
    done = subprocess.run(argv, capture_output=True, timeout=_LIMIT_S, check=False)
    assert done.returncode == 0, f"{' '.join(argv)}: {done.stderr.decode(errors='replace')}"


@contextlib.contextmanager
def some_hosts(
    folder: Path, count: int, *, rate_mbit: float = 0.0, sshd: bool = True
) -> Iterator[Hosts]:
    """Hosts for the time of a with block."""
    hosts = Hosts(folder, count, rate_mbit=rate_mbit, sshd=sshd)
    try:
        yield hosts
    finally:
        hosts.close()
