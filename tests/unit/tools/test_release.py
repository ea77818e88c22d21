"""What a release checks: which glibc the libraries of a wheel ask for."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from elftools.common.exceptions import ELFError

from tests.native.recording import compile_c
from tools.release.glibc_versions import glibc_needed, too_new

_SOURCE = """
#include <math.h>
{binding}
double power(double value) {{ return pow(value, value); }}
"""


def library(folder: Path, version: str) -> bytes:
    """A library whose pow is of that version of glibc's libm."""
    source = folder / "power.c"
    binding = f'__asm__(".symver pow, pow@GLIBC_{version}");'
    source.write_text(_SOURCE.format(binding=binding))
    return compile_c(folder / "libpower.so", [source], "-shared", "-fPIC", "-lm").read_bytes()


@pytest.mark.native
@pytest.mark.parametrize("version", ["2.2.5", "2.29"])
def test_a_library_that_asks_for_a_newer_glibc_is_named(tmp_path: Path, version: str) -> None:
    data = library(tmp_path, version)
    assert f"GLIBC_{version}" in glibc_needed(data)
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("relkit/_lib/libpower.so", data)
        archive.writestr("relkit/text.py", "")
    expected = ["relkit/_lib/libpower.so: GLIBC_2.29"] if version == "2.29" else []
    assert too_new(wheel) == expected


def test_what_is_no_library_is_refused() -> None:
    with pytest.raises(ELFError):
        glibc_needed(b"no library")
