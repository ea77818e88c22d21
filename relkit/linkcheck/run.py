"""The whole link check of one host: find, measure, judge, report."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from relkit.errors import NoLinkHardware, UsageProblem
from relkit.findings import Report
from relkit.linkcheck.check import Progress, check_links
from relkit.linkcheck.judge import judge
from relkit.linkcheck.layout import LAYOUT
from relkit.linkcheck.metax import MetaxProvider
from relkit.linkcheck.model import Inventory, Pair
from relkit.linkcheck.nvidia import NvidiaProvider
from relkit.linkcheck.pairs import DEFAULT_PAIRS, parse_pairs
from relkit.linkcheck.provider import LinkProvider
from relkit.linkcheck.replay import ReplayProvider
from relkit.linkcheck.report import link_report, unseen_report

# The guide's 10,000 MB/s.
MIN_BANDWIDTH_GBPS = 80.0
MIN_CHANNELS = 2
KINDS = ("auto", "metax", "nvidia", "replay")


def min_bandwidth(gbps: float | None, mb_s: float | None) -> float:
    """The smallest good bandwidth in Gbit/s, from the option in either unit.

    Args:
        gbps: of --min-bandwidth-gbps, Gbit/s; None where it is not given.
        mb_s: of --min-bandwidth, the guide's option, MB/s (10^6 bytes).

    Raises:
        UsageProblem: both are given.
    """
    if gbps is None:
        return MIN_BANDWIDTH_GBPS if mb_s is None else mb_s * 8 / 1000
    if mb_s is not None:
        raise UsageProblem(
            "--min-bandwidth (MB/s) and --min-bandwidth-gbps are two names of one bound",
            next_step="Give only one of them.",
        )
    return gbps


def linkcheck(
    pairs: Sequence[Pair] = (),
    *,
    min_bandwidth_gbps: float = MIN_BANDWIDTH_GBPS,
    min_channels: int | None = None,
    kind: str = "auto",
    tool: str = "",
    layout: Path = LAYOUT,
    replay: Path | None = None,
    is_concurrent: bool = False,
    timeout_s: float = 0.0,
    progress: Progress = lambda _done, _total, _what: None,
    argv: Sequence[str] = (),
) -> Report:
    """Check the links between the GPUs of this host.

    Args:
        pairs: sockets to pair; the provider's own choice where empty, else the guide's four.
        min_bandwidth_gbps: a direction below it is slow, Gbit/s.
        min_channels: links that must be good; where None, the guide's 2, or as many as the
            provider's own choice has if that is fewer.
        kind, tool, layout, replay: see open_provider().
        is_concurrent: measure all pairs at one time.
        timeout_s: limit of one measurement, s; the provider's own where 0.
        progress: told (done, total, what comes next).
        argv: the command line, for the report.

    Returns:
        The report; one that says "could not tell" where there is no such hardware.

    Raises:
        UsageProblem: fewer pairs than channels are asked for, or contradictory options.
        BadInputFile: the recording cannot be used.
    """
    started = time.time()
    # The tools print MB/s. Rounded to a byte a second, so that a tool's figure meets its own bound.
    min_bandwidth_mb_s = round(min_bandwidth_gbps * 1000 / 8, 6)
    if pairs:
        min_channels = _enough(len(pairs), min_channels or MIN_CHANNELS)
    try:
        provider, inventory = open_provider(
            kind, tool=tool, layout=layout, replay=replay, timeout_s=timeout_s
        )
    except NoLinkHardware as error:
        return unseen_report(error, argv=argv, started=started)
    wanted = pairs or inventory.pairs or parse_pairs([DEFAULT_PAIRS])
    needed = _enough(len(wanted), min_channels or min(MIN_CHANNELS, len(wanted)))
    checked = check_links(
        provider,
        inventory,
        wanted,
        min_bandwidth_mb_s=min_bandwidth_mb_s,
        timeout_s=timeout_s,
        is_concurrent=is_concurrent,
        progress=progress,
    )
    return link_report(
        checked,
        judge(checked, min_bandwidth_mb_s, needed),
        min_bandwidth_mb_s=min_bandwidth_mb_s,
        argv=argv,
        started=started,
        duration_s=time.time() - started,
    )


def _enough(pairs: int, min_channels: int) -> int:
    if pairs < min_channels:
        raise UsageProblem(
            f"{pairs} pair(s) can never give {min_channels} good channels",
            next_step=f"Name more pairs, or use --min-channels {pairs}.",
        )
    return min_channels


def open_provider(
    kind: str,
    *,
    tool: str = "",
    layout: Path = LAYOUT,
    replay: Path | None = None,
    devices: Path = Path("/dev"),
    timeout_s: float = 0.0,
) -> tuple[LinkProvider, Inventory]:
    """The provider asked for, or the first one that finds its hardware.

    Args:
        kind: one of KINDS; "auto" replays where a recording is given.
        tool: the vendor's tool; its usual place where empty.
        layout, devices: where to look for MetaX and NVIDIA hardware; others in tests.
        replay: a recording.
        timeout_s: limit for each program asked, s; the provider's own where 0.

    Raises:
        NoLinkHardware: with everything that was looked for.
        BadInputFile: the recording cannot be used.
        UsageProblem: --provider and --replay contradict each other.
    """
    if replay is not None and kind not in ("auto", "replay"):
        raise UsageProblem(f"--replay does not go with --provider {kind}")
    if kind == "replay" and replay is None:
        raise UsageProblem("--provider replay needs --replay FILE")
    candidates: list[LinkProvider]
    if replay is not None:
        candidates = [ReplayProvider(replay)]
    elif kind == "metax":
        candidates = [MetaxProvider(tool, layout)]
    elif kind == "nvidia":
        candidates = [NvidiaProvider(tool, devices)]
    else:
        # A tool that is named can only be mxom-client here: nvbandwidth is looked for on PATH.
        candidates = [MetaxProvider(tool, layout), NvidiaProvider("", devices)]
    reasons: list[str] = []
    looked_for: list[str] = []
    for provider in candidates:
        try:
            return provider, provider.look(timeout_s or provider.timeout_s)
        except NoLinkHardware as error:
            reasons.append(str(error))
            looked_for += error.looked_for
    raise NoLinkHardware("; ".join(reasons), looked_for=tuple(looked_for))
