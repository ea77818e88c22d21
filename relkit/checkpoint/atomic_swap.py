"""Two folders change names at once: what a plain rename cannot do with folders."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from pathlib import Path

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE
# File systems without it (NFS), and kernels or C libraries that are too old.
_NOT_THERE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def exchange(new: Path, old: Path) -> None:
    """Give `new` the name of `old`, and `old` that of `new`.

    At no moment is neither there under the name of `old`; only on a file system without
    RENAME_EXCHANGE `old` is gone (it is `<old>_old` then) between two renames.

    Raises:
        OSError: the folders cannot be renamed.
    """
    if _exchanged(new, old):
        return
    aside = old.with_name(old.name + "_old")
    if aside.exists():
        shutil.rmtree(aside)
    old.rename(aside)
    new.rename(old)
    aside.rename(new)


def _exchanged(first: Path, second: Path) -> bool:
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    if library.renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NOT_THERE:
        return False
    raise OSError(code, os.strerror(code), str(second))
