"""JSON from elsewhere is a value, or a ValueError: nothing else gets out."""

from __future__ import annotations

import json

import pytest

from relkit.fleet import wire
from relkit.launch.spares.membership import Membership, decode
from relkit.launch.straggler.exclusion import decode_order
from relkit.text.foreign_json import parse_json, parse_object

DEEP = "[" * 100_000


def test_an_object_is_given_as_it_is() -> None:
    assert parse_object(b'{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


@pytest.mark.parametrize("text", ["", "{", "nothing", DEEP, '{"a": ' + DEEP])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    for read in (parse_json, parse_object):
        with pytest.raises(ValueError, match=r"Expecting|nested too deep"):
            read(text)


@pytest.mark.parametrize(
    ("plain", "type_name"), [([], "list"), (None, "NoneType"), ("a", "str"), (1.5, "float")]
)
def test_another_value_is_no_object(plain: object, type_name: str) -> None:
    text = json.dumps(plain)
    assert parse_json(text) == plain
    with pytest.raises(ValueError, match=f"a value of type {type_name}"):
        parse_object(text)


@pytest.mark.parametrize("text", ["[]", "1", '"{}"', "{", DEEP])
def test_its_readers_refuse_what_is_no_object(text: str) -> None:
    with pytest.raises(wire.BadLine, match="a line that is not a JSON object: "):
        wire.decode(text.encode())
    assert decode_order(text.encode()) is None
    assert decode(text) == Membership()
