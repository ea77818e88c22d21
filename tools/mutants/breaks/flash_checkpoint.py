"""Breaks of checkpoints in memory: slots, what is loaded, parts of a sharded state, plain loops."""

from __future__ import annotations

from tools.mutants.model import Break

_CHOICE = ("tests/flash_checkpoint/test_choice.py",)
_DISK = ("tests/flash_checkpoint/test_disk.py",)
_HF = (
    "tests/flash_checkpoint/test_hf_trainer.py::test_the_newest_step_is_resumed_from_wherever_it_is",
)
_MEGATRON = (
    "tests/flash_checkpoint/test_megatron_jobs.py"
    "::test_ranks_that_share_a_file_go_on_from_memory_and_the_files_are_megatrons",
)
_MEGATRON_PARTS_OF_RANKS = (
    "tests/flash_checkpoint/test_megatron_jobs.py"
    "::test_ranks_with_parts_of_their_own_go_on_from_what_launchers_wrote_and_from_memory[tp]",
)
_MEGATRON_PARTS = ("tests/flash_checkpoint/test_megatron_parts.py",)
_OBJECTS = ("tests/flash_checkpoint/test_native_objects.py",)
_LEFT = ("tests/flash_checkpoint/test_left_slots.py",)
_OTHERS = ("tests/flash_checkpoint/test_other_ranks.py",)
_PERSISTER = ("tests/flash_checkpoint/test_persister.py",)
_PROTECT = (
    "tests/flash_checkpoint/test_protect.py"
    "::test_random_generators_go_on_in_a_loop_without_a_loader",
)
_SAVER = ("tests/flash_checkpoint/test_memory_saver.py",)
_SHARDED = ("tests/flash_checkpoint/test_sharded.py",)
_VERIFY = ("tests/commands/test_ckpt_verify_flash.py",)
_SLOTS = ("tests/flash_checkpoint/test_slots.py",)
_PREPARED = ("tests/flash_checkpoint/test_prepared_slots.py",)

_DEEPSPEED = ("tests/flash_checkpoint/test_deepspeed_parts.py",)

BREAKS = (
    # A model that is divided in another way is loaded from memory.
    Break(
        "relkit/flash_checkpoint/choice.py",
        "            if saved.get(name) != value\n",
        "            if False\n",
        (*_MEGATRON_PARTS, *_DEEPSPEED),
    ),
    Break(
        "relkit/flash_checkpoint/sharded/memory_reader.py",
        "        return [replace(plan, storage_data=missing) for plan in plans]",
        "        return plans",
        _SHARDED,
    ),
    Break(
        "relkit/flash_checkpoint/sharded/memory_reader.py",
        "            self._has_read\n            or not",
        "            not",
        _SHARDED,
    ),
    # A few bytes of metadata fill the memory.
    Break(
        "relkit/flash_checkpoint/sharded/safe_metadata.py",
        "isinstance(argument, int) and argument > count",
        "False",
        _SHARDED,
    ),
    # A state makes objects of any class that is imported.
    Break(
        "relkit/flash_checkpoint/on_disk/native_objects.py",
        "        if named not in _INSTANCES:",
        "        if not named:",
        _OBJECTS,
    ),
    Break(
        "relkit/flash_checkpoint/deepspeed/checkpointer.py",
        "if own.tag and own.step > choice.step:",
        "if False:",
        _DEEPSPEED,
    ),
    Break(
        "relkit/flash_checkpoint/deepspeed/checkpointer.py",
        "        random_streams.restore(random)\n",
        "",
        _DEEPSPEED,
    ),
    Break(
        "relkit/flash_checkpoint/deepspeed/engine_state.py",
        "    if set(files) - known:",
        "    if False:",
        _DEEPSPEED,
    ),
    # A launcher that is killed while it writes is waited for as long as writing may take.
    Break(
        "relkit/launch/flash_checkpoint/persist_round.py",
        "if gone or lost or not left_s:",
        "if gone or not left_s:",
        ("tests/flash_checkpoint/test_persister.py",),
    ),
    Break(
        "relkit/launch/flash_checkpoint/signs_of_life.py",
        "            number += 1\n",
        "",
        ("tests/flash_checkpoint/test_persister.py",),
    ),
    Break(
        "relkit/launch/flash_checkpoint/persist_round.py",
        '        self._put(f"left/{self._mailbox.node}", {})\n',
        "",
        ("tests/flash_checkpoint/test_persister.py",),
    ),
    # Nothing is prepared at an optimizer's first step.
    Break(
        "relkit/flash_checkpoint/optimizer_watch.py",
        "self._before_first()",
        "pass",
        _PREPARED,
    ),
    # What has been prepared and does not fit is kept until the process ends.
    Break(
        "relkit/flash_checkpoint/slots/prepared_slots.py",
        """                return file
        file.close()
        return None""",
        """                return file
        self._file = file
        return None""",
        _PREPARED,
    ),
    # What was prepared cannot be given a name, so it is never used.
    Break(
        "relkit/flash_checkpoint/slots/slot_file.py",
        "os.link(source, path, src_dir_fd=self._descriptor, follow_symlinks=True)",
        "os.link(source, path, follow_symlinks=True)",
        _PREPARED,
    ),
    # A save waits until everything is prepared.
    Break(
        "relkit/flash_checkpoint/slots/slot_file.py",
        "while begin_bytes < end_bytes and not stop():",
        "while begin_bytes < end_bytes:",
        _PREPARED,
    ),
    # After a slot was added, pages of the new mapping are taken for made.
    Break(
        "relkit/flash_checkpoint/slots/slot_file.py",
        "        self._populated.clear()\n",
        "",
        _PREPARED,
    ),
    # Why the slots of another rank are refused is not said.
    Break(
        "relkit/flash_checkpoint/choice.py",
        "        for reason in own\n",
        "        for reason in own[:0]\n",
        _CHOICE,
    ),
    # A job of another number of ranks does not hear whose state it gets.
    Break(
        "relkit/flash_checkpoint/on_disk/saved_on_disk.py",
        "saved.world_size == world_size:",
        "True:",
        (
            "tests/flash_checkpoint/test_ddp_troubles.py"
            "::test_another_number_of_ranks_goes_on_from_disk_and_says_so[1]",
        ),
    ),
    # A rank without a file of its own gets none from the rank that has it.
    Break(
        "relkit/flash_checkpoint/megatron/exchange.py",
        "missing.setdefault(name, []).append(rank)",
        "pass",
        _MEGATRON,
    ),
    # A save into memory leaves its scratch folder in Megatron's arguments.
    Break(
        "relkit/flash_checkpoint/megatron/native.py",
        "setattr(arguments, name, value)",
        "pass",
        _MEGATRON,
    ),
    # A rank takes names of files from another one that lead out of the checkpoint's folder.
    Break(
        "relkit/flash_checkpoint/megatron/exchange.py",
        "return [_names(answer) for answer in",
        "return [answer for answer in",
        _MEGATRON_PARTS,
    ),
    # Half of a tensor is loaded as the whole of it.
    Break(
        "relkit/flash_checkpoint/megatron/sharded_state.py",
        'getattr(shard, "local_shape", ())',
        "()",
        _MEGATRON_PARTS,
    ),
    # What another thread has put into torch meanwhile stays there.
    Break(
        "relkit/flash_checkpoint/megatron/intercept.py",
        "with _one_at_a_time:",
        "if True:",
        _MEGATRON_PARTS,
    ),
    # A full /dev/shm ends a restart that has everything in memory.
    Break(
        "relkit/flash_checkpoint/scratch_folder.py",
        """        try:
            folder = _made(None, lay_out)
        except OSError as error:""",
        """        try:
            raise
        except OSError as error:""",
        _MEGATRON_PARTS,
    ),
    # The part of the distributed optimizer is loaded without a look at its checksum.
    Break(
        "relkit/flash_checkpoint/megatron/checkpointer.py",
        "wanted += iteration_files.listed(saved.path, self._ranks.rank)",
        "pass",
        _MEGATRON_PARTS,
    ),
    # A file that Megatron has written itself is missing in memory, and nobody says so.
    Break(
        "relkit/flash_checkpoint/megatron/checkpointer.py",
        "            require_nothing_written(folder)\n",
        "",
        _MEGATRON_PARTS,
    ),
    # Files of a node's second rank hold numbers where Megatron has members of enums.
    Break(
        "relkit/flash_checkpoint/persist_slots.py",
        "_write(*slot, folder, stand_ins, limit)",
        "_write(*slot, folder, StandIns(), limit)",
        _MEGATRON_PARTS_OF_RANKS,
    ),
    # A name in a state makes a module run code.
    Break(
        "relkit/flash_checkpoint/on_disk/native_objects.py",
        'getattr(sys.modules.get(module), "__dict__", {}).get(name)',
        "getattr(sys.modules.get(module), name, None)",
        _OBJECTS,
    ),
    # Lists that each contain one list twice take 2 to the power of their depth to read.
    Break(
        "relkit/flash_checkpoint/on_disk/native_objects.py",
        "if number not in self._made:",
        "if True:",
        _OBJECTS,
    ),
    # A Trainer goes back to a step in memory that is no newer than its own on disk.
    Break(
        "relkit/flash_checkpoint/ddp.py",
        "if choice.step > step or step < 0:",
        "if choice.step >= 0 or step < 0:",
        _HF,
    ),
    # A folder that the Trainer has not finished counts.
    Break(
        "relkit/flash_checkpoint/hf_trainer.py",
        "(folder / _STATE).is_file() and any(",
        "any(",
        _HF,
    ),
    # Random generators begin anew.
    Break(
        "relkit/flash_checkpoint/hf_trainer.py",
        'if state["ranks"] == ranks.world_size:',
        "if False:",
        _HF,
    ),
    # A node that notices a fault late waits until the step of the round under way is on disk.
    Break(
        "relkit/launch/flash_checkpoint/persister.py",
        "is_collected = by_ttp is None and self._slots.newest() <= self._locked_newest",
        "is_collected = False",
        _PERSISTER,
    ),
    # It does not wait, although it has a newer step than the round under way.
    Break(
        "relkit/launch/flash_checkpoint/persister.py",
        "is_collected = by_ttp is None and self._slots.newest() <= self._locked_newest",
        "is_collected = self._locked_newest >= 0",
        _PERSISTER,
    ),
    # A slot that somebody writes to disk is overwritten.
    Break(
        "relkit/flash_checkpoint/slots/slot_file.py",
        "return next((index for index in others if not self.is_locked(index)), None)",
        "return next(iter(others), None)",
        _SAVER,
    ),
    # The newest whole slot is overwritten.
    Break(
        "relkit/flash_checkpoint/slots/slot_file.py",
        "newest = [slot.index for slot in self.whole()[:kept]]",
        "newest: list[int] = []",
        _SAVER,
    ),
    # The layout of a slot may have changed since it was written.
    Break(
        "relkit/flash_checkpoint/slots/slot_file.py",
        "if native_copy.crc32c(data) != header.layout_checksum:",
        "if False:",
        _SLOTS,
    ),
    # An older step in memory goes before a newer one on disk.
    Break(
        "relkit/flash_checkpoint/choice.py",
        'if step < 0 or step < offers[0]["disk"]:',
        "if step < 0:",
        _DISK,
    ),
    # A step that one rank refuses is loaded by the others.
    Break(
        "relkit/flash_checkpoint/choice.py",
        "if not any(refusals):",
        "if not all(refusals):",
        _CHOICE,
    ),
    # The metadata of a checkpoint may name a file anywhere.
    Break(
        "relkit/flash_checkpoint/sharded/safe_metadata.py",
        '        or ".." in PurePosixPath(name).parts\n',
        "",
        _SHARDED,
    ),
    Break(
        "relkit/flash_checkpoint/sharded/safe_metadata.py",
        "known = known if isinstance(known, torch.dtype) else None",
        "pass",
        _SHARDED,
    ),
    # Attributes of any class of DCP's may be called.
    Break(
        "relkit/flash_checkpoint/sharded/safe_metadata.py",
        "if kind is not dcp._MEM_FORMAT_ENCODING or not isinstance(name, str):\n"
        '        raise _Refused("builtins.getattr")\n'
        "    return dcp._MEM_FORMAT_ENCODING[name]",
        "return getattr(kind, str(name))",
        _SHARDED,
    ),
    # Ranks that have different tensors under one name are taken for one state.
    Break(
        "relkit/flash_checkpoint/sharded/metadata.py",
        "or known.size != whole.size",
        "or False",
        _SHARDED,
    ),
    # A slot is visible on disk although it does not match its checksums.
    Break(
        "relkit/flash_checkpoint/write_slot.py",
        "lambda: memory_loader.verify(file, slot, pool),",
        "lambda: None,",
        _DISK,
    ),
    # A loop that goes on draws other random numbers.
    Break(
        "relkit/flash_checkpoint/protection/loop.py",
        'random_streams.restore(own["random"])\n        elif',
        "pass\n        elif",
        _PROTECT,
    ),
    # A request of a node is answered before a round has dealt with it.
    Break(
        "relkit/launch/flash_checkpoint/own_requests.py",
        "return self._newest.number > self._answered",
        "return self._newest.number > self._answered + 1",
        _PERSISTER,
    ),
    # Each round takes what try-to-persist has saved to be older.
    Break(
        "relkit/launch/flash_checkpoint/persister.py",
        "saved = [request.by_ttp for request in new.values() if request.by_ttp is not None]",
        "saved: list[SavedStep] = []",
        _PERSISTER,
    ),
    # A quick rank overwrites the step that a slow one still needs.
    Break(
        "relkit/flash_checkpoint/slots/other_ranks.py",
        "            return number + 1",
        "            return 1",
        _OTHERS,
    ),
    # Ranks on other nodes are thought to be as quick as this one.
    Break(
        "relkit/flash_checkpoint/slots/other_ranks.py",
        "_UNSEEN = 2",
        "_UNSEEN = 1",
        _OTHERS,
    ),
    # A save without room for a third slot fails.
    Break(
        "relkit/flash_checkpoint/memory_saver.py",
        "            index = file.free_slot()\n            if index is None:",
        "            index = None\n            if index is None:",
        _OTHERS,
    ),
    # A folder that the user has removed, to begin anew, comes back from memory.
    Break(
        "relkit/launch/flash_checkpoint/left_slots.py",
        "note.mark == destination.mark_of(note.root)",
        "True",
        _LEFT,
    ),
    # What another launcher of the same job has left on this host is removed.
    Break(
        "relkit/launch/flash_checkpoint/left_slots.py",
        "        return LeftFolder.LEAVE",
        "        return LeftFolder.REMOVE",
        _LEFT,
    ),
    # A killed launcher's state is loaded for checkpoints in another folder.
    Break(
        "relkit/flash_checkpoint/rank_memory.py",
        "return note.root if note.root != own else None",
        "return None",
        _LEFT,
    ),
    # The next launcher of any job takes away what a killed one has left.
    Break(
        "relkit/flash_checkpoint/slots/slot_folder.py",
        "time.time() - mark.stat().st_mtime > _LEFT_ALONE_S",
        "True",
        _LEFT,
    ),
    # `relkit ckpt verify` does not look at the file that the tracker names.
    Break(
        "relkit/flash_checkpoint/disk_report.py",
        "        disk.require_as_written(named, _NEXT_STEP)",
        "        pass",
        _VERIFY,
    ),
    # ... nor at what launchers have written from memory.
    Break(
        "relkit/flash_checkpoint/disk_report.py",
        "    if (path / LAUNCHERS_FOLDER).is_dir():\n        report",
        "    if False:\n        report",
        _VERIFY,
    ),
)
