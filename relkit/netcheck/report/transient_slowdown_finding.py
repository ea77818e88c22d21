"""What the report says about transient slowdowns: how frequent they were, what they can hide."""

from __future__ import annotations

from typing import Any

from relkit.findings import Evidence, Finding, Status
from relkit.netcheck.model import Interference, NetVerdict

_RARE = 0.005


def transient_slowdown_finding(verdict: NetVerdict) -> list[Finding]:
    """A warning; none on a quiet fleet."""
    interference = verdict.interference
    if interference is None:
        return []
    evidence = [
        Evidence(
            "transient slowdowns", round(100 * interference.rate, 1), "%", how="first measurements"
        ),
        Evidence(
            "slow at first, at full speed when repeated",
            f"{interference.taken_back} of {interference.repeated}",
            how="directions of pairs",
        ),
        Evidence("noise of one measurement", round(100 * interference.noise, 1), "%"),
        Evidence(
            "smallest detectable loss of a link", _loss(interference.link_loss), "%",
            how="one direction",
        ),
        Evidence(
            "smallest detectable loss of a node", _loss(interference.node_loss), "%",
            how="one direction",
        ),
    ]  # fmt: skip
    return [
        Finding(
            "RK-NET-020",
            Status.WARN,
            f"a noisy fleet: {_noise(interference)}; {_hidden(interference)}",
            reasons=(
                "a slow measurement counts for less where transient slowdowns are that deep and "
                "frequent",
            ),
            evidence=tuple(evidence),
            advice="Check again while the hosts and the network are idle, or measure longer "
            "(--duration).",
        )
    ]


def interference_facts(interference: Interference | None) -> dict[str, Any] | None:
    """For --json; None on a quiet fleet."""
    if interference is None:
        return None
    return {
        "rate": round(interference.rate, 4),
        "repeated": interference.repeated,
        "taken_back": interference.taken_back,
        "noise": round(interference.noise, 4),
        "smallest_link_loss": _known(interference.link_loss),
        "smallest_node_loss": _known(interference.node_loss),
    }


def _known(loss: float) -> float | None:
    return round(loss, 4) if loss < 1.0 else None


def _loss(loss: float) -> float | str:
    return round(100 * loss) if loss < 1.0 else "none"


def _noise(interference: Interference) -> str:
    scatter = f"{100 * interference.noise:.0f} %"
    if interference.rate < _RARE:
        return f"measurements scatter by {scatter} without a fault"
    return (
        f"about {100 * interference.rate:.2g} % of the measurements were slowed by something other "
        f"than a fault, and the others scatter by {scatter}"
    )


def _hidden(interference: Interference) -> str:
    if interference.link_loss < 1.0:
        return (
            f"a single link that lost less than {100 * interference.link_loss:.0f} % may have been "
            "missed"
        )
    return "a single link that is slow but not dead may have been missed"
