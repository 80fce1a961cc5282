"""Settings, experts and baselines scored over the same cells: one table and one picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from forecaster.arguments import typed
from forecaster.evaluation.backtest import Backtest, skills_over
from forecaster.evaluation.comparison import MODEL
from forecaster.panel.panel import Only

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False)
class Leaderboard(Backtest):
    """A backtest of many models, ranked by WQL; "forecaster" is the model of `config`."""

    @cached_property
    def excess(self) -> dict[str, tuple[float, ...]]:
        """By model, the best first: WQL / WQL of "forecaster" − 1, and its paired bootstrap interval.

        It is not over the best row: which one that is, the same scores decide.
        """
        found = skills_over(MODEL, self.forecasts, self.tallies)
        ranked = sorted(found, key=lambda name: np.nan_to_num(self.scores[name]["WQL"], nan=np.inf))
        return {name: tuple(0 - found[name][end] for end in (0, 2, 1)) for name in ranked}

    @property
    def summary_columns(self) -> dict[str, list[Any]]:
        """The columns of `summary`, those that the shell prints."""
        metrics = ("WQL", "MASE", *self.coverage_names)
        rows = [
            (model, *(self.scores[model][name] for name in metrics), self.seconds[model], *excess)
            for model, excess in self.excess.items()
        ]
        names = ("model", *metrics, "seconds", "excess", "low", "high")
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}

    @typed
    def plot(self, only: Only = None) -> Figure:
        """A figure of the WQL of all models, with the intervals of their excess.

        Args:
            only: names of models beside "forecaster"; None = all.
        """
        from forecaster.forecast.plots import plot_ranking

        wql, some = self.scores[MODEL]["WQL"], only if isinstance(only, list | tuple | None) else [only]
        rows = {
            name: (self.scores[name]["WQL"], wql * (1 + low), wql * (1 + high))
            for name, (_, low, high) in self.excess.items()
            if some is None or name in (MODEL, *some)
        }
        return plot_ranking(rows, MODEL, "WQL; bars: 95 % intervals\nof the difference to forecaster")
