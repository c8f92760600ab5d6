"""What a training costs: its days, its GPU-hours, and dollars at a price."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """``wall_s`` seconds on ``gpus`` GPUs at ``price`` dollars per GPU-hour, for ``steps`` steps if known.

    GPUs are paid for all the time, spare ones too.
    """

    wall_s: float
    gpus: int
    price: float | None = None
    steps: int | None = None

    @property
    def days(self) -> float:
        """The time in days."""
        return self.wall_s / 86_400

    @property
    def gpu_hours(self) -> float:
        """Hours of all GPUs together."""
        return self.wall_s / 3600 * self.gpus

    @property
    def dollars(self) -> float | None:
        """Dollars; None without a price."""
        return None if self.price is None else self.gpu_hours * self.price

    def content(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "steps": self.steps, "days": self.days, "gpus": self.gpus, "gpu_hours": self.gpu_hours,
            "dollars": self.dollars,
        }  # fmt: skip

    def text(self) -> str:
        """Return days, GPU-hours and dollars as part of a sentence."""
        text = f"{_rounded(self.days)} days, {_rounded(self.gpu_hours)} GPU-hours"
        if self.dollars is not None:
            text += f", ${_rounded(self.dollars)} at ${self.price:g} a GPU-hour"
        return text


def _rounded(value: float) -> str:
    """Return four digits, with separators of thousands."""
    return f"{float(f'{value:.4g}'):,.0f}" if value >= 1000 else f"{value:.4g}"
