"""What the loss is multiplied by before the backward pass, so that fp16 gradients do not vanish.

Source: DynamicGradScaler of megatron-core 0.16.1 (core/optimizer/grad_scaler.py); the tests hold
this one against it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relkit.trainer.config.config import TrainerConfig

FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class LossScaler:
    """A scale that halves when gradients overflow and doubles after a window without overflow.

    Args:
        scale: current factor.
        window: finite steps in a row before it doubles; None: it never changes.
        minimum: it halves down to this.
        hysteresis: overflows before it halves, counted since it last doubled (not in a row); from
            then on every overflow halves it.
        good_steps: finite steps since the last overflow or change.
        overflows_left: of `hysteresis`.
    """

    scale: float = 1.0
    window: int | None = None
    minimum: float = 1.0
    hysteresis: int = 1
    good_steps: int = 0
    overflows_left: int = 1

    @classmethod
    def start(cls, config: TrainerConfig) -> LossScaler:
        """The scaler of a new run: dynamic for fp16, and a constant 1 for other types."""
        if config.model.compute_dtype != "float16":
            return cls()
        training = config.training
        return cls(
            training.loss_scale,
            training.loss_scale_window,
            training.min_loss_scale,
            training.loss_scale_hysteresis,
            overflows_left=training.loss_scale_hysteresis,
        )

    def after(self, finite: bool) -> LossScaler:
        """The scaler of the next step, given whether this one's gradients were finite."""
        if self.window is None:
            return self
        if not finite:
            left = self.overflows_left - 1
            scale = self.scale if left > 0 else max(self.scale / FACTOR, self.minimum)
            return replace(self, scale=scale, good_steps=0, overflows_left=left)
        if self.good_steps + 1 == self.window:
            return replace(
                self, scale=self.scale * FACTOR, good_steps=0, overflows_left=self.hysteresis
            )
        return replace(self, good_steps=self.good_steps + 1)

    def state(self) -> dict[str, float]:
        """For `Progress.loss_scaler` and the checkpoint; empty where the scale is constant."""
        if self.window is None:
            return {}
        return {
            "scale": self.scale,
            "growth_tracker": self.good_steps,
            "hysteresis_tracker": self.overflows_left,
        }

    def restored(self, state: dict[str, float]) -> LossScaler:
        """This scaler where `state` stood; all limits are the configuration's."""
        if self.window is None or not state:
            return self
        return replace(
            self,
            scale=state["scale"],
            good_steps=int(state["growth_tracker"]),
            # relkit's checkpoints before 0.2 do not have it.
            overflows_left=int(state.get("hysteresis_tracker", self.hysteresis)),
        )
