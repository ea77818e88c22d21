"""The operator's secret: what the launchers of one job know and nobody else, given by a person.

Keys are derived from it by HKDF (RFC 5869, with SHA-256), one for each job and purpose; the secret
itself is never stored, sent, or handed on.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path

from relkit.files.given_secret import take_given_secret

SECRET = "RELKIT_SECRET"  # noqa: S105 (the name of a variable)
_SALT = b"relkit operator secret 1"
_HOW = (
    "Make one with: (umask 077; head -c 32 /dev/urandom | base64 > ~/.relkit-secret), and give the"
    " same file to all nodes with --secret-file."
)


@dataclass(frozen=True, slots=True)
class OperatorSecret:
    """The secret, from which keys are derived.

    Args:
        key: what HKDF extracted.
    """

    key: bytes = field(repr=False)

    def for_job(self, job_id: str) -> bytes:
        """The key of one job, 32 bytes.

        Args:
            job_id: the same on all nodes.
        """
        return derive(self.key, "job", job_id.encode())


def derive(key: bytes, purpose: str, context: bytes = b"") -> bytes:
    """A key for one purpose; one tells nothing of another.

    Args:
        key: that it comes from; purpose: without a zero byte; context: what else it depends on.
    """
    return hmac.new(key, purpose.encode() + b"\0" + context + b"\x01", hashlib.sha256).digest()


def take_secret(
    file: Path | None, environ: MutableMapping[str, str], source: str = "--secret-file"
) -> OperatorSecret | None:
    """The operator's secret, if there is one; it is removed from the environment.

    Args:
        file: where it is; goes before RELKIT_SECRET. environ: of this process.
        source: what named the file, for the sentence.

    Raises:
        UsageProblem: the file cannot be read, is not this user's alone, or the secret is too short.
    """
    secret = take_given_secret(file, environ, SECRET, option=source, what="secret", how=_HOW)
    return OperatorSecret(hmac.new(_SALT, secret, hashlib.sha256).digest()) if secret else None
