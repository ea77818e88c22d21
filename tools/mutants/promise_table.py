"""The promises that matter most, at most a hundred, and those that are kept in C."""

from __future__ import annotations

from tools.mutants.promises import Promise, gives, swap, without

_SLOTS = ("tests/flash_checkpoint/test_slots.py",)
_SAVER = ("tests/flash_checkpoint/test_memory_saver.py",)
_FLASH = "relkit/flash_checkpoint"
_FORMAT = f"{_FLASH}/slots/slot_format.py"
_FILE = f"{_FLASH}/slots/slot_file.py"
_FOLDER = ("tests/checkpoint/test_iteration_folder.py",)
_ITERATION = "relkit/checkpoint/iteration_folder.py"
_PRIVATE = "relkit/files/private_file.py"
_PRIVATE_TESTS = ("tests/unit/files", "tests/unit/hook/test_foreign_folders.py")
_SECRET = ("tests/unit/net", "tests/unit/launch/job/test_job_secret.py")
_SHAKE = ("tests/unit/net/test_handshake.py",)
_RECOVERY = ("tests/unit/launch/replicas/test_recovery.py",)
_PLAN = ("tests/ttp/test_plan.py",)
_READER = ("tests/unit/hook/test_reader.py", "tests/unit/hook/test_reader_races.py")
_DEATHS = ("tests/unit/hang/test_deaths.py",)

# What is restored is what was saved.
_DATA = (
    Promise(_FORMAT, "read_slot_header", "a slot's header is checked", without("DAMAGED"), _SLOTS),
    Promise(_FORMAT, "read_slot_header", "a save cut off is no state", without("cut off"), _SLOTS),
    Promise(_FORMAT, "read_file_header", "a file's header is checked", without("DAMAGED"), _SLOTS),
    Promise(_FORMAT, "require_owner", "another job's slot is refused", gives("None"), _SLOTS),
    Promise(_FILE, "SlotFile.layout", "a layout is checked", without("DAMAGED"), _SLOTS),
    Promise(_FILE, "SlotFile.free_slot", "the newest slot is kept", swap(r":kept", ":0"), _SAVER),
    Promise(
        _FILE,
        "SlotFile.free_slot",
        "a slot that is written to disk is kept",
        swap(r"not self\.is_locked\(index\)", "True"),
        _SAVER,
    ),
    Promise(
        f"{_FLASH}/memory_loader.py",
        "_checked",
        "each block of a state is checked",
        without("in_block"),
        _SLOTS,
    ),
    Promise(
        f"{_FLASH}/memory_loader.py",
        "_checked",
        "the checksums are checked themselves",
        without("its own checksum"),
        _SLOTS,
    ),
    Promise(
        f"{_FLASH}/snapshot.py",
        "_Collector._tensor",
        "a view with other strides is a tensor of its own",
        swap(r"tensor\.stride\(\), ", ""),
        _SLOTS,
    ),
    Promise(
        f"{_FLASH}/write_slot.py",
        "main",
        "what is on disk matches its checksums",
        swap(r"lambda: memory_loader\.verify\([^)]*\)", "lambda: None"),
        ("tests/flash_checkpoint/test_disk.py",),
    ),
    Promise(
        f"{_FLASH}/replicas/copy_stream.py",
        "_require",
        "what a peer sends is checked",
        gives("None"),
        _RECOVERY,
    ),
    Promise(_ITERATION, "write_file", "a file is on the disk", without("fsync"), _FOLDER),
    Promise(_ITERATION, "sync_folder", "a name is on the disk", without("fsync"), _FOLDER),
    Promise(
        "relkit/output.py",
        "atomic_file",
        "a reader sees the old file or the whole new one",
        swap(r"(?s)except BaseException:\s+\S+?\n", "except BaseException:\n        pass\n"),
        ("tests/unit/test_output.py",),
    ),
    Promise("relkit/ttp/plan.py", "Survivor.can_give", "half an update is no step",
            swap(r"if not self\.usable", "if False"), _PLAN),
    Promise("relkit/ttp/plan.py", "make_plan", "without survivors nothing is saved",
            swap(r"if not survivors", "if False"), _PLAN),
)  # fmt: skip

# What is private stays private, and nobody without the secret is heard.
_SAFETY = (
    Promise(_PRIVATE, "_require_private", "another user's file is refused",
            without("belongs to user"), _PRIVATE_TESTS),
    Promise(_PRIVATE, "_require_private", "a file that others may read is refused",
            without("other users"), _PRIVATE_TESTS),
    Promise(_PRIVATE, "open_private", "a new file is private",
            swap("0o600", "0o644"), _PRIVATE_TESTS),
    Promise(_PRIVATE, "open_private", "no link is followed",
            swap(r"os\.O_NOFOLLOW", "0"), _PRIVATE_TESTS),
    Promise("relkit/output.py", "atomic_file", "a report is private",
            without("fchmod"), ("tests/unit/test_output.py",)),
    Promise("relkit/net/operator_secret.py", "take_secret", "the secret leaves the environment",
            swap(r"environ\.pop\(", "environ.get("), _SECRET),
    Promise("relkit/net/operator_secret.py", "take_secret", "a short secret is refused",
            without("needs"), _SECRET),
    Promise("relkit/net/operator_secret.py", "derive", "keys of two purposes differ",
            swap(r"purpose\.encode\(\)", 'b""'), _SECRET),
    Promise("relkit/net/handshake.py", "check_answer", "a wrong proof is refused",
            swap(r"not hmac\.compare_digest\([^)]*\)+?:", "False:"), _SHAKE),
    Promise("relkit/net/handshake.py", "_mac", "a proof is of one round",
            swap(r"round_number\)", "0)"), _SHAKE),
    Promise("relkit/net/handshake.py", "_mac", "a proof is of what the connection is for",
            swap(r" \+ label", ""), _SHAKE),
    Promise(f"{_FLASH}/on_disk/native_objects.py", "_Objects._instance",
            "a state makes no objects of any class", swap(r"not in _INSTANCES", "in ()"),
            ("tests/flash_checkpoint/test_native_objects.py",)),
    Promise("relkit/launch/control/frame.py", "decode", "a path ends with its sender",
            without("end with its sender"), ("tests/unit/launch/control/test_frame.py",)),
    Promise("relkit/netcheck/measure/serve.py", "_accept", "no port stays open after its round",
            without("listeners.close"), ("tests/unit/netcheck/test_probe_serve.py",)),
)  # fmt: skip

# What is missing is never proof.
_HONESTY = (
    Promise("relkit/hang/deaths.py", "ended_from_outside", "a lone death is no order to end",
            swap(r"len\(own\) < 2 or ", ""), _DEATHS),
    Promise("relkit/flight_recorder/join_sources.py", "_weight",
            "a rank's own word counts before others'", swap(r"not log\.state\.of_others", "True"),
            ("tests/unit/flight_recorder/test_join_sources.py",)),
    Promise("relkit/hook/state_file.py", "check", "a file half made is not read",
            swap(r'not int\(header\["ready"\]\)', "False"), _READER),
    Promise("relkit/straggler/collect/event_rows.py", "event_rows",
            "an operation that ends before it begins is none",
            swap(r'events\["end_ns"\] >= events\["start_ns"\]', "True"),
            ("tests/unit/straggler/collect/test_event_rows.py",)),
)  # fmt: skip

_CORE = "native/src/core"
_RECORDER = ("tests/native/hook/test_recorder.py::test_recorder_in_c[plain-recorder_test]",)
_RING = ("tests/native/hook/test_recorder.py::test_recorder_in_c[plain-event_ring_test]",)
_HELPERS = "tests/native/hook/test_helpers.py"
_LINES = ("tests/native/merge/test_lines.py",)
_FOLDS = ("tests/native/merge/test_fold.py",)
_PACKS = ("tests/native/merge/test_pack.py",)
_EDGES = ("tests/native/merge/test_edges.py",)
_NATIVE_SLOTS = ("tests/native/test_slots.py",)

_C = (
    Promise(f"{_CORE}/recorder.c", "rk_leave", "a call that did not return has failed",
            swap(r"!scope->returned", "false"), _RECORDER),
    Promise(f"{_CORE}/recorder.c", "rk_record", "the time of the last end is an end",
            swap(r"last_finish_ns, op->end_ns", "last_finish_ns, op->start_ns"), _RECORDER),
    Promise(f"{_CORE}/recorder.c", "set_flight", "a reader sees that a record is being written",
            swap(r"seq \+ 1", "seq"), _RECORDER),
    Promise(f"{_CORE}/recorder.c", "release_slot", "a thread that ends gives its slot back",
            without("owner"), _RECORDER),
    Promise(f"{_CORE}/recorder.c", "thread_is_gone", "only a dead thread's slot is taken",
            gives("pid != 0 && tid != 0"), _RECORDER),
    Promise(f"{_CORE}/recorder.c", "rk_append_event", "an event is shown once it is whole",
            swap(r"place \+ 1, memory_order_release", "place, memory_order_release"), _RING),
    Promise(f"{_CORE}/room.c", "is_recorder", "only recorders are counted",
            gives("name[0] != 0"), (f"{_HELPERS}::test_there_are_only_so_many_files",)),
    Promise(f"{_CORE}/room.c", "write_zeros", "memory is there before it is written to",
            gives("file < 0 && size"),
            (f"{_HELPERS}::test_space_is_there_where_nothing_can_reserve_it",)),
    Promise(f"{_CORE}/ancestors.c", "records", "a rank's child with a rank of its own is a rank",
            swap(r"header\.rank == rank && ", ""),
            (f"{_HELPERS}::test_a_child_with_a_rank_of_its_own_is_a_rank",)),
    Promise(f"{_CORE}/peers.c", "rk_peer_post", "a receive is told from a send",
            swap(r"key\.receives", "false"),
            ("tests/native/hook/test_recorder.py::test_recorder_in_c[plain-peers_test]",)),
    Promise("native/src/lifecycle.c", "is_helper", "children are recorded where asked for",
            swap(r'is_set\("RELKIT_HOOK_CHILDREN"\)', "false"),
            (f"{_HELPERS}::test_children_are_recorded_where_somebody_asks_for_it",)),
    Promise("native/src/device/aborts.c", "answer", "an abort is answered",
            swap(r"\{(?s:.*)\}", "{ }"),
            ("tests/native/platforms/test_hang.py"
             "::test_release_aborts_the_communicator_and_the_blocked_rank_returns",)),
    Promise("native/merge/lines.c", "flush", "a full disk is an error",
            gives("true"), _LINES),
    Promise("native/merge/lines.c", "spread", "a rank outside the bits is refused",
            swap(r"\(uint64_t\)ends\[1\] >= 8 \* lines->rank_bytes", "false"), _LINES),
    Promise("native/merge/lines.c", "find_label", "labels of other ranks are others",
            swap(r"piece\[-1\]\.ranks == piece->ranks", "true"), _LINES),
    Promise("native/merge/fold.c", "fold_bits", "the last run is written",
            without("end_run(&out"), _FOLDS),
    Promise("native/merge/fold.c", "word_at", "the last bytes are read",
            without("memcpy"), _FOLDS),
    Promise("native/merge/dump.c", "read_digits", "a number has ten digits at most",
            swap(r"digits > \d+", "digits > 99"), _EDGES),
    Promise("native/merge/dump.c", "identify", "a rank lies within its world",
            swap(r"rank >= world_size", "rank > world_size"), _EDGES),
    Promise("native/merge/pack.c", "pack_intervals", "an interval lies within the bits",
            swap(r">= size", "> size"), _PACKS),
    Promise("native/merge/pack.c", "pack_intervals", "no interval is backwards",
            swap(r"high < low", "false"), _PACKS),
    Promise("native/merge/wire.c", "read_varint", "a number has 64 bits at most",
            swap(r"shift == 63 && byte > 1", "false"), _EDGES),
    Promise("native/slots/blocks.c", "transfer_is_sound", "pieces do not overlap",
            swap(r"piece->offset < end \|\| ", ""), _NATIVE_SLOTS),
    Promise("native/slots/crc32c.c", "hardware_step", "the checksum is CRC-32C",
            swap(r"shifted_by_lane\(rest\) \^ second", "rest ^ second"),
            _NATIVE_SLOTS),
    Promise("native/slots/pool.c", "copy_blocks", "a block that does not match is told",
            without("note_bad"), _NATIVE_SLOTS),
    Promise("native/run_times/run_times.c", "read_one", "waiting for a core is read",
            swap(r"\*wait_ns = strtoll[^;]*;", "*wait_ns = 0;"),
            ("tests/unit/straggler/test_run_times.py",)),
)  # fmt: skip

TABLE = (*_DATA, *_SAFETY, *_HONESTY, *_C)
