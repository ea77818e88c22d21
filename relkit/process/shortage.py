"""What a host refuses for now: an error that says nothing of what was looked at, and passes."""

from __future__ import annotations

import errno

# This process, or the host, has no room for another file.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_shortage(error: BaseException | None) -> bool:
    """Whether it was raised because there is no descriptor, or no memory, to be had now."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _SHORTAGES:
            return True
        error = error.__cause__ or error.__context__
    return False
