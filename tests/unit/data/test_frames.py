"""What goes over the pipe between a worker and its parent comes out as it went in."""

from __future__ import annotations

import io
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit import errors
from relkit.data import frames
from relkit.data.documents import Chunk
from relkit.data.encode import Encoded

KINDS = [errors.UsageProblem, errors.BadInputFile, errors.MissingExtra]


@given(st.lists(st.binary(max_size=50), max_size=5), st.data())
def test_a_frame_comes_back_and_a_cut_one_is_the_end(
    parts: list[bytes], draw: st.DataObject
) -> None:
    stream = io.BytesIO()
    frames.write_frame(stream, *parts)
    whole = stream.getvalue()
    assert frames.read_frame(io.BytesIO(whole)) == parts
    cut = draw.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(EOFError):
        frames.read_frame(io.BytesIO(whole[:cut]))


@given(st.binary(max_size=50), st.text(), st.sampled_from(["line", "row"]), st.integers(0, 1 << 50))
def test_a_chunk_keeps_its_place(data: bytes, where: str, unit: str, first: int) -> None:
    chunk = Chunk(data, where, unit, first, 0)
    assert frames.to_chunk(frames.chunk_parts(chunk)) == chunk


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=20),
            st.lists(st.integers(0, (1 << 31) - 1), max_size=4),
            st.lists(st.integers(0, 1 << 40), max_size=4),
        ),
        max_size=3,
    )
)
def test_what_was_encoded_comes_back(keys: list[tuple[bytes, list[int], list[int]]]) -> None:
    sent = [Encoded(data, np.array(a, np.int32), np.array(b, np.int64)) for data, a, b in keys]
    parts = [bytes(part) for part in frames.encoded_parts(sent)]
    found = frames.to_encoded(parts)
    assert [(e.data, e.lengths.tolist(), e.sequences_per_document.tolist()) for e in found] == keys
    assert len(list(chain(*keys))) == len(parts)


@given(st.sampled_from(KINDS), st.text(), st.none() | st.text())
def test_an_error_keeps_its_kind_and_what_to_do(
    kind: type[errors.RelkitError], message: str, next_step: str | None
) -> None:
    sent = kind(message, next_step=next_step)
    found = frames.to_error(frames.error_part(sent))
    assert (type(found), str(found), found.next_step) == (kind, message, sent.next_step)
