"""Programs that look functions up by name: what dlsym says under the hook, and whom it asks."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from relkit.hook.reader import read_state, state_files
from tests.native.recording import Recording, compile_c

pytestmark = pytest.mark.native

# Stands in for a device library: only what a look-up needs.
RUNTIME = """
int cudaStreamSynchronize(void *stream);
int cudaStreamSynchronize(void *stream)
{
    return stream != 0 ? ANSWER : 0;
}
"""

# Its own malloc-like wrapper around a function of the next library, as interposers have.
INTERPOSER = """
#define _GNU_SOURCE
#include <dlfcn.h>
int who(void);
int who(void)
{
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "who");
    return next != 0 ? 10 + next() : -1;
}
"""

ANSWERER = "int who(void); int who(void) { return 7; }\n"

INTERPOSED = """
#include <stdio.h>
int who(void);
int main(void)
{
    printf("%d", who());
    return 0;
}
"""

# Prints what every look-up gives: nothing, or what the function answers.
LOOKUPS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
static void look(const char *what, void *handle, const char *name)
{
    dlerror();
    void *found = dlsym(handle, name);
    const char *error = dlerror();
    int (*call)(void *);
    memcpy(&call, &found, sizeof call);
    printf("%s %s %d\\n", what, error != NULL ? "error" : "fine", found != NULL ? call(&call) : -1);
}
int main(int count, char **libraries)
{
    look("default", RTLD_DEFAULT, "cudaStreamSynchronize");
    look("next", RTLD_NEXT, "cudaStreamSynchronize");
    look("program", dlopen(NULL, RTLD_LAZY), "cudaStreamSynchronize");
    look("unknown", RTLD_DEFAULT, "cudaNoSuchFunction");
    for (int round = 0; round < 2; round++)
        for (int i = 1; i < count; i++)
            look("library", dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL), "cudaStreamSynchronize");
    look("default", RTLD_DEFAULT, "cudaStreamSynchronize");
    return 0;
}
"""


def _build(folder: Path, name: str, code: str, *flags: str) -> Path:
    source = folder / f"{name}.c"
    source.write_text(code)
    return compile_c(folder / name, [source], *flags)


def _runtime(folder: Path, version: int) -> Path:
    code = RUNTIME.replace("ANSWER", str(version))
    soname = f"-Wl,-soname,libcudart.so.{version}"
    return _build(folder, f"libcudart.so.{version}", code, "-shared", "-fPIC", soname)


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


def test_what_is_not_in_the_process_is_not_found(recording: Recording, tmp_path: Path) -> None:
    program = _build(tmp_path, "lookups", LOOKUPS)
    bare, hooked = _both_ways(recording, program)
    assert bare == hooked
    assert "fine" not in hooked
    assert list(recording.folder.iterdir()) == []  # and a look-up alone wakes nobody


def test_two_runtimes_answer_for_themselves(recording: Recording, tmp_path: Path) -> None:
    program = _build(tmp_path, "lookups", LOOKUPS)
    libraries = [str(_runtime(tmp_path, version)) for version in (11, 12)]
    bare, hooked = _both_ways(recording, program, *libraries)
    assert bare == hooked
    assert [line for line in hooked.splitlines() if line.startswith("library")] == [
        "library fine 11",
        "library fine 12",
    ] * 2
    (path,) = state_files(recording.folder)
    state = read_state(path)
    assert [op.name for op in state.recent] == ["stream_sync"] * 2  # the first one's
    assert all(op.failed for op in state.recent)


def test_the_next_of_an_interposer_is_its_own(recording: Recording, tmp_path: Path) -> None:
    """RTLD_NEXT depends on who asks: the hook must not stand between."""
    shared = ("-shared", "-fPIC")
    answerer = _build(tmp_path, "libanswerer.so", ANSWERER, *shared)
    search = ("-Wl,--no-as-needed", f"-Wl,-rpath,{tmp_path}")
    interposer = _build(tmp_path, "libinterposer.so", INTERPOSER, *shared, *search, str(answerer))
    program = _build(tmp_path, "interposed", INTERPOSED, *search, str(interposer), str(answerer))
    assert _both_ways(recording, program) == ("17", "17")
