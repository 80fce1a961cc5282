"""GIFT-Eval's and the M competitions' scores of the benchmarks equal those of a loop over all cells."""

import json
import math
import sys
from datetime import date, timedelta
from pathlib import Path
from statistics import fmean

import polars as pl
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import gift
import mcomp
import stored_rows

import forecaster as fc

SETTINGS = {
    "model.width": 8,
    "model.heads": 2,
    "model.encoder_layers": 1,
    "model.context_length": 14,
    "model.patch": 7,
    "model.experts": ["naive"],
    "fit.steps": 1,
}
WORDS = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={json.dumps(value)}")]
CONFIG = fc.load_config(None, [*WORDS[1::2], "fit.seed=3", "tracking.enabled=false"])
LEVELS = [level / 10 for level in range(1, 10)]


def values(series: int, rows: int) -> list[float | None]:
    """Whole numbers of a weekly season; every 17th is missing."""
    return [None if t % 17 == 5 else 20.0 + (t * (series + 2)) % 7 + t % 5 for t in range(rows)]


def days(rows: int, first: date = date(2024, 1, 1)) -> list[date]:
    return [first + timedelta(t) for t in range(rows)]


@pytest.fixture(autouse=True)
def one_commit(monkeypatch):
    monkeypatch.setattr(stored_rows, "commit", lambda: "abc")


def run(module, monkeypatch, *words: object) -> list[dict]:
    """The rows that a script writes."""
    settings = [] if "--no-fit" in words else ["--seeds", "3", *WORDS]
    monkeypatch.setattr(sys, "argv", ["script", *map(str, words), *settings])
    module.main()
    return json.loads(Path(words[words.index("--json") + 1]).read_text())


def scale_of(past: list[float | None], season: int) -> float:
    changes = [
        abs(b - a) for a, b in zip(past, past[season:], strict=False) if a is not None and b is not None
    ]
    return fmean(changes)


def forecast_rows(table: pl.DataFrame, horizon: int, model: fc.Forecaster | None) -> dict:
    """The forecast of each series and day, by a model or without a fit."""
    made = fc.predict(table, horizon) if model is None else model.predict(table)
    return {(r["unique_id"], r["ds"]): r for r in made.frame.iter_rows(named=True)}


def tied_share(y: float, row: dict) -> float:
    """The part of the probability tied at y that is inside the band: level k stands for k ± .05."""
    tied = [k for k in range(9) if row[f"q{LEVELS[k]:g}"] == y]
    if not {0, 8} & {*tied}:
        return float(row["q0.1"] < y < row["q0.9"])
    begin = 0.0 if tied[0] == 0 else LEVELS[tied[0]] - 0.05
    end = 1.0 if tied[-1] == 8 else LEVELS[tied[-1]] + 0.05
    return (min(end, 0.9) - max(begin, 0.1)) / (end - begin)


@pytest.mark.parametrize("fitted", [True, False])
def test_a_gift_table_is_scored_as_by_a_loop(tmp_path, monkeypatch, capsys, fitted):
    horizon, windows, season = 4, 2, 7
    ragged = {"a": (80, date(2024, 1, 1)), "b": (60, date(2023, 3, 1))}
    table = pl.concat(
        pl.DataFrame({"unique_id": name, "ds": days(rows, first), "y": values(number, rows)})
        for number, (name, (rows, first)) in enumerate(ragged.items())
    )
    table.write_parquet(tmp_path / "t.parquet")
    (tmp_path / "list.csv").write_text(
        f"config,file,horizon,windows,season\nmade/D/short,t.parquet,{horizon},{windows},{season}\n"
    )
    out = tmp_path / "rows.json"
    words = () if fitted else ("--no-fit",)
    (row,) = run(gift, monkeypatch, "--root", tmp_path, "--json", out, *words)

    # The loop: each series ends on its own day; rows are counted from its end.
    history = {name: values(number, ragged[name][0]) for number, name in enumerate(ragged)}
    cut = {n: len(own) - windows * horizon for n, own in history.items()}
    begin = {name: ragged[name][1] for name in ragged}

    def seen(after: int) -> pl.DataFrame:
        return pl.concat(
            pl.DataFrame(
                {"unique_id": n, "ds": days(cut[n] + after, begin[n]), "y": own[: cut[n] + after]}
            )
            for n, own in history.items()
        )

    model = fc.fit(seen(0), horizon, config=CONFIG, quiet=True) if fitted else None
    scaled, scaled_naive, loss, size, inside, cells = [], [], [0.0] * 9, 0.0, [], 0
    loss_naive = [0.0] * 9
    at_cutoff = {name: [0.0] * windows for name in ("cells_at", "inside_at", "inside_ties_at")}
    for window in range(windows):
        rows = forecast_rows(seen(window * horizon), horizon, model)
        for name, own in history.items():
            n = cut[name] + window * horizon
            scale = scale_of(own[:n], season)
            for lead in range(horizon):
                y = own[n + lead]
                if y is None:
                    continue
                at = n + lead - season
                while own[at] is None:
                    at -= season
                forecast = rows[name, begin[name] + timedelta(n + lead)]
                cells += 1
                size += abs(y)
                scaled.append(abs(y - forecast["q0.5"]) / scale)
                scaled_naive.append(abs(y - own[at]) / scale)
                inside.append(forecast["q0.1"] <= y <= forecast["q0.9"])
                at_cutoff["cells_at"][window] += 1
                at_cutoff["inside_at"][window] += inside[-1]
                at_cutoff["inside_ties_at"][window] += tied_share(y, forecast)
                for k, level in enumerate(LEVELS):
                    for total, q in ((loss, forecast[f"q{level:g}"]), (loss_naive, own[at])):
                        total[k] += 2 * max(level * (y - q), (level - 1) * (y - q))
    expected = {
        "mase": fmean(scaled),
        "crps": fmean(total / size for total in loss),
        "mase_seasonal_naive": fmean(scaled_naive),
        "crps_seasonal_naive": fmean(total / size for total in loss_naive),
        "coverage_80": fmean(inside),
        "cells": cells,
        "missing": windows * horizon * len(ragged) - cells,
    }
    assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-9)
    for name, counts in at_cutoff.items():
        assert row[name] == pytest.approx(counts), name
    seed = 3 if fitted else None
    assert (row["config"], row["seed"], row["commit"]) == ("made/D/short", seed, "abc")
    relative = expected["crps"] / expected["crps_seasonal_naive"]
    assert f"1 configs: CRPS {relative:.3f}" in capsys.readouterr().out


def test_a_wide_gift_table_gives_the_cells_of_the_long_one(tmp_path):
    long = pl.concat(
        pl.DataFrame({"unique_id": name, "ds": days(30), "y": values(number, 30)})
        for number, name in enumerate("ab")
    )
    wide = long.pivot(on="unique_id", index="ds", values="y")
    assert gift.before(wide, 4).shape == (26, 3)
    assert gift.before(long, 4).group_by("unique_id").len()["len"].to_list() == [26, 26]
    for name, rows in gift.histories(long).items():
        assert gift.histories(wide)[name]["y"].equals(rows["y"])


def test_a_benchmark_that_was_stopped_continues_and_another_commit_starts_anew(tmp_path, monkeypatch):
    out, made = tmp_path / "rows.json", []

    def make() -> dict:
        made.append(1)
        return {"n": len(made)}

    assert stored_rows.stored(out, "a/b-0", make) == {"n": 1, "commit": "abc"}
    assert stored_rows.stored(out, "a/b-0", make) == {"n": 1, "commit": "abc"}
    assert stored_rows.stored(out, "a/c-0", make, "x=1")["n"] == 2
    assert stored_rows.stored(out, "a/c-0", make, "x=1") == {"n": 2, "commit": "abc"}
    assert stored_rows.stored(out, "a/c-0", make, "x=2")["n"] == 3  # asked for otherwise
    monkeypatch.setattr(stored_rows, "commit", lambda: "def")
    assert stored_rows.stored(out, "a/b-0", make) == {"n": 4, "commit": "def"}
    monkeypatch.setattr(stored_rows, "commit", lambda: "def-dirty")
    stored_rows.stored(out, "a/b-0", make)
    assert stored_rows.stored(out, "a/b-0", make)["n"] == 6  # nobody knows what was changed


@pytest.mark.parametrize("words", [("--set", "fit.steps=1"), ("--seeds", "1")])
def test_settings_of_a_fit_are_refused_without_one(tmp_path, monkeypatch, words):
    (tmp_path / "list.csv").write_text(
        "config,file,horizon,windows,season\nmade/D/short,t.parquet,1,1,1\n"
    )
    with pytest.raises(fc.ConfigError, match="leave them out, or --no-fit"):
        run(gift, monkeypatch, "--root", tmp_path, "--json", tmp_path / "rows.json", "--no-fit", *words)


@pytest.mark.parametrize(("held_out", "fitted"), [(True, True), (False, True), (True, False)])
def test_an_m_table_is_scored_as_by_a_loop(tmp_path, monkeypatch, held_out, fitted):
    horizon = mcomp.PERIODS["other"].horizon
    history = {"a": values(0, 40), "b": values(1, 33)}
    history = {n: [20.0 if y is None else y for y in own] for n, own in history.items()}
    train, test = tmp_path / "train", tmp_path / "test"
    train.mkdir(), test.mkdir()

    def table(part: slice) -> pl.DataFrame:
        return pl.concat(
            pl.DataFrame({"unique_id": n, "ds": days(len(own))[part], "y": own[part]})
            for n, own in history.items()
        )

    table(slice(None) if held_out else slice(None, -horizon)).write_parquet(train / "m_other.parquet")
    table(slice(-horizon, None)).write_parquet(test / "m_other.parquet")
    folders = (train,) if held_out else (train, test)
    out = tmp_path / "rows.json"
    options = ("--json", out, "--only", "other", *(() if fitted else ("--no-fit",)))
    (row,) = run(mcomp, monkeypatch, *folders, *options)

    seen = table(slice(None, -horizon))
    model = fc.fit(seen, horizon, config=CONFIG, quiet=True) if fitted else None
    rows = forecast_rows(seen, horizon, model)
    percent, scaled, inside, percent_naive, scaled_naive = [], [], [], [], []
    for name, own in history.items():
        past = own[:-horizon]
        scale = scale_of(past, 1)
        for lead, y in enumerate(own[-horizon:]):
            forecast = rows[name, days(len(own))[len(past) + lead]]
            median = forecast["q0.5"]
            percent.append(200 * abs(y - median) / (abs(y) + abs(median)))
            scaled.append(abs(y - median) / scale)
            percent_naive.append(200 * abs(y - past[-1]) / (abs(y) + abs(past[-1])))
            scaled_naive.append(abs(y - past[-1]) / scale)
            inside.append(forecast["q0.1"] <= y <= forecast["q0.9"])
    ratios = fmean(percent) / fmean(percent_naive), fmean(scaled) / fmean(scaled_naive)
    expected = {
        "smape": fmean(percent),
        "mase": fmean(scaled),
        "owa": fmean(ratios),
        "coverage_80": fmean(inside),
        "smape_naive2": fmean(percent_naive),
        "mase_naive2": fmean(scaled_naive),
        "series": 2,
        "cells": 2 * horizon,
        "missing": 0,
    }
    assert {key: row[key] for key in expected} == pytest.approx(expected, rel=1e-9)


def test_seasonal_naive_reads_the_last_value_of_each_phase():
    nan = math.nan
    history = pl.Series([1.0, 2.0, 3.0, 4.0, nan]).to_numpy()
    assert gift.seasonal_naive(history, 3, 4).tolist() == [3.0, 4.0, 2.0, 3.0]
    assert gift.seasonal_naive(history, 1, 2).tolist() == [4.0, 4.0]
