"""The operator's secret: from a private file or the environment, never handed on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from relkit.errors import UsageProblem
from relkit.net.operator_secret import SECRET, derive, take_secret

WORDS = "a secret of more than sixteen bytes"

KNOWN = "22e2fe577579ef725590f79fdc20a7c4f36cc0217f41152667f41e2e9acb2e9b"


def file_with(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_without_one_there_is_none() -> None:
    assert take_secret(None, {}) is None
    assert take_secret(None, {SECRET: ""}) is None


def test_a_file_and_the_environment_give_the_same(tmp_path: Path) -> None:
    environ = {SECRET: WORDS, "PATH": "/bin"}
    given = take_secret(None, environ)
    # A file ends with a line feed, which is not part of it.
    read = take_secret(file_with(tmp_path / "s", WORDS + "\n"), {})
    assert given is not None
    assert given == read
    assert environ == {"PATH": "/bin"}


def test_the_file_goes_first_and_the_environment_is_cleared_all_the_same(tmp_path: Path) -> None:
    environ = {SECRET: "another secret of more than sixteen"}
    read = take_secret(file_with(tmp_path / "s", WORDS), environ)
    assert read == take_secret(None, {SECRET: WORDS})
    assert environ == {}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o620])
def test_a_file_that_others_may_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(UsageProblem, match="other users may read or write it") as refused:
        take_secret(file_with(tmp_path / "s", WORDS, mode), {})
    assert f"chmod 600 {tmp_path}/s" in refused.value.next_step


def test_what_is_no_secret_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageProblem, match="needs 16 at least") as short:
        take_secret(file_with(tmp_path / "s", "  short  \n"), {})
    assert "head -c 32 /dev/urandom" in short.value.next_step
    with pytest.raises(UsageProblem, match="needs 16 at least"):
        take_secret(None, {SECRET: "short"})
    with pytest.raises(UsageProblem, match="No such file"):
        take_secret(tmp_path / "absent", {})
    with pytest.raises(UsageProblem, match="larger than"):
        take_secret(file_with(tmp_path / "large", "x" * 5000), {})
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UsageProblem, match="not a regular file"):
        take_secret(tmp_path / "pipe", {})
    (tmp_path / "link").symlink_to(file_with(tmp_path / "real", WORDS))
    with pytest.raises(UsageProblem):
        take_secret(tmp_path / "link", {})


def test_it_is_in_no_text_of_it() -> None:
    secret = take_secret(None, {SECRET: WORDS})
    assert secret is not None
    assert "key" not in repr(secret)
    assert WORDS not in repr(secret)


def test_keys_differ_by_job_and_by_purpose() -> None:
    secret = take_secret(None, {SECRET: WORDS})
    assert secret is not None
    keys = {
        secret.for_job("one"),
        secret.for_job("two"),
        secret.key,
        derive(secret.for_job("one"), "ttp"),
        derive(secret.for_job("one"), "mailbox"),
        derive(secret.for_job("one"), "mailbox", b"straggler-"),
    }
    assert len(keys) == 6
    assert {len(key) for key in keys} == {32}


def test_a_known_answer() -> None:
    """HKDF by hand: extract with the salt, expand by one block."""
    secret = take_secret(None, {SECRET: "0123456789abcdef"})
    assert secret is not None
    assert secret.for_job("job").hex() == KNOWN
