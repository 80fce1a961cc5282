"""The learning rate by step: warm-up, constant, then down to zero over a fifth of the steps before."""

from __future__ import annotations

from dataclasses import dataclass

_MOST_WARMUP = 40  # steps


@dataclass
class Schedule:
    """Factor of the peak rate at each step; the decay may be set while training goes on.

    Source: Hu et al., "MiniCPM" (2024); Hägele et al., "Scaling laws and compute-optimal training beyond
    fixed training durations" (2024), whose decay is 1 − √.
    """

    steps: int
    """At most."""
    begin: int | None = None
    """Step at which the decay begins; None = not yet known."""
    length: int = 0
    """Steps of the decay."""

    @property
    def last_begin(self) -> int:
        """Step at which the decay begins at the latest: a fifth of it is left."""
        return self.steps - self.steps // 6

    def decay(self, begin: int, before: int) -> None:
        """Sets the decay: its first step, and how many steps its weights have taken before."""
        self.begin, self.length = begin, min(max(1, before // 5), self.steps - begin)

    def __call__(self, step: int) -> float:
        """Returns the factor of the peak rate at a step, counted from 0."""
        # r = min(1, (t + 1) / warm-up) · (1 − √((t − begin) / length))
        warmup = max(1, min(_MOST_WARMUP, self.steps // 20))
        rise = min(1.0, (step + 1) / warmup)
        if self.begin is None or step <= self.begin:
            return rise
        past = min(1.0, (step - self.begin) / max(1, self.length))
        return rise * (1 - past**0.5)
