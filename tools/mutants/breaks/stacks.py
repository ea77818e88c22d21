"""Breaks of stack dumps: parsers, merge, mixed stacks, symbols, the flame graph."""

from __future__ import annotations

from tools.mutants.model import Break

_DUMPFILE = (
    "tests/unit/stacks/test_dumpfile_fields.py",
    "tests/unit/stacks/test_dumpfile.py::test_a_file_of_the_original_tool",
    "tests/unit/stacks/test_dumpfile.py::test_the_header_beats_the_name",
    "tests/unit/stacks/test_dumpfile_hostile.py::test_each_kind_of_damage_is_named",
    "tests/unit/stacks/test_dumpfile_hostile.py::test_an_oversized_file_is_not_read",
)
_FLAME = (
    "tests/reports/test_flame_layout.py",
    "tests/reports/test_flame_svg.py::test_the_picture_is_the_one_that_was_looked_at",
)
_BOXES = ("tests/reports/test_flame_boxes.py",)
_NATIVE_FOLD = ("tests/native/merge/test_fold.py",)
_TREES = ("tests/unit/stacks/test_tree_builder.py",)
_NATIVE_LINES = ("tests/native/merge/test_lines.py",)
_FRAMES = ("tests/native/merge/test_frames.py",)
_A_LARGE_FOLDER = (
    "tests/native/merge/test_native.py::test_a_folder_large_enough_for_several_readers"
)
_BITS = ("tests/unit/stacks/test_tallies.py",)
_FOLDED = ("tests/unit/stacks/test_folded.py",)
_FOLDER = ("tests/unit/stacks/test_merge_folder.py",)
_MERGE = (
    "tests/unit/stacks/test_tallies.py",
    "tests/unit/stacks/test_merge.py::test_absent_ranks_are_shown_and_are_not_innocent",
    "tests/unit/stacks/test_merge.py::test_link_time_optimisation_cuts_no_stack",
    "tests/unit/stacks/test_merge.py::test_threads_are_counted_and_keep_their_names",
    "tests/unit/stacks/test_merge.py::test_a_runaway_recursion_keeps_both_ends",
    "tests/unit/stacks/test_merge.py::test_main_threads_are_classed_by_their_functions",
    "tests/unit/stacks/test_merge.py::test_a_rank_outside_the_world_is_refused",
    "tests/unit/stacks/test_rank_set_union.py",
)
_MIXED = ("tests/unit/stacks/test_mixed.py",)
_ROLES = ("tests/unit/stacks/test_roles.py",)
_NAMES = (
    "tests/unit/stacks/test_symbolise.py::test_maps_keep_spaces_and_skip_what_is_not_code",
    "tests/unit/stacks/test_symbolise.py::test_symbols_are_shown_for_people",
    "tests/unit/stacks/test_symbolise.py::test_argument_lists_are_dropped",
)
_RETURNS = (
    "tests/unit/stacks/test_symbolise.py::test_a_return_address_belongs_to_the_call_before_it",
)

BREAKS = (
    Break(
        "relkit/stacks/merge.py",
        "if not 0 <= dump.rank < world_size:",
        "if dump.rank < 0:",
        _MERGE,
    ),
    # Main threads are classed by functions, whatever the lines.
    Break(
        "relkit/stacks/merge.py",
        "tuple(frame.func for frame in path.frames)",
        "tuple(frame.func + frame.source for frame in path.frames)",
        _MERGE,
    ),
    Break(
        "relkit/stacks/merge.py",
        "sorted(classes, key=lambda c: (-len(c.ranks),",
        "sorted(classes, key=lambda c: (len(c.ranks),",
        _MERGE,
    ),
    Break(
        "relkit/stacks/stack_index.py",
        "max(self._highs[-1], rank)",
        "rank",
        _MERGE,
    ),
    Break(
        "relkit/stacks/stack_index.py",
        "sorted(new.union(self.names))[:MAX_NAMES]",
        "[*self.names, *sorted(new)][:MAX_NAMES]",
        _MERGE,
    ),
    Break(
        "relkit/stacks/stack_index.py",
        "if frame.build_id or frame.offset or frame.module",
        "if False",
        _MERGE,
    ),
    Break("relkit/stacks/stack_index.py", "tally.threads += 1", "tally.threads = 1", _MERGE),
    # An absent rank is not innocent.
    Break(
        "relkit/stacks/tree_builder.py",
        "absent = RankSet.world(world_size) - present",
        "absent = RankSet()",
        _MERGE,
    ),
    Break(
        "relkit/stacks/tree_builder.py",
        "unions.of([*own.sets, *[child.ranks for child in children]])",
        "unions.of([child.ranks for child in children] or own.sets)",
        _MERGE,
    ),
    Break(
        "relkit/stacks/tree_builder.py",
        'func = _LTO.sub("", frame.func) if "lto_priv" in frame.func else frame.func',
        "func = frame.func",
        _MERGE,
    ),
    Break("relkit/stacks/tree_builder.py", "(_LEFT_OUT,)", "()", _MERGE),
    Break(
        "relkit/stacks/tree_builder.py",
        "texts = sorted(set(each.values()))",
        "texts = list(dict.fromkeys(each.values()))",
        _MERGE,
    ),
    Break(
        "relkit/stacks/tree_builder.py",
        "end is None and len(children) == 1",
        "False",
        _MERGE,
        survives="what it spares is time: a node with one child is made either way",
    ),
    Break(
        "relkit/stacks/tree_builder.py",
        "end is None and len(children) == 1",
        "len(children) == 1",
        _MERGE,
    ),
    Break(
        "relkit/stacks/tree_builder.py",
        "own.threads + sum([child.threads for child in children])",
        "sum([child.threads for child in children]) or own.threads",
        _TREES,
    ),
    Break(
        "relkit/stacks/tree_builder.py",
        "_first_names([own.names, *[child.names for child in children]])",
        "own.names",
        _TREES,
    ),
    Break("relkit/stacks/tree_builder.py", "[:MAX_NAMES])", ")", _TREES),
    Break("relkit/stacks/tree_builder.py", "numbered.sort(key=itemgetter(0))", "pass", _TREES),
    Break(
        "relkit/stacks/tree_builder.py", "ends[-1] or _End([], 0, ())", "_End([], 0, ())", _TREES
    ),
    Break(
        "relkit/stacks/tree_builder.py",
        "self.threads += path.threads",
        "self.threads = path.threads",
        _TREES,
    ),
    Break("relkit/stacks/tree_builder.py", "    close(0)\n", "    close(1)\n", _TREES),
    Break("relkit/stacks/tree_builder.py", "frames[id(_LEFT_OUT)] = _LEFT_OUT", "pass", _MERGE),
    Break("relkit/stacks/stack_index.py", "self._bits | ranks.bits()", "self._bits", _BITS),
    Break("relkit/stacks/stack_index.py", "self._bits |= bits", "self._bits = bits", _BITS),
    Break(
        "relkit/stacks/stack_index.py",
        "self._highs.tobytes(), self._bits",
        "self._highs.tobytes(), 0",
        _BITS,
    ),
    Break(
        "relkit/stacks/native_merge.py",
        "if status == _OUT_OF_MEMORY:",
        "if False:",
        _FRAMES,
    ),
    Break(
        "relkit/stacks/native_merge.py",
        "range(len(self._frames), max(numbers, default=-1) + 1)",
        "range(len(self._frames), max(numbers, default=-1))",
        _FRAMES,
    ),
    Break(
        "relkit/stacks/native_merge.py",
        "entry=len(data) == end + _SIZE.size",
        "entry=True",
        _FRAMES,
    ),
    Break(
        "relkit/stacks/native_merge.py",
        "raise _too_different(folder) from error",
        "raise",
        (
            "tests/native/merge/test_native.py"
            "::test_the_scanner_says_when_memory_runs_out_between_stacks_and_frames",
        ),
    ),
    Break(
        "relkit/stacks/native_merge.py",
        "min(MAX_BITS // 8, _INTERVAL_BYTES * item.interval_count)",
        "MAX_BITS // 8",
        (_A_LARGE_FOLDER,),
        survives="what it spares is memory: bits and intervals are the same ranks",
    ),
    Break(
        "relkit/stacks/tree.py",
        "return self.present - node.ranks",
        "return RankSet.world(self.world_size) - node.ranks",
        _MERGE,
    ),
    Break("relkit/stacks/folded.py", "if node.ends:", "if not node.children:", _MERGE),
    Break("relkit/stacks/folded.py", r'r"[;\x00-', r'r"[\x00-', _FOLDED),
    Break("relkit/stacks/folded.py", "sets[depth:], pieces[2 * depth :]", "sets[depth:]", _MERGE),
    Break("relkit/stacks/folded.py", "sets[-1] is node.ranks", "True", _MERGE),
    Break("relkit/stacks/folded.py", 'b";" if depth else b""', 'b";"', _MERGE),
    Break(
        "relkit/ranks.py",
        "self.fold_briefly(most=LISTED)",
        "self.fold()",
        ("tests/unit/stacks/test_merge_report.py",),
    ),
    Break(
        "relkit/stacks/merge_report.py",
        '" `--json` lists all of these ranks." if',
        '"" if',
        ("tests/unit/stacks/test_merge_report.py",),
    ),
    Break(
        "relkit/stacks/native_fold.py",
        "        if not bits:\n            return ranks.fold_strided(separator)\n",
        "",
        _NATIVE_FOLD,
    ),
    Break("relkit/stacks/native_fold.py", "or intervals[-1][1] >= MAX_BITS", "", _NATIVE_FOLD),
    Break(
        "relkit/stacks/collector.py",
        "            gc.freeze()\n",
        "",
        ("tests/unit/stacks/test_collector.py",),
    ),
    Break("relkit/stacks/native_fold.py", "(2 * digits + 2)", "(2 * digits)", _NATIVE_FOLD),
    Break("relkit/stacks/native_lines.py", "tree.world_size > MAX_BITS", "False", _NATIVE_LINES),
    Break("relkit/stacks/native_lines.py", "        stream.flush()\n", "", _NATIVE_LINES),
    Break(
        "relkit/stacks/native_lines.py", "        if error:\n", "        if False:\n", _NATIVE_LINES
    ),
    Break(
        "relkit/stacks/native_lines.py",
        "self.is_bits.append(bool(bits))",
        "self.is_bits.append(False)",
        _NATIVE_LINES,
    ),
    Break(
        "relkit/stacks/native_lines.py",
        "(tree.world_size + 7) // 8",
        "tree.world_size // 8",
        _NATIVE_LINES,
    ),
    Break("relkit/stacks/rank_set_union.py", "self._made.get(bits)", "None", _MERGE),
    Break("relkit/stacks/roles.py", "if is_main:", "if False:", _ROLES),
    Break("relkit/stacks/roles.py", '_TRANSFERS.sub("", name.lower())', "name.lower()", _ROLES),
    Break(
        "relkit/stacks/roles.py",
        "return role_of_name(name) or role_of_frames(frames)",
        "return role_of_frames(frames)",
        _ROLES,
    ),
    Break(
        "relkit/stacks/dumpfile.py",
        "if world_size and rank >= world_size:",
        "if world_size and rank > world_size:",
        _DUMPFILE,
    ),
    Break("relkit/stacks/dumpfile.py", "if len(data) > MAX_FILE_BYTES:", "if False:", _DUMPFILE),
    Break(
        "relkit/stacks/dumpfile.py",
        "if pid and thread.os_thread_id == pid:",
        "if False:",
        _DUMPFILE,
    ),
    # The header says which rank it is; only without one the name does.
    Break(
        "relkit/stacks/dumpfile.py",
        "if not has_rank and not facts.present:",
        "if match is not None:",
        _DUMPFILE,
    ),
    Break(
        "relkit/stacks/dumpfile.py",
        "if memo is not None and tail is not None and only_frames:",
        "if memo is not None and tail is not None:",
        _DUMPFILE,
    ),
    Break(
        "relkit/stacks/dumpfile.py",
        "if len(native) + len(python) > MAX_THREADS:",
        "if False:",
        _DUMPFILE,
    ),
    Break(
        "relkit/stacks/dumpfile.py",
        "if frames > MAX_FILE_FRAMES:",
        "if False:",
        _DUMPFILE,
    ),
    Break("relkit/stacks/wire.py", "if size > end - at:", "if size > end:", _DUMPFILE),
    Break("relkit/stacks/wire.py", "if value > _MASK_64:", "if False:", _DUMPFILE),
    Break(
        "relkit/stacks/wire.py",
        "return value - (1 << 32) if value >> 31 else value",
        "return value",
        _DUMPFILE,
    ),
    Break("relkit/stacks/folder.py", "elif head.rank in taken:", "elif False:", _FOLDER),
    Break(
        "relkit/stacks/folder.py",
        "return max(newest, key=lambda job",
        "return min(newest, key=lambda job",
        _FOLDER,
    ),
    Break(
        "relkit/stacks/folder.py",
        "elif head.world_size not in (0, world_size):",
        "elif False:",
        _FOLDER,
    ),
    Break("relkit/stacks/folder.py", " and not _is_hidden(name)", "", _FOLDER),
    Break("relkit/stacks/mixed.py", "if thread.os_thread_id:", "if True:", _MIXED),
    Break("relkit/stacks/mixed.py", "return loops or evaluations", "return evaluations", _MIXED),
    Break("relkit/stacks/mixed.py", "if frame.entry or not runs:", "if True:", _MIXED),
    Break("relkit/stacks/mixed.py", "or _is_builtin(native, i)", "", _MIXED),
    # A return address belongs to the call before it.
    Break("relkit/stacks/symbolise.py", "at if innermost else at - 1", "at", _RETURNS),
    Break(
        "relkit/stacks/maps.py",
        "address < mappings[at].end",
        "address <= mappings[at].end",
        _NAMES,
    ),
    Break("relkit/stacks/maps.py", 'or "x" not in words[1]', "", _NAMES),
    Break(
        "relkit/stacks/demangle.py",
        'if not cut or bare[i:] == "(anonymous namespace)":',
        "if not cut:",
        _NAMES,
    ),
    Break(
        "relkit/stacks/merge_report.py",
        "status=Status.UNKNOWN",
        "status=Status.WARN",
        ("tests/unit/stacks/test_merge_report.py",),
    ),
    Break(
        "relkit/stacks/merge_report.py",
        "others.sort(key=lambda outlier: len(outlier.ranks))",
        "others.sort(key=lambda outlier: -len(outlier.ranks))",
        ("tests/unit/stacks/test_merge_report.py",),
    ),
    # No free width where a stack ends.
    Break("reports/flame_layout.py", "widths[i] += gap", "pass", _FLAME),
    Break("reports/flame_layout.py", "count * 3 <= present", "count * 9 <= present", _FLAME),
    Break(
        "reports/flame_layout.py",
        "(DIFFERENCE if count < present else 1.0)",
        "1.0",
        _FLAME,
    ),
    Break("reports/flame_layout.py", "if odd and wide < least:", "if False:", _FLAME),
    Break("reports/flame_boxes.py", "0 if i in unread else sizes[i]", "sizes[i]", _FLAME),
    Break("reports/flame_boxes.py", "(end := _own_end(node))", "(end := None)", _FLAME),
    Break("reports/flame_boxes.py", "        stacks[i] = 0\n", "        pass\n", _BOXES),
    Break("reports/flame_boxes.py", "stacks[parent] += stacks[i]", "pass", _BOXES),
    Break(
        "reports/flame_boxes.py",
        "by_rarity[-common:][::-1] + by_rarity[: MAX_LEAVES - common]",
        "by_rarity[:MAX_LEAVES]",
        _FLAME,
    ),
    Break("reports/flame_boxes.py", "if left < 0:", "if False:", _FLAME),
    Break("reports/flame_boxes.py", "family.sort(key=order)", "pass", _FLAME),
)
