"""Fixtures for tests of the native hook."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.native.kept import NATIVE
from tests.native.recording import SMALL_FOLDER_BYTES, Recording, compile_c


@pytest.fixture(scope="session")
def fake_torch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stand-in for libtorch_cpu.so with the hooked symbols that tests call."""
    output = tmp_path_factory.mktemp("fake") / "libtorch_cpu.so"
    flags = ("-shared", "-fPIC", "-O2", "-fexceptions", "-Wl,-soname,libtorch_cpu.so")
    return compile_c(output, [NATIVE / "tests" / "fake_torch.c"], *flags)


@pytest.fixture
def recording(tmp_path: Path, fake_torch: Path) -> Recording:
    """A folder that hooked processes record into."""
    folder = tmp_path / "job"
    folder.mkdir(mode=0o700)
    return Recording(folder, fake_torch)


@pytest.fixture
def small_folder(tmp_path: Path) -> Iterator[Path]:
    """A file system in memory in which no recorder has room; for tests that run as root."""
    folder = tmp_path / "small"
    folder.mkdir(mode=0o700)
    size = f"size={SMALL_FOLDER_BYTES}"
    mount = ["mount", "-t", "tmpfs", "-o", size, "relkit-test", str(folder)]
    subprocess.run(mount, check=True, timeout=10)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=10)
