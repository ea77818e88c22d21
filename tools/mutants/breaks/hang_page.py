"""Breaks of the page of a hang: what it shows, how it folds, and what it takes from a folder."""

from __future__ import annotations

from tools.mutants.model import Break

_PICTURE = ("tests/unit/hang_picture/test_picture.py",)
_FOLDER = ("tests/unit/hang_picture/test_folder.py",)
_PAGE = ("tests/reports/test_hang_page.py",)
_GIL = ("tests/unit/hang/test_gil.py",)
_COMMAND = ("tests/commands/test_report.py",)
_FOLDS = "relkit/hang_picture/wait_graph.py"
_STORED = "relkit/hang/stored_report.py"

BREAKS = (
    # Who waits for whom.
    Break(_FOLDS, "layers[waiter] = layers[rank] + 1", "layers[waiter] = 1", _PICTURE),
    Break(_FOLDS, "if len(classes) <= MAX_NODES:", "if True:", _PICTURE),
    Break(_FOLDS, "for target in targets if source != target", "for target in targets", _PICTURE),
    Break(
        _FOLDS,
        "min(self.layers[rank], _FOLDED_LAYERS), rank in self.culprits",
        "min(self.layers[rank], _FOLDED_LAYERS), False",
        (f"{_PICTURE[0]}::test_those_at_fault_keep_a_box_of_their_own_however_much_is_folded",),
    ),
    # Those behind come first, and who has completed what.
    Break("relkit/hang_picture/sequences.py", "started < newest", "False", _PICTURE),
    Break(
        "relkit/hang_picture/sequences.py",
        "member.stuck[0].seq - 1",
        "member.stuck[0].seq",
        _PICTURE,
    ),
    Break(
        "relkit/hang_picture/transfer_table.py",
        '"recv" if each.receives else "send"',
        '"send" if each.receives else "recv"',
        _PICTURE,
    ),
    Break("relkit/hang_picture/timeline.py", "max(op.end_ns, op.start_ns)", "op.end_ns", _PICTURE),
    Break(
        "relkit/hang_picture/timeline.py",
        "[*culprits, *examples, *recorded[::step]]",
        "[*recorded[::step]]",
        _PICTURE,
    ),
    Break(
        "relkit/hang_picture/stack_classes.py",
        "key=lambda row: (row.count,",
        "key=lambda row: (-row.count,",
        _FOLDER,
    ),
    # Nothing of the job goes into a command that a person types.
    Break(
        "relkit/hang_picture/runbook.py",
        'host if _SAFE_HOST.fullmatch(host) else "HOST"',
        'host or "HOST"',
        _PICTURE,
    ),
    Break(
        "relkit/hang_picture/runbook.py",
        'f"less {shlex.quote(self.folder)}/py_stack"',
        'f"less {self.folder}/py_stack"',
        _PICTURE,
    ),
    Break("relkit/hang_picture/runbook.py", "if self.has_dumps else self.facts()", "", _PICTURE),
    # What anybody may have written.
    Break(_STORED, "not 0 < world_size <= MAX_WORLD", "world_size <= 0", _FOLDER),
    Break(_STORED, 'if plain.get("schema") != SCHEMA:', "if False:", _FOLDER),
    Break(
        "relkit/hook/stored_state.py",
        "if kind is not declared:",
        "if False:",
        _FOLDER,
    ),
    Break(
        "relkit/hang_picture/folder.py",
        "if choice.world_size > MAX_WORLD:",
        "if False and choice:",
        (f"{_FOLDER[0]}::test_a_job_too_large_to_draw_is_refused",),
    ),
    Break(
        "relkit/hang/recorders.py",
        "not (view.dump and view.dump.hook_json)",
        "view.dump",
        _FOLDER,
    ),
    Break("relkit/hang/recorders.py", "ALL_OPS // max(1, len(states))", "MAX_OPS", _FOLDER),
    # The page.
    Break("reports/hang_page.py", "if len(svg) <= room:", "if True:", _PAGE),
    Break(
        "reports/hang_timeline.py", "return self.hang_s > self.before_s / 2", "return False", _PAGE
    ),
    Break(
        "reports/wait_graph_svg.py",
        "<title>{xml(_words(node))}</title>",
        "<title>{_words(node)}</title>",
        _PAGE,
    ),
    Break("reports/wait_graph_svg.py", "shown(line) for line in lines)", "lines)", _PAGE),
    Break(
        "reports/wait_graph_layout.py",
        "rows[number].append(_Item(edge=(source, target)))",
        "pass",
        _PAGE,
    ),
    Break("commands/report.py", "(None if fmt else hangdir / PAGE)", "hangdir / PAGE", _COMMAND),
    Break(
        "relkit/launch/hang/timeline.py",
        'LATER_FILES = ("hang.html",)',
        "LATER_FILES = ()",
        ("tests/unit/launch/test_timeline.py",),
    ),
    # The interpreter lock.
    Break("relkit/hang/gil.py", 'thread.state not in ("S", "D")', "not thread.state", _GIL),
    Break("relkit/hang/gil.py", "if not waiting:", "if False:", _GIL),
    Break(
        "relkit/hang/gil.py",
        "thread.os_thread_id in waiting or by_native(below.frames) in WAITS_FOR_PEERS",
        "thread.os_thread_id in waiting",
        _GIL,
    ),
    Break(
        "relkit/hang/gil.py",
        "any(_RELEASES.search(frame.func) for frame in below.frames[:_DEPTH])",
        "False",
        _GIL,
    ),
    Break(
        "relkit/hang/stackclass.py",
        "main_id in (holder.os_thread_id, *holder.waiting)",
        "main_id",
        _GIL,
    ),
    Break(
        "relkit/hang/finding_builder.py",
        "    if activity.gil:\n        return Category.GIL_HELD\n",
        "",
        _GIL,
    ),
    Break("commands/report.py", "require_new(page, force=force)", "pass", _COMMAND),
)
