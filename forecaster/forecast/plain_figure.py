"""The figure of all drawings and its numbers; imported where one is made, for matplotlib loads late."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from forecaster.errors import ConfigError
from forecaster.forecast.writer import NEEDS_MATPLOTLIB

# A backend that is not installed here, as a notebook's, fails the import; figures drawn to files need none.
_backend = os.environ.pop("MPLBACKEND", "")
try:
    import matplotlib
except ModuleNotFoundError:
    raise ConfigError(NEEDS_MATPLOTLIB) from None
if _backend:
    os.environ["MPLBACKEND"] = _backend
    with suppress(ValueError):
        matplotlib.rcParams["backend"] = _backend

from matplotlib.figure import Figure  # noqa: E402, TID253
from matplotlib.text import Text  # noqa: E402, TID253
from matplotlib.ticker import Formatter  # noqa: E402, TID253

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"))


class PlainFigure(Figure):
    """Shows text as it is: what stands between two dollars in a name is not mathematics."""

    def draw(self, renderer: Any) -> None:
        """Draws the figure."""
        for text in self.findobj(Text):
            text.set_parse_math(False)
        super().draw(renderer)


class PlainNumbers(Formatter):
    """Writes each tick whole, as 6.4M: a factor of all, as 1e6, would stand above the axis, in the title."""

    def __call__(self, value: float, pos: int | None = None) -> str:
        """Returns the text of a single number."""
        return self.format_ticks([value])[0]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        """Returns the texts of the ticks of an axis."""
        largest = max(map(abs, values), default=0.0)
        step = abs(values[1] - values[0]) if len(values) > 1 else largest
        some = (unit for unit in _UNITS if largest >= unit[0] and step >= unit[0] / 100)
        size, letter = next(some, (1.0, ""))
        return [
            f"{value / size:,.10g}{letter}".replace("-", "\N{MINUS SIGN}")
            if abs(value) > step / 1e6  # a rounded 0
            else "0"
            for value in values
        ]
