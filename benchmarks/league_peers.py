"""Forecasts of other packages for `league.py`: AutoETS, Theta and AutoARIMA of statsforecast, LightGBM, Prophet.

    .venv-peers/bin/python benchmarks/league_peers.py FOLDER HORIZON SEASON AutoETS Theta LightGBM

Runs in the environment of `make peers` and knows nothing of forecaster. FOLDER holds rows.csv (series,
step, time, y, known covariates x… as numbers and c… as categories) and cutoffs.csv (series, step of the
last row that may be read); written are quantiles.csv (model, series, step, lead, q0.1 … q0.9) and
seconds.csv (model, seconds). A model that fails is in neither, and why is printed.

AutoETS, Theta (Dynamic Optimized Theta) and AutoARIMA are fitted to the last 2,000 rows before every
cutoff, with their defaults; missing values are interpolated before. ETS has no season above 24 steps,
and ARIMA takes hours: there each forecasts what MSTL leaves after the season, as statsforecast advises.
Where a fit fails, seasonal naive stands in. AutoARIMA reads known covariates, up to that season.

Prophet is fitted to the same rows, with its defaults and each known covariate as a regressor.

LightGBM is fitted once, to the last 10,000 rows before the first cutoff: by mlforecast, a model of
defaults per lead and quantile level, which reads the last values up to a season (of a long season every
12th beyond 48), those of 2 and 7 seasons before, the calendar and the known covariates at the lead.
Series are standardised; where a difference of whole seasons, no shorter than the horizon, has less than
half the spread, that is forecast. A missing value is the one before it.

Quantiles are sorted. No peer reads past covariates.
"""

from __future__ import annotations

import logging
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd

LEVELS = tuple(k / 10 for k in range(1, 10))
COLUMNS = [f"q{level:g}" for level in LEVELS]
STATISTICAL = ("AutoETS", "Theta", "AutoARIMA")
OPENS = {"x", "c"}
"""First letters of the columns of known covariates."""
LONGEST, LONGEST_LIGHTGBM = 2_000, 10_000
"""Rows of a history that are read."""
LONGEST_SEASON = 24
"""Of ETS, and of ARIMA here."""


def main() -> None:
    folder, horizon, season = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    rows = pd.read_csv(folder / "rows.csv").sort_values(["series", "step"], ignore_index=True)
    cutoffs = pd.read_csv(folder / "cutoffs.csv").query("step >= 0").reset_index(drop=True)
    parts, spent = [], []
    for model in sys.argv[4:]:
        began = time.monotonic()
        made = statistical if model in STATISTICAL else prophet if model == "Prophet" else lightgbm
        try:
            found = made(model, rows, cutoffs, horizon, season)
        except Exception as error:
            print(f"{model}: {type(error).__name__}: {error}", file=sys.stderr)
            continue
        found[COLUMNS] = np.sort(found[COLUMNS].to_numpy(), axis=1)
        parts.append(found.assign(model=model)[["model", "series", "step", "lead", *COLUMNS]])
        spent.append({"model": model, "seconds": time.monotonic() - began})
    pd.concat(parts).to_csv(folder / "quantiles.csv", index=False)
    pd.DataFrame(spent).to_csv(folder / "seconds.csv", index=False)


def filled(values: pd.Series) -> pd.Series:
    """Returns a history without missing values."""
    return values.interpolate(limit_direction="both") if values.notna().any() else values.fillna(0.0)


def statistical(
    name: str, rows: pd.DataFrame, cutoffs: pd.DataFrame, horizon: int, season: int
) -> pd.DataFrame:
    """Returns quantiles of a model that is fitted to the history before each cutoff."""
    from statsforecast import StatsForecast
    from statsforecast.models import MSTL, AutoARIMA, AutoETS, DynamicOptimizedTheta, SeasonalNaive

    if name == "Theta":
        model = DynamicOptimizedTheta(season_length=season)
    elif season > LONGEST_SEASON:
        trend = AutoETS(model="ZZN") if name == "AutoETS" else AutoARIMA()
        model = MSTL(season_length=season, trend_forecaster=trend)
    else:
        model = {"AutoETS": AutoETS, "AutoARIMA": AutoARIMA}[name](season_length=season)
    model.alias = "m"
    reads = name == "AutoARIMA" and season <= LONGEST_SEASON
    known = covariates(rows) if reads else []
    histories, futures = [], []
    own = by_series(rows)
    for number, (series, step) in enumerate(cutoffs.itertuples(index=False)):
        seen, ahead = around(own[series], step, horizon)
        past = {"unique_id": number, "ds": seen["step"], "y": filled(seen["y"])}
        future = {"unique_id": number, "ds": ahead["step"]}
        histories.append(pd.DataFrame(past | {column: seen[column] for column in known}))
        futures.append(pd.DataFrame(future | {column: ahead[column] for column in known}))
    runner = StatsForecast([model], freq=1, fallback_model=SeasonalNaive(season_length=season))
    bands = [20, 40, 60, 80]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ahead = pd.concat(futures) if known else None
        made = runner.forecast(df=pd.concat(histories), h=horizon, level=bands, X_df=ahead)
    made = made.sort_values(["unique_id", "ds"])
    lower = {f"q{0.5 - band / 200:g}": made[f"m-lo-{band}"] for band in bands}
    upper = {f"q{0.5 + band / 200:g}": made[f"m-hi-{band}"] for band in bands}
    found = pd.DataFrame(lower | upper | {"q0.5": made["m"]}).reset_index(drop=True)
    place = made["unique_id"].to_numpy()
    found["series"], found["step"] = (cutoffs[key].to_numpy()[place] for key in ("series", "step"))
    found["lead"] = np.tile(np.arange(1, horizon + 1), len(cutoffs))
    return found


def covariates(rows: pd.DataFrame) -> list[str]:
    """Returns the columns of covariates that vary in each series."""
    named = [name for name in rows if name[0] in OPENS]
    fewest = rows.groupby("series")[named].nunique().min()
    return [name for name in named if fewest[name] > 1]


def by_series(rows: pd.DataFrame) -> dict[int, pd.DataFrame]:
    """Returns the rows of each series, covariates without gaps."""
    known = [name for name in rows if name[0] in OPENS]
    series = dict(tuple(rows.groupby("series")))
    return {name: own.assign(**own[known].ffill().bfill()) for name, own in series.items()}


def around(own: pd.DataFrame, step: int, horizon: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns the last rows of a series up to a step, and those of the horizon."""
    seen = own[own["step"] <= step].tail(LONGEST)
    ahead = own[(own["step"] > step) & (own["step"] <= step + horizon)]
    return seen, ahead


def prophet(
    name: str, rows: pd.DataFrame, cutoffs: pd.DataFrame, horizon: int, season: int
) -> pd.DataFrame:
    """Returns quantiles of samples of Prophet, fitted to the history before each cutoff."""
    from prophet import Prophet

    logging.getLogger("cmdstanpy").disabled = True
    known = covariates(rows)
    own = by_series(rows)
    parts = []
    for series, step in cutoffs.itertuples(index=False):
        seen, ahead = around(own[series], step, horizon)
        past, future = (
            part.rename(columns={"time": "ds"})[["ds", "y", *known]] for part in (seen, ahead)
        )
        np.random.seed(0)  # noqa: NPY002 what Prophet draws from
        model = Prophet()
        for column in known:
            model.add_regressor(column)
        model.fit(past)
        samples = model.predictive_samples(future)["yhat"]
        found = pd.DataFrame(np.quantile(samples, LEVELS, axis=1).T, columns=COLUMNS)
        found["series"] = series
        found["step"] = step
        found["lead"] = np.arange(1, len(found) + 1)
        parts.append(found)
    return pd.concat(parts)


def lightgbm(
    name: str, rows: pd.DataFrame, cutoffs: pd.DataFrame, horizon: int, season: int
) -> pd.DataFrame:
    """Returns quantiles of trees that are fitted once, before the first cutoff."""
    from lightgbm import LGBMRegressor
    from mlforecast import MLForecast

    begin = rows.merge(cutoffs, on=["series", "step"])["time"].min()
    table, exogenous = prepared(rows[rows["series"].isin(cutoffs["series"])], horizon)
    owner, trained = table["unique_id"], table["time"] <= begin
    seen = table["y"].where(trained).groupby(owner)
    period = season * -(-horizon // season)
    before = table.groupby("unique_id")["y"].shift(period)
    scale = seen.transform("std").fillna(0.0)
    table["scale"] = scale.where(scale > 0, 1.0)
    change = ((table["y"] - before) / table["scale"])[trained]
    differenced = change.std() < 0.5 and change.notna().mean() > 0.5
    table["base"] = before if differenced else seen.transform("mean").fillna(0.0)
    table["y"] = (table["y"] - table["base"]) / table["scale"]
    table = table[table["base"].notna()]
    fitted = table[trained[table.index]].groupby("unique_id").tail(LONGEST_LIGHTGBM)
    wanted = {*range(1, 1 + min(max(season, 12), 48)), *range(60, season + 1, 12)}
    wanted |= {2 * season, 7 * season} if season > 1 else set()
    longest = int(fitted.groupby("unique_id").size().max())
    lags = sorted(lag for lag in wanted if lag < longest / 2) or [1]
    models = {
        column: LGBMRegressor(
            objective="quantile", alpha=level, num_threads=1, random_state=0, verbosity=-1
        )
        for column, level in zip(COLUMNS, LEVELS, strict=True)
    }
    learner = MLForecast(models=models, freq=1, lags=lags)
    columns = ["unique_id", "ds", "y", *exogenous]
    learner.fit(fitted[columns], static_features=[], max_horizon=horizon)
    parts = []
    for step, at in cutoffs.groupby("step"):
        own = table[table["unique_id"].isin(at["series"])]
        past = own[own["ds"] <= step].groupby("unique_id").tail(max(lags) + 2 * horizon)
        leads = own[(own["ds"] > step) & (own["ds"] <= step + horizon)]
        ahead = leads[["unique_id", "ds", *exogenous]] if exogenous else None
        made = learner.predict(horizon, new_df=past[columns], X_df=ahead)
        made = made.merge(leads[["unique_id", "ds", "base", "scale"]], on=["unique_id", "ds"])
        quantiles = made[COLUMNS].mul(made["scale"], axis=0).add(made["base"], axis=0)
        parts.append(quantiles.assign(series=made["unique_id"], step=step, lead=made["ds"] - step))
    return pd.concat(parts)


def prepared(rows: pd.DataFrame, horizon: int) -> tuple[pd.DataFrame, list[str]]:
    """Returns rows in the names of mlforecast, a horizon longer, and the covariates known ahead."""
    ends = rows.groupby("series")["step"].max()
    added = [
        pd.DataFrame({"series": series, "step": np.arange(end + 1, end + 1 + horizon)})
        for series, end in ends.items()
    ]
    table = pd.concat([rows, *added], ignore_index=True).sort_values(["series", "step"])
    table = table.reset_index(drop=True)
    exogenous = [name for name in table if name[0] in OPENS]
    if not pd.api.types.is_numeric_dtype(rows["time"]):
        when = pd.to_datetime(table["time"], format="ISO8601").dt
        calendar = {
            "month": when.month,
            "weekday": when.weekday,
            "minute": when.hour * 60 + when.minute,
        }
        for name, values in calendar.items():
            if values.nunique() > 1:
                table[name] = values
                exogenous.append(name)
    held = ["y", *exogenous]
    # Forward alone: what lies between two values would know the later one.
    table[held] = table.groupby("series")[held].ffill().fillna(0.0).astype(float)
    return table.rename(columns={"series": "unique_id", "step": "ds"}), exogenous


if __name__ == "__main__":
    main()
