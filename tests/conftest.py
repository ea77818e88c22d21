"""Fixtures for all tests: a clean environment, 80 columns, no colour, and no process left."""

from __future__ import annotations

import itertools
import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from tests.left_processes import descendants, end_left
from tests.session import cpu_limit, hear_ctrl_c, own_temporary_folder, patient_limits

# A change is judged by the same examples each time; `make explore` draws new ones. No example has a
# deadline: how long one takes is the machine's affair, and a test's own limit stops a hang.
settings.register_profile("fixed", derandomize=True, deadline=None, print_blob=True)
# For the daily edit, where they are most of the time that the unit tests take.
settings.register_profile("few", max_examples=15, derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

_TESTS = itertools.count()
_SETTINGS = "_hypothesis_internal_use_settings"


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before pytest's own plugin reads where temporary folders go."""
    own_temporary_folder(config)
    hear_ctrl_c()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Room for a busy machine; with few examples, few also where a test asks for more."""
    patient_limits(items)
    if settings.get_current_profile_name() == "few":
        for item in items:
            test = getattr(item, "function", None)
            # There is no public way to ask a test for its settings.
            own = getattr(test, _SETTINGS, None)
            if own is not None:
                most = min(own.max_examples, settings.get_profile("few").max_examples)
                setattr(test, _SETTINGS, settings(own, max_examples=most))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Tests of many files run in one process."""
    hear_ctrl_c()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """A test that computes without an end is ended by its CPU time; pytest's limit is wall time."""
    with cpu_limit():
        return (yield)


@pytest.fixture(autouse=True)
def plain_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """No colour, a fixed width, none of relkit's own variables, and no state of this machine."""
    for name in list(os.environ):
        if name.startswith(("RELKIT_", "XPU_TIMER_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_COLOR", "1")
    # What other tests' jobs have left in a history would be told of this one's.
    state = tmp_path_factory.getbasetemp() / f"state{next(_TESTS)}"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(autouse=True)
def no_process_left() -> Iterator[None]:
    """Every process that a test starts is gone when it ends, else the test has failed."""
    before = {process.pid for process in descendants()}
    yield
    names = end_left(before)
    assert not names, f"processes left behind: {names}"
