"""Two models of one shop, of one config but for its steps, and folders of them."""

from functools import cache

import pytest
from forecast import tiny

import forecaster as fc
from forecaster.forecast.artifact import Artifact


@cache
def fitted(steps: int, days: int = 100, levels: tuple[float, ...] = (0.1, 0.5, 0.9)) -> fc.Forecaster:
    """A model of the plain shop, of attention alone: the more steps, the better."""
    fit = tiny.TINY["fit"] | {"steps": steps}
    config = tiny.config_with(experts=[], quantile_levels=levels) | {"fit": fit}
    return fc.fit(tiny.plain(days), horizon=tiny.HORIZON, config=config, quiet=True)


@pytest.fixture
def poor() -> Artifact:
    """A model that has hardly learned."""
    return fitted(5).artifact


@pytest.fixture
def good() -> Artifact:
    """A better model of the same table."""
    return fitted(60).artifact
