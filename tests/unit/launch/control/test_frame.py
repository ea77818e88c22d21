"""Frames between launchers: what goes in comes out, and hostile bytes are errors."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.launch.control.frame import (
    MAX_KEY_BYTES,
    MAX_PATH,
    BadFrame,
    BeatDown,
    BeatUp,
    Frame,
    Note,
    Post,
    Shared,
    Wanted,
    decode,
    encode,
)

NODES = 16_384
NODE = st.integers(0, NODES - 1)
PATHS = st.lists(NODE, max_size=MAX_PATH - 1)
KEYS = st.text(max_size=MAX_KEY_BYTES // 4)
NUMBERS = st.integers(0, (1 << 64) - 1)
FRAMES = st.one_of(
    st.builds(BeatUp, NODE, st.booleans()),
    st.builds(lambda sender, path: BeatDown(sender, (*path, sender)), NODE, PATHS),
    st.builds(Note, NODE, NODE, NODE, st.booleans(), KEYS, st.binary(max_size=300)),
    st.builds(Shared, NODE, NODE, st.binary(max_size=300)),
    st.builds(Post, NODE, NODE, NUMBERS, st.booleans(), KEYS, st.binary(max_size=300)),
    st.builds(Wanted, NODE, NUMBERS, KEYS.filter(bool)),
)


@given(FRAMES)
def test_a_frame_comes_back(frame: Frame) -> None:
    assert decode(encode(frame), NODES) == frame


@given(NODE, st.lists(NODE, min_size=1, max_size=MAX_PATH))
def test_a_path_ends_with_its_sender(sender: int, path: list[int]) -> None:
    data = encode(BeatDown(sender, tuple(path)))
    if path[-1] == sender:
        assert decode(data, NODES) == BeatDown(sender, tuple(path))
    else:
        with pytest.raises(BadFrame, match="end with its sender"):
            decode(data, NODES)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_an_error(data: bytes) -> None:
    try:
        frame = decode(data, NODES)
    except BadFrame:
        return
    assert encode(frame) == data


@given(FRAMES, st.data())
def test_a_frame_that_was_cut_or_changed_is_a_frame_or_an_error(
    frame: Frame, draw: st.DataObject
) -> None:
    whole = encode(frame)
    place = draw.draw(st.integers(0, len(whole) - 1))
    changed = bytearray(whole)
    changed[place] ^= draw.draw(st.integers(1, 255))
    for data in (whole[:place], bytes(changed)):
        with contextlib.suppress(BadFrame):
            assert encode(decode(data, NODES)) == data


@pytest.mark.parametrize(
    "frame",
    [
        BeatUp(4, True),
        BeatDown(1, (7, 1)),
        Note(1, 4, 0, True, "node/4", b""),
        Note(1, 1, 9, False, "incident/0", b""),
        Shared(4, 0, b"x"),
        Shared(1, 9, b""),
        Post(4, 1, 1, True, "a/b", b""),
        Post(1, 4, 1, False, "a/b", b""),
        Wanted(4, 0, "a/b"),
    ],
)
def test_a_node_that_the_job_does_not_have_is_an_error(frame: Frame) -> None:
    with pytest.raises(BadFrame, match="of a job of 4"):
        decode(encode(frame), 4)


def test_another_version_is_an_error() -> None:
    data = bytearray(encode(BeatUp(1, False)))
    data[2] += 1
    with pytest.raises(BadFrame, match="version"):
        decode(bytes(data), 4)
