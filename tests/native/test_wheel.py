"""What is installed: one wheel for every interpreter, the hook in it, and nothing generic."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.eager import eager
from tests.native.simulated import CLIENTS, DOUBLES, SIM
from tools.release.glibc_versions import too_new

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = folder / "build"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder)),
            *(f"--config-settings=build-dir={build}", str(ROOT)),
            # As `make release` builds it.
            "--config-settings=cmake.define.RELKIT_OLD_GLIBC=ON",
        ],
        check=True,
        capture_output=True,
        timeout=280,
    )
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_wheel_serves_every_python3_and_holds_the_hook(wheel: Path) -> None:
    assert "-py3-none-linux_" in wheel.name
    names = set(zipfile.ZipFile(wheel).namelist())
    for wanted in (
        "relkit/_lib/librelkit_hook.so",
        "relkit/_lib/librelkit_merge.so",
        "relkit/_lib/librelkit_run_times.so",
        "relkit/_lib/librelkit_slots.so",
        "relkit/_findings/hang.md",
        "relkit/commands/launch.py",
        "relkit/reports/flames/flame_svg.py",
        "relkit/reports/templates/flame.js",
        "relkit/py.typed",
    ):
        assert wanted in names
    # The simulated devices of native/tests are for tests alone.
    doubles = {"libsimdevice.so"} | {d.soname for each in DOUBLES.values() for d in each}
    sources = {path.name for folder in (SIM, CLIENTS) for path in folder.iterdir()}
    assert not {Path(name).name for name in names} & (doubles | sources - {"README.md"})
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"relkit"}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_wheel_needs_no_glibc_above_2_28_and_nothing_that_a_host_may_lack(wheel: Path) -> None:
    assert too_new(wheel) == []
    argv = [sys.executable, "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    said = " ".join(done.stdout.split())
    tags = re.findall(r"manylinux_2_(\d+)_", said)
    assert tags, said
    assert min(map(int, tags)) <= 28, said


@pytest.mark.long
@pytest.mark.timeout(300)
def test_an_installed_wheel_finds_its_hook_and_leaks_no_generic_package(
    wheel: Path, tmp_path: Path
) -> None:
    target = tmp_path / "site"
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"),
            *("--target", str(target), str(wheel)),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    # A bare interpreter: -S keeps the checkout's editable install out of the way.
    script = (
        f"import sys; sys.path.insert(0, {str(target)!r})\n"
        "from relkit.hook.locate import hook_library\n"
        "print(hook_library())\n"
        "try:\n    import commands\nexcept ModuleNotFoundError:\n    print('no commands')\n"
    )
    child = subprocess.run(
        [sys.executable, "-S", "-c", script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    library, leak = child.stdout.splitlines()
    assert Path(library) == target / "relkit/_lib/librelkit_hook.so"
    assert leak == "no commands"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_demo_of_an_installed_wheel_names_file_and_line(wheel: Path, tmp_path: Path) -> None:
    # Its trainer lies in site-packages there, as the trainer of many a site does.
    home = tmp_path / "venv"
    venv.create(home)
    (site,) = home.glob("lib/python3*/site-packages")
    # What relkit needs comes from here. The .pth files in that folder are not followed: one of them
    # is of the checkout's editable install.
    (site / "needed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    (home / "bin" / "py-spy").symlink_to(Path(sysconfig.get_path("scripts")) / "py-spy")
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"),
            *("--target", str(site), str(wheel)),
        ],
        check=True,
        capture_output=True,
        timeout=120,
    )
    child = subprocess.run(
        [
            *(str(home / "bin" / "python"), "-m", "relkit", "demo", "--nproc", "2", "--json"),
            *("--hang-timeout", "6", "--timeline-path", str(tmp_path / "timeline")),
        ],
        cwd=tmp_path,
        # No compiler is on that PATH.
        env=eager({**os.environ, "PATH": str(home / "bin")}),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert json.loads(child.stdout)["findings"][0]["status"] == "ok"
    report = json.loads((tmp_path / "timeline" / "report.json").read_text(encoding="utf-8"))
    (verdict,) = [f for f in report["findings"] if f["status"] == "fail"]
    assert "_examples/train.py:" in verdict["title"]
    assert "Loader.next_batch" in verdict["title"]
    assert str(site) in child.stderr


@pytest.mark.long
@pytest.mark.timeout(300)
def test_without_a_compiler_a_build_says_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("CMake is not installed (tools/debian_packages.sh)")
    done = subprocess.run(
        [cmake, "-G", "Unix Makefiles", "-DCMAKE_MAKE_PROGRAM=/bin/true", "-S", ROOT,
         "-B", tmp_path / "build"],
        env={"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode != 0
    assert "relkit needs a C compiler" in done.stderr
    assert "apt-get install gcc libc6-dev" in " ".join(done.stderr.split())
    assert len(done.stderr.splitlines()) < 20, done.stderr
