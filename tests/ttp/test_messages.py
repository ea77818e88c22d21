"""The control messages of try-to-persist: what goes out comes back, and nothing hostile gets in."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.ttp.messages import (
    BadMessage,
    Commit,
    FaultNotice,
    Heartbeat,
    Hello,
    Message,
    Save,
    Saved,
    State,
    decode,
    encode,
)
from relkit.ttp.plan import GroupPlan, SavePlan, Survivor
from relkit.ttp.replicas import replica_map

EVERY: tuple[Message, ...] = (
    Hello(3, 8, 4711, "node-1", 0, (replica_map("tp0 pp0", (1, 3, 5, 7)),)),
    Heartbeat(3, 12, "reduce", 0.25),
    Heartbeat(3, 12, "reduce", 1),
    State(3, 2, Survivor(3, 12, ready=True)),
    FaultNotice(1, (2, 5), "rank 2 was killed by SIGKILL"),
    Save(1, SavePlan(13, (3,), (), (GroupPlan("tp0 pp0", (1, 3, 1, 3), 1),))),
    Saved(3, 1, {"mp_rank_00/model_optim_rng.pt": ("ab" * 32, 1234)}),
    Commit(1, 13, {"mp_rank_00/model_optim_rng.pt": ("ab" * 32, 1234)}),
)


@pytest.mark.parametrize("message", EVERY, ids=lambda m: type(m).__name__)
def test_a_message_survives_the_wire(message: Message) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[1]",
        b"null",
        b'{"kind":"hello"}',
        b'{"kind":"nonsense"}',
        b'{"kind":["heartbeat"]}',
        b'{"kind":"heartbeat","rank":"3","step":1}',
        b'{"kind":"heartbeat","rank":true,"step":1}',
        b'{"kind":"heartbeat","rank":3,"step":1,"evil":2}',
        b'{"kind":"heartbeat","rank":3,"step":1,"step_s":NaN}',
        b'{"kind":"hello","rank":0,"world_size":2,"pid":1,"host":"n","step":5,"epoch":0,'
        b'"maps":[{"name":"g","ranks":[0,1],"holders":[]}]}',
        b'{"kind":"heartbeat","rank":3,"step":1,"step_s":-Infinity}',
        b'{"kind":"heartbeat","rank":3,"step":1,"step_s":1e400}',
        b'{"kind":"heartbeat","rank":3,"step":1,"step_s":-1}',
        b'{"kind":"heartbeat","rank":3,"step":1,"step_s":1' + b"0" * 400 + b"}",
        b'{"kind":"heartbeat","rank":3,"step":1,"step_s":true}',
        b'{"kind":"fault","epoch":1,"dead":"12","reason":""}',
        b'{"kind":"fault","epoch":1,"dead":[1,"2"],"reason":""}',
        b'{"kind":"state","rank":1,"epoch":1,"survivor":7}',
        b'{"kind":"saved","rank":1,"epoch":1,"files":{"a":[1,2]}}',
        b'{"kind":"saved","rank":1,"epoch":1,"files":{"a":["x"]}}',
        b'{"kind":"save","epoch":1,"plan":{"step":1}}',
        b"[" * 100_000,
        b'{"kind":"exit","code":1,"sentence":"' + b"x" * (5 << 20) + b'"}',
    ],
    ids=lambda line: line[:40].decode(),
)
def test_what_is_not_a_message_is_an_error(line: bytes) -> None:
    with pytest.raises(BadMessage):
        decode(line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.sampled_from(EVERY), st.data())
def test_a_message_with_one_field_changed_is_read_or_refused(
    message: Message, data: st.DataObject
) -> None:
    body = json.loads(encode(message))
    body[data.draw(st.sampled_from(sorted(body)))] = data.draw(JSON)
    with suppress(BadMessage):
        assert isinstance(decode(json.dumps(body).encode()), Message)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(line: bytes) -> None:
    with suppress(BadMessage):
        decode(line)
