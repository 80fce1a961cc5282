"""The figure of all drawings; imported where one is made, for matplotlib loads late."""

from __future__ import annotations

import os
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


class PlainFigure(Figure):
    """Shows text as it is: what stands between two dollars in a name is not mathematics."""

    def draw(self, renderer: Any) -> None:
        """Draws the figure."""
        for text in self.findobj(Text):
            text.set_parse_math(False)
        super().draw(renderer)
