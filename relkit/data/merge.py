"""Several token data sets as data_set: their documents, in the order the sets are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from relkit.data.indexed import IndexedDataset, IndexedWriter
from relkit.errors import BadInputFile, UsageProblem

DOCUMENTS_AT_A_TIME = 4096


def merge(
    prefixes: Sequence[str], output: str, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write the data sets one behind the other as data_set.

    Args:
        prefixes: of the data sets, in order.
        output: prefix of the new one; must not be one of them.
        progress: called with bytes of tokens done, and in all.

    Raises:
        BadInputFile: one of them is damaged, is multimodal, or has another type of tokens.
        UnwritablePath: the output cannot be written.
    """
    if output in prefixes:
        raise UsageProblem(f"{output} is both an input and the output")
    if not prefixes:
        raise UsageProblem("nothing to merge")
    data_sets = [IndexedDataset(prefix) for prefix in prefixes]
    first = data_sets[0]
    for data_set in data_sets:
        if data_set.dtype != first.dtype:
            raise BadInputFile(
                f"{data_set.prefix} has tokens of {data_set.dtype.name}, and {first.prefix} of"
                f" {first.dtype.name}",
                next_step="Preprocess both with the same tokenizer.",
            )
        if data_set.index.modes is not None:
            raise BadInputFile(f"{data_set.prefix} is multimodal, which relkit does not merge")
    total = sum(data_set.bin_size_bytes for data_set in data_sets)
    with IndexedWriter(output, first.dtype) as writer:
        for data_set in data_sets:
            for _ in _append(writer, data_set):
                if progress is not None:
                    progress(writer.size_bytes, total)


def _append(writer: IndexedWriter, data_set: IndexedDataset) -> Iterator[None]:
    is_packed = data_set.is_packed()
    bounds = data_set.document_indices
    for start in range(0, data_set.num_documents, DOCUMENTS_AT_A_TIME):
        piece = bounds[start : start + DOCUMENTS_AT_A_TIME + 1]
        first, last = int(piece[0]), int(piece[-1])
        # A foreign .bin may have gaps, or its sequences in another order.
        data = (
            data_set.span(first, last)
            if is_packed
            else b"".join(data_set[number].tobytes() for number in range(first, last))
        )
        writer.add_encoded(data, data_set.lengths[first:last], np.diff(piece))
        yield
