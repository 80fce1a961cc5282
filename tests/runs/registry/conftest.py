"""Two models of one shop, of one config but for its steps, and folders of them."""

from functools import cache
from pathlib import Path

import pytest
from forecast import tiny

import forecaster as fc


@cache
def fitted(steps: int, days: int = 100, levels: tuple[float, ...] = (0.1, 0.5, 0.9)) -> fc.Forecaster:
    """A model of the plain shop, of attention alone: the more steps, the better."""
    fit = tiny.TINY["fit"] | {"steps": steps, "patience": None}
    config = tiny.config_with(linear="none", quantile_levels=levels) | {"fit": fit}
    return fc.fit(tiny.plain(days), horizon=tiny.HORIZON, config=config, quiet=True)


@pytest.fixture
def poor(place) -> Path:
    """The folder of a model that has hardly learned."""
    fitted(5).save(place / "poor")
    return place / "poor"


@pytest.fixture
def good(place) -> Path:
    """The folder of a better model of the same table."""
    fitted(60).save(place / "good")
    return place / "good"
