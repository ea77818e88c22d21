"""The network check of a job: after its nodes have met, before any worker starts."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from relkit.errors import EXIT_CONVICTED, EXIT_PROBLEM, RelkitError
from relkit.findings import Report, Status
from relkit.hosts import NodeSpec, fold
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import ExchangeBroken, Mailbox
from relkit.launch.job.node_name import node_name
from relkit.launch.job.settings import Log
from relkit.launch.job.store_host import own_address
from relkit.launch.netcheck import bad_node
from relkit.launch.netcheck.node_info import (
    NodeInfo,
    decode_node_info,
    is_loopback,
    unique_names,
)
from relkit.launch.netcheck.slow_devices import (
    ROUNDS,
    DeviceVerdict,
    judge_devices,
    with_devices,
    without_rates,
)
from relkit.launch.netcheck.store_channel import StoreAgent, StoreChannel, poll_interval_s
from relkit.launch.netcheck.verdict import decide, how_to_go_on, not_measured
from relkit.log_lines import Level, Line, warning
from relkit.net.operator_secret import derive
from relkit.netcheck.measure import schedule
from relkit.netcheck.measure.controller import run_check
from relkit.netcheck.measure.device_rates import MAX_RATES_S
from relkit.netcheck.measure.options import GRACE_S, CheckOptions
from relkit.netcheck.measure.probes.names import TORCH_PROBES
from relkit.netcheck.measure.serve import handlers
from relkit.netcheck.model import NetVerdict, Thresholds
from relkit.netcheck.report.report import net_report
from relkit.netcheck.solve.judge import judge
from relkit.text.foreign_json import parse_json

# How long node 0 waits for every node's NodeInfo; more where links are measured first.
NODE_INFO_S = 30.0
LINKS_S = 600.0
# How long the node that hosts the store stays, so that all can read the verdict.
READ_S = 10.0
_LOOPBACK = "127.0.0.1"
_OPTIONS = CheckOptions(start_s=20.0, timeout_s=15.0, duration_s=0.3)
# A pair of processes that import torch, on busy hosts.
_TORCH_TIMEOUT_S = 90.0


class NodeFailedCheck(RelkitError):
    """This node failed the network check and leaves the job."""

    exit_code = EXIT_CONVICTED
    next_step = "Replace this node; netcheck.json in node 0's timeline folder has the measurements."


class TooFewNodes(RelkitError):
    """The job cannot continue without the nodes that failed the check."""

    exit_code = EXIT_PROBLEM
    next_step = "Replace them, and start the job again."


@dataclass(frozen=True, slots=True)
class CheckSettings:
    """What the user asked for.

    Args:
        exclude_stragglers: slow nodes leave too, not only dead ones.
        probe: what carries the test traffic, see relkit.netcheck.measure.probes.names.
        links: checks the links inside this host; None where that is not asked for.
        hook: words of --on-bad-node; empty where it is not given.
        min_nodes: the minimum that --nnodes allows.
        argv: relkit's own command line, for the report.
    """

    exclude_stragglers: bool = False
    probe: str = "tcp"
    links: Callable[[], Report] | None = None
    hook: tuple[str, ...] = ()
    min_nodes: int = 1
    argv: tuple[str, ...] = ()


class NetworkCheck:
    """One node's part in the checks of a job.

    Args:
        settings: see CheckSettings.
        log: writes one line to the terminal; show: a report, on the node that made it.
    """

    def __init__(self, settings: CheckSettings, log: Log, show: Callable[[Report], None]) -> None:
        self._settings, self._log, self._show = settings, log, show
        # Whether other nodes may come in the places of those that leave.
        self.may_replace: Callable[[], bool] = lambda: False
        self._passed_check_id = ""
        self._bad_links: str | None = None
        self._options = _options(settings)

    def passed(self, attempt: Attempt) -> bool:
        """Check the nodes that have met; all of them call this.

        Returns:
            True to start workers; False where nodes leave and the rest has to meet again.

        Raises:
            NodeFailedCheck: this node is to leave.
            TooFewNodes: others are to leave, and the job cannot continue without them.
        """
        bad_links = self._check_links()
        mailbox = attempt.meeting_mailbox("netcheck")
        if mailbox.nodes == 1:
            self._log("network check: one node, nothing to measure between nodes")
            if bad_links:
                self._leave(bad_links)
            return True
        try:
            return self._check_all(attempt, mailbox, bad_links)
        except ExchangeBroken as error:
            self._log(warning(f"network check: skipped, because {error}"))
            return True

    def forget(self) -> None:
        """Workers are started: before they are started again, all nodes are measured again."""
        self._passed_check_id = ""

    def _check_all(self, attempt: Attempt, mailbox: Mailbox, bad_links: str) -> bool:
        self._publish_node_info(attempt, mailbox, bad_links)
        if mailbox.node == 0:
            verdict: Mapping[str, Any] = {"lines": ["node 0 could not run it"]}
            try:
                verdict = self._lead_check(attempt, mailbox)
            finally:
                # Whatever happens on node 0, the others must not wait for it.
                mailbox.put("verdict", json.dumps(verdict).encode())
        else:
            verdict = self._serve(attempt, mailbox)
        return self._follow(attempt, mailbox, verdict)

    def _follow(self, attempt: Attempt, mailbox: Mailbox, verdict: Mapping[str, Any]) -> bool:
        """Do what the verdict says for this node."""
        leaving: dict[str, str] = verdict.get("leave") or {}
        mailbox.put(f"read/{mailbox.node}", b"1")
        level = Level.INFO if verdict.get("is_well") else Level.WARNING
        level = Level.ERROR if leaving else level
        for line in verdict.get("lines", ()):
            self._log(Line(f"network check: {line}", level))
        if leaving and attempt.holds_store:
            everyone = [f"read/{number}" for number in range(mailbox.nodes)]
            _collect(mailbox, everyone, READ_S)
        why = leaving.get(str(mailbox.node))
        if why is not None:
            self._leave(why)
        if verdict.get("end"):
            raise TooFewNodes(f"{verdict['names']} failed the network check: {verdict['end']}")
        self._passed_check_id = str(verdict.get("id", ""))
        return not leaving

    def _leave(self, why: str) -> None:
        bad_node.act(self._settings.hook, node_name(), self._log)
        raise NodeFailedCheck(
            f"this node ({node_name()}) failed the network check and leaves the job: {why}"
        )

    def _check_links(self) -> str:
        """Why this host's own links failed; "" where they did not. Measured once."""
        if self._settings.links is None:
            return ""
        if self._bad_links is None:
            self._bad_links = ""
            try:
                report = self._settings.links()
            except RelkitError as error:
                self._log(f"switchbox check: inconclusive ({error})")
                return ""
            if report.status is Status.UNKNOWN:
                self._log(f"switchbox check: inconclusive ({report.findings[0].title})")
            elif report.status is not Status.OK:
                self._show(report)
            if report.status is Status.FAIL:
                self._bad_links = f"its link check failed: {report.findings[0].title}"
        return self._bad_links

    def _publish_node_info(self, attempt: Attempt, mailbox: Mailbox, bad_links: str) -> None:
        address = attempt.address() or own_address(_LOOPBACK)
        mailbox.put(f"first/{mailbox.node}", address.encode())
        if is_loopback(address):
            # This node has the store; its route to the others shows the address they know it by.
            others = [f"first/{n}" for n in range(mailbox.nodes) if n != mailbox.node]
            addresses = _collect(mailbox, others, NODE_INFO_S).values()
            away = [text for text in (note.decode() for note in addresses) if not is_loopback(text)]
            address = (own_address(away[0]) if away else "") or address
        node_info = NodeInfo(
            number=mailbox.node,
            name=node_name(),
            address=address,
            passed_check_id=self._passed_check_id,
            holds_store=attempt.holds_store,
            bad_links=bad_links,
        )
        mailbox.put(f"node-info/{mailbox.node}", node_info.encode())

    def _serve(self, attempt: Attempt, mailbox: Mailbox) -> Mapping[str, Any]:
        """On all nodes but node 0: do what node 0 requests, until its verdict arrives."""
        limit_s = self._node_info_limit_s() + NODE_INFO_S
        notes = _collect(mailbox, ["names", "verdict"], limit_s, enough=1)
        if not notes:
            raise ExchangeBroken(f"node 0 sent nothing for {limit_s:.0f} s")
        with _agent(attempt, mailbox, notes.get("names", b"{}")):
            notes = _collect(mailbox, ["verdict"], _longest_s(mailbox.nodes, self._options))
        try:
            verdict = parse_json(notes.get("verdict", b""))
        except ValueError as error:
            raise ExchangeBroken("node 0 sent no verdict") from error
        return verdict if isinstance(verdict, dict) else {}

    def _node_info_limit_s(self) -> float:
        # Twice, because one node may have to find its own address first.
        return 2 * NODE_INFO_S + (LINKS_S if self._settings.links else 0.0)

    def _lead_check(self, attempt: Attempt, mailbox: Mailbox) -> dict[str, Any]:
        """On node 0: measure and judge. What goes wrong here must not stop the job."""
        keys = {f"node-info/{number}": number for number in range(mailbox.nodes)}
        notes = _collect(mailbox, list(keys), self._node_info_limit_s())
        node_infos = [
            node for key, note in notes.items() if (node := decode_node_info(note, keys[key]))
        ]
        node_infos.sort(key=lambda node_info: node_info.number)
        passed_check_id = {node_info.passed_check_id for node_info in node_infos}
        if (
            len(node_infos) == mailbox.nodes
            and len(passed_check_id) == 1
            and "" not in passed_check_id
        ):
            return {
                "id": passed_check_id.pop(),
                "lines": ["all nodes passed the last check together; not measured again"],
                "is_well": True,
            }
        try:
            return self._measure(attempt, mailbox, node_infos)
        except ExchangeBroken:
            raise
        except (RelkitError, OSError) as error:
            return {"lines": [f"could not be done: {error}"]}

    def _measure(
        self, attempt: Attempt, mailbox: Mailbox, node_infos: Sequence[NodeInfo]
    ) -> dict[str, Any]:
        started = time.time()
        names = unique_names(node_infos)
        silent = sorted(set(range(mailbox.nodes)) - set(names))
        bad_links = {
            names[node_info.number]: node_info.bad_links
            for node_info in node_infos
            if node_info.bad_links
        }
        nodes = [
            NodeSpec(names[node_info.number], address=node_info.address)
            for node_info in node_infos
            if not node_info.bad_links
        ]
        verdict, devices, lines = NetVerdict(), DeviceVerdict(), list[str]()
        if silent:
            lines.append(f"node {fold([str(n) for n in silent])} did not take part")
        if len(nodes) > 1:
            probe = self._settings.probe
            how = "" if probe == "tcp" else f" with {probe}"
            self._log(f"network check: measuring {len(nodes)} nodes{how}")
            thresholds = Thresholds()
            note = json.dumps({str(number): name for number, name in names.items()}).encode()
            mailbox.put("names", note)
            with _agent(attempt, mailbox, note):
                result = run_check(
                    StoreChannel(mailbox, {names[p.number]: p.number for p in node_infos}),
                    nodes,
                    partial(schedule.quick, thresholds=thresholds),
                    options=self._options,
                    probe=probe,
                )
            verdict, devices = judge(result, thresholds), judge_devices(result.scores)
            lines += not_measured(result.edges, probe)
            lines += [*without_rates(result.score_errors), *devices.warnings]
            report = net_report(
                result, verdict, thresholds, argv=self._settings.argv, started=started,
                duration_s=time.time() - started,
            )  # fmt: skip
            self._show(with_devices(report, result.scores, devices))
        decision = decide(
            verdict,
            bad_links,
            exclude_stragglers=self._settings.exclude_stragglers,
            slow_devices=devices.reasons,
        )
        numbers = {name: number for number, name in names.items()}
        leave = {str(numbers[name]): why for name, why in decision.leave.items()}
        lines += decision.warnings
        lines += [f"{name} leaves the job: {why}" for name, why in decision.leave.items()]
        end, is_well = "", False
        if leave:
            end = how_to_go_on(
                mailbox.nodes,
                len(leave),
                min_nodes=1 if self.may_replace() else self._settings.min_nodes,
                can_meet_again=attempt.can_meet_again,
                loses_store=any(p.holds_store and str(p.number) in leave for p in node_infos),
            )
        elif is_well := not lines:
            lines.append(f"{len(nodes)} nodes, no fault")
        return {
            "id": secrets.token_hex(8),
            "leave": leave,
            "names": fold(decision.leave),
            "end": end,
            "lines": lines,
            "is_well": is_well,
        }


def _options(settings: CheckSettings) -> CheckOptions:
    timeout_s = _TORCH_TIMEOUT_S if settings.probe in TORCH_PROBES else _OPTIONS.timeout_s
    # A slow device matters only where its node may leave for it.
    rate_rounds = ROUNDS if settings.exclude_stragglers else 0
    return replace(_OPTIONS, timeout_s=timeout_s, rate_rounds=rate_rounds)


def _longest_s(nodes: int, options: CheckOptions) -> float:
    """The longest that a check of this many nodes can take, s: every step times out."""
    rounds = schedule.most_quick_rounds(nodes)
    step_s = options.timeout_s + 5.0
    rates_s = MAX_RATES_S + GRACE_S if options.rate_rounds else 0.0
    return options.start_s + step_s + rates_s + rounds * (2 * step_s + 5.0) + 30.0


@contextmanager
def _agent(attempt: Attempt, mailbox: Mailbox, names: bytes) -> Iterator[None]:
    """Serve requests of the check in this process, under the name that node 0 gave this node."""
    try:
        name = str(parse_json(names)[str(mailbox.node)])
    except (ValueError, LookupError, TypeError):
        # Node 0 has no request for this node.
        yield
        return
    key = derive(attempt.key, "netcheck") if attempt.key else b""
    agent = StoreAgent(mailbox, mailbox.node, name, handlers(key))
    agent.start()
    try:
        yield
    finally:
        agent.stop()


def _collect(
    mailbox: Mailbox, keys: Sequence[str], limit_s: float, enough: int = 0
) -> dict[str, bytes]:
    """The notes that appear in time; returns early with `enough` of them (0: all of them)."""
    end = time.monotonic() + limit_s
    notes: dict[str, bytes] = {}
    while True:
        for key in keys:
            if key not in notes and (note := mailbox.get(key)) is not None:
                notes[key] = note
        if len(notes) >= (enough or len(keys)) or time.monotonic() >= end:
            return notes
        time.sleep(poll_interval_s(mailbox.nodes))
