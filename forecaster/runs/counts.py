"""Whether targets are counts, as a head of counts needs them.

What comes in: a panel. What goes out: nothing, or a `DataError` that names the first
value that is none.
"""

from __future__ import annotations

import numpy as np

from forecaster.errors import DataError
from forecaster.panel.arrays import blocks
from forecaster.panel.panel import Panel


def refuse_what_is_no_count(panel: Panel) -> None:
    """Raises where a target is negative or not whole.

    Raises:
        DataError: says how many are, and where the first one is.
    """
    wrong, seen, where = 0, 0, ""
    for rows in blocks(panel.n_rows, panel.n_channels):
        values = panel.values[rows, : panel.n_channels]
        real = ~np.isnan(values)
        odd = real & ((values < 0) | (values != np.floor(values)))
        if not where and odd.any():
            row, channel = (int(place) for place in np.argwhere(odd)[0])
            at = rows.start + row
            series = int(np.searchsorted(panel.indptr, at, side="right")) - 1
            where = (
                f"'{panel.schema.target[channel]}' is {values[row, channel]:g} in series "
                f"{panel.labels[series]} at {panel.calendar.text(int(panel.time[at]))}"
            )
        wrong, seen = wrong + int(odd.sum()), seen + int(real.sum())
    if wrong:
        raise DataError(
            f"{panel.name}: head negative_binomial forecasts counts, but {wrong:,} of {seen:,} values "
            f"are negative or not whole (first: {where}); set model.head to quantile or student_t"
        )
