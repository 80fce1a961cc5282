"""Classes that annotations name and that no module imports for it: `typing.get_type_hints` imports them."""

from typing import TYPE_CHECKING, Any, ForwardRef

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
    from matplotlib.figure import FigureBase as FigureBase

    from forecaster.panel.frames import AnyFrame as AnyFrame
    from forecaster.panel.frames import PandasFrame as PandasFrame

_MODULES = {
    "Artifact": "forecaster.forecast.artifact",
    "Anomalies": "forecaster.forecast.detect",
    "Backtest": "forecaster.evaluation.backtest",
    "BatchResult": "forecaster.runs.batch_predict",
    "ClassBacktest": "forecaster.evaluation.class_backtest",
    "ClassExplanation": "forecaster.forecast.classification",
    "Classification": "forecaster.forecast.classification",
    "Explanation": "forecaster.forecast.explain",
    "Axes": "matplotlib.axes",
    "Figure": "matplotlib.figure",
    "FigureBase": "matplotlib.figure",
    "Forecast": "forecaster.forecast.forecast",
    "ForecastWindow": "forecaster.forecast.window",
    "Hierarchy": "forecaster.forecast.hierarchy",
    "Leaderboard": "forecaster.evaluation.leaderboard",
    "Monitor": "forecaster.evaluation.monitor",
    "NDArray": "numpy.typing",
    "Panel": "forecaster.panel.panel",
    "PathSource": "forecaster.forecast.paths",
    "Published": "forecaster.runs.registry",
    "ReportContext": "forecaster.evaluation.report_data",
    "Totals": "forecaster.forecast.totals",
    "WhatIf": "forecaster.forecast.what_if",
}
_FRAMES = [f"__import__({name!r})" for name in ("polars", "pandas", "pyarrow")]
_EXPRESSIONS = {
    name: f"__import__({module!r}, fromlist=['*']).{name}" for name, module in _MODULES.items()
} | {
    "AnyFrame": "{}.DataFrame | {}.DataFrame | {}.Table".format(*_FRAMES),
    "PandasFrame": f"{_FRAMES[1]}.DataFrame",
}


class _Generic:
    """A generic class, which is named with a parameter."""

    def __init__(self, expression: str):
        self._expression = expression

    def __getitem__(self, of: Any) -> ForwardRef:
        parameter = f"[{of.__forward_arg__}]" if isinstance(of, ForwardRef) else ""
        return ForwardRef(self._expression + parameter)


def __getattr__(name: str) -> Any:
    if name not in _EXPRESSIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    expression = _EXPRESSIONS[name]
    return _Generic(expression) if name in ("NDArray", "WhatIf") else ForwardRef(expression)
