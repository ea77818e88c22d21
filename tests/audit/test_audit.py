"""The fuzzers: each runs, each notices a defect, and what they have found stays mended."""

from __future__ import annotations

import io
import random
import subprocess
import sys
import zipfile
from pathlib import Path

import psutil
import pytest

from tests.waiting import eventually
from tools.audit import __main__ as audit
from tools.audit import native
from tools.audit.child import attempt
from tools.audit.mutate import MAX_BYTES, changed
from tools.audit.planted import PLANTED
from tools.audit.supervise import Outcome, fuzz
from tools.audit.target import Run, Target
from tools.audit.targets import TARGETS

INPUTS = 300


def findings(target: Target, run: Run, seeds: list[bytes], seed: int) -> list[str]:
    """What a short run finds; the same inputs each time, however busy the machine is."""
    chance = random.Random(seed)  # noqa: S311
    inputs = (target.pack(changed(chance, seeds, target.shape)) for _ in range(INPUTS))
    return [why for data in inputs if (why := attempt(run, data))]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", TARGETS)
def test_a_short_run_finds_nothing_and_a_planted_defect_is_noticed(
    name: str, tmp_path: Path
) -> None:
    target = TARGETS[name]
    (tmp_path / "seeds").mkdir()
    (tmp_path / "work").mkdir()
    seeds = list(target.seeds(tmp_path / "seeds"))
    run = target.open(tmp_path / "work")
    for data in seeds:
        run(target.pack(data))
    whole = {target.pack(data) for data in seeds}

    def has_defect(data: bytes) -> None:
        run(data)
        # Reached only by an input that is not a seed, and that the reader takes.
        assert data in whole, "planted"

    noticed = findings(target, has_defect, seeds, 1)
    assert noticed
    assert [why for why in noticed if "planted" not in why] == []


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("raises", "IndexError: planted"),
        ("allocates", "MemoryError"),
        ("hangs", "more than 3 s"),
        ("crashes", "ended with -11"),
        ("slow", "of CPU time"),
    ],
)
def test_the_supervisor_notices_every_kind_of_defect(name: str, words: str, tmp_path: Path) -> None:
    assert name in PLANTED
    limit_s = 3.0 if name == "hangs" else 60.0
    outcome = fuzz(
        name,
        tmp_path,
        seed=1,
        seconds=4.0,
        inputs=60,
        progress=lambda _: None,
        hang_s=limit_s,
        input_s=0.2,
    )
    assert outcome.failures
    assert not outcome.is_good
    assert words in outcome.failures[0].with_suffix(".txt").read_text()
    data = outcome.failures[0].read_bytes()
    assert data.startswith(b"header")
    assert b"9" not in data


@pytest.mark.native
@pytest.mark.timeout(300)
def test_the_native_fuzzer_notices_a_planted_defect(tmp_path: Path) -> None:
    flags = ("-DRELKIT_PLANTED_DEFECT",)
    outcome = native.fuzz(
        tmp_path, seed=1, seconds=20.0, inputs=500_000, progress=lambda _: None, flags=flags
    )
    assert [path.name.partition("-")[0] for path in outcome.failures] == ["crash"]


def archive() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as writer:
        writer.writestr("a", b"x" * 999)
        writer.writestr("b", b"1 2 3")
    return out.getvalue()


def test_inputs_are_the_same_for_the_same_seed_and_bounded() -> None:
    for shape in ("bytes", "text", "json", "zip"):
        seeds = [archive()] if shape == "zip" else [b'{"a": [1, 2]}', b"x" * 999]
        made = [
            [changed(chance, seeds, shape) for _ in range(200)]
            for chance in (random.Random(3), random.Random(3))  # noqa: S311
        ]
        assert made[0] == made[1]
        assert len(set(made[0])) > 100
        assert max(map(len, made[0])) <= MAX_BYTES


def test_the_table_and_the_command_to_reproduce(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "12.input"
    bad.write_bytes(b"x")
    bad.with_suffix(".txt").write_text("IndexError: x\x1b[31m\n")
    outcomes = [Outcome("dumps", 1000, 2.0, 90 << 20), Outcome("hosts", 5, 1.0, 0, [bad])]
    assert [outcome.is_good for outcome in outcomes] == [True, False]
    lines = audit.table(outcomes).splitlines()
    assert lines[1].split()[-4:] == ["1,000", "500", "90", "nothing"]
    audit._print_failures(outcomes[1])
    told = capsys.readouterr().err
    assert f"make audit AUDIT_ARGS='--reproduce {bad} hosts'" in told
    assert "\x1b" not in told
    assert audit.main(["--reproduce", str(bad), "topology"]) == 0
    assert "refused, as it should be" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        audit.main(["nothing-of-that-name"])


@pytest.mark.timeout(120)
def test_who_tries_inputs_ends_with_who_watches(tmp_path: Path) -> None:
    code = "import sys; from tools.audit.supervise import fuzz; from pathlib import Path; fuzz("
    code += "'slow', Path(sys.argv[1]), seed=1, seconds=600, inputs=10**9, progress=print)"
    watching = subprocess.Popen(
        [sys.executable, "-u", "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert watching.stdout is not None
        next(line for line in watching.stdout if " 0 inputs" not in line)
        (child,) = psutil.Process(watching.pid).children()
        watching.terminate()
        eventually(lambda: not child.is_running(), f"{child} still runs")
    finally:
        watching.kill()
        watching.communicate()
