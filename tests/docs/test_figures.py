"""A figure of performance stands beside the command that made it, its date and its machine class.

docs/benchmarks.md holds all of them, a section each. Every other page that states one links to its
section there.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
# Recorded outputs and made pages; findings and gpu-results state limits and what is to be done.
_SKIPPED = {"reference", "outputs", "findings"}


def _has_claims(path: Path) -> bool:
    folders = set(path.relative_to(ROOT / "docs").parts[:-1])
    return path != BENCHMARKS and path.name != "gpu-results.md" and not folders & _SKIPPED


PAGES = [ROOT / "README.md", *filter(_has_claims, sorted((ROOT / "docs").rglob("*.md")))]

COMMAND = re.compile(r"`([^`]*(?:benchmarks[/.]\w+|tools\.\w+|tests/\w+|relkit \w+)[^`]*)`")
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
MACHINE = re.compile(r"\bclass [A-Z]\b")
_NUMBER = r"(?<![\w.-])\d[\d,.]*"
_UNIT = r"(?:ns|us|µs|ms|s|MB/s|GB/s|Gbit/s|MB|kB|%|times)\b|%"
MEASURED = re.compile(rf"{_NUMBER} (?:{_UNIT})")
# What a reader takes for a measurement: durations too short to be a setting, throughput,
# comparisons, and shares of runs that went right.
CLAIM = re.compile(
    rf"{_NUMBER} ?(?:ns|us|µs|nanoseconds|microseconds|[MG]B/s|MFLOP/s)\b"
    rf"|{_NUMBER} times (?:as |faster|slower|cheaper|less)|\btimes (?:as fast|faster)\b"
    rf"|{_NUMBER} of {_NUMBER} (?:real |healthy |simulated )?(?:runs|jobs|kills|rounds|sets)\b"
    rf"|(?:recall|precision|accuracy) (?:of |was )?{_NUMBER}"
    rf"|{_NUMBER} (?:% )?of (?:a|one) core\b"
    r"|\b(?:about|well under) a (?:millisecond|microsecond)\b",
    re.IGNORECASE,
)
# Settings and properties that look like measurements: page, words.
NOT_MEASURED = {
    ("launch.md", "10,000 MB/s"),
    ("linkcheck.md", "MB/s"),
    ("straggler.md", "so that writing takes at most 1 % of a core"),
    ("platforms.md", "50 microseconds when the pool runs short"),
    ("straggler-method.md", "four times as long"),
}
LINK = re.compile(r"\]\((?:\.\./)*(?:docs/)?benchmarks\.md#([\w-]+)\)")


def sections() -> dict[str, str]:
    """Anchor -> text, of each heading of the benchmarks page that has text of its own."""
    parts = re.split(r"^#{2,4} (.+)$", BENCHMARKS.read_text(), flags=re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-"): text
        for title, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def without(text: str, *names: re.Pattern[str]) -> list[str]:
    return [name.pattern for name in names if not name.search(text)]


def paragraphs(text: str) -> list[str]:
    """Blocks between empty lines, without what stands in fences."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).split("\n\n")


@pytest.mark.parametrize("name", sorted(sections()))
def test_figures_of_a_section_have_their_command_date_and_machine_class(name: str) -> None:
    text = sections()[name]
    if MEASURED.search(text):
        assert without(text, COMMAND, DATE, MACHINE) == [], name


def test_every_command_of_the_benchmarks_page_exists() -> None:
    commands = COMMAND.findall(BENCHMARKS.read_text())
    named = {word for command in commands for word in re.findall(r"[\w./]+", command)}
    files = {word for word in named if word.startswith(("benchmarks/", "tests/", "tools/"))}
    modules = {word for word in named if re.fullmatch(r"(?:benchmarks|tools|tests)\.[\w.]+", word)}
    assert files
    assert [name for name in sorted(files) if not (ROOT / name).exists()] == []
    # Those that use another of their folder are found as files only.
    assert [name for name in sorted(modules) if name.startswith("benchmarks.")] == []
    for name in modules:
        path = ROOT / name.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), name


def test_the_options_of_those_commands_exist() -> None:
    checked = 0
    for command in COMMAND.findall(BENCHMARKS.read_text()):
        script = re.search(r"benchmarks/\w+\.py", command)
        if script is None or not (ROOT / script[0]).exists():
            continue
        source = (ROOT / script[0]).read_text()
        for option in re.findall(r"(?<= )--[\w-]+", command):
            assert f'"{option}"' in source, f"{command}: {option}"
            checked += 1
    assert checked > 5


def unproven(page: str, text: str) -> list[str]:
    """Claims of a page whose paragraph leads to no section of the benchmarks page."""
    known = sections()
    claims = []
    for block in paragraphs(text):
        links = LINK.findall(block)
        assert set(links) <= set(known), f"{page}: {set(links) - set(known)}"
        for claim in CLAIM.finditer(block):
            around = block[max(0, claim.start() - 60) : claim.end() + 60].replace("\n", " ")
            if links or any(page == name and words in around for name, words in NOT_MEASURED):
                continue
            if without(block, COMMAND, DATE, MACHINE):
                claims.append(around)
    return claims


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_claim_elsewhere_leads_to_its_measurement(path: Path) -> None:
    assert unproven(path.name, path.read_text()) == []


@pytest.mark.parametrize(
    "claim",
    [
        "It costs 60 ns a call.",
        "The merge is 11 times as fast as the viewer.",
        "In 20 of 20 real jobs the right rank was named.",
        "The launcher takes 0.5 % of a core.",
        "A thread is kept for well under a millisecond.",
    ],
)
def test_a_bare_claim_is_noticed(claim: str) -> None:
    assert unproven("page.md", f"Words.\n\n{claim}\n\nWords.") != []
    assert unproven("page.md", f"{claim} [Measured](benchmarks.md#the-hook).") == []
