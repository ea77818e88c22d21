"""The parts of `make fresh-check` that need no root: what it takes from the host, what it runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from relkit.errors import ToolMissing
from tools.fresh_check import host_settings
from tools.fresh_check.__main__ import steps
from tools.fresh_check.base_root import PACKAGES, Base, host_base
from tools.fresh_check.host_settings import HostSettings
from tools.fresh_check.namespace import run_contained


def test_pips_own_variables_and_proxies_are_passed_on_and_nothing_else() -> None:
    environ = {
        "PIP_INDEX_URL": "https://index.example/simple",
        "https_proxy": "http://proxy.example:3128",
        "NO_PROXY": "localhost",
        "HOME": "/root",
        "RELKIT_HOOK_DISABLE": "1",
        "PYTHONPATH": "/elsewhere",
    }
    assert sorted(host_settings.passed_on(environ)) == ["NO_PROXY", "PIP_INDEX_URL", "https_proxy"]


def test_every_place_of_pips_configuration_is_looked_at() -> None:
    environ = {"HOME": "/home/user", "PIP_CONFIG_FILE": "/site/pip.conf"}
    assert [str(path) for path in host_settings.pip_files(environ)] == [
        "/etc/xdg/pip/pip.conf",
        "/etc/pip.conf",
        "/home/user/.pip/pip.conf",
        "/home/user/.config/pip/pip.conf",
        "/site/pip.conf",
    ]


def test_folders_that_pip_is_told_of_are_mounted_with_what_their_pages_link_to() -> None:
    text = "[global]\nfind-links = /mirror/wheels\n[install]\nextra-index-url =\n"
    text += "    file:///mirror/pypi/simple https://other.example/simple\n"
    values = host_settings.pip_values(text)
    paths = [path for value in values for path in host_settings.local_paths(value)]
    assert paths == [Path("/mirror/wheels"), Path("/mirror/pypi/simple")]
    mounts = host_settings.outermost(map(host_settings.mount_of, paths))
    assert mounts == [Path("/mirror/pypi"), Path("/mirror/wheels")]


def test_a_folder_inside_another_is_not_mounted_again_and_the_root_never() -> None:
    folders = map(Path, ["/a/b", "/a", "/ab", "/"])
    assert host_settings.outermost(folders) == [Path("/a"), Path("/ab")]


def test_apt_learns_how_a_mirror_is_reached_and_none_of_the_hosts_hooks() -> None:
    dump = (
        'Acquire::http::Proxy "http://proxy.example:3128";\n'
        'Acquire::Check-Valid-Until "false";\n'
        'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";\n'
        'DPkg::Post-Invoke:: "touch /somewhere";\n'
    )
    assert len(host_settings.apt_options(dump)) == 2


def test_copying_replaces_a_link_instead_of_writing_through_it(tmp_path: Path) -> None:
    root, source = tmp_path / "root", tmp_path / "resolv.conf"
    source.write_text("nameserver 192.0.2.1\n")
    target = root / source.relative_to("/")
    target.parent.mkdir(parents=True)
    outside = tmp_path / "outside"
    outside.write_text("kept")
    target.symlink_to(outside)
    (root / "etc/apt/apt.conf.d").mkdir(parents=True)
    HostSettings((source,), (Path("/mirror"),), {}, ("Acquire::Retries 3;",)).copy_into(root)
    assert target.read_text() == "nameserver 192.0.2.1\n"
    assert outside.read_text() == "kept"
    assert (root / "mirror").is_dir()
    assert (root / "etc/apt/apt.conf.d/90host").read_text() == "Acquire::Retries 3;\n"


def test_another_mirror_makes_another_base(tmp_path: Path) -> None:
    sources = tmp_path / "debian.sources"
    sources.write_text("URIs: http://one.example/debian\n")
    base = Base("bookworm", (sources,), ())
    first = base.name()
    assert base.name() == first
    sources.write_text("URIs: http://two.example/debian\n")
    assert base.name() != first
    assert Base("bookworm", (sources,), ("Acquire::Retries 3;",)).name() != base.name()


def test_the_base_is_of_the_hosts_release(tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text('ID=debian\nVERSION_CODENAME=bookworm\nNAME="Debian"\n')
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "apt/sources.list.d/debian.sources").touch()
    (tmp_path / "apt/sources.list.d/other.list.disabled").touch()
    base = host_base((), tmp_path)
    assert base.suite == "bookworm"
    assert [path.name for path in base.sources] == ["debian.sources"]


def test_a_host_of_another_family_is_refused_with_a_next_step(tmp_path: Path) -> None:
    (tmp_path / "os-release").write_text('ID=fedora\nPRETTY_NAME="Fedora Linux"\n')
    with pytest.raises(ToolMissing, match="Fedora Linux") as caught:
        host_base((), tmp_path)
    assert caught.value.next_step


def test_nothing_is_installed_before_but_git_python_and_a_compiler() -> None:
    assert PACKAGES == ("git", "python3", "gcc", "libc6-dev", "make")


def test_both_commands_run_where_nothing_is_selected() -> None:
    assert [step.argv for step in steps([])] == [("make", "demo"), ("make", "test-all")]
    assert steps(["test", "tests/native", "a b"])[0].argv == (
        *("make", "test", "TESTS=tests/native 'a b'"),
    )


@pytest.mark.parametrize("words", [["demo", "more"], ["clean"], ["test-all", "tests/native"]])
def test_another_command_is_refused(words: list[str]) -> None:
    with pytest.raises(ValueError, match=words[-1]):
        steps(words)


@pytest.mark.root
@pytest.mark.root
def test_a_contained_command_sees_only_its_own_processes() -> None:
    lines: list[str] = []
    code = run_contained(
        ["sh", "-c", "echo $$; exit 7"],
        environment={"PATH": os.environ["PATH"]}, limit_s=30.0, each_line=lines.append,
    )  # fmt: skip
    assert (code, lines) == (7, ["1"])


@pytest.mark.root
@pytest.mark.root
def test_what_takes_too_long_is_ended_with_its_children() -> None:
    lines: list[str] = []
    code = run_contained(
        ["sh", "-c", "sleep 1000.125 & sleep 1000.125"],
        environment={"PATH": os.environ["PATH"]}, limit_s=0.5, each_line=lines.append,
    )  # fmt: skip
    assert code == 124
    assert not _running("1000.125")


@pytest.mark.root
@pytest.mark.root
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_all_ends_with_who_started_it(how: signal.Signals) -> None:
    mark = f"1000.{how.value}"
    program = (
        "import os, signal; from tools.fresh_check.namespace import run_contained\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"run_contained(['sh', '-c', 'mount -t tmpfs x /mnt; sleep {mark} & echo up; wait'],"
        " environment=dict(os.environ), limit_s=100.0, each_line=lambda l: print(l, flush=True))"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    limit = threading.Timer(30.0, starter.kill)
    limit.start()
    try:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "up\n"
        _until_running(mark, True)
        starter.send_signal(how)
        starter.wait(30)
    finally:
        limit.cancel()
        starter.kill()
        starter.communicate()
    _until_running(mark, False)
    assert "/mnt" not in [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]


def _until_running(word: str, wanted: bool) -> None:
    deadline = time.monotonic() + 10
    while _running(word) is not wanted:
        assert time.monotonic() < deadline, f"a process with {word} runs: {not wanted}"
        time.sleep(0.02)


def _running(word: str) -> bool:
    for process in psutil.process_iter(["cmdline"]):
        if word in (process.info["cmdline"] or []):
            return True
    return False
