"""lm_dataformat's archives: the documents that its own reader gives, and cut ones by name."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from pathlib import Path

import lm_dataformat  # type: ignore[import-untyped]
import pytest
import zstandard

from relkit.data import documents
from relkit.data.documents import Source, read_chunks
from relkit.data.preprocess import preprocess
from relkit.errors import BadInputFile
from tests.preprocess.test_preprocess import job, texts_of
from tests.preprocess.text_inputs import ODD_TEXTS, stanzas

TEXTS = [text for text in (*ODD_TEXTS, *stanzas()[:40]) if text]


def lines(texts: list[str]) -> bytes:
    return "".join(json.dumps({"text": text, "meta": {}}) + "\n" for text in texts).encode()


def packed(content: bytes) -> bytes:
    """Two frames, as programs that append to a file leave them."""
    half = len(content) // 2
    pack = zstandard.ZstdCompressor().compress
    return pack(content[:half]) + pack(content[half:])


def of_members(path: Path, mode: str, members: dict[str, bytes]) -> None:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))


def make(folder: Path, ending: str) -> Path:
    """An archive of TEXTS, by lm_dataformat itself where it writes one."""
    path = folder / f"data{ending}"
    if ending == ".jsonl.zst":
        archive = lm_dataformat.Archive(str(folder / "made"))
        for text in TEXTS:
            archive.add_data(text)
        archive.commit()
        archive.fh.close()
        next((folder / "made").glob("*.jsonl.zst")).rename(path)
    elif ending == ".dat.zst":
        archive = lm_dataformat.DatArchive(str(folder / "made"))
        for text in TEXTS:
            archive.add_data(text)
        archive.commit()
        next((folder / "made").glob("*.dat.zst")).rename(path)
    elif ending == ".json.zst":
        path.write_bytes(zstandard.ZstdCompressor().compress(json.dumps(TEXTS).encode()))
    elif ending == ".jsonl.zst.tar":
        pack = zstandard.ZstdCompressor().compress
        parts = {"a.jsonl.zst": pack(lines(TEXTS[:9])), "b.jsonl.zst": pack(lines(TEXTS[9:]))}
        of_members(path, "w", parts)
    elif ending == ".tar.gz":
        of_members(path, "w:gz", {f"{n}.txt": text.encode() for n, text in enumerate(TEXTS)})
    elif ending == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zipped:
            for number, text in enumerate(TEXTS):
                zipped.writestr(f"{number:03}.txt", text)
    else:
        path.write_bytes(TEXTS[0].encode())
    return path


def end_of_first(path: Path) -> int:
    with tarfile.open(path) as archive:
        return archive.getmembers()[1].offset


ENDINGS = (".jsonl.zst", ".dat.zst", ".json.zst", ".jsonl.zst.tar", ".tar.gz", ".zip", ".txt")


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_documents_are_those_of_lm_dataformats_reader(
    tmp_path: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "CHUNK_BYTES", 700)
    path = make(tmp_path, ending)
    read = [
        json.loads(line)["text"]
        for chunk in read_chunks(Source(path), ["text"])
        for line in chunk.data.splitlines()
    ]
    if ending == ".jsonl.zst.tar":
        # Its own reader of these does not work (a name that is not defined); its writer's texts.
        assert read == TEXTS
    else:
        assert read == list(lm_dataformat.Reader(str(path)).stream_data())


def test_a_folder_of_archives_is_one_input_in_the_order_of_names(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "b.jsonl.zst").write_bytes(packed(lines(TEXTS[:3])))
    (folder / "a.txt").write_text("first")
    (folder / "c.jsonl").write_text('"a bare string"\n')
    (folder / "current_chunk_incomplete").write_bytes(b"not an archive")
    preprocess(job(tmp_path, folder))
    assert texts_of(tmp_path / "out_text_document") == ["first", *TEXTS[:3], "a bare string"]


@pytest.mark.parametrize("ending", ENDINGS[:-1])
def test_a_cut_archive_is_refused_and_leaves_nothing(tmp_path: Path, ending: str) -> None:
    path = make(tmp_path, ending)
    whole = path.read_bytes()
    cuts = [len(whole) - 3, len(whole) // 2]
    if ending == ".jsonl.zst.tar":
        # What tar pads its end with may be missing; half a member, or all of one, may not.
        cuts = [1000, end_of_first(path)]
    for kept in cuts:
        path.write_bytes(whole[:kept])
        with pytest.raises(BadInputFile, match=f"data{ending}"):
            preprocess(job(tmp_path, path))
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl.zst", b"no zstd at all", "truncated or damaged"),
        ("a.dat.zst", zstandard.compress(b"no length at all"), "is no lm_dataformat archive"),
        ("a.json.zst", zstandard.compress(b'{"text": "x"}'), "not one list of texts"),
        ("a.txt", b"\xff\xfe", "is not UTF-8"),
        ("a.zip", b"PK nothing", "truncated or damaged"),
    ],
)
def test_what_is_no_archive_is_named(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadInputFile, match=words):
        preprocess(job(tmp_path, tmp_path / name))


def test_ftfy_mends_each_text_first(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "schÃ¶n “quoted”"}) + "\n")
    preprocess(job(tmp_path, path, is_repaired=True))
    assert texts_of(tmp_path / "out_text_document") == ['schön "quoted"']
