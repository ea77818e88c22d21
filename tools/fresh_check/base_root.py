"""A minimal Debian root with git, python3 and a C compiler, kept as a tarball between calls."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from relkit.errors import RelkitError, ToolMissing
from tools.fresh_check.namespace import run_contained

# "git, python3 and a C compiler" of the README, as packages: a compiler compiles only with the C
# library's headers, which gcc merely recommends, and `make` is the README's first word.
# Everything else is what Debian calls required: no ps, no ip, no certificates, no locale, no pip.
PACKAGES = ("git", "python3", "gcc", "libc6-dev", "make")
# Mirrors move on: an older root would first be upgraded by the packages that come on top.
_MAX_AGE_S = 7 * 86400.0
_LIMIT_S = 1800.0
_POLICY = (
    "#!/bin/sh\n# As in every container image: an installed package starts no service.\nexit 101\n"
)


@dataclass(frozen=True)
class Base:
    """Which root is wanted.

    Args:
        suite: Debian's code name, such as bookworm.
        sources: apt's source files of the host.
        apt_options: lines for apt's configuration while it is built.
    """

    suite: str
    sources: tuple[Path, ...]
    apt_options: tuple[str, ...]

    def name(self) -> str:
        """The tarball's file name: other sources or packages make another one."""
        parts = [self.suite, *PACKAGES, *self.apt_options]
        parts += [path.read_text(encoding="utf-8") for path in self.sources]
        return f"{self.suite}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:12]}.tar"


def host_base(apt_options: Sequence[str], etc: Path = Path("/etc")) -> Base:
    """The root that corresponds to this host.

    Raises:
        ToolMissing: the host is not Debian, so it has no mirror of it.
    """
    release = parse_release((etc / "os-release").read_text(encoding="utf-8"))
    if release.get("ID") != "debian" or not release.get("VERSION_CODENAME"):
        raise ToolMissing(
            f"this host is {release.get('PRETTY_NAME', 'unknown')}, not a Debian release",
            next_step="Run it on a Debian host, or in a privileged container of one.",
        )
    sources = [etc / "apt/sources.list", *sorted((etc / "apt/sources.list.d").glob("*"))]
    wanted = [path for path in sources if path.suffix in (".list", ".sources") and path.is_file()]
    return Base(release["VERSION_CODENAME"], tuple(wanted), tuple(apt_options))


def parse_release(text: str) -> dict[str, str]:
    """os-release's assignments."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip().strip("\"'") for name, value in pairs}


def base_tarball(
    base: Base,
    cache: Path,
    work: Path,
    *,
    environment: Mapping[str, str],
    rebuild: bool,
    each_line: Callable[[str], None],
) -> Path:
    """The tarball of a root, built where the cache has none.

    Args:
        base: which root.
        cache: where tarballs are kept.
        work: a folder for what is temporary.
        environment: proxies, for apt.
        rebuild: build it even where the cache has it.
        each_line: gets the builder's output.

    Raises:
        ToolMissing: mmdebstrap is missing and cannot be installed.
        RelkitError: the root could not be built.
    """
    tarball = cache / base.name()
    if not rebuild and tarball.exists() and time.time() - tarball.stat().st_mtime < _MAX_AGE_S:
        each_line(f"base root: {tarball}, from an earlier call")
        return tarball
    _have_mmdebstrap(each_line)
    for old in cache.glob(f"{base.suite}-*.tar"):
        old.unlink()
    built = work / "base.tar"
    options = work / "apt.conf"
    options.write_text("".join(f"{line}\n" for line in base.apt_options), encoding="utf-8")
    code = run_contained(
        ["mmdebstrap", "--variant=minbase", "--mode=root", f"--include={','.join(PACKAGES)}",
         f"--aptopt={options}", base.suite, str(built), *map(str, base.sources)],
        environment={**environment, "TMPDIR": str(work), "HOME": "/root",
                     "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        limit_s=_LIMIT_S, each_line=each_line,
    )  # fmt: skip
    if code != 0:
        raise RelkitError(f"mmdebstrap ended with exit code {code}", next_step="See the log.")
    return built.rename(tarball)


def unpack(tarball: Path, root: Path) -> None:
    """Make a root folder of a tarball."""
    root.mkdir()
    argv = ["tar", "--extract", "--file", str(tarball), "--directory", str(root), "--numeric-owner",
            "--xattrs", "--xattrs-include=*", "--exclude=./dev/*"]  # fmt: skip
    subprocess.run(argv, check=True, timeout=600, stdin=subprocess.DEVNULL)
    policy = root / "usr/sbin/policy-rc.d"
    policy.write_text(_POLICY, encoding="ascii")
    policy.chmod(0o755)


def _have_mmdebstrap(each_line: Callable[[str], None]) -> None:
    if shutil.which("mmdebstrap"):
        return
    each_line("installing mmdebstrap")
    apt = ["apt-get", "-qq", "-y", "--no-install-recommends"]
    for argv in ([*apt, "update"], [*apt, "install", "mmdebstrap"]):
        done = subprocess.run(
            argv, check=False, timeout=600, stdin=subprocess.DEVNULL,
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            raise ToolMissing(
                f"mmdebstrap cannot be installed: {done.stderr.strip()[-300:]}",
                next_step="apt-get install mmdebstrap",
            )
