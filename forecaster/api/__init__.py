"""The Python interface, from which the command line takes its options, their defaults and their help.

  estimator                                  with scikit-learn's manners
      │
    fits · unfitted · scores · tables        functions
                 │
              models                       what a fit returns
                 │
             requests                      options and tables as they are given

Tables go in as a path, a glob, or a pandas, polars or Arrow frame; forecasts and scores come out as the same kind
of frame. These modules import only the settings at start-up. Annotations are values, as in options.py: names that
only type checkers import stand in quotes.
"""

from forecaster.api.estimator import Estimator
from forecaster.api.fits import fit, tune
from forecaster.api.models import Classifier, Forecaster, Model, Study, load
from forecaster.api.requests import shell_command
from forecaster.api.scores import backtest, compare, score
from forecaster.api.tables import TableCheck, check, convert
from forecaster.api.unfitted import detect, explain, predict, what_if, without_fit

__all__ = [
    "Classifier",
    "Estimator",
    "Forecaster",
    "Model",
    "Study",
    "TableCheck",
    "backtest",
    "check",
    "compare",
    "convert",
    "detect",
    "explain",
    "fit",
    "load",
    "predict",
    "score",
    "shell_command",
    "tune",
    "what_if",
    "without_fit",
]
