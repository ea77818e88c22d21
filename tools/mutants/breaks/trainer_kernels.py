"""Breaks of the trainer's kernels, of Megatron's names and files, and of what a run tells."""

from __future__ import annotations

from tools.mutants.model import Break

_OPTIMIZER = "tests/trainer/core/test_optimizer.py"
_GEMM = ("tests/trainer/kernels/test_gemm.py",)
_FLAGS = ("tests/trainer/config/test_megatron_flags.py",)
_LOOP = "tests/trainer/run/test_loop.py"
_CHECKPOINT = "tests/trainer/checkpointing/test_checkpoint.py"
_CAME = "relkit/trainer/kernels/came.py"

BREAKS = (
    Break(
        "relkit/trainer/kernels/fused_optimizers.py",
        'adamw if config.optimizer_type == "AdamW" else adam',
        "adamw",
        (f"{_OPTIMIZER}::test_steps_are_those_of_torch",),
    ),
    Break(_CAME, "(row / row.mean())", "row", (f"{_OPTIMIZER}::test_came_is_the_papers",)),
    Break(
        _CAME,
        "        step /= (rms / LARGEST_RMS).clamp_(min=1.0)\n",
        "",
        (f"{_OPTIMIZER}::test_came_is_the_papers",),
    ),
    Break("relkit/trainer/kernels/gemm.py", "for_bias = rows.sum(0)", "for_bias = rows[0]", _GEMM),
    Break(
        "relkit/trainer/kernels/gemm.py",
        '        and not torch.is_autocast_enabled("cpu")\n',
        "",
        _GEMM,
    ),
    Break(
        "relkit/trainer/megatron/flags.py",
        "prefixes = words[1::2] if len(words) == 2 else words",
        "prefixes = words",
        _FLAGS,
    ),
    Break(
        "relkit/trainer/megatron/flags.py",
        "    if value != _NO_VALUE:\n        return value\n",
        "    if value:\n        return value\n",
        _FLAGS,
    ),
    Break(
        "relkit/trainer/megatron/names.py",
        "theirs, ours = theirs or 1, ours or 1",
        "pass",
        (f"{_CHECKPOINT}::test_a_degree_that_nobody_set_is_one",),
    ),
    Break(
        "relkit/trainer/megatron/optimizer_files.py",
        "if size != buffer.unpadded_size:",
        "if size is None:",
        (f"{_CHECKPOINT}::test_what_is_wrong_with_a_checkpoint_is_named",),
    ),
    Break(
        "relkit/trainer/telemetry/events.py",
        "None if isinstance(value, float) and not math.isfinite(value) else value",
        "value",
        (f"{_LOOP}::test_events_are_json_whatever_the_numbers",),
    ),
    Break(
        "relkit/trainer/telemetry/log.py",
        "            except BrokenPipeError:",
        "            except ZeroDivisionError:",
        (f"{_LOOP}::test_a_reader_of_stdout_that_leaves_does_not_end_the_run",),
    ),
    Break(
        "relkit/trainer/telemetry/log.py",
        "{step_s * 1e3:.2f} ms",
        "{step_s:.2f} ms",
        (f"{_LOOP}::test_a_line_is_the_tutorials_to_the_letter",),
    ),
)
