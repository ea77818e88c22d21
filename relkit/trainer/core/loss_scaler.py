"""What the loss is multiplied by before the backward pass, so that fp16 gradients do not vanish."""

from __future__ import annotations

from dataclasses import dataclass, replace

from relkit.trainer.config.config import TrainerConfig

SMALLEST = 1.0
FACTOR = 2.0


@dataclass(frozen=True, slots=True)
class LossScaler:
    """A scale that halves when gradients overflow and doubles after a window without overflow.

    Args:
        scale: current factor.
        window: finite steps in a row before it doubles; None: it never changes.
        good_steps: finite steps since the last change.
    """

    scale: float = 1.0
    window: int | None = None
    good_steps: int = 0

    @classmethod
    def start(cls, config: TrainerConfig) -> LossScaler:
        """The scaler of a new run: dynamic for fp16, and a constant 1 for other types."""
        if config.model.compute_dtype != "float16":
            return cls()
        return cls(config.training.loss_scale, config.training.loss_scale_window)

    def after(self, finite: bool) -> LossScaler:
        """The scaler of the next step, given whether this one's gradients were finite."""
        if self.window is None:
            return self
        if not finite:
            return replace(self, scale=max(self.scale / FACTOR, SMALLEST), good_steps=0)
        if self.good_steps + 1 == self.window:
            return replace(self, scale=self.scale * FACTOR, good_steps=0)
        return replace(self, good_steps=self.good_steps + 1)

    def state(self) -> dict[str, float]:
        """For `Progress.loss_scaler` and the checkpoint; empty where the scale is constant."""
        if self.window is None:
            return {}
        return {"scale": self.scale, "growth_tracker": self.good_steps}

    def restored(self, state: dict[str, float]) -> LossScaler:
        """This scaler where `state` stood; the window is the configuration's."""
        if self.window is None or not state:
            return self
        return replace(self, scale=state["scale"], good_steps=int(state["growth_tracker"]))
