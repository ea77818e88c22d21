"""Breaks of the trainer: its optimizer, its clipping, its schedules, its degrees, its settings."""

from __future__ import annotations

from tools.mutants.model import Break

_CLIPPING = ("tests/trainer/core/test_clipping.py",)
_RATES = ("tests/trainer/core/test_lr_schedule.py",)
_OPTIMIZER = "tests/trainer/core/test_optimizer.py::"
_STEPS = (f"{_OPTIMIZER}test_steps_are_those_of_torch",)
_SCALED = (f"{_OPTIMIZER}test_a_loss_scale_changes_no_step",)
_FINITE = (f"{_OPTIMIZER}test_a_gradient_that_is_not_finite_leaves_everything_as_it_is",)
_LAYOUT = (f"{_OPTIMIZER}test_the_layout_is_megatrons",)
_SCHEDULE = ("tests/trainer/core/test_schedule.py",)
_DEGREES = ("tests/trainer/core/test_mesh.py::test_degrees_that_cannot_be_are_refused_by_name",)
_INIT = ("tests/trainer/core/test_init.py",)
_YAML = ("tests/trainer/config/test_config_yaml.py",)
_PLACE = "relkit/trainer/core/"

BREAKS = (
    Break(
        f"{_PLACE}clipping.py",
        "min(1.0, config.clip_value / (norm + 1e-6))",
        "config.clip_value / (norm + 1e-6)",
        _CLIPPING,
    ),
    Break(f"{_PLACE}clipping.py", "config.clip_value > 0 and finite:", "finite:", _CLIPPING),
    Break(
        f"{_PLACE}clipping.py",
        "config.clip_value > 0 and finite:",
        "config.clip_value > 0:",
        _CLIPPING,
    ),
    Break(f"{_PLACE}clipping.py", ".sqrt()) / loss_scale", ".sqrt())", _CLIPPING),
    Break(f"{_PLACE}clipping.py", ".double().square()", ".square()", _CLIPPING),
    Break(f"{_PLACE}clipping.py", 'norm < float("inf")', 'not norm == float("inf")', _CLIPPING),
    Break(f"{_PLACE}lr_schedule.py", "steps_done <= warmup:", "steps_done < warmup - 1:", _RATES),
    Break(
        f"{_PLACE}lr_schedule.py",
        "highest * steps_done / warmup",
        "highest * (steps_done + 1) / warmup",
        _RATES,
    ),
    Break(
        f"{_PLACE}lr_schedule.py",
        "(steps_done - warmup) / (end - warmup)",
        "steps_done / end",
        _RATES,
    ),
    Break(
        f"{_PLACE}lr_schedule.py", "    if steps_done >= end:\n        return lowest\n", "", _RATES
    ),
    Break(f"{_PLACE}lr_schedule.py", "0.5 * (1 + math.cos(", "0.5 * (1 - math.cos(", _RATES),
    Break(
        f"{_PLACE}loss_scaler.py",
        "max(self.scale / FACTOR, self.minimum)",
        "self.scale / FACTOR",
        _RATES,
    ),
    Break(
        f"{_PLACE}loss_scaler.py",
        "self.good_steps + 1 == self.window",
        "self.good_steps == self.window",
        _RATES,
    ),
    Break(
        f"{_PLACE}loss_scaler.py",
        "scale=scale, good_steps=0, overflows",
        "scale=scale, overflows",
        _RATES,
    ),
    Break(
        f"{_PLACE}loss_scaler.py",
        "good_steps=0, overflows_left=self.hysteresis\n",
        "good_steps=0\n",
        _RATES,
    ),
    Break(
        f"{_PLACE}loss_scaler.py",
        "self.scale if left > 0 else",
        "self.scale if left >= 0 else",
        _RATES,
    ),
    Break(
        f"{_PLACE}optimizer.py", "        if not facts.finite:\n            return\n", "", _FINITE
    ),
    Break(
        f"{_PLACE}optimizer.py",
        "facts.loss_scale / facts.clip_coefficient",
        "facts.loss_scale",
        _STEPS,
    ),
    Break(
        f"{_PLACE}optimizer.py",
        "facts.loss_scale / facts.clip_coefficient",
        "1.0 / facts.clip_coefficient",
        _SCALED,
    ),
    Break(
        f"{_PLACE}optimizer.py",
        "        others = FusedGroup(0.0)\n",
        "        others = FusedGroup(self.config.optimizer.weight_decay)\n",
        _STEPS,
    ),
    Break(
        f"{_PLACE}optimizer.py",
        "            gradients.clamp_(-training.clip_value, training.clip_value)",
        "            gradients.clamp_(max=training.clip_value)",
        _STEPS,
    ),
    Break(f"{_PLACE}optimizer.py", "        self.steps += 1\n", "", _FINITE),
    Break(
        f"{_PLACE}optimizer.py",
        "                step.fill_(steps)\n",
        "                pass\n",
        (f"{_OPTIMIZER}test_what_is_loaded_goes_on_as_what_was_saved",),
    ),
    Break(
        f"{_PLACE}optimizer.py",
        "                if size != buffer.unpadded_size:\n",
        "                if False:\n",
        (f"{_OPTIMIZER}test_a_state_of_another_model_is_refused",),
    ),
    Break(f"{_PLACE}flat_buffer.py", "ALIGNMENT = 64", "ALIGNMENT = 16", _LAYOUT),
    Break(f"{_PLACE}flat_buffer.py", "in reversed(parameters):", "in parameters:", _LAYOUT),
    Break(f"{_PLACE}flat_buffer.py", "        if alone:\n            close()\n", "", _LAYOUT),
    Break(
        f"{_PLACE}schedule.py",
        "    ahead = size - rank - 1\n",
        "    ahead = size - rank\n",
        _SCHEDULE,
    ),
    Break(
        f"{_PLACE}schedule.py",
        "2 * ahead + (virtual - 1) * size",
        "ahead + (virtual - 1) * size",
        _SCHEDULE,
    ),
    Break(
        f"{_PLACE}schedule.py",
        "for chunk in reversed(range(virtual))",
        "for chunk in range(virtual)",
        _SCHEDULE,
    ),
    Break(
        f"{_PLACE}schedule.py", "if virtual > 1 and micro_batches % size:", "if False:", _SCHEDULE
    ),
    Break(
        f"{_PLACE}schedule.py",
        "    if micro_batches < 1:\n",
        "    if micro_batches < 0:\n",
        (
            "tests/trainer/core/test_pipeline.py::test_a_step_that_no_schedule_exists_for_is_refused",
        ),
    ),
    Break(
        f"{_PLACE}mesh.py",
        "    if world_size % (tensor * pipeline):\n",
        "    if world_size % tensor:\n",
        ("tests/trainer/core/test_mesh.py",),
    ),
    Break(
        f"{_PLACE}mesh.py",
        "    if expert > 1 and model.num_moe_experts is None:\n",
        "    if False:\n",
        _DEGREES,
    ),
    Break(
        f"{_PLACE}mesh.py",
        "    if parallel.sequence_parallel:\n        _must",
        "    if False:\n        _must",
        _DEGREES,
    ),
    Break(
        f"{_PLACE}mesh.py",
        "stages = pipeline * parallel.virtual_stages",
        "stages = pipeline",
        _DEGREES,
    ),
    Break(
        f"{_PLACE}init.py",
        "std /= math.sqrt(2 * config.model.num_layers)",
        "std /= math.sqrt(config.model.num_layers)",
        _INIT,
    ),
    Break(f"{_PLACE}init.py", "full.chunk(info.parts, info.dim)", "full.chunk(1, info.dim)", _INIT),
    Break(f"{_PLACE}init.py", 'f"{seed} {info.name}"', 'f"{info.name}"', _INIT),
    Break(
        "relkit/trainer/config/config.py",
        "if not 0 < self.min_loss_scale <= self.loss_scale:",
        "if not 0 <= self.min_loss_scale:",
        _YAML,
    ),
    Break(
        "relkit/trainer/config/values.py",
        "number is not None and number.is_integer():",
        "number is not None:",
        _YAML,
    ),
    Break(
        "relkit/trainer/config/values.py",
        "        if values.get(first) and values.get(second):\n",
        "        if False:\n",
        _YAML,
    ),
    Break(
        "relkit/trainer/run/loop.py",
        "            steps = [0]  # a run",
        "            pass  # a run",
        (
            "tests/trainer/run/test_loop.py::test_a_first_step_that_was_saved_but_not_told_of_is_told_of_on_resuming",
        ),
    ),
)
