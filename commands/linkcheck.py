"""relkit linkcheck: the links between the GPUs of one host."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click

from relkit.commands.shared.options import FiniteRange, finish, report_options
from relkit.commands.shared.progress import progress_bar


@click.command()
@click.option(
    "--box-pairs",
    "--box_pairs",
    "box_pairs",
    multiple=True,
    metavar="PAIRS",
    help='Sockets to pair, as "A:B C:D". Default: "0:1 2:4 3:5 6:7" (NVIDIA: neighbouring GPUs).',
)
@click.option(
    "--min-bandwidth-gbps",
    "--min_bandwidth_gbps",
    "min_bandwidth_gbps",
    type=FiniteRange(min=0),
    metavar="GBPS",
    help="A link is at fault when a direction of it is below this, in Gbit/s. Default: 80.",
)
@click.option(
    "--min-bandwidth",
    "--min_bandwidth",
    "min_bandwidth_mb_s",
    type=FiniteRange(min=0),
    metavar="MB_PER_S",
    envvar="RELKIT_LINKCHECK_MIN_BANDWIDTH",
    help="The same in MB/s, as the DLRover guide writes it.",
)
@click.option(
    "--min-channels",
    "--min_channels",
    "min_channels",
    type=click.IntRange(min=1),
    help="The host fails when fewer links than this are good. Default: 2 (NVIDIA: at most as "
    "many as there are).",
)
@click.option(
    "--provider",
    type=click.Choice(("auto", "metax", "nvidia", "replay")),
    default="auto",
    show_default=True,
    help="Whose hardware to measure.",
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Judge again what an earlier --json report measured.",
)
@click.option(
    "--tool",
    default="",
    metavar="PATH",
    envvar=["RELKIT_LINKCHECK_TOOL", "SWITCHBOX_CHECK_TOOL_PATH"],
    help="The vendor's tool. Default: /opt/mxmap/bin/mxom-client, or nvbandwidth on PATH.",
)
@click.option(
    "--layout",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/sys/class/mxcd/mxcd/layout"),
    show_default=True,
    help="Where the MetaX driver says which GPU is at which socket.",
)
@click.option("--concurrent", is_flag=True, help="Measure all links at one time.")
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0.1),
    metavar="SECONDS",
    help="Limit of one measurement. Default: 10 (NVIDIA: 60).",
)
@click.argument("more_pairs", nargs=-1, metavar="[PAIR]...")
@report_options
def linkcheck(
    box_pairs: tuple[str, ...],
    min_bandwidth_gbps: float | None,
    min_bandwidth_mb_s: float | None,
    min_channels: int | None,
    provider: str,
    replay: Path | None,
    tool: str,
    layout: Path,
    concurrent: bool,
    timeout_s: float | None,
    more_pairs: tuple[str, ...],
    fmt: str | None,
    output: Path | None,
    force: bool,
) -> int:
    """Check the links between this host's GPUs and their switch boxes.

    Measures each pair of sockets both ways, one at a time. Where a pair is bad, a second pairing
    with proven sockets tells which end is at fault, or the box between. Exit 3 without such
    hardware.

    \b
    Examples:
      relkit linkcheck
      relkit linkcheck --box-pairs "0:1 2:4 3:5 6:7" --min-bandwidth-gbps 80 --min-channels 2
      relkit linkcheck --json -o links.json
      relkit linkcheck --replay links.json --min-bandwidth-gbps 160
    """
    from relkit.linkcheck.pairs import parse_pairs
    from relkit.linkcheck.run import linkcheck as check
    from relkit.linkcheck.run import min_bandwidth

    texts = (*box_pairs, *more_pairs)
    pairs = parse_pairs(texts) if texts else ()
    # A tool that hangs must go with us, whoever ends us: its group is ended on the way out.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    with progress_bar("looking for links") as progress:
        report = check(
            pairs,
            min_bandwidth_gbps=min_bandwidth(min_bandwidth_gbps, min_bandwidth_mb_s),
            min_channels=min_channels,
            kind=provider,
            tool=tool,
            layout=layout,
            replay=replay,
            is_concurrent=concurrent,
            timeout_s=timeout_s or 0.0,
            progress=progress,
            argv=tuple(sys.argv),
        )
    return finish(report, fmt, output, force)
