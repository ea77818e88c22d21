"""Which provider measures on this host."""

from __future__ import annotations

from pathlib import Path

from relkit.errors import NoLinkHardware, UsageProblem
from relkit.linkcheck.layout import LAYOUT
from relkit.linkcheck.metax import MetaxProvider
from relkit.linkcheck.model import Inventory
from relkit.linkcheck.nvidia import NvidiaProvider
from relkit.linkcheck.provider import LinkProvider
from relkit.linkcheck.replay import ReplayProvider

KINDS = ("auto", "metax", "nvidia", "replay")


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
