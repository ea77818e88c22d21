"""Whether a program can be preloaded at all: a glibc program, linked dynamically, of our kind."""

from __future__ import annotations

import shlex
import shutil
import struct
from pathlib import Path

from relkit.files.input_file import open_input

_IDENTITY = struct.Struct("<4sBB10xHH")
_PROGRAM_HEADERS_AT = 32
_TABLE = struct.Struct("<QQIHHH")
_SEGMENT = struct.Struct("<IIQQQQ")
_PT_INTERP = 3
_CLASS_64, _LITTLE_ENDIAN = 2, 1
_MACHINES = {62: "x86-64", 183: "AArch64"}


def why_not_preloadable(program: Path, library: Path) -> str:
    """Why the hook must not be preloaded into a program; "" where it can be.

    The loader of another C library may refuse to start a program because of a library that it
    cannot load, and a static program never loads any, so it is better to look first.

    Args:
        program: an executable file (a script counts by its interpreter: pass that).
        library: the hook, from hook_library.
    """
    try:
        kind, loader = _loader_of(program)
        wanted, _ = _loader_of(library)
    except (OSError, ValueError, struct.error) as error:
        return f"{program} is not a program that can be looked at: {error}"
    if kind != wanted:
        return f"{program} is {kind}, and the hook is {wanted}"
    if not loader:
        return f"{program} is linked statically: nothing can be preloaded into it"
    if "ld-linux" not in loader:
        return f"{program} runs on {loader}, which is not glibc's loader"
    return ""


def program_of(command: str) -> Path:
    """The executable that a command name really starts: found on PATH, scripts by interpreter.

    Args:
        command: as typed; where nothing is found, or a script's first line cannot be read, it is
            returned as it stands.
    """
    program = Path(shutil.which(command) or command).resolve()
    for _ in range(4):  # a script may be run by a script; the kernel follows four of them
        try:
            with open_input(program) as file:
                first = file.readline(256)
        except OSError:
            break
        if not first.startswith(b"#!"):
            break
        words = shlex.split(first[2:].decode("utf-8", "replace"), posix=False)
        if words and Path(words[0]).name == "env":
            words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
        if not words:
            break
        program = Path(shutil.which(words[0]) or words[0]).resolve()
    return program


def _loader_of(path: Path) -> tuple[str, str]:
    """Machine, and the dynamic loader that the file names ("" where it names none)."""
    with open_input(path) as file:
        magic, width, order, _, machine = _IDENTITY.unpack(file.read(_IDENTITY.size))
        if magic != b"\x7fELF":
            raise ValueError("no ELF file")
        if width != _CLASS_64 or order != _LITTLE_ENDIAN:
            return "32-bit or big-endian", ""
        file.seek(_PROGRAM_HEADERS_AT)
        table_at, _, _, _, size, count = _TABLE.unpack(file.read(_TABLE.size))
        loader = ""
        for index in range(min(count, 256)):
            file.seek(table_at + index * size)
            segment, _, offset, _, _, length = _SEGMENT.unpack(file.read(_SEGMENT.size))
            if segment == _PT_INTERP:
                file.seek(offset)
                loader = file.read(min(length, 4096)).rstrip(b"\0").decode("utf-8", "replace")
        return _MACHINES.get(machine, f"machine {machine}"), loader
