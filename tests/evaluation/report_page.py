"""A reader of pages: tags balanced, what they hold, and a backtest by hand to make them from."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import polars as pl

from forecaster.config import DataConfig
from forecaster.evaluation.backtest import score_forecasts
from forecaster.evaluation.comparison import MODEL
from forecaster.forecast.forecast import known_forecast
from forecaster.panel.build import open_panel

LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
VOID = {"meta", "br", "img", "link", "input"}


class Read(HTMLParser):
    """A page taken apart: tags with attributes, tables, text by section; fails when unbalanced."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.tables, self.text = [], [], ""
        self.sections = {}
        self._open, self._cell = [], None
        self.feed(page)
        self.close()
        assert not self._open, f"left open: {self._open}"

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag not in VOID:
            self._open.append(tag)
        if tag == "section":
            self.sections[found["id"]] = ""
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag in ("th", "td"):
            self.tables[-1][-1].append("")
            self._cell = True

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-1:]}"
        self._open.pop()
        if tag in ("th", "td"):
            self._cell = None

    def handle_data(self, data):
        if "style" in self._open:
            return
        self.text += data
        if self.sections and "section" in self._open:
            name = list(self.sections)[-1]
            self.sections[name] += data
        if self._cell:
            self.tables[-1][-1][-1] += data


def panel_of(n_series=5, rows=60, channels=("y",), seed=0, names=None, key="id", size=1.0):
    """A panel of weekly waves and noise, a day apart."""
    rng = np.random.default_rng(seed)
    days = np.tile(np.arange(rows), n_series)
    owner = np.repeat(np.arange(n_series), rows)
    wave = 20.0 + 10 * owner + 3 * np.sin(2 * np.pi * days / 7)
    columns = {
        key: np.array(names or [f"s{s}" for s in range(n_series)], dtype=object)[owner],
        "day": np.datetime64("2024-01-01") + days,
    }
    for number, channel in enumerate(channels):
        columns[channel] = size * (wave + number + rng.normal(size=len(days)))
    table = pl.DataFrame(columns).with_columns(pl.col(key).cast(pl.String))
    data = DataConfig(time="day", series=(key,), target=channels)
    return open_panel(table, data)


def backtest_of(panel, windows=3, horizon=4, noise=1.0, shift=0.0, seed=1):
    """Forecasts that are the truth with some noise, scored beside baselines."""
    rng = np.random.default_rng(seed)
    ends = panel.indptr[1:] - 1
    said = []
    for window in range(windows, 0, -1):
        cutoff = ends - window * horizon
        ahead = cutoff[:, None] + np.arange(1, horizon + 1)
        truth = np.nan_to_num(panel.values[ahead, : panel.n_channels])
        spread = 1.2816 * np.linspace(-1, 1, len(LEVELS))
        middle = truth + shift + noise * rng.normal(size=truth.shape)
        quantiles = middle[..., None] + max(noise, 0.1) * spread
        series = np.arange(panel.n_series)
        forecast = known_forecast(panel, series, cutoff, quantiles, LEVELS)
        said.append({MODEL: replace(forecast, mean=middle)})
    return score_forecasts(said)
