"""What a fresh root takes from this host at run time: mirrors, keys, proxies, pip's configuration.

None of it is written into the repository; it lies in the root, and goes with it.
"""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

_PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
_APT_OPTIONS = re.compile(
    r"^Acquire::(https?|ftp|Retries|Check-|ForceIPv|Max-FutureTime|AllowInsecure)"
)
_APT_FOLDERS = ("/etc/apt/keyrings", "/etc/apt/trusted.gpg.d", "/etc/apt/auth.conf.d",
                "/usr/share/keyrings", "/usr/local/share/ca-certificates")  # fmt: skip
_FILES = ("/etc/resolv.conf", "/etc/apt/trusted.gpg", "/etc/apt/auth.conf",
          "/etc/ssl/certs/ca-certificates.crt")  # fmt: skip


@dataclass(frozen=True)
class HostSettings:
    """What is copied, what is mounted, and what is set.

    Args:
        files: files and folders that are copied to the same place in the root.
        mounts: folders of the host that appear read-only at the same place.
        environment: variables that the commands get.
        apt_options: lines for a file in /etc/apt/apt.conf.d.
    """

    files: tuple[Path, ...]
    mounts: tuple[Path, ...]
    environment: Mapping[str, str]
    apt_options: tuple[str, ...]

    def copy_into(self, root: Path) -> None:
        """Put all that is copied into a root folder; what is there already is replaced."""
        for source in self.files:
            target = root / source.relative_to("/")
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                shutil.copyfile(source, target)
        for folder in self.mounts:
            (root / folder.relative_to("/")).mkdir(parents=True, exist_ok=True)
        options = root / "etc/apt/apt.conf.d/90host"
        options.write_text("".join(f"{line}\n" for line in self.apt_options), encoding="utf-8")


def read_host_settings(environ: Mapping[str, str]) -> HostSettings:
    """Look at this host.

    Args:
        environ: the environment of the caller.
    """
    environment = passed_on(environ)
    configurations = [path for path in pip_files(environ) if path.is_file()]
    values = list(environment.values())
    for path in configurations:
        values += pip_values(path.read_text(encoding="utf-8"))
    named = [path for value in values for path in local_paths(value) if path.exists()]
    files = [*configurations, *(Path(name) for name in (*_FILES, *_APT_FOLDERS))]
    files += [path for path in named if path.is_file()]
    done = subprocess.run(
        ["apt-config", "dump", "Acquire"], capture_output=True, text=True, timeout=30, check=True
    )
    return HostSettings(
        files=tuple(dict.fromkeys(path for path in files if path.exists())),
        mounts=tuple(outermost(mount_of(path) for path in named if path.is_dir())),
        environment=environment,
        apt_options=tuple(apt_options(done.stdout)),
    )


def passed_on(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that say where packages come from: pip's own, and the proxies."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith("PIP_") or name.lower() in _PROXIES
    }


def pip_files(environ: Mapping[str, str]) -> list[Path]:
    """Every place where pip looks for its configuration on Linux (pip config debug)."""
    home = Path(environ.get("HOME", "/root"))
    folders = environ.get("XDG_CONFIG_DIRS", "") or "/etc/xdg"
    own = Path(environ.get("XDG_CONFIG_HOME", "") or home / ".config")
    files = [Path(folder) / "pip/pip.conf" for folder in folders.split(":")]
    files += [Path("/etc/pip.conf"), home / ".pip/pip.conf", own / "pip/pip.conf"]
    if environ.get("PIP_CONFIG_FILE"):
        files.append(Path(environ["PIP_CONFIG_FILE"]))
    return files


def pip_values(text: str) -> list[str]:
    """All values of a pip.conf, whatever section they are in."""
    parser = configparser.RawConfigParser()
    parser.read_string(text)
    return [value for section in parser.sections() for _, value in parser.items(section)]


def local_paths(value: str) -> list[Path]:
    """The places on disk that a setting names: absolute paths and file: URLs."""
    paths = []
    for word in value.split():
        if word.startswith("/"):
            paths.append(Path(word))
        elif word.startswith("file:"):
            paths.append(Path(unquote(urlsplit(word).path)))
    return paths


def mount_of(folder: Path) -> Path:
    """The folder to mount so that pip can use `folder`: an index links to files beside it."""
    return folder.parent if folder.name == "simple" else folder


def outermost(folders: Iterable[Path]) -> list[Path]:
    """Folders without those that lie in another of them, sorted; never the root itself."""
    kept: list[Path] = []
    for folder in sorted(set(folders) - {Path("/")}):
        if not any(folder.is_relative_to(other) for other in kept):
            kept.append(folder)
    return kept


def apt_options(dump: str) -> list[str]:
    """Those lines of `apt-config dump` that say how a mirror is reached."""
    return [line for line in dump.splitlines() if _APT_OPTIONS.match(line)]
