"""What node 0 knows of another node's ranks, how old that may be, and what is sent for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from relkit.errors import BadDump
from relkit.hang.model import RankView
from relkit.hook.model import HookState, Op, OpKind
from relkit.launch.hang import codec
from relkit.launch.hang.attempt import WatchedRanks, WatchState
from relkit.launch.hang.follower import WatchFollower
from relkit.launch.hang.links.checks import LinkChecks
from relkit.launch.hang.monitor import Monitor, tick_interval_s
from relkit.launch.hang.observe import Observer
from relkit.launch.hang.remote_views import (
    SHARE_EVERY_S,
    SILENT_NODE_S,
    RemoteViews,
    share_every_s,
)
from relkit.launch.hang.watch import Watch
from relkit.launch.job.attempt import Attempt
from relkit.launch.job.exchange import MemoryMailbox
from relkit.launch.job.on_hang import OnHang
from relkit.launch.job.settings import MonitorSettings
from relkit.ranks import RankSet

HEALTHY = (RankView(2, "b", 12, True), RankView(3, "b", 13, True))


def two_ends(nodes: int = 2) -> tuple[RemoteViews, WatchFollower, dict[str, bytes]]:
    """Node 0's view of node 1, what node 1 does for it, and the notes between them."""
    notes: dict[str, bytes] = {}
    mailbox = MemoryMailbox(1, nodes, notes)
    attempt = WatchedRanks(Attempt("job", 4), Observer(None), mailbox, lambda: (), dict)
    checks = LinkChecks(mailbox, print, is_asked_for=False)
    follower = WatchFollower(
        attempt, WatchState(), checks=checks, write_dumps=lambda _: None, log=print
    )
    return RemoteViews(MemoryMailbox(0, nodes, notes)), follower, notes


def test_a_node_whose_ranks_do_not_change_is_not_silent() -> None:
    remote, follower, _ = two_ends()
    for now_s in range(40):
        follower.share(float(now_s), HEALTHY)
        remote.receive(float(now_s))
    assert remote.all(39.0) == HEALTHY


def test_a_node_that_says_nothing_new_is_silent_after_ten_seconds() -> None:
    remote, follower, _ = two_ends()
    follower.share(0.0, HEALTHY)
    remote.receive(0.0)
    for now_s in (SILENT_NODE_S / 2, SILENT_NODE_S):
        remote.receive(now_s)
        assert remote.all(now_s) == HEALTHY
    remote.receive(SILENT_NODE_S + 2)
    reasons = {view.absent_reason for view in remote.all(SILENT_NODE_S + 2)}
    assert reasons == {"node 1 has not answered for 12 s"}


def test_only_ranks_that_were_asked_for_or_are_gone_are_notable() -> None:
    remote, follower, _ = two_ends()
    follower.share(0.0, HEALTHY)
    remote.receive(0.0)
    assert remote.notable(0.0) == ()
    remote.ask(RankSet.of([3]))
    assert remote.notable(0.0) == HEALTHY
    remote.ask(RankSet())
    assert remote.notable(0.0) == ()
    gone = (HEALTHY[0], replace(HEALTHY[1], alive=False, exit_code=1))
    follower.share(2.0, gone)
    remote.receive(2.0)
    assert [view.alive for view in remote.notable(2.0)] == [True, False]


def test_the_newest_summary_counts() -> None:
    remote, follower, _ = two_ends()
    gone = tuple(replace(view, alive=False, exit_code=1) for view in HEALTHY)
    for now_s, views in ((0.0, HEALTHY), (2.0, gone)):
        follower.share(now_s, views)
        remote.receive(now_s)
        assert remote.all(now_s) == views


def test_both_ends_use_the_store_at_most_once_a_second() -> None:
    remote, follower, notes = two_ends()
    assert follower.share(0.0, HEALTHY)
    assert remote.receive(0.0)
    first = dict(notes)
    assert not follower.share(SHARE_EVERY_S / 2, HEALTHY)
    assert not remote.receive(SHARE_EVERY_S / 2)
    assert notes == first
    assert follower.share(SHARE_EVERY_S, HEALTHY)
    assert remote.receive(SHARE_EVERY_S)


@pytest.mark.parametrize(
    ("nodes", "every_s"), [(1, 1.0), (4096, 1.0), (6144, 1.5), (16384, 2.5), (1 << 20, 2.5)]
)
def test_with_very_many_nodes_each_sends_less_often(nodes: int, every_s: float) -> None:
    assert share_every_s(nodes) == every_s


def test_both_ends_of_a_very_large_job_know_how_often_summaries_come() -> None:
    remote, follower, _ = two_ends(nodes=8192)
    sent = [follower.share(float(now_s), HEALTHY) for now_s in range(5)]
    assert sent == [remote.receive(float(now_s)) for now_s in range(5)]
    assert sent == [True, False, True, False, True]


def test_ranks_of_a_node_that_sent_no_capture_are_absent() -> None:
    remote, follower, _ = two_ends()
    follower.share(0.0, HEALTHY)
    remote.receive(0.0)
    marked = remote.without_answer([1, 7], 4.5)
    assert {rank: view.absent_reason for rank, view in marked.items()} == dict.fromkeys(
        (2, 3), "node 1 did not answer within 4.5 s"
    )


@pytest.mark.parametrize(
    ("world_size", "kept"), [(4, 256), (4096, 128), (1 << 14, 32), (1 << 17, 16)]
)
def test_of_a_long_history_the_newest_operations_are_sent(world_size: int, kept: int) -> None:
    ops = tuple(Op("allreduce", OpKind.COLLECTIVE, i, 0, 4, 1, i + 1, i + 2) for i in range(300))
    hook = HookState(1, 1, 0, 0, world_size, 99, 0, 300, 300, 301, (), ops, ())
    views, _ = codec.decode_views(codec.encode_views([RankView(0, "a", 1, True, "S", hook)]))
    assert views[0].hook is not None
    assert [op.seq for op in views[0].hook.recent] == list(range(300 - kept, 300))


def test_a_note_of_too_many_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MAX_VALUES", 100)
    assert codec.unpack(codec.pack({"views": [0] * 90}))
    with pytest.raises(BadDump, match="more than 100 values"):
        codec.unpack(codec.pack({"views": [0] * 200}))


def test_a_report_alone_asks_nothing_of_the_launcher() -> None:
    for on_hang, wanted in ((OnHang.REPORT, None), (OnHang.ABORT, OnHang.ABORT)):
        monitor = Monitor(
            MonitorSettings(10.0, on_hang),
            publish=lambda *_: None,
            write_dumps=lambda _: None,
            log=print,
        )
        assert monitor.action() is None
        attempt = WatchedRanks(Attempt("job", 2), Observer(None), MemoryMailbox(), lambda: (), dict)
        monitor._watch = Watch(
            attempt, monitor._settings, publish=lambda *_: None, write_dumps=lambda _: None,
            log=print,
        )  # fmt: skip
        monitor._watch.state.action = on_hang
        assert monitor.action() is wanted


@pytest.mark.parametrize(
    ("hang_timeout_s", "interval_s"), [(1, 0.2), (8, 0.2), (20, 0.5), (40, 1.0), (1800, 1.0)]
)
def test_ticks_are_more_frequent_where_the_timeout_is_short(
    hang_timeout_s: float, interval_s: float
) -> None:
    assert tick_interval_s(hang_timeout_s) == pytest.approx(interval_s)
