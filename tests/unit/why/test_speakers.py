"""The prefixes of launchers name who wrote a line, and are taken away."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from relkit.why.model import Speaker
from relkit.why.speakers import Prefixes, prefixes_of, without_prefixes

NONE = Speaker()
Wrap = Callable[[str, int], str]

# How each launcher writes a line, and what its prefix tells of the number 3.
LAUNCHERS: dict[str, tuple[Wrap, Speaker]] = {
    "torch": (lambda text, n: f"[rank{n}]: {text}", Speaker(rank=3)),
    "torchrun --tee": (lambda text, n: f"[default{n}]:{text}", Speaker(local_rank=3)),
    "a role of torchrun": (lambda text, n: f"[trainer{n}]:{text}", Speaker(local_rank=3)),
    "srun -l": (lambda text, n: f"{n:2d}: {text}", Speaker(task=3)),
    "mpirun --tag-output": (lambda text, n: f"[1,{n}]<stderr>: {text}", Speaker(rank=3)),
    "Ray": (
        lambda text, n: f"(RayTrainWorker pid=70{n}, ip=10.0.0.{n}) {text}",
        Speaker(host="10.0.0.3", pid=703),
    ),
    "Ray, one host": (lambda text, n: f"(train_fn pid=70{n}) {text}", Speaker(pid=703)),
    "kubectl": (lambda text, n: f"[pod/train-{n}/pytorch] {text}", Speaker(host="train-3")),
    "pdsh": (lambda text, n: f"node0{n}: {text}", Speaker(host="node03")),
    "containerd": (lambda text, n: f"2026-01-01T00:00:00.1Z stderr F {text}", NONE),
    "docker": (
        lambda text, n: json.dumps({"log": text + "\n", "stream": "stderr", "time": "2026"}),
        NONE,
    ),
    "a logger of objects": (
        lambda text, n: json.dumps({"rank": n, "message": text, "level": "error"}),
        Speaker(rank=3),
    ),
    "colour": (lambda text, n: f"\x1b[31m[rank{n}]\x1b[0m: {text}\x1b[0m", Speaker(rank=3)),
    "two of them": (
        lambda text, n: f"[pod/w-{n}/c] [rank{n}]: {text}",
        Speaker(rank=3, host="w-3"),
    ),
    "behind a bar": (lambda text, n: f"  9%|#   | 3/40 [00:01<00:10][rank{n}]:{text}", Speaker(3)),
}
PLAIN = st.text(st.characters(codec="utf-8", exclude_characters="\n\r\x1b[]()<>"), max_size=80)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_prefix_names_who_wrote_the_line(launcher: str) -> None:
    wrap, speaker = LAUNCHERS[launcher]
    known = prefixes_of([wrap("some words", n % 4) for n in range(40)])
    assert without_prefixes(wrap("KeyError: 'label'", 3), known, NONE) == (
        speaker,
        "KeyError: 'label'",
    )


@pytest.mark.parametrize("launcher", LAUNCHERS)
@given(words=PLAIN)
def test_what_stands_behind_a_prefix_stays_as_it_is(launcher: str, words: str) -> None:
    wrap, speaker = LAUNCHERS[launcher]
    text = f"x {words}".rstrip()
    known = prefixes_of([wrap("some words", n % 4) for n in range(40)])
    assert without_prefixes(wrap(text, 3), known, NONE) == (speaker, text)


@given(st.text(max_size=200))
def test_any_line_has_a_speaker(line: str) -> None:
    for known in (Prefixes(), Prefixes(srun=True, is_json=True, hosts=frozenset({"n1"}))):
        _, text = without_prefixes(line, known, NONE)
        assert len(text) <= len(line)


def test_a_number_or_a_word_before_a_colon_is_no_prefix_where_few_lines_have_it() -> None:
    lines = ["loading", "RuntimeError: 3: bad", "2: second", "node7: not a host", *["step"] * 9]
    assert prefixes_of(lines) == Prefixes()


def test_exceptions_and_levels_are_no_hosts() -> None:
    assert (
        prefixes_of(["Error2: x", "nccl2: y", "rank3: z", "python3.11: w", "a.b.OutOf: v"]).hosts
        == frozenset()
    )
