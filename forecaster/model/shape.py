"""What the data looks like to a network: counts, never names.

What comes in: the counts of a panel. What goes out: the one description that a network is built from
and that an artifact keeps beside its weights.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """What the data looks like to the network: counts, never names."""

    horizon: int
    """H."""
    channels: int
    """Targets the model knows."""
    past: int = 0
    """Numeric past covariates."""
    known: int = 0
    """Numeric known covariates."""
    static: int = 0
    """Numeric static covariates."""
    past_categories: tuple[int, ...] = ()
    """Categories met in training, per categorical past covariate."""
    known_categories: tuple[int, ...] = ()
    """The same for known covariates."""
    static_categories: tuple[int, ...] = ()
    """The same for static covariates."""
    cycles: int = 0
    """Calendar cycles."""
    regular: bool = True
    """False: the time between cells enters the patches."""

    @property
    def embeds_channels(self) -> bool:
        """True when a channel must be told apart: covariates mean different things to each."""
        covariates = self.past + self.known + len(self.past_categories + self.known_categories)
        return self.channels > 1 and covariates > 0
