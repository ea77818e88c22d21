"""Text files to token data sets: read in order, encoded by workers, written by one writer a key."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from relkit.data.documents import Chunk, Source, find_sources, read_chunks, total_bytes
from relkit.data.index_file import pair, token_dtype
from relkit.data.indexed import IndexedDataset, IndexedWriter
from relkit.data.tokenizer import TokenizerSpec
from relkit.data.workers import Workers
from relkit.errors import UnwritablePath, UsageProblem
from relkit.output import require_new

Progress = Callable[[int, int, int], None]
"""Called with bytes of input done, bytes in all, and documents so far."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to preprocess, and how.

    Args:
        inputs: files, globs, folders, or lists with commas: .jsonl, .json (one object a line),
            either with .gz or .zst, .parquet, and lm_dataformat's archives (`archives.py`).
        output_prefix: the data sets become OUTPUT_PREFIX_KEY_document.
        tokenizer: text to tokens.
        keys: of the JSON objects, or columns; a data set is made of each.
        is_eod_appended: each document ends with the end-of-document token.
        is_repaired: ftfy mends each text first.
        workers: processes that encode, 1 or more.
        is_forced: a data set of that name may be replaced.
    """

    inputs: tuple[str, ...]
    output_prefix: str
    tokenizer: TokenizerSpec
    keys: tuple[str, ...] = ("text",)
    is_eod_appended: bool = False
    is_repaired: bool = False
    workers: int = 1
    is_forced: bool = False

    def __post_init__(self) -> None:
        if len(set(self.keys)) != len(self.keys) or not self.keys:
            raise UsageProblem("--json-keys names a key twice, or none")
        if self.workers < 1:
            raise UsageProblem(f"--workers is {self.workers}; it must be at least 1")

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The data set of each key."""
        return tuple(f"{self.output_prefix}_{key}_document" for key in self.keys)

    def prepare(self) -> list[Source]:
        """The input files; the output's folder is made, and checked for what is there already."""
        sources = find_sources(self.inputs)
        if not self.is_forced:
            refuse_existing(self.prefixes)
        folder = Path(self.output_prefix).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnwritablePath(f"cannot make {folder}: {error.strerror}") from error
        return sources


def refuse_existing(prefixes: Iterable[str]) -> None:
    """Raise UsageProblem if a data set of that name exists."""
    for path in (path for prefix in prefixes for path in pair(prefix)):
        require_new(path, force=False)


@dataclass(frozen=True, slots=True)
class Made:
    """A data set that was written.

    Args:
        prefix: of its .bin and .idx.
        documents, sequences, tokens: how many.
        size_bytes: of the .bin.
        dtype: type of the tokens.
    """

    prefix: str
    documents: int
    sequences: int
    tokens: int
    size_bytes: int
    dtype: str


@dataclass(frozen=True, slots=True)
class PreprocessResult:
    """What preprocessing made: the data sets, bytes of input read (as packed), and seconds."""

    made: tuple[Made, ...]
    input_bytes: int
    duration_s: float


def preprocess(job: Job, progress: Progress | None = None) -> PreprocessResult:
    """Run a job with worker processes on this machine.

    Args:
        job: what to do.
        progress: called after every chunk.

    Raises:
        BadInputFile: an input or tokenizer file is damaged; no output is left then.
        UsageProblem: the output exists, or the settings contradict each other.
        UnwritablePath: the output cannot be written.
    """
    started = time.monotonic()
    sources = job.prepare()
    size = total_bytes(sources)
    with (
        Workers(
            job.tokenizer,
            job.keys,
            is_eod_appended=job.is_eod_appended,
            is_repaired=job.is_repaired,
            workers=job.workers,
        ) as workers,
        ExitStack() as stack,
    ):
        dtype = token_dtype(workers.vocab_size)
        writers = [stack.enter_context(IndexedWriter(prefix, dtype)) for prefix in job.prefixes]
        for chunk, encoded in workers.encode(_chunks(sources, job.keys)):
            for writer, part in zip(writers, encoded, strict=True):
                writer.add_encoded(part.data, part.lengths, part.sequences_per_document)
            if progress is not None:
                progress(chunk.done_bytes, size, writers[0].num_documents)
    return PreprocessResult(made(job.prefixes), size, time.monotonic() - started)


def made(prefixes: Iterable[str]) -> tuple[Made, ...]:
    """Read back what was written, with every check."""
    data_sets = [IndexedDataset(prefix) for prefix in prefixes]
    return tuple(
        Made(
            data_set.prefix,
            data_set.num_documents,
            len(data_set),
            data_set.num_tokens(),
            data_set.bin_size_bytes,
            data_set.dtype.name,
        )
        for data_set in data_sets
    )


def _chunks(sources: Sequence[Source], keys: Sequence[str]) -> Iterator[Chunk]:
    """All chunks of all files; done_bytes counts over all of them."""
    before = 0
    for source in sources:
        for chunk in read_chunks(source, keys):
            yield Chunk(chunk.data, chunk.where, chunk.unit, chunk.first, before + chunk.done_bytes)
        before += total_bytes([source])
