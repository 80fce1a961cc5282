"""How large a network is and how long it learns, where that is left to the data.

What comes in: a config with null for `model.width` or `fit.steps`, and the number of training windows.
What goes out: the config with numbers. Promised: what was told stays as it is.
"""

from __future__ import annotations

from forecaster.config import Config

SIZES = ((2_000, 64, 400), (200_000, 64, 800), (None, 128, 1_600))
"""(training windows below, width, steps). A few hundred windows gain nothing by more of either; a few
thousand gain by both, most of it by steps, which cost less. LOG.md has the tables."""


def sized(config: Config, windows: int) -> Config:
    """Returns the config with a width and a number of steps.

    Args:
        config: resolved but for them.
        windows: channel-windows that train.
    """
    width, steps = next(
        (width, steps) for below, width, steps in SIZES if below is None or windows < below
    )
    unit = 2 * config.model.heads  # each head has pairs of numbers, which sinusoids and turns need
    if config.model.width is None:
        config = config.replaced(model={"width": -(-width // unit) * unit})
    if config.fit.steps is None:
        config = config.replaced(fit={"steps": steps})
    return config
