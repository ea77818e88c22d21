"""Which glibc a library needs, by the versions of the symbols that it asks for."""

from __future__ import annotations

import re
import zipfile
from io import BytesIO
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

OLDEST = (2, 28)
_GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?$")


def glibc_needed(data: bytes) -> dict[str, tuple[int, int]]:
    """Version name -> (major, minor), for each version of glibc that a library needs.

    Raises:
        ELFError: it is no ELF file.
    """
    section = ELFFile(BytesIO(data)).get_section_by_name(".gnu.version_r")
    needed: dict[str, tuple[int, int]] = {}
    for _, versions in section.iter_versions() if isinstance(section, GNUVerNeedSection) else ():
        for version in versions:
            if match := _GLIBC.match(version.name):
                needed[version.name] = int(match[1]), int(match[2])
    return needed


def too_new(wheel: Path) -> list[str]:
    """LIBRARY: VERSION for all in a wheel that glibc 2.28 does not have."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".so"):
                versions = glibc_needed(archive.read(name))
                found += [f"{name}: {v}" for v, number in versions.items() if number > OLDEST]
    return found
