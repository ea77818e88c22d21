"""Breaks of checkpoints: whole or absent, durable, checked when they are read."""

from __future__ import annotations

from tools.mutants.model import Break

_FOLDER = ("tests/checkpoint/test_iteration_folder.py",)
_ON_DISK = (f"{_FOLDER[0]}::test_all_is_on_the_disk_before_the_tracker_names_it",)
_NAMED = (
    "tests/trainer/checkpointing/test_checkpoint.py::test_what_is_wrong_with_a_checkpoint_is_named",
)
_RNG = ("tests/trainer/core/test_rng.py",)
_COMMAND = ("tests/commands/test_ckpt.py",)

BREAKS = (
    # Not flushed: a file; the folder that has its name; the iteration's; and the root before and
    # after the tracker.
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "            os.fsync(stream.fileno())\n",
        "",
        _ON_DISK,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "        sync_folder(path.parent)\n",
        "",
        _ON_DISK,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "        sync_folder(folder)\n        if final.exists():\n",
        "        if final.exists():\n",
        _ON_DISK,
        survives="writing the manifest has flushed the same folder, and nothing was added since",
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "        sync_folder(root)\n        pending.replace(root / TRACKER)\n",
        "        pending.replace(root / TRACKER)\n",
        _ON_DISK,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "        pending.replace(root / TRACKER)\n        sync_folder(root)\n",
        "        pending.replace(root / TRACKER)\n",
        _ON_DISK,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "        folder.mkdir(mode=0o700)\n        sync_folder(root)\n",
        "        folder.mkdir(mode=0o700)\n",
        _ON_DISK,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "        os.fsync(handle)\n",
        "        pass\n",
        _ON_DISK,
    ),
    # The tracker names the iteration before it has its name.
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "        sync_folder(folder)\n        if final.exists():\n",
        "        pending.replace(root / TRACKER)\n        if final.exists():\n",
        _FOLDER,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "            exchange(folder, final)\n",
        "            shutil.rmtree(final)\n            folder.rename(final)\n",
        _ON_DISK,
    ),
    # The old content of the same step is left beside the new one.
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "    abandon(folder)  # the iteration of the same step that was there before\n",
        "",
        _FOLDER,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "        if size != record.size_bytes:\n            raise UnwritablePath(",
        "        if size > record.size_bytes:\n            raise UnwritablePath(",
        _FOLDER,
    ),
    # What an earlier attempt left is in the next checkpoint.
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "        abandon(folder)\n        folder.mkdir(mode=0o700)\n",
        "        folder.mkdir(mode=0o700, exist_ok=True)\n",
        _FOLDER,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py", "os.O_EXCL, 0o600)", "os.O_EXCL, 0o644)", _FOLDER
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "        self.sha256.update(data)\n",
        "        self.sha256.update(data[:1])\n",
        _FOLDER,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "            if size != record.size_bytes:\n                return",
        "            if size < record.size_bytes:\n                return",
        _FOLDER,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "    if digest.hexdigest() != record.sha256:\n",
        "    if False:\n",
        _FOLDER,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "        if number <= step and (root",
        "        if (root",
        _FOLDER,
    ),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        " and (root / iteration_name(number) / MANIFEST).is_file()\n",
        "\n",
        _FOLDER,
    ),
    Break("relkit/checkpoint/iteration_folder.py", "max(keep, 1)", "keep + 1", _FOLDER),
    Break("relkit/checkpoint/iteration_folder.py", "max(keep, 1)", "keep", _FOLDER),
    Break(
        "relkit/checkpoint/iteration_folder.py",
        "(whole_number(suffix) for suffix in suffixes)",
        "(whole_number(suffix.removesuffix(TEMPORARY)) for suffix in suffixes)",
        _FOLDER,
    ),
    Break(
        "relkit/checkpoint/manifest.py",
        'parts[0] == "/" or ".." in parts',
        '".." in parts',
        _FOLDER,
    ),
    Break(
        "relkit/checkpoint/manifest.py",
        '        if plain["schema"] != SCHEMA:\n',
        "        if False:\n",
        _FOLDER,
    ),
    # Loading: without a look at the checksums, at the degrees, and at what was named.
    Break(
        "relkit/trainer/checkpointing/checkpoint.py",
        "        for bad, wrong in files.problems(iteration, only=[name]):\n",
        "        for bad, wrong in ():\n",
        _NAMED,
    ),
    Break(
        "relkit/trainer/checkpointing/checkpoint.py",
        "        names.refuse_other(read_manifest(iteration).facts, expected, iteration)\n",
        "        pass\n",
        _NAMED,
    ),
    Break(
        "relkit/trainer/checkpointing/checkpoint.py",
        "        for name in sorted(extra | (set(ours) - set(saved))):\n",
        "        for name in sorted(extra):\n",
        _NAMED,
    ),
    Break(
        "relkit/trainer/checkpointing/checkpoint.py",
        "        for unfinished in files.half_written(folder):\n",
        "        for unfinished in ():\n",
        (
            "tests/trainer/checkpointing/test_checkpoint.py::test_a_half_written_iteration_is_named_and_ignored",
        ),
    ),
    Break(
        "relkit/trainer/checkpointing/checkpoint.py",
        "            if saved[name].shape != parameter.shape:\n",
        "            if saved[name].dim() != parameter.dim():\n",
        (
            "tests/trainer/checkpointing/test_checkpoint.py::test_shapes_are_held_against_the_model_where_arguments_agree",
        ),
    ),
    # A file may run code.
    Break("relkit/checkpoint/torch_file.py", "weights_only=True", "weights_only=False", _NAMED),
    Break(
        "relkit/checkpoint/torch_file.py",
        "        torch.serialization.add_safe_globals(before)\n",
        "",
        ("tests/checkpoint/test_torch_file.py",),
    ),
    # A failed save leaves its folder.
    Break(
        "relkit/trainer/checkpointing/checkpoint.py",
        "        on_all_ranks(mesh, lambda: _abandon(temporary) if first else None)\n",
        "",
        (
            "tests/trainer/checkpointing/test_checkpoint_layouts.py::test_a_failure_on_one_rank_is_raised_on_all_and_leaves_nothing",
        ),
    ),
    Break("relkit/checkpoint/rng_state.py", "    random.setstate(state.python)\n", "", _RNG),
    Break(
        "relkit/checkpoint/rng_state.py",
        "    torch.set_rng_state(_tensor(state.torch))\n",
        "",
        _RNG,
    ),
    Break(
        "relkit/checkpoint/rng_state.py",
        "position, has_gauss, kept))\n    torch",
        "position, 0, 0.0))\n    torch",
        _RNG,
    ),
    Break(
        "relkit/checkpoint/rng_state.py",
        "    RegionStream.state = _tensor(state.tracker) if state.tracker else None\n",
        "",
        _RNG,
    ),
    # A damaged iteration counts as whole.
    Break(
        "relkit/checkpoint/report.py",
        "        wrong = files.problems(folder)\n",
        "        wrong = ()\n",
        _COMMAND,
    ),
    Break(
        "relkit/checkpoint/report.py",
        "        for folder in files.half_written(root)\n",
        "        for folder in ()\n",
        _COMMAND,
    ),
)
