"""Attention forecasts for any table of time series.

    table  ──▶  panel  ──▶  windows  ──▶  [ Inputs ]  ──▶  model  ──▶  forecast  ──▶  evaluation
    rows in     arrays      cutoffs        the waist       quantiles    rows out        scores
                \\_____________ runs: fit · backtest · tracking ______________/
                           api: the Python face        cli: the shell's face

Example:
    >>> import forecaster as fc
    >>> model = fc.fit("sales.csv", horizon=28, known=["price", "promo"])   # doctest: +SKIP
    >>> model.predict("sales.csv", future="promos.csv").frame               # doctest: +SKIP

Imports flow one way: cli → api → runs → evaluation → forecast → model → windows → panel → config →
errors. Nothing heavy is loaded before it is needed.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from forecaster.api import check, convert, fit, load, tune
    from forecaster.config import Config, load_config
    from forecaster.errors import (
        ArtifactError,
        ConfigError,
        DataError,
        FitError,
        ForecasterError,
        OutputError,
    )
    from forecaster.evaluation.backtest import Backtest
    from forecaster.fitted import Forecaster
    from forecaster.forecast.explain import Explanation
    from forecaster.forecast.forecast import Forecast
    from forecaster.tuned import Study

__version__ = "0.1.0"

_HOMES = {
    "forecaster.api": ("check", "convert", "fit", "load", "tune"),
    "forecaster.config": ("Config", "load_config"),
    "forecaster.errors": (
        "ArtifactError",
        "ConfigError",
        "DataError",
        "FitError",
        "ForecasterError",
        "OutputError",
    ),
    "forecaster.evaluation.backtest": ("Backtest",),
    "forecaster.forecast.explain": ("Explanation",),
    "forecaster.fitted": ("Forecaster",),
    "forecaster.forecast.forecast": ("Forecast",),
    "forecaster.tuned": ("Study",),
}

__all__ = [
    "ArtifactError",
    "Backtest",
    "Config",
    "ConfigError",
    "DataError",
    "Explanation",
    "FitError",
    "Forecast",
    "Forecaster",
    "ForecasterError",
    "OutputError",
    "Study",
    "check",
    "convert",
    "fit",
    "load",
    "load_config",
    "tune",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(home), name)
    raise AttributeError(f"module 'forecaster' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
