"""A forecaster of sktime: `from forecaster.sktime import AttentionForecaster`; it needs sktime."""

import re
from collections.abc import Mapping
from typing import Any

from sktime.datatypes import update_data
from sktime.forecasting.base import BaseForecaster

import forecaster as fc


class AttentionForecaster(BaseForecaster):
    """Forecasts of `fc.predict`, without a fit, or of a model that `fc.fit` fits to all series at once.

    Args:
        train: Fit a model. False: experts, weighed by attention learned in advance.
        options: Further options of `fc.fit`, or of `fc.predict` where nothing is fitted.

    Columns of X are covariates known in advance. Several series are one table, so a fit learns of all of them.

    Example:
        >>> AttentionForecaster().fit(y, fh=[1, 2, 3]).predict_interval(coverage=0.9)   # doctest: +SKIP
    """

    _tags = {  # noqa: RUF012
        "authors": "forecaster",
        "y_inner_mtype": ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"],
        "X_inner_mtype": ["pd.DataFrame", "pd-multiindex", "pd_multiindex_hier"],
        "capability:multivariate": True,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": True,
        "capability:update": True,
        "requires-fh-in-fit": False,
    }

    def __init__(self, train: bool = False, options: Mapping[str, Any] | None = None):
        self.train = train
        self.options = options
        super().__init__()
        self.set_tags(**{"requires-fh-in-fit": train})
        self.set_config(remember_data=False)  # `_seen` has them

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Returns the parameters of sktime's tests: without a fit, and a fit of one expert."""
        return [{}, {"train": True, "options": {"experts": "naive"}}]

    def _fit(self, y: Any, X: Any, fh: Any) -> "AttentionForecaster":
        self._seen = y, X
        if self.train:
            horizon = int(fh.to_relative(self.cutoff).to_pandas().max())
            table = _table(y, X)
            options = (
                {"quiet": True, "tracking": False} | _roles(table, y.index) | {**(self.options or {})}
            )
            self.model_ = fc.fit(table, horizon, **options)
        return self

    def _update(self, y: Any, X: Any = None, update_params: bool = True) -> "AttentionForecaster":
        seen = update_data(self._seen[0], y), update_data(self._seen[1], X)
        self._seen = seen
        return self._fit(*seen, self._fh) if update_params else self

    def _predict(self, fh: Any, X: Any) -> Any:
        return self._forecast(fh, X, ["forecast"])["forecast"]

    def _predict_quantiles(self, fh: Any, X: Any, alpha: list[float]) -> Any:
        levels = {f"q{level:g}": level for level in alpha}
        found = self._forecast(fh, X, [*levels], quantiles=alpha).rename(columns=levels, level=0)
        names = [(name, level) for name in self._get_varnames() for level in alpha]
        return found.swaplevel(axis=1)[names]

    def _forecast(self, fh: Any, X: Any, values: list[str], **options: Any) -> Any:
        """Returns values of the forecast, by value and channel, at the times of a horizon."""
        table = _table(*self._seen)
        if X is not None:
            options |= {"future": _table(X=X), "fill_known": "last"}
        last = table["time"].max()
        options["cutoff"] = getattr(last, "start_time", last)  # of a period
        leads = fh.to_relative(self.cutoff).to_pandas()
        if self.train:
            forecast = self.model_.predict(table, **options)
        else:
            roles = _roles(table, self._seen[0].index) | {**(self.options or {})}
            forecast = fc.predict(table, int(leads.max()), **options | roles)
        times = dict(zip(leads, fh.to_absolute_index(self.cutoff), strict=True))
        rows = forecast.to_pandas()
        rows = rows[rows["lead"].isin(leads)]
        rows = rows.assign(time=rows["lead"].map(times))
        keys = [*forecast.panel.keys.columns, "time"]
        found = rows.pivot(index=keys, columns="channel", values=values)
        found.index.names = self._seen[0].index.names
        names = {f"y{k}": name for k, name in enumerate(self._get_varnames())}
        return found.rename(columns=names, level=1)


def _table(y: Any = None, X: Any = None) -> Any:
    """Returns the table of targets y0, y1, … and covariates x0, x1, … with the columns key0, key1, … and time."""
    parts = [
        frame.set_axis([f"{letter}{k}" for k in range(frame.shape[1])], axis=1)
        for letter, frame in (("y", y), ("x", X))
        if frame is not None
    ]
    table = parts[0].join(parts[1:])
    keys = [f"key{k}" for k in range(table.index.nlevels - 1)]
    return table.rename_axis([*keys, "time"]).reset_index()


def _roles(table: Any, index: Any) -> dict[str, Any]:
    """Returns the roles of the columns, and the step of an index of days or shorter: rows without values count."""
    times = index.get_level_values(-1).unique()
    freq = getattr(times, "freqstr", None) or getattr(times, "inferred_freq", None) or ""
    letters = {"series": "k", "target": "y", "known": "x"}
    columns = {role: [name for name in table if name[0] == letters[role]] for role in letters}
    step = freq if re.fullmatch(r"\d*(D|B|h|min|s)", freq) else None
    return {"time": "time", "freq": step, **columns}
