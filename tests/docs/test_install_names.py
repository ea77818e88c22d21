"""Nobody is told to install `relkit` from PyPI: that is another project with our command."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DISTRIBUTION = "relkit-cluster"
_NAME = r"[\"']?relkit(?![-\w/.])"
# A requirement of that name: in a command that installs, in a list of requirements, with extras.
_WRONG = re.compile(
    rf"\binstall\s+(?:(?:-\S+|\\)\s+)*{_NAME}"
    rf"|\b(?:pip3?|pipx|uvx?|poetry|pdm|conda|mamba)\b[^\n`|&#;]*\b(?:install|add|download|wheel)\b[^\n`|&#;]*\s{_NAME}"
    rf"|\buvx\s+{_NAME}"
    r"|\brelkit\[[a-z]"
    r"|\brelkit\s*[=~!<>]=\s*\d"
    r"|pypi\.org/(?:project|simple)/relkit\b(?!-)"
)
_THIS = "tests/docs/test_install_names.py"


def wrong_names(text: str) -> list[str]:
    """Every place in a text that would fetch the other project."""
    return [match[0] for match in _WRONG.finditer(text)]


@pytest.mark.parametrize(
    "text",
    [
        "pip install relkit",
        "python -m pip install relkit, beside",
        "pip3 install --upgrade 'relkit'",
        "pip install torch relkit",
        "RUN pip install --no-cache-dir \\\n    relkit",
        'pip install "relkit[torch]"',
        "needs relkit[data]",
        "relkit==0.1.0",
        "uv add relkit",
        "pipx install relkit",
        "uvx relkit doctor",
    ],
)
def test_a_command_that_fetches_the_other_project_is_seen(text: str) -> None:
    assert wrong_names(text)


@pytest.mark.parametrize(
    "text",
    [
        "pip install .",
        "pip install '.[torch]'   # then: relkit doctor",
        "pip install -e . && relkit doctor",
        "pip install relkit-cluster",
        "pip install git+ssh://host/relkit.git",
        "pip install ./relkit",
    ],
)
def test_a_command_that_does_not_is_let_be(text: str) -> None:
    assert wrong_names(text) == []


def test_no_text_tells_anybody_to_install_the_other_project() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        timeout=60,
    ).stdout.decode()
    found = {}
    for name in listed.split("\0"):
        path = ROOT / name
        if not name or name == _THIS or not path.is_file():
            continue
        try:
            wrong = wrong_names(path.read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            continue  # A picture.
        if wrong:
            found[name] = wrong
    assert found == {}


def test_the_distribution_has_a_free_name_and_the_import_and_the_command_keep_theirs() -> None:
    about = metadata.metadata(DISTRIBUTION)
    assert about["Name"] == DISTRIBUTION
    (script,) = metadata.distribution(DISTRIBUTION).entry_points
    assert (script.group, script.name, script.value) == (
        "console_scripts",
        "relkit",
        "relkit.cli:main",
    )
    assert (Path(sys.executable).parent / "relkit").is_file()
    extras = {"torch", "train", "data", "spark", "otlp", "tensorboard"}
    assert set(about.get_all("Provides-Extra") or ()) == extras
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.distribution("relkit")
