"""Breaks of findings and of what shows them: text, JSON, files, labels, graphs."""

from __future__ import annotations

from tools.mutants.model import Break

_FINDINGS = ("tests/unit/test_findings.py",)
_OUTPUT = ("tests/unit/test_output.py", "tests/unit/test_findings.py")
_RANKS = ("tests/unit/ranks/test_ranks.py",)
_LARGE = ("tests/unit/ranks/test_large_rank_sets.py",)
_SETS = ("tests/reports/test_rank_sets.py",)

BREAKS = (
    # No data looks healthy.
    Break(
        "relkit/findings.py",
        "if counted else Status.UNKNOWN",
        "if counted else Status.OK",
        _FINDINGS,
    ),
    Break(
        "relkit/findings.py",
        "Status.WARN, Status.UNKNOWN,",
        "Status.UNKNOWN, Status.WARN,",
        _FINDINGS,
    ),
    Break("relkit/findings.py", ", Status.UNKNOWN: EXIT_UNKNOWN}", "}", _FINDINGS),
    Break(
        "relkit/findings.py",
        "if status is not Status.SKIP]",
        "]",
        _FINDINGS,
    ),
    Break("relkit/output.py", "if exists and not force:", "if False:", _OUTPUT),
    Break("relkit/output.py", "os.fchmod(stream.fileno(), mode)", "pass", _OUTPUT),
    Break(
        "relkit/output.py",
        "    except BaseException:\n        Path(temporary).unlink(missing_ok=True)",
        "    except BaseException:",
        _OUTPUT,
    ),
    Break("relkit/output.py", r'.replace("\n", "\n      ")', "", _OUTPUT),
    Break("relkit/output.py", 'if os.environ.get("NO_COLOR"):', "if False:", _OUTPUT),
    Break("relkit/output.py", "os.fsync(stream.fileno())", "pass", _OUTPUT),
    Break("relkit/output.py", "Path(temporary).replace(path)", "pass", _OUTPUT),
    Break(
        "relkit/ranks.py",
        '.bit_length() + 7) // 8, "little")',
        '.bit_length() + 8) // 8, "big")',
        _LARGE,
    ),
    Break("relkit/ranks.py", "low <= merged[-1][1] + 1:", "low <= merged[-1][1]:", _RANKS),
    Break("relkit/ranks.py", "max(high, merged[-1][1])", "high", _RANKS),
    Break("relkit/ranks.py", "skip = starts[0] > ends[0]", "skip = False", _RANKS),
    Break("relkit/ranks.py", "(len(starts) > 1 and starts[-1] > ends[-1])", "0", _RANKS),
    Break(
        "reports/rank_sets.py",
        "against = self.world_size if unread else len(self.present)",
        "against = len(self.present)",
        ("tests/reports/test_rank_sets.py",),
    ),
    Break("reports/rank_sets.py", "if not text or len(text) > left:", "if not text:", _SETS),
    Break("relkit/ranks.py", "if stop - at >= _MIN_STRIDE - 1:", "if stop - at >= 1:", _SETS),
    Break("relkit/ranks.py", "{low}-{high}:{step}", "{low}-{high}", _SETS),
    Break("relkit/ranks.py", "[place - 2 for", "[place - 1 for", _LARGE),
    Break("relkit/ranks.py", "or max(highs) >= MAX_BITS", "", _LARGE),
    Break("relkit/ranks.py", "bits & ~(bits >> 1)", "bits & ~(bits << 2)", _LARGE),
    Break("relkit/ranks.py", "lasts + 1, minlength", "lasts, minlength", _LARGE),
    Break("relkit/ranks.py", "if flags[0]:", "if False:", _LARGE),
    Break("relkit/ranks.py", "first += first == end_before", "first += 0", _LARGE),
    Break(
        "relkit/ranks.py",
        "            end_before = last\n",
        "        end_before = last\n",
        _LARGE,
    ),
    Break("relkit/ranks.py", "upper[firsts] = highs[lasts]", "pass", _LARGE),
    Break("relkit/ranks.py", "numbers // power % 10", "numbers // power", _LARGE),
    Break(
        "reports/markup.py",
        r"\x7f-\x84\x86-\x9f",
        r"\x7f-\x9f",
        ("tests/reports/test_markup.py",),
    ),
    Break(
        "reports/markup.py",
        '    ("<", "&lt;"),\n',
        "",
        ("tests/reports/test_markup.py",),
    ),
    Break(
        "reports/palette.py",
        "max(1, present // 64)",
        "present // 64",
        ("tests/reports/test_palette.py",),
    ),
    Break(
        "reports/dot.py",
        "or node is None or node.ends or",
        "or node is None or",
        ("tests/reports/test_dot.py",),
    ),
    Break(
        "reports/markup.py",
        "text.replace(character, entity)",
        "text.replace(character, entity, 1)",
        ("tests/reports/test_markup.py",),
    ),
    Break(
        "reports/merged_files.py",
        "lambda _path: written.result()",
        "lambda _path: None",
        ("tests/reports/test_merged_files.py",),
    ),
    Break(
        "reports/merged_files.py",
        "failed.append(error)",
        "raise error",
        ("tests/reports/test_timeline_folder.py",),
    ),
)
