"""Single fields of a dump file at the edges of what they may hold."""

from __future__ import annotations

import pytest

from relkit.errors import BadDump
from relkit.stacks import wire
from relkit.stacks.dumpfile import decode, encode
from relkit.stacks.model import Frame, RankDump, Role, ThreadStack


@pytest.mark.parametrize(("rank", "fits"), [(3, True), (4, False)])
def test_the_last_rank_of_a_world_is_one_less_than_its_size(rank: int, fits: bool) -> None:
    data = encode(RankDump(rank, 4, 1, "S"))
    if fits:
        assert decode(data).rank == rank
    else:
        with pytest.raises(BadDump, match="outside its world of 4"):
            decode(data)


def test_what_follows_the_frames_is_not_lost_to_the_memo() -> None:
    # Two threads equal from their first frame on; a name behind the frames is part of that.
    frame = wire.bytes_field(3, wire.text_field(1, "f"))
    memo: dict[bytes, tuple[Frame, ...]] = {}
    data = wire.number_field(4, 1) + wire.bytes_field(1, frame + wire.text_field(2, "late"))
    for _ in range(2):
        (thread,) = decode(data, name="00001-00002.stacktrace", memo=memo).native
        assert (thread.name, [f.func for f in thread.frames]) == ("late", ["f"])


def test_the_thread_with_the_processes_id_is_its_main_thread() -> None:
    frame = wire.bytes_field(3, wire.text_field(1, "f"))
    threads = [wire.bytes_field(1, wire.number_field(1, lwp) + frame) for lwp in (8, 9)]
    data = wire.number_field(3, 9) + wire.number_field(4, 1) + b"".join(threads)
    roles = [thread.role for thread in decode(data).native]
    assert roles == [Role.OTHER, Role.MAIN]


def test_a_field_does_not_reach_into_the_next_message() -> None:
    # A length that fits the file and not the frame that it stands in.
    frame = wire.varint(1 << 3 | wire.BYTES) + wire.varint(9) + b"f"
    thread = wire.bytes_field(1, wire.bytes_field(3, frame))
    with pytest.raises(BadDump, match="wants 9 bytes"):
        decode(wire.number_field(4, 1) + thread + wire.text_field(11, "S" * 40))


def test_a_negative_pid_is_read_as_protobuf_writes_it() -> None:
    data = wire.varint(3 << 3) + wire.varint(-7) + wire.number_field(4, 1)
    assert decode(data).pid == -7
    thread = ThreadStack((1 << 32) - 1, "t", (), Role.OTHER)
    (back,) = decode(encode(RankDump(0, 1, 1, "S", native=(thread,)))).native
    assert back.os_thread_id == (1 << 32) - 1
