"""An image of a program that waits, and of links to the host's folders: no registry is asked."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

NAME, FILE = "localhost/pause:1", "pause.tar"
_WAITS = """
#include <signal.h>
#include <unistd.h>
static void end(int number) { (void)number; _exit(0); }
int main(void) { signal(SIGTERM, end); signal(SIGINT, end); for (;;) pause(); }
"""
_LINKS = {name: f"usr/{name}" for name in ("bin", "sbin", "lib", "lib64")}
_FOLDERS = ("usr", "etc", "tmp", "proc", "sys", "dev", "job", "root")


def write(folder: Path) -> None:
    """Write the image into FILE, a tar that containerd imports."""
    source, program = folder / "pause.c", folder / "pause"
    source.write_text(_WAITS, encoding="ascii")
    subprocess.run(["gcc", "-static", "-O", "-o", program, source], check=True, timeout=60)
    layer = _layer(program)
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Entrypoint": ["/pause"]},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"],
            },
        }
    ).encode()
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    image = folder / FILE
    with tarfile.open(image, "w") as out:
        _add(out, "config.json", config)
        _add(out, "layer.tar", layer)
        _add(out, "manifest.json", json.dumps(manifest).encode())


def _layer(program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as out:
        for name in _FOLDERS:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            out.addfile(entry)
        for name, target in _LINKS.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            out.addfile(entry)
        _add(out, "pause", program.read_bytes(), 0o755)
    return buffer.getvalue()


def _add(out: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    out.addfile(entry, io.BytesIO(content))
