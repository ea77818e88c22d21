"""A secret that a person gives in a private file or a variable, and never on the command line."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from relkit.errors import UsageProblem
from relkit.files.private_file import read_private

MIN_BYTES = 16
_MAX_BYTES = 4096


def take_given_secret(
    file: Path | None,
    environ: MutableMapping[str, str],
    variable: str,
    *,
    option: str,
    what: str,
    how: str,
) -> bytes:
    """The secret, b"" where none is given; it is removed from the environment.

    Args:
        file: where it is; goes before the variable.
        environ: of this process; variable: the name in it.
        option: what named the file; what: the secret is called; how: to give it, a sentence.

    Raises:
        UsageProblem: the file cannot be read, is not this user's alone, or the secret is too short.
    """
    given, origin = environ.pop(variable, "").encode(), variable
    if file is not None:
        origin = f"{option} {file}"
        try:
            given = read_private(file, _MAX_BYTES)
        except PermissionError as error:
            raise UsageProblem(
                f"{origin}: {error.strerror or error}",
                next_step=f'Have it be yours alone: chown "$USER" {file}; chmod 600 {file}',
            ) from error
        except OSError as error:
            raise UsageProblem(f"{origin}: {error.strerror or error}", next_step=how) from error
    elif not given:
        return b""
    secret = given.strip()
    if len(secret) < MIN_BYTES:
        raise UsageProblem(
            f"{origin}: the {what} has {len(secret)} bytes, and needs {MIN_BYTES} at least",
            next_step=how,
        )
    return secret
