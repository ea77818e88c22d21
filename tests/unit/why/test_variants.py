"""Files of many tools, backends and launchers: the answer is right for each."""

from __future__ import annotations

from pathlib import Path

import pytest

from relkit.why.explain import explain
from tests.unit.why.job_variants import VARIANTS
from tests.unit.why.more_variants import VARIANTS as MORE

ALL = {**VARIANTS, **MORE}


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Put files into a folder, which may be in folders of their own."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("name", ALL)
def test_the_answer_is_right(name: str, tmp_path: Path) -> None:
    variant = ALL[name]
    write(tmp_path, variant.make())
    facts = explain([tmp_path]).facts
    assert tuple(facts["culprits"]) == variant.culprits, facts
    assert facts["cause"] in variant.cause, facts
