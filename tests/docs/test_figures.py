"""A figure of performance stands beside the command that made it, its date and its machine class.

docs/benchmarks.md holds all of them. A paragraph there that names a command, a date and a class is
the source of what follows it, up to the next heading. A figure of another run than the source's
says of which: its paragraph refers to the source and adds what was different, its date at least.
Every other page that states a measurement links to its section there.
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

COMMAND = re.compile(
    r"`([^`]*(?:\bpython (?:-m tools\.\w+|(?:benchmarks|tools|tests)/[\w/]+\.py)"
    r"|\brelkit \w+[^`]* --\w)[^`]*)`"
)
DATE = re.compile(r"\b20\d\d-\d\d-\d\d\b")
MACHINE = re.compile(r"\bclass ([A-Z])\b")
SOURCE = (COMMAND, DATE, MACHINE)
_NUMBER = r"(?<![\w.-])\d[\d,.]*"
_SIZE = r"[kMGT]i?B"
FIGURE = re.compile(
    rf"{_NUMBER} ?(?:(?:ns|us|µs|ms|s|seconds|minutes|{_SIZE}(?:/s)?|Gbit/s|times)\b|%)"
    rf"|\b(?:{_NUMBER}|none|one|two|three|four|nine) (?:of|in) (?:{_NUMBER}|six|ten|twenty)\b"
    rf"|{_NUMBER} (?:kills|runs|faults|losses|saves|steps|messages)\b"
)
# The paragraph speaks of the run above it, and need not describe it anew.
REFERENCE = re.compile(
    r"\b(?:the|that) same (?:command|program|run)\b|\bthe (?:command|run|table) above\b",
    re.IGNORECASE,
)
# The sentence speaks of another run than the one above it.
OTHER_RUN = re.compile(
    r"\bat a load of\b|\bon (?:a|that) busy machine\b|\bthe (?:day|code) before\b|\bearlier runs?\b"
    r"|\bbefore (?:that|summaries|suspicions|hosts were|steps were|the rules?|there was)\b",
    re.IGNORECASE,
)
# What a reader takes for a measurement: durations too short to be a setting, throughput,
# comparisons, and shares of runs that went right.
_PLAIN = rf"{_NUMBER} ?(?:(?:ms|milliseconds|s|seconds|minutes|{_SIZE})\b|%)"
CLAIM = re.compile(
    rf"{_NUMBER} ?(?:ns|us|µs|nanoseconds|microseconds|[MG]B/s|MFLOP/s)\b"
    rf"|{_NUMBER} times (?:as |faster|slower|cheaper|less)|\btimes (?:as fast|faster)\b"
    rf"|{_NUMBER} of {_NUMBER} (?:real |healthy |simulated )?(?:runs|jobs|kills|rounds|sets)\b"
    rf"|(?:recall|precision|accuracy) (?:of |was )?{_NUMBER}"
    rf"|{_NUMBER} (?:% )?of (?:a|one) core\b"
    r"|\b(?:about|well under) a (?:millisecond|microsecond)\b"
    # Plain units are those of settings as well, so only what is worded as a measurement.
    rf"|{_PLAIN} (?:here|\(measured)\b|\b(?:median|on average) (?:of |in )?{_PLAIN}"
    rf"|\b(?:measured|took|takes about|costs?)(?: \w+){{0,3}} {_PLAIN}"
    rf"|\b(?:stays|is|are) (?:below|under) {_PLAIN}",
    re.IGNORECASE,
)
# Settings and properties that look like measurements: page, words.
NOT_MEASURED = {
    ("launch.md", "10,000 MB/s"),
    ("linkcheck.md", "MB/s"),
    ("straggler.md", "so that writing takes at most 1 % of a core"),
    ("platforms.md", "50 microseconds when the pool runs short"),
    # A limit that a test holds; a line that a launcher prints; one entry of the run shown there.
    ("hang.md", "the page stays below 5 MB"),
    ("launch.md", "nobody took that place within 600 s"),
    ("status.md", "1.3 kB (measured in the run above)"),
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


def blocks(text: str) -> list[str]:
    """Paragraphs, tables and items of lists."""
    plain = re.sub(r"^ *<!--.*?-->$", "", text, flags=re.MULTILINE)
    # A table may follow a line of words, and an item of a list another one.
    starts = r"(?<!\|)\n(?=\|)|\n(?=- )"
    items = [item for each in paragraphs(plain) for item in re.split(starts, each)]
    return [item.strip() for item in items if item.strip()]


def is_table(block: str) -> bool:
    return block.startswith("|")


def has_figures(block: str) -> bool:
    """Whether it states what was measured; a table does wherever a cell below its head has digits.

    The unit of a table's figures may stand in its head.
    """
    if is_table(block):
        return re.search(r"\d", "".join(block.splitlines()[2:])) is not None
    # Not what a command was given.
    return FIGURE.search(re.sub(r"`[^`]*`", "", block.replace("\n", " "))) is not None


def unsourced(text: str) -> list[str]:
    """The blocks and sentences of a section of which nobody can tell how they were measured."""
    wrong = []
    has_source = False
    for block in blocks(text):
        flat = block.replace("\n", " ")
        missing = without(flat, *SOURCE)
        if not missing:
            has_source = True
        # Half a source: it speaks of another run than that above it, or should be one.
        is_half = not is_table(block) and bool(missing) and len(missing) < len(SOURCE)
        if is_half and (has_figures(block) or COMMAND.search(flat)):
            if not (has_source and REFERENCE.search(flat)):
                wrong.append(flat)
        elif missing and has_figures(block) and not has_source:
            wrong.append(flat)
        if not is_table(block):
            sentences = re.split(r"(?<=[.;:]) (?=[A-Z0-9])", flat)
            wrong += [
                sentence
                for sentence in sentences
                if OTHER_RUN.search(sentence)
                and FIGURE.search(sentence)
                and not DATE.search(sentence)
            ]
    return wrong


@pytest.mark.parametrize("name", sorted(sections()))
def test_each_figure_of_a_section_has_its_command_date_and_machine_class(name: str) -> None:
    assert unsourced(sections()[name]) == []


_SOURCED = "`python benchmarks/stacks/merge.py`, 2026-11-21, class A."
_TABLE = "| ranks | wall, s |\n|---|---|\n| 1,000 | 0.04 |"


@pytest.mark.parametrize(
    "text",
    [
        _TABLE,
        "It takes 3 GB.",
        "It takes 12 MiB.\n\n" + _SOURCED,
        f"`python benchmarks/stacks/merge.py`, 2026-11-21.\n\n{_TABLE}",
        f"`python benchmarks/stacks/merge.py`, class A.\n\n{_TABLE}",
        f"`relkit merge`, 2026-11-21, class A.\n\n{_TABLE}",
        f"`python benchmarks/stacks/merge.py`, 2026-11-21.\n{_TABLE}",
        f"{_SOURCED}\n\n`python benchmarks/stacks/merge.py --ranks 8`:\n\n{_TABLE}",
        f"{_SOURCED}\n\nOn 2026-11-24 it took 3 s.",
        f"{_SOURCED}\n\n- On 2026-11-24 it took 3 s.",
        f"{_SOURCED} At a load of 12 it took 3 s.",
        f"{_SOURCED} Before that, it took 3 s.",
    ],
)
def test_a_figure_without_its_source_is_noticed(text: str) -> None:
    assert unsourced(text) != []


@pytest.mark.parametrize(
    "text",
    [
        f"{_SOURCED}\n\n{_TABLE}\n\nThat is 3 s.",
        f"{_SOURCED}\n{_TABLE}",
        f"{_SOURCED}\n\nThe same command gave 3 s on 2026-11-24, at a load of 12.",
        "Nothing is measured on 2026-11-24.",
    ],
)
def test_a_figure_with_its_source_is_right(text: str) -> None:
    assert unsourced(text) == []


def test_every_machine_class_is_described() -> None:
    text = BENCHMARKS.read_text()
    named = set(MACHINE.findall(text))
    assert named == set(re.findall(r"\*\*Machine class ([A-Z])\*\*", text))


def test_every_command_of_the_benchmarks_page_exists() -> None:
    quoted = re.findall(r"`([^`\n]*)`", BENCHMARKS.read_text())
    named = {word for words in quoted for word in re.findall(r"[\w./]+", words)}
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
        script = re.search(r"benchmarks/[\w/]+\.py", command)
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
        "It took 76 seconds here, most of it for the installation.",
        "The agent itself stays below 30 MB.",
        "A restart takes about 3 s.",
        "A save costs 0.4 % of a step.",
    ],
)
def test_a_bare_claim_is_noticed(claim: str) -> None:
    assert unproven("page.md", f"Words.\n\n{claim}\n\nWords.") != []
    assert unproven("page.md", f"{claim} [Measured](benchmarks.md#the-hook).") == []
