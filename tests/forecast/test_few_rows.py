"""Series whose rows do not show how far values spread: bands of other series, and a status that counts rows."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from forecast import tiny
from numpy.testing import assert_allclose

import forecaster as fc

pytestmark = pytest.mark.usefixtures("all_windows")
HORIZON = 7
WEEK = np.array([1.0, 1.1, 1.05, 1.0, 1.2, 0.6, 0.4])


def _week(rng: np.random.Generator, n: int, last: int) -> np.ndarray:
    """Levels apart with the same week; `last`: weekday of the last row before the horizon."""
    day = np.arange(n) - n + HORIZON + 1 + last
    return np.exp(4 + rng.normal()) * WEEK[day % 7] * (1 + 0.1 * rng.normal(size=n))


DRAWS = {
    "lognormal": lambda rng, n: 10 * np.exp(0.5 * rng.normal(size=n)),
    "levels apart": lambda rng, n: np.exp(2 * rng.normal() + 0.3 * rng.normal(size=n)),
    "narrow": lambda rng, n: 100 + 10 * rng.normal(size=n),
    "counts": lambda rng, n: rng.poisson(3, n).astype(float),
    "demand": lambda rng, n: rng.poisson(0.5, n).astype(float),
    "both signs": lambda rng, n: 5 * rng.normal() + rng.normal(size=n),
    "week to Sunday": lambda rng, n: _week(rng, n, 6),
    "week to Wednesday": lambda rng, n: _week(rng, n, 2),
    "walk": lambda rng, n: 100 * np.exp(np.cumsum(0.05 * rng.normal(size=n))),
}


def _series(name: str, values: object) -> pl.DataFrame:
    """Values of the days up to the hundredth."""
    values = np.asarray(values, float)
    days = [tiny.day(99) - timedelta(back) for back in range(len(values))][::-1]
    return pl.DataFrame({"id": [name] * len(values), "date": days, "y": values})


def _planted(kind: str, counts: dict[int, int]) -> tuple[pl.DataFrame, dict[int, np.ndarray]]:
    """So many series of so many rows, and by rows what follows them."""
    rng, parts, truth = np.random.default_rng(0), [], {}
    for rows, series in counts.items():
        drawn = np.array([DRAWS[kind](rng, rows + HORIZON) for _ in range(series)])
        parts += [_series(f"{rows:03d} {n:03d}", one[:rows]) for n, one in enumerate(drawn)]
        truth[rows] = drawn[:, rows:]
    return pl.concat(parts), truth


def _band(forecast: fc.Forecast, rows: int) -> tuple[np.ndarray, np.ndarray]:
    chosen = [name.startswith(f"{rows:03d}") for name in forecast.panel.series_names]
    band = forecast.quantiles[chosen, :, 0]
    return band[..., 0], band[..., -1]


@pytest.mark.parametrize("kind", [kind for kind in DRAWS if "week" not in kind])
def test_the_band_of_one_two_or_three_rows_holds_its_share_beside_no_longer_series(kind):
    table, truth = _planted(kind, {1: 200, 2: 200, 3: 200})
    forecast = fc.predict(table, HORIZON)
    for rows, actual in truth.items():
        low, high = _band(forecast, rows)
        inside = (low <= actual) & (actual <= high)
        # A walk spreads with each step: of one row the others show two, of two rows one.
        leads = slice(max(1, 3 - rows) if kind == "walk" else None)
        least = 0.65 if kind == "walk" else 0.7
        # Of whole numbers many lie on the ends of a band.
        most = 0.97 if kind in ("counts", "demand") else 0.9
        assert least <= inside[:, leads].mean() <= most, rows
    assert [*dict.fromkeys(forecast.status)] == [
        "ok, 1 observation",
        "ok, 2 observations",
        "ok, 3 observations",
    ]
    assert forecast.lost == (0, "")


@pytest.mark.parametrize(
    ("kind", "fitted"),
    [
        ("lognormal", False),
        ("levels apart", False),
        ("both signs", False),
        ("week to Sunday", False),
        ("week to Wednesday", False),
        ("walk", False),
        ("lognormal", True),
        ("walk", True),
    ],
)
def test_the_band_of_a_few_rows_is_learned_from_longer_series(kind, fitted):
    table, truth = _planted(kind, {1: 60, 2: 60, 3: 60, 90: 30})
    if fitted:
        model = fc.fit(table, horizon=HORIZON, config=tiny.config_with(experts=["naive"]), quiet=True)
        forecast = model.predict(table)
    else:
        forecast = fc.predict(table, HORIZON)
    for rows in (1, 2, 3):
        low, high = _band(forecast, rows)
        assert 0.7 <= ((low <= truth[rows]) & (truth[rows] <= high)).mean() <= 0.9, rows
    assert forecast.status[0] == "ok, 1 observation" and forecast.status[-1] == "ok"


@pytest.mark.parametrize("level", [50.6, -5.0, 1e-20, 1e25])
@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_a_series_that_is_alone_has_a_band_as_wide_as_its_level(level, rows):
    forecast = fc.predict(_series("a", [level] * rows), HORIZON)
    width = forecast.quantiles[..., -1] - forecast.quantiles[..., 0]
    assert_allclose(forecast.median, level, rtol=1e-6)
    assert_allclose(width, abs(level), rtol=1e-4)
    assert forecast.status == (f"ok, {rows} observation" + "s" * (rows > 1),)


@pytest.mark.parametrize("values", [[0.0], [0.0, 0.0], [0.0, 1.0]])
def test_few_zeros_are_not_certain(values):
    forecast = fc.predict(_series("a", values), HORIZON)
    assert (forecast.quantiles[..., -1] > 0.1).all() and (forecast.quantiles >= 0).all()


def test_a_constant_of_less_than_a_season_has_the_band_of_others_and_a_longer_one_none():
    rng = np.random.default_rng(0)
    lasting = [_series(f"long {n}", 20 + 2 * rng.normal(size=90)) for n in range(9)]
    constants = [_series(f"of {rows}", [7.0] * rows) for rows in (6, 7, 60)]
    varied = _series("varied", [7.0, 7.1, 7.0, 7.1, 7.0, 7.1])
    forecast = fc.predict(pl.concat([*lasting, *constants, varied]), HORIZON)
    status = dict(zip(forecast.panel.series_names, forecast.status, strict=True))
    width = forecast.quantiles[..., 0, -1] - forecast.quantiles[..., 0, 0]
    wide = dict(zip(forecast.panel.series_names, width.mean(axis=1) / 7, strict=True))
    assert status["of 6"] == "ok, 6 observations" and 0.2 < wide["of 6"] < 0.4
    assert {status["of 7"], status["of 60"], status["varied"], status["long 0"]} == {"ok"}
    assert wide["of 7"] < 0.01 and wide["of 60"] < 0.01 and wide["varied"] < 0.1


def test_gaps_are_no_observations():
    rows = _series("gapped", [10.0, *[np.nan] * 30, 12.0])
    table = pl.concat([_planted("narrow", {90: 9})[0], rows])
    forecast = fc.predict(table, HORIZON)
    (at,) = [n for n, name in enumerate(forecast.panel.series_names) if name == "gapped"]
    assert forecast.status[at] == "ok, 2 observations"


@pytest.mark.long
def test_a_saved_model_keeps_the_bands_and_every_reader_of_a_status_takes_them_as_forecasts(tmp_path):
    table, _ = _planted("lognormal", {1: 3, 2: 3, 90: 9})
    model = fc.fit(table, horizon=HORIZON, config=tiny.config_with(experts=["naive"]), quiet=True)
    model.save(tmp_path / "model")
    first, again = (one.predict(table) for one in (model, fc.load(tmp_path / "model")))
    assert tiny.bits(again.quantiles) == tiny.bits(first.quantiles)
    assert first.lost == (0, "") and "without a forecast" not in first.report
    model.explain(table, only="001 000")
    assert set(first.total("horizon").frame["status"]) == {"ok"}
    far = model.predict(table, levels=[80, 95])
    assert far.status[0].startswith("ok, 1 observation") and far.lost == (0, "")
    assert fc.predict(table, HORIZON, samples=5).samples["status"][0].startswith("ok, 1 observation")
