"""The library exports no name of its table, and needs nothing but libc."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from relkit.hook.locate import hook_library
from tests.native.hook.test_interposition import both_ways, build, hooked_names
from tests.native.recording import Recording

pytestmark = pytest.mark.native


def _lines(*command: str) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout.splitlines()


# What the loader's own functions are called, and the marks that relkit's Python sets.
EXPORTED = {
    "dlsym",
    "dlopen",
    "dlclose",
    "sigaction",
    "signal",
    "relkit_mark_step",
    "relkit_mark_input",
    "relkit_mark_gc",
    "relkit_mark_call",
    "relkit_standby_over",
}


def test_no_hooked_name_is_exported() -> None:
    """A name that is visible where no library defines it changes what programs do."""
    listed = _lines("nm", "-D", "--defined-only", str(hook_library()))
    assert {line.split()[-1] for line in listed} == EXPORTED
    assert EXPORTED.isdisjoint(hooked_names())


def test_every_row_has_a_wrapper() -> None:
    listed = _lines("nm", str(hook_library()))
    entries = {line.split()[-1] for line in listed if re.search(r" t rk_entry_\w+_[0-3]$", line)}
    assert len(entries) == 4 * len(hooked_names())


def test_needs_libc_only() -> None:
    needed = [line for line in _lines("readelf", "-dW", str(hook_library())) if "NEEDED" in line]
    assert [re.findall(r"\[(.*)\]", line) for line in needed] == [["libc.so.6"]]


# What a look at the loaded libraries must not leave behind.
IDLE = """
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
static int entries(const char *folder)
{
    int count = 0;
    DIR *open = opendir(folder);
    while (readdir(open) != NULL)
        count++;
    closedir(open);
    return count;
}
int main(void)
{
    char line[256];
    printf("%d %d\\n", entries("/proc/self/fd"), entries("/proc/self/task"));
    FILE *status = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, "Sig", 3) == 0)
            fputs(line, stdout);
    return fclose(status);
}
"""


def test_a_program_that_calls_nothing_hooked_is_left_as_it_is(
    recording: Recording, tmp_path: Path
) -> None:
    """The constructor only looks: no descriptor, no thread, no handler, no file."""
    program = build(tmp_path, "idle", IDLE)
    bare, hooked = both_ways(recording, program)
    assert bare == hooked
    assert "SigCgt" in hooked
    assert list(recording.folder.iterdir()) == []
