"""Hooked calls end where they would have ended without the hook, whoever makes them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from relkit.hook.reader import state_files
from tests.native.recording import Recording, compile_c

pytestmark = pytest.mark.native

# A BLAS of its own, whose product is its name.
BLAS = """
void sgemm_(const char *ta, const char *tb, const int *m, const int *n, const int *k,
            const float *alpha, const float *a, const int *lda, const float *b, const int *ldb,
            const float *beta, float *c, const int *ldc)
{
    (void)ta, (void)tb, (void)m, (void)n, (void)k, (void)alpha, (void)a, (void)lda, (void)b;
    (void)ldb, (void)beta, (void)ldc;
    *c = NAME;
}
"""

# A user of the BLAS that it is linked with.
USER = """
void sgemm_(const char *, const char *, const int *, const int *, const int *, const float *,
            const float *, const int *, const float *, const int *, const float *, float *,
            const int *);
float product(void);
float product(void)
{
    int n = 512;
    float one = 1, c[1] = {0};
    sgemm_("N", "N", &n, &n, &n, &one, c, &n, c, &n, &one, c, &n);
    return c[0];
}
"""

MAIN = """
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#ifdef LINKED
float product(void);
#endif

int main(int count, char **libraries)
{
#ifdef LINKED
    printf("%g ", product());
#endif
    for (int round = 0; round < 2; round++) {
        for (int i = 1; i < count; i++) {
            float (*call)(void);
            void *found = dlsym(dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL), "product");
            memcpy(&call, &found, sizeof call);
            printf("%g ", call());
        }
    }
    return 0;
}
"""


def _library(folder: Path, name: str, code: str, *flags: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(code)
    return compile_c(folder / f"lib{name}.so", [source], "-shared", "-fPIC", *flags)


@pytest.fixture
def users(tmp_path: Path) -> list[Path]:
    """Two libraries, each linked with a BLAS of its own."""
    found = []
    for number in (1, 2):
        blas = _library(tmp_path, f"blas{number}", BLAS.replace("NAME", f"{number}00"))
        search = ("-Wl,--no-as-needed", str(blas), f"-Wl,-rpath,{tmp_path}")
        found.append(_library(tmp_path, f"user{number}", USER, *search))
    return found


def _both_ways(recording: Recording, program: Path, *arguments: str) -> tuple[str, str]:
    outputs = []
    for env in (dict(os.environ), recording.environment()):
        done = subprocess.run(
            [str(program), *arguments],
            env=env,
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        outputs.append(done.stdout)
    return outputs[0], outputs[1]


def test_private_libraries_keep_their_own_blas(
    recording: Recording, users: list[Path], tmp_path: Path
) -> None:
    source = tmp_path / "main.c"
    source.write_text(MAIN)
    program = compile_c(tmp_path / "main", [source])
    bare, hooked = _both_ways(recording, program, *map(str, users))
    assert bare == hooked == "100 200 100 200 "
    (path,) = state_files(recording.folder)
    assert recording.state(int(path.stem)).finished == 4


def test_a_blas_that_the_program_is_linked_with_serves_all(
    recording: Recording, users: list[Path], tmp_path: Path
) -> None:
    source = tmp_path / "main.c"
    source.write_text(MAIN)
    linked = (str(users[0]), str(tmp_path / "libblas1.so"), f"-Wl,-rpath,{tmp_path}")
    program = compile_c(tmp_path / "main", [source], "-DLINKED", "-Wl,--no-as-needed", *linked)
    bare, hooked = _both_ways(recording, program, str(users[1]))
    assert bare == hooked == "100 100 100 "
    assert recording.only_state().finished == 3
