"""What relkit netcheck does between its options and its report: measure, save, draw."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from relkit.commands.shared.fleet_nodes import channel_of, nodes_of
from relkit.errors import UsageProblem
from relkit.findings import Report
from relkit.hosts import NodeSpec
from relkit.log_lines import say
from relkit.netcheck.check_result import CheckResult
from relkit.netcheck.measure import bundle, schedule
from relkit.netcheck.measure.controller import run_check
from relkit.netcheck.measure.loaded_schedule import by_switch
from relkit.netcheck.measure.options import CheckOptions, for_probe
from relkit.netcheck.measure.probes.names import AUTO
from relkit.netcheck.model import Thresholds
from relkit.netcheck.report.retest import with_partners
from relkit.output import as_json, write_atomic

_GRAPH_S = 20.0

_SIZE = re.compile(r"(\d{1,12})(?:([KM])(?:i?B)?|B)?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
_MAX_BYTES = 256 << 20
_MAX_SIZES = 8


def refuse_old_bundle(folder: Path | None, force: bool) -> None:
    """Refuse to write over a bundle, before anything is measured.

    Raises:
        UsageProblem: there is one in the folder, and --force was not given.
    """
    if folder is not None and (folder / bundle.HEAD).exists() and not force:
        raise UsageProblem(f"{folder} has a bundle already", next_step="Add --force to replace it.")


def check_options(
    probe: str,
    step_timeout_s: float,
    duration_s: float,
    streams: int,
    sizes_bytes: tuple[int, ...],
    both_ways: bool,
    compute: bool,
) -> CheckOptions:
    """The options of a check, with a limit for each pair that is long enough for its probe.

    Args:
        probe: as in --probe.
        step_timeout_s: --timeout: for the agents to come up, and at least for each pair, s.
        duration_s: of one measurement of bandwidth, s.
        streams, sizes_bytes, both_ways: as in CheckOptions; compute: score each node's devices.
    """
    options = CheckOptions(
        start_s=step_timeout_s,
        timeout_s=step_timeout_s,
        duration_s=duration_s,
        streams=streams,
        sizes_bytes=sizes_bytes,
        both_ways=both_ways,
        compute_rounds=int(compute),
    )
    # Which probe it will be is known once the nodes have answered.
    return options if probe == AUTO else for_probe(options, probe)


def measure(
    fleet: Mapping[str, str | int | float],
    mode: str,
    topology: Path | None,
    probe: str,
    options: CheckOptions,
    thresholds: Thresholds,
    *,
    only: str = "",
) -> CheckResult:
    """Run the check that the options describe, with a progress bar on a terminal.

    Args:
        fleet, mode, topology, probe, options, thresholds: of the command.
        only: leave out all nodes but this one and a few partners; "" for none.
    """
    nodes = nodes_of(fleet)
    if only:
        nodes = _with_partners(nodes, only)
    if fleet["via"] == "local":
        # Agents on this machine need no address of their own.
        nodes = tuple(replace(node, address=node.address or "127.0.0.1") for node in nodes)
    groups = _groups(nodes, topology)
    if mode == "groups" and not groups:
        raise UsageProblem(
            "--mode groups needs to know the switches", next_step="Add --topology FILE."
        )
    channel = channel_of(fleet, options.start_s)
    with _Bar() as bar:
        return run_check(
            channel,
            nodes,
            _plan(mode, groups, thresholds),
            options=options,
            probe=probe,
            mode=mode,
            groups=groups,
            progress=bar.show,
        )


def _with_partners(nodes: Sequence[NodeSpec], only: str) -> tuple[NodeSpec, ...]:
    names = [node.name for node in nodes]
    if only not in names:
        raise UsageProblem(
            f"{only} is none of the nodes", next_step="Name it with others in --nodes."
        )
    return with_partners(names, only, nodes)


def kept_in_history(report: Report, nodes: Sequence[str]) -> Report:
    """The report of a check that was just made, with what is known of its nodes from before.

    It is added to the history of this host, where that can be written.

    Args:
        nodes: the names of all that were to be measured.
    """
    # Only here: a check that is read again needs no database.
    from relkit.history.database import write
    from relkit.history.findings_of_nodes import events_of
    from relkit.history.place import NoHistory, history_folder
    from relkit.history.report import often_findings

    now_s = time.time()
    try:
        folder = history_folder()
        before = often_findings(folder, now_s, *nodes)
        run = f"netcheck:{os.getpid()}:{now_s:.0f}"
        write(folder, events_of(report.to_json(), run=run, host=os.uname().nodename), now_s)
    except NoHistory as error:
        say(f"no history is kept of this check: {error}")
        return report
    return replace(report, findings=(*report.findings, *before))


def save_all(folder: Path, result: CheckResult, report: Report) -> list[Path]:
    """The bundle, and the report in every form that people open."""
    from relkit.reports import dot
    from relkit.reports.networks import netcheck_html, topology_graph

    written = bundle.save(folder, result)
    graph = topology_graph.graph(report.facts)
    picture = dot.picture(graph, timeout_s=_GRAPH_S)
    for name, text in (
        ("report.json", as_json(report)),
        ("graph.dot", graph),
        ("report.html", netcheck_html.render(report, result.edges, graph_svg=picture)),
    ):
        write_atomic(folder / name, text)
        written.append(folder / name)
    return written


def _plan(
    mode: str, groups: Mapping[str, str], thresholds: Thresholds
) -> Callable[[Sequence[str]], schedule.Schedule]:
    if mode == "full":
        return partial(schedule.full, thresholds=thresholds)
    if mode == "groups":
        return lambda nodes: by_switch(nodes, groups, thresholds=thresholds)
    return partial(schedule.quick, thresholds=thresholds)


def _groups(nodes: Sequence[NodeSpec], topology: Path | None) -> dict[str, str]:
    """Node -> switch, for the nodes that the topology file knows by name or by address."""
    if topology is None:
        return {}
    from relkit.topology import switches

    by_name = switches(topology)
    known: dict[str, str] = {}
    for node in nodes:
        switch = by_name.get(node.name) or by_name.get(node.target)
        if switch:
            known[node.name] = switch
    missing = [node.name for node in nodes if node.name not in known]
    if missing:
        raise UsageProblem(
            f"{topology} does not say behind which switch {', '.join(missing[:5])} is",
            next_step="Lines are `asw psw ip`, with the name or address as in --nodes.",
        )
    return known


class _Bar:
    """Rounds done of the rounds to come; silent where stderr is no terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("starting", total=None)

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._bar.stop()

    def show(self, done: int, most: int, what: str) -> None:
        """As run_check wants it."""
        self._bar.update(self._task, completed=done, total=most or None, description=what)


def message_sizes(text: str | None, probe: str) -> tuple[int, ...]:
    """Bytes, smallest first, each once; none where there is no text: the probe has its own.

    Args:
        text: sizes of 1 to 256M, K and M being powers of 1024; probe: as in --probe.

    Raises:
        UsageProblem: not such a list, or more sizes than the probe measures.
    """
    if text is None:
        return ()
    sizes = sorted({_size(word.strip()) for word in text.split(",")})
    if len(sizes) > _MAX_SIZES:
        raise UsageProblem(
            f"--sizes has {len(sizes)} sizes", next_step=f"Name {_MAX_SIZES} at most."
        )
    if probe == "ib" and len(sizes) > 1:
        raise UsageProblem("the ib probe measures one message size", next_step="Name one.")
    return tuple(sizes)


def _size(word: str) -> int:
    match = _SIZE.fullmatch(word)
    size = int(match[1]) * _UNITS[(match[2] or "").upper()] if match else 0
    if not 1 <= size <= _MAX_BYTES:
        raise UsageProblem(
            f"--sizes: {word!r:.40} is no size of 1 to 256M",
            next_step="Write them as 64K,1M,8M.",
        )
    return size
