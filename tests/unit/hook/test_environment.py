"""Where recorder files go, and what a worker's environment gets."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from relkit.errors import HookUnavailable, UnwritablePath, UsageProblem
from relkit.hook import environment
from relkit.hook.locate import hook_library
from relkit.process.identity import own_identity


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "librelkit_hook.so"
    path.touch()
    monkeypatch.setenv("RELKIT_HOOK_LIBRARY", str(path))
    return path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Stand-ins for shared memory and for the temporary folder."""
    shared, temporary = tmp_path / "shm", tmp_path / "tmp"
    shared.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(environment, "_SHARED_MEMORY", shared)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(temporary))
    return shared, temporary


def test_the_override_must_be_an_absolute_path_of_a_file(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hook_library() == library
    for wrong in ("librelkit_hook.so", "/nonexistent/librelkit_hook.so", str(library.parent)):
        monkeypatch.setenv("RELKIT_HOOK_LIBRARY", wrong)
        with pytest.raises(HookUnavailable, match="RELKIT_HOOK_LIBRARY"):
            hook_library()


def test_worker_environment(library: Path) -> None:
    assert environment.worker_environment(Path("/dev/shm/x/job"), {}) == {
        "LD_PRELOAD": str(library),
        "RELKIT_HOOK_DIR": "/dev/shm/x/job",
        "RELKIT_TRACER": own_identity().to_text(),
        "ASAN_OPTIONS": "verify_asan_link_order=0",
    }


def test_the_options_of_a_sanitizer_stay(library: Path) -> None:
    base = {"ASAN_OPTIONS": "detect_leaks=0"}
    added = environment.worker_environment(Path("/x"), base)
    assert added["ASAN_OPTIONS"] == "detect_leaks=0:verify_asan_link_order=0"
    again = environment.worker_environment(Path("/x"), added)
    assert "ASAN_OPTIONS" not in again
    base = {"ASAN_OPTIONS": "verify_asan_link_order=1"}
    assert "ASAN_OPTIONS" not in environment.worker_environment(Path("/x"), base)


def test_other_preloaded_libraries_stay_and_ours_comes_once(library: Path) -> None:
    base = {"LD_PRELOAD": "/usr/lib/libjemalloc.so /usr/lib/other.so"}
    added = environment.worker_environment(Path("/x"), base)
    assert added["LD_PRELOAD"] == f"/usr/lib/libjemalloc.so:/usr/lib/other.so:{library}"
    again = environment.worker_environment(Path("/x"), added)
    assert again["LD_PRELOAD"] == added["LD_PRELOAD"]


def test_the_kill_switch_adds_nothing(library: Path) -> None:
    assert environment.worker_environment(Path("/x"), {"RELKIT_HOOK_DISABLE": "1"}) == {}


def test_a_library_path_that_the_loader_would_split_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "with space" / "librelkit_hook.so"
    path.parent.mkdir()
    path.touch()
    monkeypatch.setenv("RELKIT_HOOK_LIBRARY", str(path))
    with pytest.raises(HookUnavailable, match="LD_PRELOAD"):
        environment.worker_environment(Path("/x"), {})


@pytest.mark.parametrize("job_id", ["", ".", "..", "a/b", "-x", "a b", "x" * 101, "é", "a\n"])
def test_a_job_id_that_is_no_folder_name(job_id: str) -> None:
    with pytest.raises(UsageProblem):
        environment.job_dir(job_id)


def test_the_job_folder_is_private_and_in_shared_memory(places: tuple[Path, Path]) -> None:
    folder = environment.prepare_job_dir("job.1", 4)
    assert folder == places[0] / f"relkit-{os.getuid()}" / "job.1" == environment.job_dir("job.1")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert folder.parent.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) == []
    environment.remove_job_dir(folder)
    assert not folder.exists()
    environment.remove_job_dir(folder)


def test_full_shared_memory_falls_back_to_the_temporary_folder(
    places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.posix_fallocate

    def full(descriptor: int, offset: int, size: int) -> None:
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(places[0]):
            raise OSError(28, "No space left on device")
        real(descriptor, offset, size)

    monkeypatch.setattr(os, "posix_fallocate", full)
    folder = environment.prepare_job_dir("job", 2)
    assert folder.is_relative_to(places[1])
    assert not environment.job_dir("job").exists()


@pytest.mark.parametrize(
    ("total_mib", "free_mib", "processes", "shared"),
    [(64, 64, 8, True), (64, 23, 8, False), (64, 64, 11, False), (1024, 1024, 64, True)],
)
def test_others_need_shared_memory_too(
    places: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    total_mib: int,
    free_mib: int,
    processes: int,
    shared: bool,
) -> None:
    size = os.statvfs_result((4096, 4096, total_mib * 256, 0, free_mib * 256, 0, 0, 0, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda _: size)
    folder = environment.prepare_job_dir("job", processes)
    assert folder.is_relative_to(places[0 if shared else 1])


def test_no_room_anywhere_names_both_places(places: tuple[Path, Path]) -> None:
    for place in places:
        (place / f"relkit-{os.getuid()}").write_text("in the way")
    with pytest.raises(UnwritablePath, match="no room") as caught:
        environment.prepare_job_dir("job", 1)
    assert all(str(place) in str(caught.value) for place in places)


def test_a_folder_that_is_a_link_is_not_trusted(places: tuple[Path, Path], tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (places[0] / f"relkit-{os.getuid()}").symlink_to(elsewhere)
    assert environment.prepare_job_dir("job", 1).is_relative_to(places[1])
    assert list(elsewhere.iterdir()) == []
