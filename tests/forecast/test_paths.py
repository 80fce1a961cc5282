"""Joint sample paths: each cell keeps its distribution, sums have the variance of errors that go together."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest
import torch
from forecast import tiny
from scipy.special import ndtr, ndtri

import forecaster as fc
from forecaster.forecast.error_levels import _counts, measured_errors
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.paths import GRID, UNKNOWN, ErrorLevels, PathSource, pair_hashes
from forecaster.model.tails import at_levels

HORIZON = 12
S = 400


def panel_of(series: int, days: int = 120) -> pl.DataFrame:
    """Noise of a few series."""
    rng = np.random.default_rng(0)
    names = [f"s{number}" for number in range(series)]
    frames = [
        pl.DataFrame(
            {"store": name, "date": [tiny.day(n) for n in range(days)], "y": rng.normal(size=days)}
        )
        for name in names
    ]
    return pl.concat(frames)


@cache
def forecast_of(series: int) -> Forecast:
    """A forecast whose cells all have the quantiles of a normal distribution, of variance 1."""
    found = fc.predict(panel_of(series), HORIZON)
    normal = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(found.levels)).numpy()
    quantiles = np.broadcast_to(normal, found.quantiles.shape).astype(float)
    return replace(found, quantiles=quantiles, mean=np.zeros_like(found.mean))


def with_errors(forecast: Forecast, errors: np.ndarray, spacing: int = HORIZON) -> Forecast:
    """The forecast with errors z [J, N, H] at earlier cutoffs."""
    counts = np.clip(ndtr(errors) * (len(GRID) + 1), 0, len(GRID)).astype(np.uint8)
    series = np.arange(errors.shape[1])
    hashes = pair_hashes(forecast.panel, series)[:, 0]
    levels = ErrorLevels(counts, hashes, spacing, hashes)
    return replace(forecast, source=PathSource(levels, forecast.source.ensemble))


def autoregression(shape: tuple[int, ...], phi: float) -> np.ndarray:
    """Errors of variance 1 with correlation φ^|h − k| over the last axis."""
    z = np.random.default_rng(1).normal(size=shape)
    for lead in range(1, shape[-1]):
        z[..., lead] = phi * z[..., lead - 1] + (1 - phi**2) ** 0.5 * z[..., lead]
    return z


def deviation(paths: np.ndarray, axes: tuple[int, ...]) -> float:
    """Standard deviation over paths of sums over other axes, a mean over the rest."""
    return float(paths.sum(axis=axes, keepdims=True).std(axis=1).mean())


def test_each_cell_has_its_own_quantiles_at_evenly_spaced_levels():
    forecast = forecast_of(3)
    paths = with_errors(forecast, autoregression((20, 3, HORIZON), 0.9)).draw(50)
    levels = [(place + 0.5) / 50 for place in range(50)]
    expected = at_levels(torch.from_numpy(forecast.quantiles), forecast.levels, levels).numpy()
    assert paths.shape == (3, 50, HORIZON, 1)
    np.testing.assert_allclose(np.sort(paths, axis=1), np.moveaxis(expected, -1, 1), rtol=1e-6)


@pytest.mark.parametrize("phi", [0.0, 0.5, 0.9])
def test_sums_over_leads_have_the_variance_of_an_autoregression(phi):
    """Var Σₕ zₕ = Σ φ^|h − k|."""
    forecast = forecast_of(30)
    paths = with_errors(forecast, autoregression((20, 30, HORIZON), phi)).draw(S)
    lag = np.abs(np.subtract.outer(range(HORIZON), range(HORIZON)))
    unit = deviation(paths, ())  # the tails of the package are wider than a normal distribution's
    assert deviation(paths, (2,)) / unit == pytest.approx((phi**lag).sum() ** 0.5, rel=0.1)


@pytest.mark.parametrize(("rho", "slack"), [(0.0, 0.12), (0.6, 0.2)])
def test_sums_over_series_have_the_variance_of_a_common_factor(rho, slack):
    """Var Σₙ zₙ = N + N (N − 1) ρ; few cutoffs of thirty independent series refute a usual ρ."""
    shape = (40, 30, HORIZON)
    common = np.random.default_rng(2).normal(size=(40, 1, HORIZON))
    own = np.random.default_rng(3).normal(size=shape)
    forecast = forecast_of(30)
    paths = with_errors(forecast, rho**0.5 * common + (1 - rho) ** 0.5 * own).draw(S)
    expected = (30 + 30 * 29 * rho) ** 0.5
    assert deviation(paths, (0,)) / deviation(paths, ()) == pytest.approx(expected, rel=slack)


def test_sums_of_skewed_cells_are_no_wider_for_few_cutoffs():
    """Twenty directions of errors are never quite at right angles, and squares of what they share add up."""
    forecast = forecast_of(30)
    skewed = forecast.quantiles[..., -1:] ** 2 * np.array([0, 0, 0, 0, 0, 0.1, 0.3, 0.8, 2.0])
    forecast = replace(forecast, quantiles=np.broadcast_to(skewed, forecast.quantiles.shape).copy())
    errors = np.random.default_rng(6).normal(size=(20, 30, HORIZON))
    found = with_errors(forecast, errors - errors.mean(axis=(0, 1, 2))).draw(S)
    # The sums of cells that are drawn by themselves; with lengths that differ 1.7.
    expected = (30 * HORIZON) ** 0.5
    assert deviation(found, (0, 2)) / deviation(found, ()) == pytest.approx(expected, rel=0.25)


def test_errors_of_a_demand_as_it_was_forecast_have_no_mean_in_common():
    """Zeros count as the mean error of their levels: as the middle one the mean would be .12."""
    model = tiny.model().artifact
    levels = model.plan.model.quantile_levels
    quantiles = torch.tensor([0.0 if level < 0.75 else 10 * level - 7 for level in levels]).double()
    truth = at_levels(quantiles, levels, GRID).clamp(min=0.0)[:, None, None].numpy()
    repeated = np.broadcast_to(quantiles.numpy(), (len(GRID), 1, 1, len(levels)))
    counts = _counts(model, repeated.copy(), truth)
    assert ndtri((counts + 0.5) / (len(GRID) + 1)).mean() == pytest.approx(0.0, abs=0.02)


def test_series_whose_errors_are_opposite_cancel_in_their_sum():
    z = autoregression((40, 1, HORIZON), 0.5)
    paths = with_errors(forecast_of(2), np.concatenate([z, -z], axis=1)).draw(S)
    assert deviation(paths, (0,)) < 0.75 * 2**0.5 * deviation(paths, ())


def test_errors_that_are_not_known_leave_what_all_series_have_in_common():
    forecast = forecast_of(3)
    counts = np.full((20, 3, HORIZON), UNKNOWN, np.uint8)
    hashes, empty = pair_hashes(forecast.panel, np.arange(3))[:, 0], np.empty(0, np.int64)
    unknown = ErrorLevels(counts, hashes, HORIZON, hashes)
    assert (unknown.cutoffs, unknown.correlation) == (0, pytest.approx(0.1))
    none = ErrorLevels(counts[:0, :0], empty, HORIZON, empty)
    assert none.over_leads[1, 0] == pytest.approx(0.65, rel=1e-4)
    draws = [replace(forecast.source, errors=errors).draw(forecast, 9, 0) for errors in (unknown, none)]
    np.testing.assert_allclose(*draws)


def test_paths_are_those_of_seed_series_and_cutoff_whatever_stands_beside_them():
    table = panel_of(5)
    model, panel = fc.api.without_fit(table, HORIZON)
    whole = model.predict(panel, samples=20)
    assert np.array_equal(model.predict(panel, samples=20).paths, whole.paths)
    some = model.predict(panel, samples=20, only=["s3", "s1"])
    np.testing.assert_allclose(some.paths, whole.paths[[1, 3]], atol=1e-5)  # last bits of a batch
    assert np.array_equal(whole.between(2, 4).draw(20), whole.paths[2:4])
    assert np.array_equal(model.predict(panel).draw(20), whole.paths)
    shorter = model.predict(panel, horizon=5, samples=20)
    np.testing.assert_allclose(shorter.paths, whole.paths[:, :, :5], atol=1e-5)
    assert not np.array_equal(model.predict(panel, samples=20, seed=1).paths, whole.paths)


def test_bounds_and_whole_numbers_hold_for_paths():
    paths = fc.predict(panel_of(2), HORIZON, samples=30, lower=-1, upper=1, integer=True).paths
    assert set(np.unique(paths)) == {-1.0, 0.0, 1.0}


def test_a_saved_model_draws_the_paths_of_its_fit(tmp_path):
    model = tiny.model()
    own = model.predict(tiny.shop(), future=tiny.prices(), samples=8).paths
    model.save(tmp_path / "model")
    assert (tmp_path / "model" / "errors.safetensors").stat().st_size < 2_100_000
    loaded = fc.load(tmp_path / "model").predict(tiny.shop(), future=tiny.prices(), samples=8)
    assert np.array_equal(loaded.paths, own)


@pytest.mark.usefixtures("all_cutoffs")
def test_errors_are_those_of_forecasts_at_earlier_cutoffs():
    table = panel_of(4)
    model, panel = fc.api.without_fit(table, HORIZON)
    errors = measured_errors(model.artifact, panel)
    assert errors.counts.shape == (20, 4, HORIZON)
    order = [errors.hashes.tolist().index(number) for number in pair_hashes(panel, np.arange(4))[:, 0]]
    for cutoff in (0, 7):
        time = panel.time[panel.last_observed[0] - HORIZON - errors.spacing * cutoff]
        past = model.predict(panel, cutoff=panel.calendar.text(time))
        quantiles = torch.from_numpy(past.quantiles[:, :, 0])
        grid = at_levels(quantiles, past.levels, GRID).numpy()
        rows = panel.row_at(int(time))[:, None] + np.arange(1, HORIZON + 1)
        below = (grid < panel.values[rows, 0][..., None]).sum(axis=-1)
        found = errors.counts[cutoff][order].astype(int)
        assert np.abs(found - below).max() <= 1  # ties, and the batch's last bits


def test_few_earlier_cutoffs_are_said_in_the_status_of_paths():
    rows = fc.predict(panel_of(2, 30), HORIZON, samples=2).samples
    assert rows["status"].unique().to_list() == ["ok, errors of 7 earlier cutoffs"]


@pytest.mark.parametrize(
    "change",
    [
        {"cutoffs": 3},
        {"count": 2},
        {"count": 1 << 40},
        {"spacing": 0},
        {},
    ],
)
def test_errors_that_do_not_fit_their_contract_are_refused(change, tmp_path):
    tiny.model().save(tmp_path / "model")
    file = tmp_path / "model" / "contract.json"
    contract = json.loads(file.read_text())
    contract["errors"] = contract["errors"] | change if change else None
    file.write_text(json.dumps(contract))
    with pytest.raises(fc.ArtifactError, match="errors"):
        fc.load(tmp_path / "model")


def test_counts_beyond_the_grid_are_refused(tmp_path):
    artifact = tiny.model().artifact
    counts = np.full_like(artifact.errors.counts, 120)
    fc.Forecaster(replace(artifact, errors=replace(artifact.errors, counts=counts))).save(
        tmp_path / "model"
    )
    with pytest.raises(fc.ArtifactError, match="expected counts of at most 100"):
        fc.load(tmp_path / "model")


def test_paths_of_a_cell_have_its_mean_by_a_longer_or_a_shorter_upper_tail():
    """Nine quantiles of 0 leave no value above 0, but one in twenty sells."""
    forecast = forecast_of(2)
    nothing = replace(
        forecast,
        quantiles=np.zeros_like(forecast.quantiles),
        mean=np.full(forecast.mean.shape, 0.05),
    )
    paths = nothing.draw(200)
    np.testing.assert_allclose(paths.mean(axis=1), 0.05)
    assert np.quantile(paths, 0.899, axis=1).max() == 0.0 and paths.max() > 0.5
    for added in (-0.05, 0.0, 0.3):
        moved = np.sort(replace(forecast, mean=forecast.mean + added).draw(200), axis=1)
        np.testing.assert_allclose(moved.mean(axis=1), added, atol=1e-9)
        np.testing.assert_allclose(moved[:, :180], np.sort(forecast.draw(200), axis=1)[:, :180])


@pytest.mark.long
@pytest.mark.usefixtures("all_cutoffs")
def test_totals_of_rare_demand_are_those_sold():
    """Of 40 series that sell one piece in twenty days, 28 in 14 days: each median is 0."""
    rng = np.random.default_rng(0)
    sold = rng.poisson(0.05, (40, 150)).astype(float)
    days = [tiny.day(n) for n in range(150)]
    frames = [pl.DataFrame({"store": f"s{n}", "date": days, "y": row}) for n, row in enumerate(sold)]
    forecast = fc.predict(pl.concat(frames), 14)
    assert np.median(forecast.median) == 0.0
    total = forecast.total("horizon", by="all", samples=200)
    low, high = total.quantiles[0, [0, -1]]
    assert total.median[0] == pytest.approx(28, rel=0.25) and low < 28 < high
