"""Breaks of the C: the recorder, its file and who makes one, and the merge's parser."""

from __future__ import annotations

from tools.mutants.model import Break

_RECORDER = ("tests/native/hook/test_recorder.py::test_recorder_in_c[plain-recorder_test]",)
_RING = ("tests/native/hook/test_recorder.py::test_recorder_in_c[plain-event_ring_test]",)
_PEERS = ("tests/native/hook/test_recorder.py::test_recorder_in_c[plain-peers_test]",)
_POSTS = ("tests/native/hook/test_recorder.py::test_recorder_in_c[plain-gloo_posts_test]",)
_HELPERS = "tests/native/hook/test_helpers.py"
_EDGES = ("tests/native/merge/test_edges.py",)
_FOLD = "native/merge/fold.c"
_LINES = "native/merge/lines.c"
_LINE_TESTS = ("tests/native/merge/test_lines.py",)
_FOLDS = ("tests/native/merge/test_fold.py",)
_PACK = "native/merge/pack.c"
_PACKS = ("tests/native/merge/test_pack.py",)
_STACK_FRAMES = "native/merge/frames.c"
_FRAMES = ("tests/native/merge/test_frames.py",)
_LEAVES = (
    "tests/native/merge/test_native.py::test_stacks_that_differ_in_the_innermost_frame_alone",
)
_FILE = "native/src/core/recorder.c"
_GLOO_POSTS = "native/src/hooks/gloo_posts.c"

BREAKS = (
    Break(
        _LINES,
        "        return write_all(writer, data, size);\n",
        "        return true;\n",
        _LINE_TESTS,
    ),
    Break(_LINES, "    return flush(writer);\n", "    return true;\n", _LINE_TESTS),
    Break(_LINES, "fail(writer, done < 0 ? errno : EIO)", "true", _LINE_TESTS),
    Break(_LINES, "rank % 8 == 0 && rank + 7 <= (uint32_t)ends[1]", "rank % 8 == 0", _LINE_TESTS),
    Break(_LINES, "(uint64_t)ends[1] >= 8 * lines->rank_bytes", "false", _LINE_TESTS),
    Break(_LINES, "MAX_EXACT_CHARS = 4096", "MAX_EXACT_CHARS = 4095", _LINE_TESTS),
    Break(_LINES, "MAX_EXACT_CHARS = 4096", "MAX_EXACT_CHARS = 4097", _LINE_TESTS),
    Break(
        _LINES,
        "writer->present[i] & (uint8_t)~writer->bits[i]",
        "(uint8_t)~writer->bits[i]",
        _LINE_TESTS,
    ),
    Break(_LINES, "piece[-1].ranks == piece->ranks", "true", _LINE_TESTS),
    Break(
        _LINES,
        "piece->is_own = piece->label.size > writer->room_to_keep;",
        "piece->is_own = true;",
        _LINE_TESTS,
        survives="what is kept spares time only",
    ),
    Break(_LINES, 'i > 0 && !put(writer, ";", 1)', '!put(writer, ";", 1)', _LINE_TESTS),
    Break(_LINES, "leave(writer, frame->depth);", "writer->depth = frame->depth;", _LINE_TESTS),
    Break(_FOLD, "low == high && text->form == FOLD_STRIDED", "low == high", _LINE_TESTS),
    Break(
        _FILE, "if (op->seq >= 0 && (op->flags & RK_OP_FAILED) == 0)", "if (op->seq >= 0)", _PEERS
    ),
    Break(
        "native/src/core/peers.c", "op->flags |= key.receives ? RK_OP_RECEIVES : 0u;", "", _PEERS
    ),
    Break(
        "native/src/core/peers.c",
        "[number % RK_PEER_SIZES]",
        "[0]",
        _PEERS,
    ),
    Break(_GLOO_POSTS, "other == 0 ? EMPTY : age;", "EMPTY;", _POSTS),
    Break(_GLOO_POSTS, "other == (uintptr_t)buffer ? OWN_PLACE : other", "other", _POSTS),
    Break(
        _GLOO_POSTS,
        "            if (other == BEING_WRITTEN)\n                continue;\n",
        "",
        _POSTS,
    ),
    Break(
        _FILE,
        "    store_words(&slot->ring[finished % RK_RING_LENGTH], op);\n",
        "    atomic_store_explicit(&slot->finished, finished + 1, memory_order_release);\n"
        "    store_words(&slot->ring[finished % RK_RING_LENGTH], op);\n",
        _RECORDER,
    ),
    Break(
        _FILE,
        "store_words(&slot->ring[finished % RK_RING_LENGTH], op);",
        "store_words(&slot->ring[finished % (RK_RING_LENGTH - 1)], op);",
        _RECORDER,
    ),
    Break(_FILE, "    if (!scope->returned)\n        op->flags |= RK_OP_FAILED;\n", "", _RECORDER),
    Break(
        _FILE,
        "    if (thread->depth++ != 0)\n        return scope;\n",
        "    thread->depth++;\n",
        _RECORDER,
    ),
    Break(
        _FILE,
        "    atomic_store_explicit(&slot->last_finish_ns, op->end_ns, memory_order_release);\n"
        "    atomic_store_explicit(&slot->finished, finished + 1, memory_order_release);\n"
        "    thread_state.finished",
        "    atomic_store_explicit(&slot->last_finish_ns, op->start_ns, memory_order_release);\n"
        "    atomic_store_explicit(&slot->finished, finished + 1, memory_order_release);\n"
        "    thread_state.finished",
        _RECORDER,
    ),
    Break(
        _FILE,
        "    atomic_store_explicit(&slot->flight_seq, seq + 1, memory_order_relaxed);\n"
        "    store_words(&slot->flight, op);\n",
        "    store_words(&slot->flight, op);\n",
        _RECORDER,
    ),
    Break(
        _FILE, "        (ticket == 0 || ticket > place ||\n", "        (ticket > place ||\n", _RING
    ),
    Break(_FILE, "        (ticket == 0 || ticket > place ||\n", "        (ticket == 0 ||\n", _RING),
    Break(
        _FILE,
        "atomic_store_explicit(&event->ticket, place + 1, memory_order_release);",
        "atomic_store_explicit(&event->ticket, place, memory_order_release);",
        _RING,
    ),
    Break(_FILE, "    if (place >= RK_EVENT_COUNT &&\n        (", "    if ((", _RING),
    Break(
        _FILE,
        "        atomic_store_explicit(&slot->owner, 0, memory_order_release);\n",
        "",
        _RECORDER,
    ),
    Break(
        _FILE,
        "return syscall(SYS_tgkill, pid, tid, 0) != 0 && errno == ESRCH;",
        "return pid != 0 && tid != 0;",
        _RECORDER,
    ),
    Break(
        _FILE,
        "    if (!scope->begun ||\n"
        "        scope->detaches != atomic_load_explicit(&rk_detaches, memory_order_relaxed))\n",
        "    if (!scope->begun)\n",
        (
            "tests/native/hook/test_processes.py"
            "::test_a_child_forked_inside_a_hooked_call_leaves_the_parents_file_alone",
        ),
    ),
    Break(
        "native/src/core/room.c",
        "strcmp(suffix, RK_STATE_SUFFIX) == 0;",
        "strlen(suffix) > 0;",
        (f"{_HELPERS}::test_there_are_only_so_many_files",),
    ),
    Break(
        "native/src/core/room.c",
        "    return write_zeros(file, size);\n",
        "    return write_zeros(file, 0 * size);\n",
        (f"{_HELPERS}::test_space_is_there_where_nothing_can_reserve_it",),
    ),
    Break(
        "native/src/core/ancestors.c",
        " && header.start_ticks == rk_process_stat(pid, RK_STAT_START_TICKS);",
        ";",
        (f"{_HELPERS}::test_what_an_earlier_process_left_does_not_make_a_helper",),
    ),
    Break(
        "native/src/core/ancestors.c",
        "header.rank == rank && ",
        "",
        (f"{_HELPERS}::test_a_child_with_a_rank_of_its_own_is_a_rank",),
    ),
    Break(
        "native/src/core/ancestors.c",
        "i < MAX_ANCESTORS && pid > 1",
        "i < 1 && pid > 1",
        (f"{_HELPERS}::test_what_a_helper_computes_makes_no_file",),
    ),
    Break("native/src/core/process_stat.c", "strrchr(line, ')')", "strchr(line, ')')", _RECORDER),
    Break("native/src/core/process_stat.c", "for (int i = 2; at", "for (int i = 3; at", _RECORDER),
    Break(
        "native/src/core/communicators.c",
        "tag < 0 || (tag == 0 && newest <= count && count >= TAG_TRIAL)",
        "tag < 0",
        _RECORDER,
    ),
    Break(
        "native/src/core/communicators.c",
        "        length = sizeof entry->name;\n",
        "        return;\n",
        _RECORDER,
    ),
    Break("native/src/core/state_file.c", "if (hook_count > RK_MAX_HOOKS || ", "if (", _RECORDER),
    Break(
        "native/merge/dump.c",
        "return digits >= 5 ? at : NULL;",
        "return digits >= 1 ? at : NULL;",
        _EDGES,
    ),
    Break(
        "native/merge/dump.c",
        "(world_size != 0 && rank >= world_size)",
        "(world_size != 0 && rank > world_size)",
        _EDGES,
    ),
    Break("native/merge/dump.c", "if (++digits > 10) {", "if (++digits > 11) {", _EDGES),
    Break(_PACK, "(uint64_t)high / BYTE_BITS >= size", "(uint64_t)high / BYTE_BITS > size", _PACKS),
    Break(_PACK, "low < 0 || high < low ||", "low < 0 ||", _PACKS),
    Break(_PACK, "bits[first] |= from & to;", "bits[first] |= from;", _PACKS),
    Break(_PACK, "bits[last] |= to;", "bits[last] = to;", _PACKS),
    Break(_PACK, "last - first - 1);", "last - first);", _PACKS),
    Break(_PACK, "BYTE_BITS - 1 - high % BYTE_BITS", "BYTE_BITS - high % BYTE_BITS", _PACKS),
    Break(_STACK_FRAMES, "PARTS = 3", "PARTS = 2", _FRAMES),
    Break(
        _STACK_FRAMES, "        return MERGE_UNREADABLE;\n", "        return MERGE_OK;\n", _FRAMES
    ),
    Break(
        _STACK_FRAMES,
        "number == INTERN_NONE || !keep(context, *count, number)",
        "!keep(context, *count, number)",
        _FRAMES,
    ),
    Break(_FOLD, "if (text->room - text->used < MAX_ITEM)", "if (text->used > text->room)", _FOLDS),
    Break(_FOLD, "MIN_RUN = 3", "MIN_RUN = 2", _FOLDS),
    Break(_FOLD, "before = word >> (WORD_BITS - 1);", "", _FOLDS),
    Break(_FOLD, "memcpy(&word, set->bytes + at, set->size - at);", "", _FOLDS),
    Break(_FOLD, "    if (before != 0) {", "    if (false) {", _FOLDS),
    Break(_FOLD, "run->first = run->last;", "", _FOLDS),
    Break(
        _FOLD, "    end_run(text, run);\n    put_item(text, low", "    put_item(text, low", _FOLDS
    ),
    Break(_FOLD, "    end_run(&out, &run);\n    return", "    return", _FOLDS),
    Break(_FOLD, "out.is_full ? UINT64_MAX : out.used", "out.used", _FOLDS),
    Break(_FOLD, "if (run->count > 1) {", "if (run->count > 2) {", _FOLDS),
    Break(
        "native/merge/thread.c",
        "memcmp(guess->data, context->canonical, leaf) == 0 &&",
        "",
        _LEAVES,
    ),
    Break(
        "native/merge/thread.c",
        "return (struct span){context->tail, leaf + outer.size};",
        "return (struct span){context->tail + leaf, outer.size};",
        _LEAVES,
    ),
    Break(
        "native/merge/wire.c",
        "        if (shift == 63 && byte > 1) {\n            return false;\n        }\n",
        "",
        _EDGES,
    ),
    Break(
        "native/src/requests/capture.c",
        "SA_SIGINFO | SA_RESTART | SA_ONSTACK",
        "SA_SIGINFO | SA_ONSTACK",
        (
            "tests/native/hook/test_capture_harm.py"
            "::test_a_call_that_can_be_restarted_does_not_end_early",
        ),
    ),
    Break(
        "native/src/loader/originals.c",
        "atomic_store(&assigned[hook][i].gone, true);",
        ";",
        (
            "tests/native/hook/test_interposition.py"
            "::test_after_what_is_closed_others_are_seen_that_lie_elsewhere",
        ),
    ),
)
