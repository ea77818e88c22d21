"""Whatever stands under a name that somebody typed: every reader comes back, with the reason."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from relkit import hosts, topology
from relkit.checkpoint import iteration_folder
from relkit.checkpoint.manifest import MANIFEST, FileRecord, read_manifest
from relkit.data import documents
from relkit.data.index_file import read_index
from relkit.data.indexed import IndexedDataset
from relkit.data.tokenizer import TokenizerSpec, load_tokenizer
from relkit.errors import RelkitError
from relkit.files.input_file import open_input, read_input, read_input_text
from relkit.linkcheck.replay import ReplayProvider
from relkit.netcheck.measure import bundle
from relkit.stacks.dumpfile import read_dump
from relkit.straggler.transport import history
from relkit.trainer.config.yaml_file import yaml_values

ODD = ("pipe", "socket", "device", "folder", "dangling", "link to a pipe", "missing", "empty")

# Each is given a path of any name, and reads what stands there.
READERS: dict[str, Callable[[Path], object]] = {
    "topology": topology.read,
    "nodes": lambda path: hosts.read_nodes(str(path)),
    "yaml": lambda path: yaml_values(path, model_section="gpt_config", warn=print),
    "index": lambda path: read_index(path, 0),
    "json lines": lambda path: list(documents.read_chunks(documents.Source(path), ["text"])),
    "gzip": lambda path: list(documents.read_chunks(documents.Source(_named(path, ".gz")), ["t"])),
    "parquet": lambda path: list(
        documents.read_chunks(documents.Source(_named(path, ".parquet")), ["t"])
    ),
    "tokenizer": lambda path: load_tokenizer(TokenizerSpec("HFTokenizer", str(path))),
    "recording": lambda path: ReplayProvider(path).look(1.0),
    "stack dump": read_dump,
    "history": history.load,
    "tracker": lambda path: iteration_folder.latest(_as(path, iteration_folder.TRACKER)),
    "manifest": lambda path: read_manifest(_as(path, MANIFEST)),
    "bundle": lambda path: bundle.load(_as(path, bundle.HEAD)),
    "tokens": lambda path: IndexedDataset(_as(path, "set.bin") / "set"),
}
# Where an empty file, or none at all, means that there is nothing to read.
CONTENT = {
    ("json lines", "empty"),
    ("gzip", "empty"),
    ("tracker", "dangling"),
    ("tracker", "missing"),
}


def _named(path: Path, ending: str) -> Path:
    link = path.parent / f"link{ending}"
    link.symlink_to(path)
    return link


def _as(path: Path, name: str) -> Path:
    """A folder in which the path stands under this name."""
    folder = path.parent / "folder of it"
    folder.mkdir()
    (folder / name).symlink_to(path)
    return folder


@pytest.fixture
def odd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "it"
    end = socket.socket(socket.AF_UNIX)
    match request.param:
        case "pipe":
            os.mkfifo(path)
        case "socket":
            end.bind(str(path))
        case "device":
            path.symlink_to("/dev/tty" if os.path.exists("/dev/tty") else "/dev/zero")  # noqa: PTH110
        case "folder":
            path.mkdir()
        case "dangling":
            path.symlink_to(tmp_path / "nothing")
        case "link to a pipe":
            os.mkfifo(tmp_path / "pipe")
            path.symlink_to(tmp_path / "pipe")
        case "empty":
            path.touch()
    yield path
    end.close()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("odd", ODD, indirect=True, ids=str)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_comes_back_with_an_error(
    odd: Path, reader: str, request: pytest.FixtureRequest
) -> None:
    if (reader, request.node.callspec.params["odd"]) in CONTENT:
        READERS[reader](odd)
        return
    with pytest.raises(RelkitError):
        READERS[reader](odd)


@pytest.mark.timeout(30)
def test_a_pipe_among_the_files_of_a_checkpoint_is_damage(tmp_path: Path) -> None:
    folder = iteration_folder.begin(tmp_path, 5)
    record = iteration_folder.write_file(folder, "a.pt", lambda out: out.write(b""))
    done = iteration_folder.commit(folder, 5, [record], {})
    assert iteration_folder.problems(done) == ()
    (done / "a.pt").unlink()
    os.mkfifo(done / "a.pt")
    ((name, wrong),) = iteration_folder.problems(done)
    assert (name, wrong) == ("a.pt", "cannot be read: it is a named pipe, not a regular file")
    assert record == FileRecord("a.pt", 0, record.sha256)


def test_the_reason_names_what_it_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "pipe", "it is a named pipe"),
        (tmp_path, "it is a folder"),
        (Path("/dev/zero"), "it is a device"),
    ):
        with pytest.raises(OSError, match=words):
            open_input(path)


def test_a_name_with_a_zero_byte_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="null byte"):
        open_input(f"{tmp_path}/a\0b")


def test_files_of_proc_are_read_though_their_size_is_0() -> None:
    assert read_input(Path("/proc/self/cmdline"), 1 << 20)
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_input(Path("/proc/self/status"), 3)


def test_a_file_is_read_whole_and_no_further(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc\n")
    assert read_input(path, 4) == b"abc\n"
    assert read_input_text(path, 4) == "abc\n"
    with pytest.raises(OSError, match="larger than 3 bytes"):
        read_input(path, 3)


def test_no_descriptor_is_left_open_by_a_refusal(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(OSError, match="a folder"):
            open_input(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
