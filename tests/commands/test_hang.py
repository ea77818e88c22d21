"""relkit hang analyze: real dumps of torch's flight recorder, and what the person sees."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d

from relkit.cli import run
from tests.trainer.processes import Place, run_ranks
from tests.unit.flight_recorder.flight_builders import document, steps
from tests.waiting import eventually


def leaves_one_out(place: Place) -> None:
    """Rank 2 has not called the fourth all_reduce when the dumps are written."""

    def written(rank: int) -> Path:
        return place.folder / "pickles" / f"nccl_trace_rank_{rank}"

    with place.world("job", 3):
        for _ in range(3):
            dist.all_reduce(torch.ones(4))
        if place.rank == 2:
            eventually(lambda: written(0).exists() and written(1).exists(), "the others' dumps")
            save(place, written(2))
            dist.all_reduce(torch.ones(4))
        else:
            work = dist.all_reduce(torch.ones(4), async_op=True)
            save(place, written(place.rank))
            assert work is not None
            work.wait()


def save(place: Place, path: Path) -> None:
    as_json = _distributed_c10d._dump_fr_trace_json()  # type: ignore[attr-defined]
    text = as_json.decode() if isinstance(as_json, bytes) else as_json
    (place.folder / "json" / f"rank{place.rank}.json").write_text(text, encoding="utf-8")
    new = path.with_suffix(".new")
    new.write_bytes(_distributed_c10d._dump_fr_trace())  # type: ignore[attr-defined]
    new.rename(path)


@pytest.mark.long
def test_dumps_that_torch_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "2000")
    for kind in ("pickles", "json"):
        (tmp_path / kind).mkdir()
    run_ranks(leaves_one_out, 3, tmp_path, deadline_s=100)
    for kind in ("pickles", "json"):
        assert run(["hang", "analyze", str(tmp_path / kind)]) == 1
        said = capsys.readouterr().out
        assert "rank 2: on the host, outside of any collective" in said
        assert "ranks 0-1 wait for it in all_reduce #4 of the default group" in said
    # JSON leaves the stacks out.
    assert "its newest operation was called in commands/test_hang.py" not in said
    assert run(["hang", "analyze", str(tmp_path / "pickles"), "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["id"], finding["ranks"]) == ("RK-HANG-008", "2")
    assert any("called in commands/test_hang.py" in reason for reason in finding["reasons"])


def test_a_rank_is_not_accused_because_its_dump_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def dumps(name: str, late: int) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for rank in range(3):
            plain = document(steps(5, "completed") if rank == late else steps(6))
            (folder / f"dump_{rank}").write_bytes(pickle.dumps(plain))
        return folder

    assert run(["hang", "analyze", str(dumps("some", late=1))]) == 1
    said = capsys.readouterr().out
    assert "RK-HANG-008  rank 1: " in said
    assert "RK-HANG-001" not in said
    assert run(["hang", "analyze", str(dumps("none", late=-1))]) == 3
    said = capsys.readouterr().out
    assert "RK-HANG-010  rank 3 may be late for all_reduce #6 of the default group" in said
    assert f"no dump of it in {tmp_path / 'none'}" in said


def test_a_file_that_is_no_dump_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dump_0").write_bytes(b"\x80\x02}.")
    assert run(["hang", "analyze", str(tmp_path)]) == 3
    assert f"{tmp_path / 'dump_0'} is not a flight-recorder dump: it has no entries" in (
        capsys.readouterr().err
    )


def test_a_file_of_nodes_that_is_not_there_is_said_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["hang", "collect", "--nodes", "nosuch.txt", "-o", "hang7"]) == 2
    said = capsys.readouterr().err
    assert "there is no file 'nosuch.txt' with nodes" in said
    assert "Name a file that is here, or the nodes" in said
    assert not (tmp_path / "hang7").exists()
