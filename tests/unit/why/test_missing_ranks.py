"""With any one rank's file left out the answer stays right, and the missing rank is no culprit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from relkit.why.explain import explain
from tests.unit.why.job_variants import VARIANTS, Files, Variant

# Of larger jobs the first ranks, the last ones and the culprit are left out.
_SOME = 4


def _files(variant: Variant) -> Files:
    return variant.make()


def _rank_of(name: str) -> int:
    return int(re.findall(r"\d+", name)[0])


HUNG = {
    name: variant
    for name, variant in VARIANTS.items()
    if "hang" in variant.cause and 4 <= len(_files(variant)) <= 64
}


def _left_out(names: list[str], culprits: tuple[int, ...]) -> list[str]:
    if len(names) <= 2 * _SOME:
        return names
    odd = [name for name in names if _rank_of(name) in culprits]
    return list(dict.fromkeys([*names[:_SOME], *odd, *names[-_SOME:]]))


@pytest.mark.parametrize("name", HUNG)
def test_any_rank_s_file_may_be_missing(name: str, tmp_path: Path) -> None:
    variant = HUNG[name]
    files = _files(variant)
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(content)
    left_out = _left_out(list(files), variant.culprits)
    right = 0
    for missing in left_out:
        (tmp_path / missing).unlink()
        culprits = tuple(explain([tmp_path]).facts["culprits"])
        (tmp_path / missing).write_bytes(files[missing])
        rank = _rank_of(missing)
        # Of the culprit itself nothing is left: that is nobody's fault, or what the others say.
        right += culprits == variant.culprits or (rank in variant.culprits and not culprits)
        assert rank not in culprits or rank in variant.culprits
    assert right >= 0.9 * len(left_out)


SAID_BY_ALL = [
    name
    for name, variant in VARIANTS.items()
    if variant.culprits and "hang" in variant.cause and len(_files(variant)) == 1
    and not name.startswith(("docker", "containerd", "torch 2.2", "two hosts"))
]  # fmt: skip


@pytest.mark.parametrize("name", SAID_BY_ALL)
def test_any_rank_may_be_silent_in_a_log_of_all(name: str, tmp_path: Path) -> None:
    variant = VARIANTS[name]
    ((file, content),) = _files(variant).items()
    lines = content.decode().splitlines(keepends=True)
    ranks = sorted({int(rank) for rank in re.findall(r"\[rank(\d+)\]", content.decode())})
    right = 0
    for silent in ranks:
        kept = (line for line in lines if f"[rank{silent}]" not in line)
        (tmp_path / file).write_text("".join(kept), newline="")
        culprits = tuple(explain([tmp_path]).facts["culprits"])
        right += culprits == variant.culprits or (silent in variant.culprits and not culprits)
        assert silent not in culprits or silent in variant.culprits
    assert right >= 0.9 * len(ranks)
