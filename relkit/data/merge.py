"""Several token data sets as one: their documents, in the order the sets are named."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from relkit.data.indexed import IndexedDataset, IndexedWriter
from relkit.errors import BadInputFile, UsageProblem

DOCUMENTS_AT_A_TIME = 4096


def merge(
    prefixes: Sequence[str], output: str, progress: Callable[[int, int], None] | None = None
) -> None:
    """Write the data sets one behind the other as one.

    Args:
        prefixes: of the data sets, in order.
        output: prefix of the new one; none of them.
        progress: called with the bytes of tokens done and in all.

    Raises:
        BadInputFile: one of them is damaged, is multimodal, or has another type of tokens.
        UnwritablePath: the output cannot be written.
    """
    if output in prefixes:
        raise UsageProblem(f"{output} is both read and written")
    if not prefixes:
        raise UsageProblem("nothing to merge")
    data_sets = [IndexedDataset(prefix) for prefix in prefixes]
    first = data_sets[0]
    for one in data_sets:
        if one.dtype != first.dtype:
            raise BadInputFile(
                f"{one.prefix} has tokens of {one.dtype.name}, and {first.prefix} of"
                f" {first.dtype.name}",
                next_step="Preprocess both with the same tokenizer.",
            )
        if one.index.modes is not None:
            raise BadInputFile(f"{one.prefix} is multimodal, which relkit does not merge")
    total = sum(one.bin_size_bytes for one in data_sets)
    with IndexedWriter(output, first.dtype) as writer:
        for one in data_sets:
            for _ in _append(writer, one):
                if progress is not None:
                    progress(writer.size_bytes, total)


def _append(writer: IndexedWriter, one: IndexedDataset) -> Iterator[None]:
    is_packed = one.is_packed()
    bounds = one.document_indices
    for start in range(0, one.num_documents, DOCUMENTS_AT_A_TIME):
        piece = bounds[start : start + DOCUMENTS_AT_A_TIME + 1]
        first, last = int(piece[0]), int(piece[-1])
        # A foreign .bin may have gaps, or its sequences in another order.
        data = (
            one.span(first, last)
            if is_packed
            else b"".join(one[number].tobytes() for number in range(first, last))
        )
        writer.add_encoded(data, one.lengths[first:last], np.diff(piece))
        yield
