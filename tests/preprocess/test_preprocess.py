"""Preprocessing with real workers: documents in order, whatever the input, and errors by line."""

from __future__ import annotations

import gzip
import json
import os
import signal
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from relkit.data import documents, workers
from relkit.data.documents import Source, find_sources, read_chunks, split_source
from relkit.data.indexed import IndexedDataset
from relkit.data.preprocess import Job, preprocess
from relkit.data.tokenizer import TokenizerSpec
from relkit.errors import BadInputFile, RelkitError, UnwritablePath, UsageProblem
from tests.preprocess.text_inputs import ODD_TEXTS, gpt2_files, stanzas, trained, write_jsonl

CHARACTERS = TokenizerSpec("CharLevelTokenizer")


def job(folder: Path, *inputs: Path | str, name: str = "out", **more: object) -> Job:
    settings = {"tokenizer": CHARACTERS, "workers": 1, **more}
    return Job(inputs=tuple(map(str, inputs)), output_prefix=str(folder / name), **settings)  # type: ignore[arg-type]


def texts_of(prefix: Path) -> list[str]:
    read = IndexedDataset(prefix)
    bounds = read.document_indices
    return [
        b"".join(read[n].astype(np.uint8).tobytes() for n in range(start, end)).decode()
        for start, end in pairwise(bounds)
    ]


def refused(folder: Path, content: str | bytes, words: str) -> None:
    path = folder / "bad.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(BadInputFile, match=words):
        preprocess(job(folder, path))
    assert [one.name for one in folder.iterdir()] == ["bad.jsonl"]


def test_many_small_chunks_of_two_workers_keep_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "CHUNK_BYTES", 700)
    texts = [*stanzas(), *ODD_TEXTS]
    path = write_jsonl(tmp_path / "a.jsonl", texts)
    told: list[tuple[int, int, int]] = []
    spec = gpt2_files(tmp_path)
    outcome = preprocess(
        job(tmp_path, path, tokenizer=spec, is_eod_appended=True, workers=2),
        lambda *figures: told.append(figures),
    )
    read = IndexedDataset(tmp_path / "out_text_document")
    eod = trained().get_vocab_size()
    expected = [[*ids, eod] for ids in (trained().encode(t).ids for t in texts) if ids]
    assert [read[n].tolist() for n in range(len(read))] == expected
    # The empty text is a document without a sequence.
    assert read.num_documents == len(texts) == outcome.made[0].documents
    assert len(read) == len(texts) - 1
    assert len(told) > 10
    assert told == sorted(told)
    assert told[-1] == (path.stat().st_size, path.stat().st_size, len(texts))


def test_the_same_documents_from_every_kind_of_file_give_the_same_pair(tmp_path: Path) -> None:
    texts = stanzas()
    plain = write_jsonl(tmp_path / "alpaca.jsonl", texts)
    (tmp_path / "alpaca.jsonl.gz").write_bytes(gzip.compress(plain.read_bytes()))
    # Alpaca's columns; the guide's own conversion is write_jsonl of the last one.
    columns = {name: [name] * len(texts) for name in ("instruction", "input", "output")}
    table = pa.table({**columns, "text": texts})
    pq.write_table(table, tmp_path / "alpaca.parquet", row_group_size=50)
    half = len(texts) // 2
    for number, part in enumerate((texts[:half], texts[half:])):
        write_jsonl(tmp_path / f"part-{number}.json", part)
    written = set()
    for words in ("alpaca.jsonl", "alpaca.jsonl.gz", "alpaca.parquet", "part-*.json"):
        preprocess(job(tmp_path, tmp_path / words, is_forced=True))
        files = [tmp_path / f"out_text_document.{ending}" for ending in ("bin", "idx")]
        written.add(b"".join(path.read_bytes() for path in files))
    assert len(written) == 1
    assert texts_of(tmp_path / "out_text_document") == texts


def test_several_keys_lists_of_texts_blank_lines_and_a_mark_at_the_beginning(
    tmp_path: Path,
) -> None:
    rows = [{"a": ["x", "", "yz"], "b": "1"}, {"a": [], "b": "2"}, {"a": "w", "b": ""}]
    lines = "\n\n  \n".join(json.dumps(row) for row in rows)
    (tmp_path / "in.jsonl").write_text("\ufeff" + lines)
    preprocess(job(tmp_path, tmp_path / "in.jsonl", keys=("a", "b"), is_eod_appended=True))
    a, b = (IndexedDataset(tmp_path / f"out_{key}_document") for key in "ab")
    assert [a[n].tolist() for n in range(len(a))] == [[120], [121, 122, 0], [119, 0]]
    assert a.document_indices.tolist() == [0, 2, 2, 3]
    assert [b[n].tolist() for n in range(len(b))] == [[49, 0], [50, 0]]
    assert b.document_indices.tolist() == [0, 1, 2, 2]


# The second line begins at byte 13.
@pytest.mark.parametrize("part_bytes", [1, 12, 13, 14, 60, 61, 1000, 10**6])
def test_the_parts_of_a_file_are_its_lines_each_once_and_in_order(
    tmp_path: Path, part_bytes: int
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["x" * n for n in range(60)])
    parts = split_source(Source(path), part_bytes)
    data = [chunk.data for part in parts for chunk in read_chunks(part, ("text",))]
    assert b"".join(data) == path.read_bytes()
    none = pa.table({"text": pa.array([], pa.string())})
    pq.write_table(none, tmp_path / "none.parquet")
    (part,) = split_source(Source(tmp_path / "none.parquet"), part_bytes)
    assert not list(read_chunks(part, ("text",)))
    table = pa.table({"text": [str(n) for n in range(60)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    parts = split_source(Source(tmp_path / "a.parquet"), part_bytes)
    data = [chunk.data for part in parts for chunk in read_chunks(part, ("text",))]
    assert [json.loads(line)["text"] for line in b"".join(data).splitlines()] == [
        str(n) for n in range(60)
    ]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"text": "a"}\n\n{"text": 1}\n', r"line 3: 'text' is neither text nor a list"),
        ('{"text": "a"}\n{"txt": "b"}\n', r"line 2 has no key 'text'; it has txt"),
        ('{"text": "a"}\n{"text": \n', r"line 2 is not JSON"),
        ("[1]\n", r"line 1 is not a JSON object"),
        (b'{"text": "a"}\n{"text": "\xff"}\n', r"line 2 is not UTF-8"),
        ('{"text": "\\ud800"}\n', r"line 1: 'text' has half a character"),
    ],
)
def test_a_bad_line_is_named_and_leaves_no_output(
    tmp_path: Path, content: str | bytes, words: str
) -> None:
    refused(tmp_path, content, words)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    packed = gzip.compress(json.dumps({"text": os.urandom(9000).hex()}).encode())
    for name, content, words in (
        ("a.jsonl.gz", packed[: len(packed) // 2], "truncated or damaged"),
        ("b.jsonl.gz", b"no gzip at all", "cannot read"),
        ("c.parquet", b"PAR1 no parquet", "not a parquet file"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadInputFile, match=words):
            list(read_chunks(Source(tmp_path / name), ("text",)))
    pq.write_table(pa.table({"content": ["x"]}), tmp_path / "d.parquet")
    with pytest.raises(BadInputFile, match="no column 'text'; it has content"):
        list(read_chunks(Source(tmp_path / "d.parquet"), ("text",)))
    for column in ([b"x"], [1.5]):
        pq.write_table(pa.table({"text": column}), tmp_path / "f.parquet")
        with pytest.raises(BadInputFile, match=r"not text|neither text"):
            preprocess(job(tmp_path, tmp_path / "f.parquet"))
    pq.write_table(pa.table({"text": stanzas()}), tmp_path / "g.parquet", compression="none")
    damaged = bytearray((tmp_path / "g.parquet").read_bytes())
    damaged[4:40] = b"\xff" * 36
    (tmp_path / "g.parquet").write_bytes(damaged)
    with pytest.raises(BadInputFile, match=r"damaged|cannot read"):
        list(read_chunks(Source(tmp_path / "g.parquet"), ("text",)))
    pq.write_table(pa.table({"text": ["x", None]}), tmp_path / "e.parquet")
    with pytest.raises(BadInputFile, match="row 2: 'text' is neither"):
        preprocess(job(tmp_path, tmp_path / "e.parquet"))


def test_what_cannot_be_is_said_before_anything_is_read(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["x"])
    with pytest.raises(BadInputFile, match="no such file"):
        find_sources([f"{path},{tmp_path}/none*.jsonl"])
    (tmp_path / "out_text_document.idx").touch()
    with pytest.raises(UsageProblem, match="exists already"):
        preprocess(job(tmp_path, path))
    with pytest.raises(UnwritablePath, match="cannot make"):
        preprocess(job(path, path))
    with pytest.raises(UsageProblem, match="twice"):
        job(tmp_path, path, keys=("a", "a"))
    (tmp_path / "tokenizer").mkdir()
    trained().save(str(tmp_path / "tokenizer" / "tokenizer.json"))
    spec = TokenizerSpec("HFTokenizer", str(tmp_path / "tokenizer"))
    with pytest.raises(UsageProblem, match="no end-of-document token"):
        preprocess(job(tmp_path, path, name="b", tokenizer=spec, is_eod_appended=True))


def test_a_worker_that_is_killed_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "CHUNK_BYTES", 700)
    path = write_jsonl(tmp_path / "a.jsonl", stanzas())

    def kill(_done: int, _total: int, _documents: int) -> None:
        for child in psutil.Process().children():
            # The next chunk may come when those of the last call are being reaped.
            with suppress(psutil.NoSuchProcess):
                child.send_signal(signal.SIGKILL)

    with pytest.raises(RelkitError, match=r"a worker died .*-9"):
        preprocess(job(tmp_path, path, workers=2), kill)
    assert [one.name for one in tmp_path.iterdir()] == ["a.jsonl"]


def test_a_worker_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", stanzas())
    monkeypatch.setattr(workers, "ANSWER_TIMEOUT_S", 0.0)
    with pytest.raises(RelkitError, match="has not answered for 0 s"):
        preprocess(job(tmp_path, path))
