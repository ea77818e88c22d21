"""What counts as asking for a variable."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from relkit.launch.warm_standby.read_variables import ReadVariables


@pytest.mark.parametrize(
    "ask",
    [
        lambda: os.environ["RELKIT_ASKED"],
        lambda: os.environ.get("RELKIT_ASKED"),
        lambda: os.getenv("RELKIT_ASKED"),
        lambda: "RELKIT_ASKED" in os.environ,
        lambda: os.environ.setdefault("RELKIT_ASKED", "x"),
        lambda: os.environ.pop("RELKIT_ASKED", None),
        lambda: os.environ.update(RELKIT_ASKED="2"),
    ],
)
@pytest.mark.parametrize("is_set", [True, False])
def test_who_asks_for_one_is_noticed(
    ask: Callable[[], object], is_set: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RELKIT_ASKED", "1")
    if not is_set:
        monkeypatch.delenv("RELKIT_ASKED")
    variables = ReadVariables()
    with variables:
        try:
            ask()
        except KeyError:
            assert not is_set
    os.environ.pop("RELKIT_ASKED", None)
    assert "RELKIT_ASKED" in variables.names


@pytest.mark.parametrize(
    "look", [os.environ.copy, lambda: dict(os.environ), lambda: list(os.environ.items())]
)
def test_who_takes_all_of_them_has_asked_for_each(look: Callable[[], object]) -> None:
    variables = ReadVariables()
    with variables:
        look()
    assert set(os.environ) <= variables.names


def test_what_is_raised_for_a_name_comes_out_of_who_has_asked() -> None:
    variables = ReadVariables()

    def refuse(name: str) -> None:
        raise RuntimeError(name)

    variables.when_used = refuse
    with variables, pytest.raises(RuntimeError, match="RELKIT_ASKED"):
        os.environ.get("RELKIT_ASKED")


@pytest.mark.parametrize(("module", "is_noted"), [("tqdm.utils", False), ("tqdmx", True)])
def test_who_looks_for_its_own_among_them_has_not(module: str, is_noted: bool) -> None:
    variables, space = ReadVariables(), {"__name__": module, "os": os}
    with variables:
        exec("found = {n: v for n, v in os.environ.items() if n.startswith('PAT')}", space)  # noqa: S102
    assert space["found"]["PATH"] == os.environ["PATH"]  # type: ignore[index]
    assert ("PATH" in variables.names) == is_noted


def test_what_is_set_in_the_block_stays_and_the_class_does_not() -> None:
    plain = type(os.environ)
    with ReadVariables():
        os.environ["RELKIT_SET_THERE"] = "1"
        assert type(os.environ) is not plain
    assert type(os.environ) is plain
    assert os.environ.pop("RELKIT_SET_THERE") == "1"


def test_an_environment_that_an_import_puts_in_its_place_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, other = os.environ, {"A": "1"}
    plain = type(original)
    with ReadVariables():
        monkeypatch.setattr(os, "environ", other)
    assert type(original) is plain
    assert other == {"A": "1"}
