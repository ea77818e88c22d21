"""Checkpoint files as other tools may write them."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from pathlib import Path

import pytest
import torch

from relkit.checkpoint.torch_file import read_plain


@pytest.mark.parametrize("protocol", [2, 3])
def test_a_file_of_another_pickle_protocol_is_read_without_a_warning(
    tmp_path: Path, protocol: int
) -> None:
    path = tmp_path / "model.pt"
    torch.save({"weight": torch.arange(3)}, path, pickle_protocol=protocol)
    # A warning would be an error here.
    assert read_plain(path)["weight"].tolist() == [0, 1, 2]


def test_what_a_program_lets_through_by_itself_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    torch.save([Namespace(rank=0), b"", b"bytes"], path)
    before = list(torch.serialization.get_safe_globals())
    torch.serialization.add_safe_globals([Counter])
    try:
        assert read_plain(path) == [Namespace(rank=0), b"", b"bytes"]
        assert set(torch.serialization.get_safe_globals()) == {*before, Counter}
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(before)
