"""The figure of all drawings; imported where one is made, for matplotlib loads late."""

from __future__ import annotations

from typing import Any

from forecaster.errors import ConfigError
from forecaster.forecast.writer import NEEDS_MATPLOTLIB

try:
    from matplotlib.figure import Figure
    from matplotlib.text import Text
except ModuleNotFoundError:
    raise ConfigError(NEEDS_MATPLOTLIB) from None


class PlainFigure(Figure):
    """Shows text as it is: what stands between two dollars in a name is not mathematics."""

    def draw(self, renderer: Any) -> None:
        """Draws the figure."""
        for text in self.findobj(Text):
            text.set_parse_math(False)
        super().draw(renderer)
