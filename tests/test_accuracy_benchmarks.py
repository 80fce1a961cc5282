"""The accuracy benchmarks keep to their protocols: which rows train, which are scored, how."""

import json
import sys
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import accuracy
import accuracy_report as report
import epf
import epf_two_years
import ett
import m4
import panels
from evaluation import textbook_metrics as metrics

from forecaster.config import Config

DATA = Path(__file__).parents[2] / "shared" / "datasets"
LEVELS = Config().model.quantile_levels
TINY = {
    "model.width": 8,
    "model.heads": 2,
    "model.encoder_layers": 1,
    "model.context_length": 48,
    "model.patch": 24,
    "model.experts": [],
    "fit.steps": 2,
    "fit.batch_size": 8,
}
SETTINGS = ["--no-track", "--config", str(Path(__file__).parents[1] / "configs" / "smoke.yaml")]
SETTINGS += [word for key, value in TINY.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """Enough for intervals that nobody reads."""
    monkeypatch.setattr(report, "_DRAWS", 100)


def _clock(rows: int) -> list[str]:
    begin = datetime(2020, 1, 1)
    return [str(begin + timedelta(hours=row)) for row in range(rows)]


def _write(path: Path, rows: int, columns: tuple[str, ...], seed: int = 0) -> Path:
    """A table of hours with a daily season and noise."""
    rng = np.random.default_rng(seed)
    day = np.sin(np.arange(rows) * 2 * np.pi / 24)
    cells = {name: 10 + 5 * day + rng.normal(size=rows) for name in columns}
    pl.DataFrame({"date": _clock(rows)} | cells).write_csv(path)
    return path


def _write_m4(path: Path, series: dict[str, np.ndarray]) -> Path:
    width = max(map(len, series.values()))
    lines = [",".join(["V1", *(f"V{k + 2}" for k in range(width))])]
    for name, values in series.items():
        lines.append(",".join([name, *map(str, values), *[""] * (width - len(values))]))
    path.write_text("\n".join(lines) + "\n")
    return path


def _config(**sections: dict) -> Config:
    tiny: dict[str, dict] = {"model": {}, "fit": {}, "tracking": {"enabled": False}}
    for key, value in TINY.items():
        section, _, name = key.partition(".")
        tiny[section][name] = value
    return Config().replaced(**{name: tiny[name] | sections.get(name, {}) for name in tiny})


def _run(script, monkeypatch, *words: object) -> None:
    """Runs a script as its command line would."""
    monkeypatch.setattr(sys, "argv", [f"{script.__name__}.py", *map(str, [*words, *SETTINGS])])
    report.guarded(script.main)


def _assert_same(first: accuracy.Found, again: accuracy.Found) -> None:
    assert first.keys() == again.keys()
    for key, scores in first.items():
        for name, pairs in scores.items():
            np.testing.assert_array_equal(pairs, again[key][name])


def _task(n: int = 7, horizon: int = 5, channels: int = 2, missing: float = 0.2) -> accuracy.Task:
    """Windows of a table of numbered rows, some of the truth missing."""
    panel = _panel(60 + n * horizon, channels)
    task = accuracy.last_windows("made up", panel, horizon, n, (6,))
    actual = task.actual.copy()
    actual[np.random.default_rng(1).random(actual.shape) < missing] = np.nan
    return replace(task, actual=actual)


def _panel(rows: int, channels: int):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame(
        {"t": range(rows)} | {f"y{c}": rng.normal(5, 2, rows) for c in range(channels)}
    )
    return panels.open_panel(frame, Config().data.model_copy(update={"time": "t"}))


# ── scores ──────────────────────────────────────────────────────────────────────────────────────


def test_scores_over_windows_are_the_metrics_of_the_package():
    task = _task()
    quantiles = np.sort(np.random.default_rng(2).normal(5, 2, (*task.actual.shape, 9)), axis=-1)
    quantiles = quantiles.astype(np.float32)
    names = ("mse", "mae", "smape", "mase", "sql", "wql")
    scores = accuracy.scored(task, lambda part: quantiles[part], names, LEVELS)
    actual, q = task.actual.transpose(0, 2, 1), quantiles.transpose(0, 2, 1, 3)
    scale = accuracy._scales(task, slice(None))[:, 0]
    found = {name: accuracy.value(pairs) for name, pairs in scores.items()}
    assert found == pytest.approx(
        {
            "mse": metrics.mse(actual, q[..., 4]),
            "mae": metrics.mae(actual, q[..., 4]),
            "smape": metrics.smape(actual, q[..., 4]),
            "mase": metrics.mase(actual, q[..., 4], scale),
            "sql": metrics.sql(actual, q, LEVELS, scale),
            "wql": metrics.wql(actual, q, LEVELS),
        }
    )


# ── ETT ─────────────────────────────────────────────────────────────────────────────────────────

SHORT = ett.Parts(train=240, validation=96, test=72)


@pytest.mark.parametrize(("horizon", "windows"), [*zip(ett.HORIZONS, ett.WINDOWS, strict=True)])
def test_ett_scores_every_window_of_the_test_rows(horizon, windows):
    panel = _panel(14_400, 1)
    task = ett.task_of("made up", panel, horizon)
    assert len(task.cutoff) == windows and (np.diff(task.cutoff) == 1).all()
    assert task.cutoff[0] + 1 == 11_520 and task.cutoff[-1] + horizon == 14_399
    assert task.seen.n_rows == 11_520 and task.trains_until == 8_639
    values = panel.values[:, 0].astype(np.float64)
    scaled = (values - values[:8640].mean()) / values[:8640].std()
    np.testing.assert_allclose(task.panel.values[:, 0], scaled, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(task.actual[5, :, 0], task.panel.values[11_525 : 11_525 + horizon, 0])


def test_ett_fits_and_scales_by_training_rows_alone(tmp_path):
    path = _write(tmp_path / "made.csv", 500, ("a", "b"))
    first = ett.measured(path, [24], _config(), 1, parts=SHORT)
    assert first["made", 24, 0, "forecaster"]["mse"].shape == (72 - 24 + 1, 2)
    later = pl.int_range(pl.len()) >= SHORT.rows
    pl.read_csv(path).with_columns(a=pl.when(later).then(1e6).otherwise("a")).write_csv(path)
    _assert_same(first, ett.measured(path, [24], _config(), 1, parts=SHORT))


@pytest.mark.slow
def test_ett_for_choosing_reads_nothing_of_the_test_rows(tmp_path):
    path = _write(tmp_path / "made.csv", SHORT.rows, ("a",))
    first = ett.measured(path, [24], _config(), 1, spans=2, parts=SHORT)
    assert len(first["made", 24, 0, "forecaster"]["mse"]) == 2 * 49
    test = pl.int_range(pl.len()) >= SHORT.seen
    pl.read_csv(path).with_columns(a=pl.when(test).then(1e6).otherwise("a")).write_csv(path)
    _assert_same(first, ett.measured(path, [24], _config(), 1, spans=2, parts=SHORT))


# ── EPF ─────────────────────────────────────────────────────────────────────────────────────────

COLUMNS = (" load forecast", " wind forecast", "OT")


def test_epf_scores_the_last_480_hours_in_20_windows(tmp_path):
    path = _write(tmp_path / "EPF-XX.csv", 1200, COLUMNS)
    panel = epf.opened(path, _config())
    assert panel.schema.known == ("load forecast", "wind forecast") and panel.schema.past == ()
    task = accuracy.last_windows("EPF-XX", panel, 24, 20, (24,))
    assert task.cutoff.tolist() == [719 + 24 * k for k in range(20)]
    assert task.seen.n_rows == 720
    assert task.actual.shape == (20, 24, 1)
    history = panel.values[:744, 0].astype(np.float64)
    assert accuracy._scales(task, slice(1, 2)).item() == pytest.approx(
        np.abs(history[24:] - history[:-24]).mean()
    )


@pytest.mark.slow
def test_epf_prints_a_table_and_writes_rows(tmp_path, monkeypatch, capsys):
    paths = [
        _write(tmp_path / f"EPF-{name}.csv", 1100, COLUMNS, seed=k)
        for k, name in enumerate(("DE", "XX"))
    ]
    out = tmp_path / "rows.json"
    _run(epf, monkeypatch, *paths, "--seeds", 2, "--json", out)
    rows = json.loads(out.read_text())
    assert {tuple(row) for row in rows} == {("dataset", "model", "horizon", "seed", "metric", "value")}
    mine = [r for r in rows if r["model"] == "forecaster" and r["dataset"] == "EPF-DE"]
    assert {(r["seed"], r["metric"]) for r in mine} == {(s, m) for s in (0, 1) for m in epf.METRICS}
    value = {(r["dataset"], r["model"], r["seed"], r["metric"]): r["value"] for r in rows}
    ratios = [
        value[path.stem, "forecaster", 1, "mase"] / value[path.stem, "seasonal_naive", 1, "mase"]
        for path in paths
    ]
    skill = value["EPF", "forecaster", 1, "mase_skill"]
    assert skill == pytest.approx(1 - np.sqrt(np.prod(ratios)))
    said = capsys.readouterr()
    assert "| seasonal_naive |" in said.out and "PatchTST, from scratch | .573 (.460) | – |" in said.out
    assert f"EPF-DE.csv {paths[1]}" in said.out and "seed 1 · 20 windows" in said.err


@pytest.mark.long
def test_two_years_of_prices_are_scored_beside_published_forecasts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(epf_two_years, "DAYS", 14)
    path = _write(tmp_path / "EPF-DE.csv", 60 * 24, ("load", "OT"))
    price = pl.read_csv(path)["OT"].to_numpy()
    near = price[-14 * 24 :] + np.random.default_rng(1).normal(size=14 * 24) / 10
    table = pl.DataFrame({"date": _clock(14 * 24), "ensemble": near})
    table.write_csv(tmp_path / "published.csv")
    beside = ("--published", tmp_path / "published.csv")
    _run(epf, monkeypatch, "--two-years", path, *beside, "--update-every", "7d")
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    mae = {name.strip("| "): float(cell.split()[0]) for name, cell, *_ in rows[2:]}
    week = price[-14 * 24 - 168 : -168]
    assert mae["same hour a week before"] == pytest.approx(
        np.abs(week - price[-14 * 24 :]).mean(), abs=1e-3
    )
    assert mae["ensemble"] == pytest.approx(np.abs(near - price[-14 * 24 :]).mean(), abs=1e-3)
    assert 0.5 < mae["forecaster"] < 5
    assert epf_two_years.chance_of_less(np.array([1.0, 2, 1, 2]), np.array([3.0, 2.5, 3, 4])) < 0.001


@pytest.mark.slow
def test_a_tracked_benchmark_records_scores_and_a_verdict(tmp_path, monkeypatch):
    from mlflow.tracking import MlflowClient

    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setattr(sys.modules[__name__], "SETTINGS", SETTINGS[1:])  # without --no-track
    path = _write(tmp_path / "EPF-DE.csv", 1100, COLUMNS)
    _run(epf, monkeypatch, path, "--seeds", 1, "--json", tmp_path / "rows.json")
    (run,) = MlflowClient(store).search_runs(
        [e.experiment_id for e in MlflowClient(store).search_experiments()]
    )
    assert run.info.status == "FINISHED"
    assert run.data.tags["mlflow.note.content"].startswith("test: seasonal_naive mase ")
    assert any(name.startswith("benchmark_test") for name in run.data.metrics)


@pytest.mark.slow
def test_epf_for_choosing_reads_nothing_of_the_test_span(tmp_path):
    path = _write(tmp_path / "EPF-XX.csv", 1700, COLUMNS)
    panel = epf.opened(path, _config())
    noise = panel.values.copy()
    noise[-480:] = np.random.default_rng(3).normal(size=(480, 3))
    first = epf.measured("XX", panel, _config(), 1, spans=2)
    again = epf.measured("XX", replace(panel, values=noise), _config(), 1, spans=2)
    _assert_same(first, again)
    assert len(first["XX", 24, 0, "forecaster"]["mase"]) == 40


# ── M4 ──────────────────────────────────────────────────────────────────────────────────────────


def _m4_files(folder: Path) -> tuple[Path, Path]:
    rng = np.random.default_rng(0)
    day = 20 + 5 * np.sin(np.arange(400) * 2 * np.pi / 24)
    whole = {f"H{k}": (k + 1) * (day[: 300 + 20 * k] + rng.normal(size=300 + 20 * k)) for k in range(4)}
    train = {name: values[:-24] for name, values in whole.items()}
    test = {name: whole[name][-24:] for name in reversed(whole)}
    return _write_m4(folder / "M4-X-train.csv", train), _write_m4(folder / "M4-X-test.csv", test)


@pytest.mark.long
def test_m4_averages_over_series_and_divides_by_naive2(tmp_path, monkeypatch, capsys):
    train, test = _m4_files(tmp_path)
    out = tmp_path / "rows.json"
    words = ["--season", 24, "--horizon", 24, "--naive2", 10, 2, "--seeds", 1, "--json", out]
    _run(m4, monkeypatch, train, test, *words)
    rows = {(r["model"], r["metric"]): r["value"] for r in json.loads(out.read_text())}
    told = {line.split(",")[0]: line.split(",") for line in train.read_text().splitlines()[1:]}
    smapes, mases = [], []
    for line in test.read_text().splitlines()[1:]:
        name, *cells = line.split(",")
        y = np.array([float(cell) for cell in cells])
        history = np.array([float(cell) for cell in told[name][1:] if cell])
        f = history[-24:]
        smapes.append(200 / 24 * (np.abs(y - f) / (np.abs(y) + np.abs(f))).sum())
        mases.append(np.abs(y - f).mean() / np.abs(history[24:] - history[:-24]).mean())
    assert rows["seasonal_naive", "smape"] == pytest.approx(np.mean(smapes), rel=1e-5)
    assert rows["seasonal_naive", "mase"] == pytest.approx(np.mean(mases), rel=1e-5)
    assert rows["seasonal_naive", "owa"] == pytest.approx(
        (np.mean(smapes) / 10 + np.mean(mases) / 2) / 2
    )
    assert ("forecaster", "owa") in rows and rows["naive2", "owa"] == 1
    assert "| naive2 | 10.000 | 2.000 | 1.000 |" in capsys.readouterr().out


@pytest.mark.slow
def test_m4_for_choosing_does_not_open_the_test_file(tmp_path):
    train, _ = _m4_files(tmp_path)
    tasks = m4.tasks_of(train, tmp_path / "absent.csv", 24, 24, _m4_config(), spans=2)
    panel = m4.open_panel(train, _m4_config().data)
    ends = panel.indptr[1:]
    for task, span in zip(tasks, (1, 2), strict=True):
        for s, end in enumerate(ends):
            expected = panel.values[end - 24 * span : end - 24 * (span - 1)]
            np.testing.assert_array_equal(task.actual[s], expected)
        assert task.seen.n_rows == panel.n_rows - 4 * 24 * span
        assert np.isnan(task.panel.values).sum() == 4 * 24


def _m4_config() -> Config:
    return _config().replaced(data={"layout": "rows", "season_length": 24})


# ── panels ──────────────────────────────────────────────────────────────────────────────────────


def test_panels_are_told_beside_the_better_seasonal_naive(tmp_path, monkeypatch, capsys):
    path = _write(tmp_path / "sales.csv", 900, ("units", "price"))
    out = tmp_path / "rows.json"
    words = "--target units --known price --horizon 12 --seasons 24 7 --windows 10 --seeds 1"
    _run(panels, monkeypatch, path, *words.split(), "--json", out)
    rows = {(r["model"], r["metric"]): r["value"] for r in json.loads(out.read_text())}
    assert (
        rows["seasonal_naive", "wql"]
        == rows["seasonal_naive_24", "wql"]
        < rows["seasonal_naive_7", "wql"]
    )
    assert rows["forecaster", "wql_skill"] == pytest.approx(
        1 - rows["forecaster", "wql"] / rows["seasonal_naive", "wql"]
    )
    assert "to be beaten" in capsys.readouterr().out


# ── the real files ──────────────────────────────────────────────────────────────────────────────

real = pytest.mark.skipif(not DATA.is_dir(), reason="the real data sets are not on this machine")


def _naive(task: accuracy.Task, names: tuple[str, ...]) -> dict[str, float]:
    (forecast,) = accuracy.naives(task, LEVELS).values()
    scores = accuracy.scored(task, forecast, names, LEVELS)
    return {name: accuracy.value(pairs) for name, pairs in scores.items()}


@real
@pytest.mark.slow
def test_seasonal_naive_and_naive2_have_the_known_scores_on_m4_hourly():
    files = (DATA / "M4-Hourly-train.csv", DATA / "M4-Hourly-test.csv")
    (task,) = tasks = m4.tasks_of(*files, 24, 48, _m4_config())
    assert task.seen.n_series == 414
    found = _naive(task, ("smape", "mase"))
    assert found["smape"] == pytest.approx(13.912, abs=6e-4)
    assert found["mase"] == pytest.approx(1.193, abs=6e-4)
    assert m4.naive2_scores(tasks) == pytest.approx((18.383, 2.395), abs=6e-4)
