"""Uplinks that are narrow for several pairs only, in network namespaces: are just these named?

usage: python benchmarks/networks/narrow_uplinks.py [--sets 20] [--seed 1] [--switches 6]
       [--size 3]
       [--rate-mbit 20] [--duration-s 0.6] [--plain] [--json FILE]

As root. Each switch is a bridge with its hosts; a wire joins it to a core bridge. tc's token bucket
limits each host to --rate-mbit both ways, a healthy uplink to three times what its hosts need, and
a faulty one to 1.1 to 1.6 times what one host needs: one pair alone is at full speed. Each set has
0 to switches / 3 faulty uplinks (the first set none), and every third set a slow host beside them.

A set is right if all faulty uplinks are named, every slow host, and nothing else. --plain leaves
out the rounds under load, to show what is named without them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.fleet.open import open_channel
from relkit.hosts import NodeSpec
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.measure import schedule
from relkit.netcheck.measure.controller import run_check
from relkit.netcheck.measure.load_rounds import most_load_rounds
from relkit.netcheck.measure.loaded_schedule import by_switch
from relkit.netcheck.measure.options import CheckOptions
from relkit.netcheck.model import NetVerdict, Thresholds
from relkit.netcheck.solve.judge import judge

_LIMIT_S = 20.0
_BURST_BYTES = 16 * 1024
_LATENCY = "100ms"


@dataclass(frozen=True, slots=True)
class Case:
    """One set of faults.

    Args:
        uplinks: switch -> the rate of its uplink as a multiple of one host's.
        slow: host -> the share of its rate that is left.
    """

    uplinks: dict[str, float]
    slow: dict[str, float]


def case_of(seed: int, number: int, switches: int, size: int) -> Case:
    """The faults of one set: the same for the same numbers."""
    chance = random.Random(1000 * seed + number)  # noqa: S311  (faults, not secrets)
    count = chance.randint(1, max(1, switches // 3)) if number else 0
    faulty = chance.sample(range(switches), count)
    uplinks = {f"asw-{at}": round(chance.uniform(1.1, 1.6), 2) for at in sorted(faulty)}
    whole = [at for at in range(switches) if at not in faulty]
    slow = {}
    if number % 3 == 2 and size > 2:
        slow[f"h{chance.choice(whole) * size + chance.randrange(size)}"] = 0.5
    return Case(uplinks, slow)


@contextlib.contextmanager
def network(
    case: Case, switches: int, size: int, rate_mbit: float
) -> Iterator[tuple[tuple[NodeSpec, ...], dict[str, str], str]]:
    """The hosts, which switch each is behind, and the prefix of their namespaces' names."""
    tag = f"rku{os.getpid()}"
    core = f"{tag}core"
    made: list[str] = []
    try:
        _namespace(core, made)
        nodes, groups = [], {}
        for at in range(switches):
            name, inside = f"asw-{at}", f"{tag}s{at}"
            _namespace(inside, made)
            _bridge(inside)
            _wire(inside, f"up{at}", core, f"down{at}")
            width = case.uplinks.get(name, 3.0 * size) * rate_mbit
            for where, device in ((inside, f"up{at}"), (core, f"down{at}")):
                _shape(where, device, width)
            for number in range(at * size, (at + 1) * size):
                host, address = f"h{number}", f"10.76.{at}.{number % size + 1}"
                _namespace(f"{tag}{host}", made)
                _host(f"{tag}{host}", inside, f"p{number}", address)
                for where, device in ((f"{tag}{host}", "eth0"), (inside, f"p{number}")):
                    _shape(where, device, case.slow.get(host, 1.0) * rate_mbit)
                nodes.append(NodeSpec(host, address=address))
                groups[host] = name
        _bridge(core)
        yield tuple(nodes), groups, tag
    finally:
        for namespace in reversed(made):
            subprocess.run(["ip", "netns", "del", namespace], timeout=_LIMIT_S, check=False)


def check(
    case: Case, switches: int, size: int, rate_mbit: float, duration_s: float, *, plain: bool
) -> tuple[CheckResult, NetVerdict]:
    """Measure one set through agents in its namespaces, and judge it."""
    bounds = Thresholds()
    with network(case, switches, size, rate_mbit) as (nodes, groups, tag):
        prefix = f"ip netns exec {tag}{{node}}"
        relkit = f"{sys.executable} -m relkit"
        result = run_check(
            open_channel("command", command=prefix, relkit=relkit, fanout=8, node_limit_s=120.0),
            nodes,
            lambda names: (schedule.groups if plain else by_switch)(
                names, groups, thresholds=bounds
            ),
            options=CheckOptions(start_s=180.0, timeout_s=60.0, duration_s=duration_s),
            mode="groups",
            groups=groups,
        )
    return result, judge(result, bounds)


def named(verdict: NetVerdict) -> tuple[set[str], set[str]]:
    """Uplinks, and everything else, that the verdict accuses."""
    load = verdict.load
    uplinks = {item.switch for item in load.narrow} if load else set()
    others = {item.name for item in verdict.diagnoses}
    slow = {name for name in others if name.startswith("switch ")}
    return uplinks | {name.removeprefix("switch ") for name in slow}, others - slow


def main(argv: Sequence[str] | None = None) -> int:
    """Run all sets; 0 if each is right within its bound."""
    options = _parser().parse_args(argv)
    rows = []
    for number in range(options.sets):
        case = case_of(options.seed, number, options.switches, options.size)
        begun_s = time.monotonic()
        result, verdict = check(
            case, options.switches, options.size, options.rate_mbit, options.duration_s,
            plain=options.plain,
        )  # fmt: skip
        uplinks, others = named(verdict)
        used = verdict.load.rounds if verdict.load else 0
        bound = most_load_rounds(options.switches, len(case.uplinks))
        is_right = (uplinks, others) == (set(case.uplinks), set(case.slow))
        rows.append(
            {
                "set": number,
                "uplinks": case.uplinks,
                "slow": case.slow,
                "right": is_right,
                "is_met": is_right and used <= bound,
                "named": sorted(uplinks | others),
                "open": [list(names) for names, _ in verdict.inconclusive],
                "load_rounds": used,
                "bound": bound,
                "rounds": result.rounds,
                "seconds": round(time.monotonic() - begun_s, 1),
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    right = sum(bool(row["is_met"]) for row in rows)
    counts = Counter(row["load_rounds"] for row in rows)
    print(f"{right} of {len(rows)} right within 2 + d log2 N rounds under load: {dict(counts)}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if right == len(rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--switches", type=int, default=6)
    parser.add_argument("--size", type=int, default=3)
    parser.add_argument("--rate-mbit", type=float, default=20.0)
    parser.add_argument("--duration-s", type=float, default=0.6)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--json", type=Path)
    return parser


def _namespace(name: str, made: list[str]) -> None:
    _run("ip", "netns", "add", name)
    made.append(name)
    _run("ip", "-n", name, "link", "set", "lo", "up")


def _bridge(namespace: str) -> None:
    """A bridge over all devices that are in the namespace now, or come later through _wire."""
    _run("ip", "-n", namespace, "link", "add", "br0", "type", "bridge")
    _run("ip", "-n", namespace, "link", "set", "br0", "up")
    done = subprocess.run(
        ["ip", "-n", namespace, "-j", "link"], capture_output=True, timeout=_LIMIT_S, check=True
    )
    for link in json.loads(done.stdout):
        if link["ifname"] not in ("lo", "br0"):
            _run("ip", "-n", namespace, "link", "set", link["ifname"], "master", "br0", "up")


def _wire(one: str, device: str, other: str, far: str) -> None:
    _run(
        "ip", "-n", one, "link", "add", device, "type", "veth", "peer", "name", far, "netns", other
    )
    _run("ip", "-n", one, "link", "set", device, "master", "br0", "up")


def _host(namespace: str, switch: str, port: str, address: str) -> None:
    _wire(switch, port, namespace, "eth0")
    _run("ip", "-n", namespace, "addr", "add", f"{address}/16", "dev", "eth0")
    _run("ip", "-n", namespace, "link", "set", "eth0", "up")


def _shape(namespace: str, device: str, mbit: float) -> None:
    _run(
        *("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf"),
        *("rate", f"{mbit:g}mbit", "burst", str(_BURST_BYTES), "latency", _LATENCY),
    )


def _run(*argv: str) -> None:
    subprocess.run(argv, capture_output=True, timeout=_LIMIT_S, check=True)


if __name__ == "__main__":
    sys.exit(main())
