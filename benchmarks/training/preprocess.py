"""How fast is `relkit data preprocess`, held against the flow of Megatron's preprocess_data.py?

The peer is that flow, written anew: a multiprocessing.Pool whose workers parse and encode one line
at a time, imap in chunks of 32, and megatron-core's own IndexedDatasetBuilder in the main process.
Both use the same `tokenizers` library, the same vocabulary, as many workers, and whole runs from
start to finish are timed, in turn. The outputs must be equal to the byte.

    python benchmarks/training/preprocess.py                the docstrings of the installed packages
    python benchmarks/training/preprocess.py --input a.jsonl --vocab-file v.json --merge-file m.txt
"""

from __future__ import annotations

import argparse
import ast
import json
import multiprocessing
import os
import resource
import statistics
import sys
import sysconfig
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from relkit.data.preprocess import Job, preprocess
from relkit.data.tokenizer import TokenizerSpec

BASELINE_RATIO = 2.0


def docstrings(limit_bytes: int) -> list[str]:
    """English prose with some code, that every Python installation has: long docstrings."""
    found: list[str] = []
    size = 0
    for root in (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib")):
        for path in sorted(Path(root).rglob("*.py")):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    tree = ast.parse(path.read_bytes())
            except (OSError, SyntaxError, ValueError, RecursionError):
                continue
            for node in ast.walk(tree):
                kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
                text = ast.get_docstring(node) if isinstance(node, kinds) else None
                if text is not None and len(text) > 200:
                    found.append(text)
                    size += len(text)
            if size > limit_bytes:
                return found
    return found


def train(texts: list[str], folder: Path) -> TokenizerSpec:
    """GPT-2's kind of tokenizer, with as many tokens, of these texts."""
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=50257,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    library.train_from_iterator(texts, trainer)
    library.model.save(str(folder))
    return TokenizerSpec("GPT2BPETokenizer", str(folder / "vocab.json"), str(folder / "merges.txt"))


class LineEncoder:
    """What each process of the pool does with a line."""

    shared: Any = None
    eod = 0

    def __init__(self, spec: TokenizerSpec) -> None:
        self.spec = spec

    def initializer(self) -> None:
        """Once a process: the tokenizer."""
        bpe = models.BPE.from_file(self.spec.vocab_file, self.spec.merge_file)
        LineEncoder.shared = Tokenizer(bpe)
        LineEncoder.shared.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        LineEncoder.eod = LineEncoder.shared.token_to_id("<|endoftext|>")

    def encode(self, line: str) -> tuple[dict[str, list[int]], dict[str, list[int]], int]:
        """One document: its tokens and the lengths of its sentences, by key."""
        text = json.loads(line)["text"]
        ids = list(LineEncoder.shared.encode(text).ids)
        if ids:
            ids.append(LineEncoder.eod)
        return {"text": ids}, {"text": [len(ids)] if ids else []}, len(line)


def peer(source: Path, prefix: Path, spec: TokenizerSpec, workers: int) -> None:
    """The whole flow of preprocess_data.py."""
    from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

    encoder = LineEncoder(spec)
    builder = IndexedDatasetBuilder(f"{prefix}.bin", dtype=np.uint16)
    with (
        source.open(encoding="utf-8") as stream,
        multiprocessing.get_context("fork").Pool(workers, initializer=encoder.initializer) as pool,
    ):
        for documents, lengths, _ in pool.imap(encoder.encode, stream, 32):
            builder.add_document(documents["text"], lengths["text"])
        builder.finalize(f"{prefix}.idx")
        pool.close()
        pool.join()


def ours(source: Path, prefix: Path, spec: TokenizerSpec, workers: int) -> None:
    """The whole of relkit's."""
    preprocess(
        Job(
            inputs=(str(source),),
            output_prefix=str(prefix).removesuffix("_text_document"),
            tokenizer=spec,
            is_eod_appended=True,
            workers=workers,
            is_forced=True,
        )
    )


def cpu_s() -> float:
    """Processor time of this process and of its children that have ended."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(one) for one in who]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(source: Path, spec: TokenizerSpec, folder: Path, workers: int, rounds: int) -> float:
    """Run both in turn; print seconds, and return the ratio of the medians."""
    flows = {"megatron": peer, "relkit": ours}
    wall: dict[str, list[float]] = {name: [] for name in flows}
    cpu: dict[str, list[float]] = {name: [] for name in flows}
    for number in range(rounds):
        for name in sorted(flows, reverse=bool(number % 2)):
            prefix = folder / f"{name}_text_document"
            began, used = time.monotonic(), cpu_s()
            flows[name](source, prefix, spec, workers)
            wall[name].append(time.monotonic() - began)
            cpu[name].append(cpu_s() - used)
    for ending in ("bin", "idx"):
        written = {(folder / f"{name}_text_document.{ending}").read_bytes() for name in flows}
        if len(written) != 1:
            sys.exit(f"the two .{ending} files differ")
    size = source.stat().st_size / 1e6
    for name in flows:
        middle = statistics.median(wall[name])
        print(
            f"  {name:9} {size / middle:6.2f} MB/s  wall {middle:6.2f} s"
            f" ({min(wall[name]):.2f} to {max(wall[name]):.2f})"
            f"  processor {statistics.median(cpu[name]):6.2f} s"
        )
    ratio = statistics.median(wall["megatron"]) / statistics.median(wall["relkit"])
    used_ratio = statistics.median(cpu["megatron"]) / statistics.median(cpu["relkit"])
    print(f"  {workers} workers: {ratio:.2f} times as fast, {used_ratio:.2f} by processor time")
    return ratio


def main() -> None:
    """Measure, print, and exit 1 below the promised ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--input", type=Path, help="JSON lines with a text each")
    parser.add_argument("--vocab-file", default="")
    parser.add_argument("--merge-file", default="")
    parser.add_argument("--megabytes", type=float, default=24.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    warnings.simplefilter("ignore")
    import megatron.core.datasets.indexed_dataset  # noqa: F401  (not a matter of speed)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = options.input or folder / "docstrings.jsonl"
        if options.input is None:
            texts = docstrings(int(options.megabytes * 1e6))
            source.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        if options.vocab_file:
            spec = TokenizerSpec("GPT2BPETokenizer", options.vocab_file, options.merge_file)
        else:
            with source.open(encoding="utf-8") as stream:
                spec = train([json.loads(line)["text"] for line in stream], folder)
        lines = source.read_bytes().count(b"\n")
        print(f"{source.stat().st_size / 1e6:.1f} MB, {lines} documents, {os.cpu_count()} cores")
        ratios = [
            measure(source, spec, folder, workers, options.rounds) for workers in options.workers
        ]
    sys.exit(0 if min(ratios) >= BASELINE_RATIO else 1)


if __name__ == "__main__":
    main()
