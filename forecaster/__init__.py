"""Attention forecasts for any table of time series.

    table  ──▶  panel  ──▶  windows  ──▶  [ Inputs ]  ──▶  model  ──▶  forecast  ──▶  evaluation
    rows in     arrays      cutoffs        tensors         quantiles    rows out        scores
            \\____ fitting: experts · networks · mixture · bands ____/
            \\____ runs: fit · tune · batch predict · tracking · registry · cluster ____/
                           api (Python)                cli (shell)

Example:
    >>> import forecaster as fc
    >>> model = fc.fit("sales.csv", horizon=28, known=["price", "promo"])   # doctest: +SKIP
    >>> model.predict("sales.csv", future="promos.csv").frame               # doctest: +SKIP
    >>> fc.predict("sales.csv", horizon=28).frame                           # doctest: +SKIP

Imports flow one way: cli → api → options → runs → fitting → evaluation → forecast → model → windows → panel
→ config → arguments → errors. Nothing heavy is loaded before it is needed.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

# Without it, on some processors, the place of a row in a matrix changes the last bits of MKL's products, and
# so the order of series changes those of a forecast. It costs no time; MKL reads it at its first product.
os.environ.setdefault("MKL_CBWR", "AUTO")

if TYPE_CHECKING:
    from forecaster.api import (
        Classifier,
        Estimator,
        Forecaster,
        Study,
        backtest,
        check,
        compare,
        convert,
        detect,
        explain,
        fit,
        load,
        predict,
        score,
        tune,
        what_if,
    )
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
    from forecaster.forecast.explain import Explanation
    from forecaster.forecast.forecast import Forecast
    from forecaster.forecast.what_if import WhatIf

__version__ = "1.0.0"

_MODULES = (
    "errors",
    "config",
    "api",
    "evaluation.backtest",
    "forecast.explain",
    "forecast.forecast",
    "forecast.what_if",
)
"""Where the public names are looked up: light modules first."""

__all__ = [
    "ArtifactError",
    "Backtest",
    "Classifier",
    "Config",
    "ConfigError",
    "DataError",
    "Estimator",
    "Explanation",
    "FitError",
    "Forecast",
    "Forecaster",
    "ForecasterError",
    "OutputError",
    "Study",
    "WhatIf",
    "backtest",
    "check",
    "compare",
    "convert",
    "detect",
    "explain",
    "fit",
    "load",
    "load_config",
    "predict",
    "score",
    "tune",
    "what_if",
]


def __getattr__(name: str) -> Any:
    for module in _MODULES if name in __all__ else ():
        found = vars(importlib.import_module(f"forecaster.{module}"))
        if name in found:
            return found[name]
    raise AttributeError(f"module 'forecaster' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
