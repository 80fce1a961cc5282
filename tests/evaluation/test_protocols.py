"""Published protocols, with our own metrics and seasonal naive: the same counts and the same scores."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from evaluation import textbook_metrics as textbook

from forecaster.config import DataConfig
from forecaster.evaluation.baselines import seasonal_naive
from forecaster.evaluation.comparison import NAIVE, seasonal_naive_at, tally_models
from forecaster.evaluation.error_scales import Histories, scales_at
from forecaster.panel.build import open_panel

DECILES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
DATASETS = Path(__file__).parents[2].parent / "shared" / "datasets"
pytestmark = pytest.mark.skipif(
    not DATASETS.is_dir(), reason="the shared data sets are not beside this checkout"
)


@pytest.mark.parametrize(
    ("horizon", "windows", "published"),
    [(96, 2785, 0.5122), (192, 2689, 0.5808), (336, 2545, 0.6499), (720, 2161, 0.6554)],
)
def test_etth1_gives_the_known_error_of_seasonal_naive_over_every_window(horizon, windows, published):
    table = pl.read_csv(DATASETS / "ETTh1.csv").drop("date").head(14_400).to_numpy()
    train = table[:8640]
    values = (table - train.mean(axis=0)) / train.std(axis=0)
    cutoff = np.arange(11_519, 14_400 - horizon)
    assert len(cutoff) == windows
    total = 0.0  # summed in parts: all windows at once would be gigabytes at 720
    for part in np.array_split(cutoff, 10):
        series = np.zeros_like(part)
        forecast = seasonal_naive(
            Histories(values, np.array([0, 14_400]), part, series), horizon, 24, [0.5]
        )
        actual = values[part[:, None] + np.arange(1, horizon + 1)]
        total += textbook.mse(actual, forecast[..., 0]) * actual.size
    assert total / (windows * horizon * 7) == pytest.approx(published, abs=5e-5)


def test_m4_hourly_gives_the_known_errors_of_seasonal_naive():
    train, test = (
        pl.read_csv(DATASETS / f"M4-Hourly-{part}.csv", infer_schema_length=None)
        .drop("V1")
        .cast(pl.Float64)
        .to_numpy()
        for part in ("train", "test")
    )
    assert test.shape == (414, 48)
    rows = [row[~np.isnan(row)] for row in train]
    values = np.concatenate(rows)[:, None]
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    histories = Histories(values, indptr, indptr[1:] - 1, np.arange(414))
    quantiles = seasonal_naive(histories, 48, 24, DECILES)
    scales = scales_at(histories, 24)
    found = tally_models(test[..., None], {NAIVE: quantiles}, DECILES, scales)[NAIVE].overall()
    assert found["sMAPE"] == pytest.approx(13.912, abs=5e-4)
    assert found["MASE"] == pytest.approx(1.193, abs=5e-4)
    assert (found["sMAPE"] / 18.383 + found["MASE"] / 2.395) / 2 == pytest.approx(0.627, abs=1e-3)


@pytest.mark.parametrize(("market", "mase", "sql"), [("DE", 1.709, 1.396), ("NP", 1.761, 1.502)])
def test_epf_gives_the_known_errors_of_seasonal_naive(market, mase, sql):
    """From the file to the scores by the very functions that a backtest uses."""
    panel = open_panel(DATASETS / f"EPF-{market}.csv", DataConfig(target=("OT",)))
    rows = panel.n_rows
    cutoff = rows - 480 - 1 + 24 * np.arange(20)
    series = np.zeros(20, np.int64)
    naive, scales, _ = seasonal_naive_at(panel, series, cutoff, 24, DECILES)
    actual = panel.values[cutoff[:, None] + np.arange(1, 25), :1]
    found = tally_models(actual, {NAIVE: naive}, DECILES, scales)[NAIVE].overall()
    assert found["MASE"] == pytest.approx(mase, abs=0.002)
    assert found["SQL"] == pytest.approx(sql, abs=0.002)
