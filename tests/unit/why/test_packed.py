"""Packed files and archives are read in memory, whatever they are called, and never without end."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

import relkit.why.packed.unpacking as unpacking
from relkit.why.explain import explain
from relkit.why.packed.text_source import Pieces
from tests.unit.flight_recorder.flight_builders import document, entry, steps
from tests.unit.flight_recorder.stack_texts import LOADS, WAITS, spy_text
from tests.unit.why.job_logs import OOM, raised
from tests.unit.why.job_logs import steps as progress

LOG = f"{progress(20000)}\n{raised(3, 'KeyError: 1')}\n".encode()
PACK: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}


def tar_of(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    """A tar archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    """A zip archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return stream.getvalue()


ARCHIVES: dict[str, Callable[[dict[str, bytes]], bytes]] = {
    "tar": lambda files: tar_of(files, "w:"),
    "tar.gz": tar_of,
    "tar.bz2": lambda files: tar_of(files, "w:bz2"),
    "tar.xz": lambda files: tar_of(files, "w:xz"),
    "zip": zip_of,
}


def dumps() -> dict[str, bytes]:
    """The dumps of a job in which rank 2 is late."""
    entries = {rank: steps(8) for rank in range(4)} | {2: [entry(n) for n in range(1, 8)]}
    return {
        f"logs/nccl_trace_rank_{rank}": pickle.dumps(document(each))
        for rank, each in entries.items()
    }


@pytest.mark.parametrize("packing", PACK)
@pytest.mark.parametrize("name", ["job.log", "job.bin"])
def test_a_packed_log_is_read_by_what_it_holds(packing: str, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(PACK[packing](LOG))
    facts = explain([tmp_path]).facts
    assert (facts["cause"], facts["culprits"]) == ("exception", [3])


@pytest.mark.parametrize("packing", PACK)
def test_parts_that_were_joined_packed_are_read(packing: str, tmp_path: Path) -> None:
    half = len(LOG) // 2
    (tmp_path / "a").write_bytes(PACK[packing](LOG[:half]) + PACK[packing](LOG[half:]))
    assert explain([tmp_path]).facts["culprits"] == [3]


@pytest.mark.parametrize("packing", PACK)
def test_a_cut_one_is_read_as_far_as_it_goes(packing: str, tmp_path: Path) -> None:
    noise = os.urandom(1 << 19).hex().encode()
    packed = PACK[packing](LOG + noise)
    (tmp_path / "a.log").write_bytes(packed[: -len(packed) // 4])
    facts = explain([tmp_path]).facts
    assert facts["culprits"] == [3]
    assert "cut" in facts["files"][0]["note"]


@pytest.mark.parametrize("packing", PACK)
def test_a_damaged_one_is_said(packing: str, tmp_path: Path) -> None:
    packed = bytearray(PACK[packing](LOG))
    packed[12:60] = os.urandom(48)
    (tmp_path / "a.log").write_bytes(packed)
    file = explain([tmp_path]).facts["files"][0]
    assert "damaged" in file["note"] or "cut" in file["note"]


@pytest.mark.parametrize("packing", PACK)
def test_one_that_is_packed_twice_says_so(packing: str, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_bytes(PACK[packing](PACK[packing](LOG)))
    assert explain([tmp_path]).facts["files"][0]["note"] == f"packed with {packing} twice"


def test_zstd_is_read_where_it_can_be(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    packed = zstandard.ZstdCompressor().compress(LOG)
    (tmp_path / "a.log").write_bytes(packed + packed)
    assert explain([tmp_path]).facts["culprits"] == [3]
    (tmp_path / "a.log").write_bytes(packed[: len(packed) // 2])
    assert "cut" in explain([tmp_path]).facts["files"][0]["note"]


def test_zstd_that_cannot_be_read_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = [each for each in unpacking.PACKINGS if each.name != "zstd"]
    zstd = unpacking.Packing("zstd", b"\x28\xb5\x2f\xfd", None)
    monkeypatch.setattr(unpacking, "PACKINGS", (*others, zstd))
    (tmp_path / "a.log").write_bytes(b"\x28\xb5\x2f\xfd" + bytes(99))
    note = explain([tmp_path]).facts["files"][0]["note"]
    assert "pip install zstandard" in note


@pytest.mark.parametrize("packing", PACK)
def test_a_bomb_ends(packing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "MAX_UNPACKED_BYTES", 16 << 20)
    packed = PACK[packing](bytes(48 << 20))
    pieces = Pieces(io.BytesIO(b""), packed)
    sizes = [len(piece) for piece in pieces]
    assert sum(sizes) <= (16 << 20) + (8 << 20)
    assert max(sizes) <= 9 << 20
    assert "first" in pieces.note


@pytest.mark.parametrize("kind", ARCHIVES)
def test_the_logs_of_an_archive_are_read(kind: str, tmp_path: Path) -> None:
    files = {"logs/rank0.log": progress(9).encode(), "logs/rank1.log": raised(None, OOM).encode()}
    (tmp_path / "logs.dat").write_bytes(ARCHIVES[kind](files))
    before = sorted(tmp_path.rglob("*"))
    facts = explain([tmp_path]).facts
    assert (facts["cause"], facts["culprits"]) == ("device-oom", [1])
    assert [Path(file["path"]).name for file in facts["files"]] == ["rank0.log", "rank1.log"]
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ARCHIVES)
def test_the_dumps_of_an_archive_are_judged(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(ARCHIVES[kind](dumps()))
    assert explain([tmp_path / "a"]).facts["culprits"] == [2]


def test_the_stacks_of_an_archive_are_judged(tmp_path: Path) -> None:
    files = {
        f"s/rank{r}.txt": spy_text(LOADS if r == 1 else WAITS["recv"], 9 + r).encode()
        for r in range(4)
    }
    (tmp_path / "a.tgz").write_bytes(tar_of(files))
    assert explain([tmp_path / "a.tgz"]).facts["culprits"] == [1]


def test_stacks_of_relkit_s_own_format_in_an_archive(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "data" / "xpu_timer" / "eight_ranks"
    files = {file.name: file.read_bytes() for file in folder.glob("*.stacktrace")}
    (tmp_path / "a.zip").write_bytes(zip_of(files))
    assert explain([tmp_path / "a.zip"]).facts["culprits"] == [5, 2]


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_packed_log_in_an_archive(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(ARCHIVES[kind]({"rank3.log.gz": gzip.compress(LOG)}))
    assert explain([tmp_path]).facts["culprits"] == [3]


def test_the_jobs_of_an_archive_are_told_apart(tmp_path: Path) -> None:
    files = {"x/slurm-12.out": raised(0, OOM).encode(), "x/slurm-13.out": raised(1, "KeyError: 1")
             .encode()}  # fmt: skip
    (tmp_path / "x.tar.gz").write_bytes(tar_of(files))
    facts = explain([tmp_path]).facts
    assert (facts["job"], facts["culprits"]) == ("13", [1])


@pytest.mark.parametrize("kind", ARCHIVES)
def test_a_cut_archive_is_said_and_stops_nothing(kind: str, tmp_path: Path) -> None:
    packed = ARCHIVES[kind]({"a.log": os.urandom(200_000).hex().encode(), "b.log": LOG})
    (tmp_path / "a").write_bytes(packed[: len(packed) // 2])
    (tmp_path / "rank1.log").write_text(raised(None, OOM))
    facts = explain([tmp_path]).facts
    assert facts["culprits"] == [1]
    assert any(file["note"] for file in facts["files"] if "rank1" not in file["path"])


def test_names_lead_nowhere_and_links_are_not_followed(tmp_path: Path) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        link = tarfile.TarInfo("rank1.log")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        info = tarfile.TarInfo("../../rank2.log")
        data = raised(None, OOM).encode()
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    (tmp_path / "a.tar").write_bytes(stream.getvalue())
    files = explain([tmp_path]).facts["files"]
    assert [file["path"] for file in files] == [str(tmp_path / "a.tar" / "rank2.log")]


def test_a_zip_that_is_a_checkpoint_is_no_archive_of_logs(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(zip_of({"model/data.pkl": LOG, "model/version": b"3"}))
    file = explain([tmp_path]).facts["files"][0]
    assert (file["used_for"], "checkpoint" in file["note"]) == ("", True)


def test_a_zip_bomb_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import relkit.why.packed.archives as archives

    monkeypatch.setattr(archives, "MAX_UNPACKED_BYTES", 8 << 20)
    (tmp_path / "a.zip").write_bytes(zip_of({f"{n}.log": b"step 1\n" * 600_000 for n in range(4)}))
    notes = [file["note"] for file in explain([tmp_path]).facts["files"]]
    assert any("first" in note for note in notes), notes
