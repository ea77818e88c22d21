"""Colours: the guide's families, and text that can be read on every one of them."""

from __future__ import annotations

import pytest

from relkit.reports.drawing.palette import (
    LEVELS,
    Family,
    contrast,
    family,
    fill,
    ink,
    is_cpython,
    rarity,
)

PYTHON = "/usr/lib/libpython3.11.so.1.0"


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("which", list(Family))
def test_every_label_has_the_contrast_that_wcag_aa_asks_for(which: Family, dark: bool) -> None:
    for level in range(LEVELS):
        assert contrast(fill(which, level, dark=dark), ink(level, dark=dark)) >= 4.5


def test_contrast_is_the_one_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize(
    ("func", "source", "wanted"),
    [
        ("next_batch", "/home/ada/train.py:52", Family.PYTHON),
        ("nccl_helper", "/home/ada/nccl_tools.py:5", Family.PYTHON),
        ("all_reduce", "/venv/site-packages/torch/distributed/c10d.py:9", Family.TORCH),
        ("_PyEval_EvalFrameDefault", PYTHON, Family.PYTHON),
        ("method_vectorcall", "../Objects/descrobject.c:344", Family.PYTHON),
        ("ncclAllReduce", "/usr/lib/libnccl.so.2", Family.TORCH),
        ("gloo::transport::tcp::Loop::run()", "/venv/torch/lib/libtorch_cpu.so", Family.TORCH),
        ("c10d::Reducer::finalize()", "reducer.cpp:12", Family.TORCH),
        ("std::condition_variable::wait(x)", "/usr/lib/libstdc++.so.6", Family.CPP),
        ("__futex_wait", "/usr/lib/libc.so.6", Family.SYSTEM),
        ("??", "", Family.SYSTEM),
        ("State", "S (sleeping)", Family.STATE),
        ("Role", "main", Family.ROLE),
    ],
)
def test_families_are_those_of_the_guide(func: str, source: str, wanted: Family) -> None:
    assert family(func, source) is wanted


def test_the_users_own_python_is_never_the_interpreter() -> None:
    assert is_cpython("PyObject_Call", PYTHON)
    assert not is_cpython("PyThing", "/home/ada/PyThing.py:3")
    assert not is_cpython("main", "/usr/bin/trainer")


def test_one_rank_is_rare_in_any_world() -> None:
    assert [rarity(8, 8), rarity(7, 8), rarity(3, 8), rarity(2, 8), rarity(1, 8)] == [0, 1, 2, 3, 4]
    assert rarity(1, 1) == 0
    assert rarity(1, 2) == 2
    assert rarity(1, 100_000) == 4
    assert rarity(99_999, 100_000) == 1
