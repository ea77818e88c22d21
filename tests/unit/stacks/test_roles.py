"""What threads are for."""

from __future__ import annotations

import pytest

from relkit.stacks.model import Frame, Role
from relkit.stacks.roles import role_of


@pytest.mark.parametrize(
    ("name", "function", "role"),
    [
        ("pt_autograd_0", "", Role.AUTOGRAD),
        ("python", "torch::autograd::Engine::thread_init", Role.AUTOGRAD),
        ("pt_gloo_runloop", "", Role.COMMUNICATION),
        ("python", "c10d::ProcessGroupGloo::runLoop", Role.COMMUNICATION),
        ("python", "gloo::transport::tcp::Loop::run", Role.COMMUNICATION),
        ("pt_nccl_watchdg", "", Role.WATCHDOG),
        ("python", "c10d::ProcessGroupNCCL::HeartbeatMonitor::runLoop", Role.WATCHDOG),
        ("Thread-1 (_pin_memory_loop)", "", Role.LOADER),
        ("QueueFeederThread", "", Role.LOADER),
        ("loader-0", "", Role.LOADER),
        ("uploader", "", Role.OTHER),
        ("S3Downloader-1", "", Role.OTHER),
        ("uploader", "_pin_memory_loop", Role.LOADER),
        ("python", "gomp_thread_start", Role.COMPUTE),
        ("python", "blas_thread_server", Role.COMPUTE),
        ("beat", "beat", Role.OTHER),
        ("", "", Role.OTHER),
    ],
)
def test_role_by_name_then_by_frame(name: str, function: str, role: Role) -> None:
    assert role_of(name, (Frame("clone3", ""), Frame(function, ""))) is role


def test_the_main_thread_is_main_whatever_it_does() -> None:
    frames = (Frame("gloo::transport::tcp::Loop::run", ""),)
    assert role_of("pt_gloo_runloop", frames, is_main=True) is Role.MAIN


def test_a_stripped_pool_is_known_by_its_file() -> None:
    frames = (Frame("libgomp.so.1+0x1de8c", "/torch/lib/libgomp.so.1"), Frame("clone3", "/libc.so"))
    assert role_of("python", frames) is Role.COMPUTE
