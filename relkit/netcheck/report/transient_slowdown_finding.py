"""What the report says of a noisy fleet: how often hiccups struck, and what they can hide."""

from __future__ import annotations

from typing import Any

from relkit.findings import Evidence, Finding, Status
from relkit.netcheck.model import Interference, NetVerdict

_RARE = 0.005


def hiccup_finding(verdict: NetVerdict) -> list[Finding]:
    """A warning; nothing on a calm fleet."""
    found = verdict.interference
    if found is None:
        return []
    evidence = [
        Evidence("hiccups", round(100 * found.rate, 1), "%", how="of the first measurements"),
        Evidence(
            "slow at first, at full speed when repeated",
            f"{found.taken_back} of {found.repeated}",
            how="directions of pairs",
        ),
        Evidence("noise of one measurement", round(100 * found.noise, 1), "%", how="besides"),
        Evidence("smallest loss of a link", _loss(found.link_loss), "%", how="slow one way"),
        Evidence("smallest loss of a node", _loss(found.node_loss), "%", how="slow one way"),
    ]
    return [
        Finding(
            "RK-NET-020",
            Status.WARN,
            f"a noisy fleet: {_noise(found)}; {_hidden(found)}",
            reasons=(
                "a slow measurement counts for less where hiccups of that depth are frequent",
            ),
            evidence=tuple(evidence),
            advice="Check again while the hosts and the network are idle, or measure longer "
            "(--duration).",
        )
    ]


def interference_facts(found: Interference | None) -> dict[str, Any] | None:
    """For --json; None on a calm fleet."""
    if found is None:
        return None
    return {
        "rate": round(found.rate, 4),
        "repeated": found.repeated,
        "taken_back": found.taken_back,
        "noise": round(found.noise, 4),
        "smallest_link_loss": _known(found.link_loss),
        "smallest_node_loss": _known(found.node_loss),
    }


def _known(loss: float) -> float | None:
    return round(loss, 4) if loss < 1.0 else None


def _loss(loss: float) -> float | str:
    return round(100 * loss) if loss < 1.0 else "none"


def _noise(found: Interference) -> str:
    scatter = f"{100 * found.noise:.0f} %"
    if found.rate < _RARE:
        return f"measurements scatter by {scatter} without a fault"
    return (
        f"about {100 * found.rate:.2g} % of the measurements were slowed by something else than a "
        f"fault, and the others scatter by {scatter}"
    )


def _hidden(found: Interference) -> str:
    if found.link_loss < 1.0:
        return (
            f"a single link that lost less than {100 * found.link_loss:.0f} % may not have been "
            "seen"
        )
    return "a single link that is slow, but not dead, may not have been seen"
