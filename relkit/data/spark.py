"""Preprocessing with Spark: parts of the input become shards, and the shards, in order, one pair.

The result is the single machine's, byte for byte: every line is in exactly one part, and the shards
are joined in the parts' order. Input and output lie where the driver and every executor see them
under the same path, and relkit is installed on the executors.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from relkit.data.documents import Source, read_chunks, split_source, total_bytes
from relkit.data.encode import Encoder
from relkit.data.frames import error_part, to_error
from relkit.data.indexed import IndexedWriter
from relkit.data.merge import merge
from relkit.data.preprocess import Job, PreprocessResult, Progress, made
from relkit.data.spark_session import spark_context
from relkit.data.tokenizer import load_tokenizer
from relkit.errors import RelkitError
from relkit.process.interruptible_wait import wait_for_end

# Small enough that a lost part costs little, large enough that loading a tokenizer does not show.
PART_BYTES = 64 << 20
PARTS_PER_CORE = 2
# A task loads the tokenizer: for less it is not worth it, however many workers were named.
LEAST_PART_BYTES = 1 << 20
POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Shard:
    """What became of one part of the input.

    Args:
        part: its number.
        prefix: what the names of its data sets begin with.
        failure: the error that ended it, as `frames.error_part` has it.
    """

    part: int
    prefix: str
    failure: bytes = b""


def preprocess(
    job: Job, *, master: str = "", partitions: int | None = None, progress: Progress | None = None
) -> PreprocessResult:
    """Run a job with Spark.

    Args:
        job: what to do; with a local master, job.workers is its cores.
        master: URL of Spark's master; "": that of spark-submit, which has started us, else local.
            A session that is active already is used, and left as it is.
        partitions: parts of the input, at least one a file; None: by size.
        progress: called as shards are finished; documents are counted at the end.

    Raises:
        BadInputFile, UsageProblem, UnwritablePath: as `preprocess.preprocess` has them.
        MissingExtra: pyspark or Java is not installed.
        RelkitError: Spark itself failed.
    """
    started = time.monotonic()
    sources = job.prepare()
    size = total_bytes(sources)
    by_size = max(job.workers * PARTS_PER_CORE, -(-size // PART_BYTES))
    wanted = partitions or max(1, min(by_size, -(-size // LEAST_PART_BYTES)))
    sources = [replace(source, path=source.path.absolute()) for source in sources]
    parts = [
        part for source in sources for part in split_source(source, max(1, -(-size // wanted)))
    ]
    # Beside the output: the executors see it too, and joining must not fill another, small disk.
    output = Path(job.output_prefix).absolute()
    folder = Path(tempfile.mkdtemp(dir=output.parent, prefix=f".{output.name}-shards-"))
    try:
        with spark_context(master, cores=job.workers) as context:
            spread = context.parallelize(list(enumerate(parts)), len(parts))
            work = spread.mapPartitions(partial(encode_parts, _absolute(job), folder))
            with _reported(folder, len(parts), size, progress):
                shards: list[Shard] = sorted(work.collect(), key=lambda shard: int(shard.part))
        for shard in shards:
            if shard.failure:
                raise to_error(shard.failure)
        for number, prefix in enumerate(job.prefixes):
            merge([f"{shard.prefix}-{number}" for shard in shards], prefix)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    result = PreprocessResult(made(job.prefixes), size, time.monotonic() - started)
    if progress is not None:
        progress(size, size, result.made[0].documents)
    return result


def encode_parts(job: Job, folder: Path, parts: Iterator[tuple[int, Source]]) -> Iterator[Shard]:
    """One Spark task: encode parts of the input, a shard each.

    Args:
        job: what to do.
        folder: where the shards go.
        parts: their numbers and places.
    """
    # A task has one core: the library must start no threads on it.
    os.environ.update({"TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"})
    failed = folder / "failed"
    for number, part in parts:
        # Every attempt writes under its own name, so a repeated task meets no files of the first.
        prefix = tempfile.mkdtemp(dir=folder, prefix=f"{number}-") + "/shard"
        try:
            if not failed.exists():
                _encode_part(job, part, prefix)
        except RelkitError as error:
            failed.touch()
            yield Shard(number, prefix, error_part(error))
        else:
            yield Shard(number, prefix)


def _encode_part(job: Job, part: Source, prefix: str) -> None:
    encoder = Encoder(
        load_tokenizer(job.tokenizer),
        job.keys,
        is_eod_appended=job.is_eod_appended,
        is_repaired=job.is_repaired,
    )
    with ExitStack() as stack:
        writers = [
            stack.enter_context(IndexedWriter(f"{prefix}-{number}", encoder.dtype))
            for number in range(len(job.keys))
        ]
        for chunk in read_chunks(part, job.keys):
            for writer, documents in zip(writers, encoder.encode(chunk), strict=True):
                writer.add_encoded(
                    documents.data, documents.lengths, documents.sequences_per_document
                )


def _absolute(job: Job) -> Job:
    """The job for an executor, which need not have the driver's working folder."""
    spec = job.tokenizer
    files = {"vocab_file": spec.vocab_file, "merge_file": spec.merge_file}
    # What is no file here is a name: an encoding of tiktoken's.
    absolute = {
        n: str(Path(file).absolute()) for n, file in files.items() if file and Path(file).exists()
    }
    return replace(job, tokenizer=replace(spec, **absolute))


@contextmanager
def _reported(folder: Path, parts: int, size: int, progress: Progress | None) -> Iterator[None]:
    """Progress, now and then, how many shards are there."""
    ended = threading.Event()

    def report() -> None:
        while progress is not None and not ended.wait(POLL_S):
            done = sum(1 for _ in folder.glob("*/shard-0.idx"))
            progress(size * done // parts, size, 0)

    thread = threading.Thread(target=report, daemon=True)
    try:
        thread.start()
        yield
    finally:
        ended.set()
        if thread.ident is not None:
            wait_for_end(thread)
