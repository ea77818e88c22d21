"""What a token data set holds, in figures."""

from __future__ import annotations

from typing import Any

import numpy as np

from relkit.data.indexed import IndexedDataset


def facts(one: IndexedDataset, show: int = 0) -> dict[str, Any]:
    """A data set in plain JSON types.

    Args:
        one: the opened data set.
        show: so many tokens of the first sequences are added, to look at.
    """
    lengths = one.lengths
    per_document = np.diff(one.document_indices)
    shown: list[list[int]] = []
    for number in range(len(one)):
        if show <= 0:
            break
        tokens = one.get(number, 0, min(show, int(lengths[number])))
        shown.append(tokens.tolist())
        show -= len(tokens)
    return {
        "prefix": one.prefix,
        "dtype": one.dtype.name,
        "documents": one.num_documents,
        "empty_documents": int((per_document == 0).sum()),
        "sequences": len(one),
        "tokens": one.num_tokens(),
        "bin_bytes": one.bin_size_bytes,
        "length_min": int(lengths.min()) if len(one) else 0,
        "length_median": float(np.median(lengths)) if len(one) else 0.0,
        "length_max": int(lengths.max()) if len(one) else 0,
        "is_multimodal": one.index.modes is not None,
        "is_packed": one.is_packed(),
        "first_tokens": shown,
    }
