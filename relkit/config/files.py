"""The files that settings are read from: the site's, the user's, the job's."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

from relkit.config.document import Setting, Table, read_document
from relkit.errors import ConfigProblem

NAME = "relkit.toml"
SITE = Path("/etc/relkit") / NAME


def read_settings(
    named: Path | None,
    environ: Mapping[str, str],
    warn: Callable[[str], None],
    site: Path = SITE,
) -> Table:
    """Read all files that there are; what is nearer to the job wins.

    Args:
        named: the job's file by --config; None: relkit.toml of the current folder, where it is the
            user's own.
        environ: says where the user's file is.
        warn: is told of a file that is passed over.
        site: the site's file.

    Raises:
        ConfigProblem: one cannot be read, or is no TOML.
    """
    settings: Table = {}
    for path in (site, user_file(environ)):
        if path is not None and _status(path) is not None:
            settings = _merged(settings, read_document(path))
    if named is not None:
        if not named.exists():
            raise ConfigProblem(
                f"there is no {named}",
                next_step="Name a file that is there, or leave --config out.",
            )
        return _merged(settings, read_document(named))
    if _may_use(here := Path(NAME), warn):
        settings = _merged(settings, read_document(here.absolute()))
    return settings


def user_file(environ: Mapping[str, str]) -> Path | None:
    """Say where a user's own file stands; None without a home."""
    if home := environ.get("XDG_CONFIG_HOME"):
        return Path(home) / "relkit" / NAME
    return Path(home) / ".config" / "relkit" / NAME if (home := environ.get("HOME")) else None


def _status(path: Path) -> os.stat_result | None:
    """Look for a file; None where there is none, or none for this user: HOME may be another's."""
    try:
        return path.stat()
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return None
    except OSError as error:
        raise ConfigProblem(f"{path}: {error.strerror}") from error


def _may_use(path: Path, warn: Callable[[str], None]) -> bool:
    """Some options name commands: a file that others can write would be their code."""
    status = _status(path)
    if status is None:
        return False
    if status.st_uid in (os.geteuid(), 0) and not status.st_mode & stat.S_IWOTH:
        return True
    warn(
        f"{path.absolute()} is not read: it is another user's, or everybody can write to it;"
        f" --config {NAME} takes it anyway"
    )
    return False


def _merged(far: Table, near: Table) -> Table:
    both = dict(far)
    for key, value in near.items():
        under = both.get(key)
        if isinstance(value, Setting) or under is None or isinstance(under, Setting):
            both[key] = value
        else:
            both[key] = _merged(under, value)
    return both
