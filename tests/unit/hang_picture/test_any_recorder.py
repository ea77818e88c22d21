"""Recorders in which each value has its type and nothing else is sure: a page, and no traceback."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relkit.hang_picture.folder import read_hang
from relkit.hook.model import Communicator, HookState, Op, OpKind, TransferCount
from relkit.reports.hangs import hang_page
from tests.unit.hang.hang_builders import NOW, dump, job, view
from tests.unit.hang_picture.hang_folders import write_hang

WORLD = 3
small = st.integers(-2, 4)
times = st.sampled_from((0, 1, NOW - 5_000_000_000, NOW, NOW + 10**9, -(1 << 63), (1 << 63) - 1))
names = st.sampled_from(("allreduce", "barrier", "send", "recv", "connect", "", "<b>\u202e"))
OPS = st.builds(
    Op, name=names, kind=st.sampled_from(OpKind), seq=small, communicator=small,
    size_bytes=st.sampled_from((0, 4, -1, 1 << 62)), os_thread_id=small, start_ns=times,
    end_ns=times | st.just(0), failed=st.booleans(), peer=small, enqueue_ns=times,
    queued=st.booleans(), tag=small, post=small,
)  # fmt: skip
GROUPS = st.builds(
    Communicator, index=small, rank=small, size=st.sampled_from((-1, 0, 1, 2, 3, 1 << 40)),
    name=st.sampled_from(("0", "tp", "", "\x00")), seq=small,
)  # fmt: skip
COUNTS = st.builds(
    TransferCount, communicator=small, receives=st.booleans(), peer=small, tag=small, posted=small,
    done=small, sizes=st.lists(small, max_size=4).map(tuple),
)  # fmt: skip
STATES = st.builds(
    HookState, pid=small, start_ticks=small, rank=small, local_rank=small,
    world_size=st.sampled_from((-1, 0, 3, 1 << 40)), now_ns=times, boot_to_unix_ns=times,
    started=small, finished=small, last_finish_ns=times,
    in_flight=st.lists(OPS, max_size=3).map(tuple), recent=st.lists(OPS, max_size=4).map(tuple),
    communicators=st.lists(GROUPS, max_size=3).map(tuple),
    transfers=st.lists(COUNTS, max_size=3).map(tuple), uncounted=small,
)  # fmt: skip


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(
    st.lists(STATES | st.none(), min_size=WORLD, max_size=WORLD),
    st.lists(
        st.sampled_from(("lock", "recv", "all_reduce", "spin")), min_size=WORLD, max_size=WORLD
    ),
)
def test_any_recorders_give_a_page(
    tmp_path_factory: pytest.TempPathFactory, states: list[HookState | None], stacks: list[str]
) -> None:
    views = []
    for rank, (state, stack) in enumerate(zip(states, stacks, strict=True)):
        text = json.dumps(state.to_json()) if state else ""
        captured = replace(dump(rank, WORLD, stack), hook_json=text, job_id="job-1")
        views.append(view(rank, WORLD, stack=stack, dump=captured))
    folder: Path = tmp_path_factory.mktemp("any")
    write_hang(folder, job(views))
    (folder / "report.json").unlink()
    evidence = read_hang(folder)
    assert evidence.picture.notes == ()
    text = hang_page.render(evidence.report, evidence.picture, {}, draw_with_graphviz=False)
    assert "\u202e" not in text
    assert json.dumps(evidence.picture.to_json())
