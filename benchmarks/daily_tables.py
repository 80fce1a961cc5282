"""Daily tables with covariates that are known in advance, as CSV files and a list for `league.py`.

    python benchmarks/daily_tables.py FOLDER --root DATA
    python benchmarks/league.py FOLDER/list.csv --root FOLDER --json rows.json \\
        --peers .venv-peers/bin/python --skip AutoETS --skip Theta      # after `make peers`

Electricity demand of Victoria, rides of bike sharing, day-ahead prices of Germany and of the Nordic countries, by
day; 14 days ahead at the last 20 cutoffs, as they are and with the last 400 days before the first cutoff. Rows
that other benchmarks test (`known_tables.py`) are left out.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from accuracy_report import guarded
from known_tables import SETTINGS

from forecaster.errors import DataError

HORIZON, WINDOWS, SEASON = 14, 20, 7
FEW = 400
"""Days of a short history."""
FIELDS = ("file", "time", "target", "known", "horizon", "season", "windows")


@dataclass(frozen=True)
class Source:
    """A table by the hour or finer, and what its days are made of."""

    name: str
    stem: str
    """Of its file."""
    columns: Mapping[str, pl.Expr]
    """Of a day: the target first, then what is known in advance."""


WIND = pl.col("Wind power forecast").mean()
PRICE = pl.col("OT").mean()
TEMPERATURE = pl.col("Temperature")
HOLIDAY = pl.col("Holiday").cast(pl.String).str.to_lowercase() == "true"
SOURCES = (
    Source(
        "vic",
        "vic_electricity",
        {
            "demand": pl.col("Demand").mean(),
            "warmest": TEMPERATURE.max(),
            "coldest": TEMPERATURE.min(),
            "holiday": HOLIDAY.any().cast(pl.Int8),
        },
    ),
    Source(
        "bike",
        "bike_sharing",
        {
            "rides": pl.col("users").sum(),
            "temperature": pl.col("temp").mean(),
            "humidity": pl.col("hum").mean(),
            "wind": pl.col("windspeed").mean(),
            "wet": (pl.col("weather") != "clear").mean(),
            "holiday": pl.col("holiday").max(),
        },
    ),
    Source(
        "prices_DE",
        "EPF-DE",
        {"price": PRICE, "load": pl.col("Ampirion zonal load forecast").mean(), "wind": WIND},
    ),
    Source(
        "prices_NP",
        "EPF-NP",
        {"price": PRICE, "load": pl.col("Grid load forecast").mean(), "wind": WIND},
    ),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="daily tables with covariates known in advance")
    parser.add_argument("folder", type=Path, help="for the files and list.csv")
    parser.add_argument("--root", type=Path, required=True, help="folder of the hourly tables")
    given = parser.parse_args()
    written = write(given.folder, given.root)
    if not written:
        names = ", ".join(f"{source.stem}.csv" for source in SOURCES)
        raise DataError(f"{given.root}: expected some of {names}, found none")
    print(f"{len(written)} tables and list.csv in {given.folder}")


def write(folder: Path, root: Path) -> list[str]:
    """Writes the tables that there are in `root`, and list.csv; returns the names of their files."""
    folder.mkdir(parents=True, exist_ok=True)
    files, rows = [], []
    for source in SOURCES:
        path = root / f"{source.stem}.csv"
        if not path.is_file():
            continue
        whole = by_day(source, path)
        short = whole.tail(FEW + HORIZON * WINDOWS)
        histories = {str(FEW): short}
        if whole.height > short.height + FEW:
            histories["all"] = whole
        for history, days in histories.items():
            file = f"{source.name}_{history}.csv"
            days.write_csv(folder / file)
            target, *known = source.columns
            cells = file, "day", target, ";".join(known), HORIZON, SEASON, WINDOWS
            files.append(file)
            rows.append(dict(zip(FIELDS, cells, strict=True)))
    with (folder / "list.csv").open("w", encoding="utf-8", newline="") as lines:
        table = csv.DictWriter(lines, FIELDS)
        table.writeheader()
        table.writerows(rows)
    return files


def by_day(source: Source, path: Path) -> pl.DataFrame:
    """Returns the days of a table, without cut ones and the rows that other benchmarks test."""
    cells = pl.read_csv(path, infer_schema_length=None)
    cells = cells.rename({name: name.strip() for name in cells.columns})
    cells = cells.head(cells.height - SETTINGS[source.stem].reserved)
    first = cells.columns[0]
    # Stamps in UTC are of the local day that a column of days names.
    stamp = pl.col("Date") if "Date" in cells.columns else pl.col(first).str.split(" ").list.first()
    day = stamp.str.replace_all("/", "-").str.to_date("%Y-%m-%d").alias("day")
    days = cells.group_by(day).agg(**source.columns, rows=pl.len()).sort("day")
    return days.filter(2 * pl.col("rows") > pl.col("rows").median()).drop("rows")


if __name__ == "__main__":
    guarded(main)
