"""The contents of a token data set, in numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from relkit.data.indexed import IndexedDataset


def facts(data_set: IndexedDataset, show: int = 0) -> dict[str, Any]:
    """A data set in plain JSON types.

    Args:
        data_set: the opened data set.
        show: how many tokens of the first sequences to add.
    """
    lengths = data_set.lengths
    per_document = np.diff(data_set.document_indices)
    shown: list[list[int]] = []
    for number in range(len(data_set)):
        if show <= 0:
            break
        tokens = data_set.get(number, 0, min(show, int(lengths[number])))
        shown.append(tokens.tolist())
        show -= len(tokens)
    return {
        "prefix": data_set.prefix,
        "dtype": data_set.dtype.name,
        "documents": data_set.num_documents,
        "empty_documents": int((per_document == 0).sum()),
        "sequences": len(data_set),
        "tokens": data_set.num_tokens(),
        "bin_bytes": data_set.bin_size_bytes,
        "length_min": int(lengths.min()) if len(data_set) else 0,
        "length_median": float(np.median(lengths)) if len(data_set) else 0.0,
        "length_max": int(lengths.max()) if len(data_set) else 0,
        "is_multimodal": data_set.index.modes is not None,
        "is_packed": data_set.is_packed(),
        "first_tokens": shown,
    }
