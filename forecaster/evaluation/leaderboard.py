"""Settings, experts and baselines scored over the same cells: one table and one picture."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from forecaster.arguments import typed
from forecaster.evaluation.backtest import Backtest, skills_over
from forecaster.evaluation.comparison import MODEL
from forecaster.lazy import Figure
from forecaster.panel.findings import Finding
from forecaster.panel.panel import Only


@dataclass(frozen=True, repr=False)
class Leaderboard(Backtest):
    """A backtest of many models, ranked; "forecaster" is the model of `config`."""

    @property
    def ranked_by(self) -> str:
        """WQL; MASE where a model gives points alone."""
        mine, *others = (one["WQL"] for one in self.scores.values())
        return "MASE" if np.isnan(others).any() and not np.isnan(mine) else "WQL"

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of a backtest, and that models are ranked by MASE."""
        text = "ranked by MASE, as a model without quantiles has no WQL"
        note = Finding("note", "ranking", text, "")
        return super().findings + (note,) * (self.ranked_by == "MASE")

    @cached_property
    def excess(self) -> dict[str, tuple[float, ...]]:
        """By model, the best first: WQL / WQL of "forecaster" − 1, and its paired bootstrap interval; or of MASE.

        It is not over the best row: which one that is, the same scores decide.
        """
        metric = self.ranked_by
        loss = {"WQL": "pinball", "MASE": "scaled_absolute"}[metric]
        found = skills_over(MODEL, self.forecasts, self.tallies, loss=loss)
        ranked = sorted(found, key=lambda name: np.nan_to_num(self.scores[name][metric], nan=np.inf))
        return {name: tuple(0 - found[name][end] for end in (0, 2, 1)) for name in ranked}

    @property
    def summary_columns(self) -> dict[str, list[Any]]:
        """The columns of `summary`, those that the shell prints."""
        metrics = ("WQL", "MASE", *self.coverage_names)
        rows = [
            (
                model,
                *(self.scores[model][name] for name in metrics),
                self.seconds.get(model, np.nan),
                *excess,
            )
            for model, excess in self.excess.items()
        ]
        names = ("model", *metrics, "seconds", "excess", "low", "high")
        return {name: [row[place] for row in rows] for place, name in enumerate(names)}

    @typed
    def plot(self, only: Only = None) -> Figure:
        """A figure of the WQL or MASE of all models, with the intervals of their excess.

        Args:
            only: names of models beside "forecaster"; None = all.
        """
        from forecaster.forecast.plots import plot_ranking

        metric, some = self.ranked_by, only if isinstance(only, list | tuple | None) else [only]
        mine = self.scores[MODEL][metric]
        rows = {
            name: (self.scores[name][metric], mine * (1 + low), mine * (1 + high))
            for name, (_, low, high) in self.excess.items()
            if some is None or name in (MODEL, *some)
        }
        return plot_ranking(
            rows, MODEL, f"{metric}; bars: 95 % intervals\nof the difference to forecaster"
        )
