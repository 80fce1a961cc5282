"""The tables around weights that are learned in advance: what is learned from, developed on, and sealed.

    python benchmarks/pretrain_tables.py --corpus FOLDER --gift FOLDER --league FOLDER --r FOLDER --m3 FOLDER

Prints the groups of development tables by source and which of them are sealed, and the series of the corpus
that are left out because they share six consecutive values with a development table (forecaster/fitting/
pretrain/corpus.py). The folders are those of benchmarks/README.md: gift.py's, league.csv's, r_tables.py's
and mcomp.py's; a folder that is not given is left out, and said.

Tables of one source, at any step, are one group: what is learned from one would be known of the others.
Half of the groups are drawn by a seed and not looked at until the weights are chosen.
"""

from __future__ import annotations

import argparse
import csv
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from forecaster.fitting.pretrain.corpus import RealSeries, Values, coarser, leave_out

SEED = 20261124
"""Of the draw of sealed groups."""

GROUPS = {
    # gift.py, 34 configs
    "ett": "gift/ett1 gift/ett2",
    "jena_weather": "gift/jena_weather",
    "m4": "gift/m4_hourly gift/m4_weekly",
    "us_births": "gift/us_births",
    "saugeen": "gift/saugeen",
    "hospital": "gift/hospital",
    "car_parts": "gift/car_parts",
    "covid_deaths": "gift/covid_deaths",
    # mcomp.py; M1 and M3 are one collection, and M1 is in the corpus
    "m3": "m3/yearly m3/quarterly m3/monthly m3/other",
    # league.csv and r_tables.py: some tables are in both, or of one place
    "air_passengers": "league/airline-passengers",
    "melbourne_temperatures": "league/daily-max-temperatures league/daily-min-temperatures",
    "female_births": "league/daily-total-female-births",
    "car_sales": "league/monthly-car-sales",
    "champagne": "league/monthly_champagne_sales",
    "nottingham": "league/monthly-mean-temp r/nottem",
    "robberies": "league/monthly-robberies",
    "shampoo": "league/monthly-shampoo-sales",
    "sunspots": "league/monthly-sunspots r/sunspotarea",
    "writing_paper": "league/monthly-writing-paper-sales",
    "melbourne_pedestrians": "league/example_pedestrians_covid league/example_pedestrians_multivariate",
    "retail_sales": "league/example_retail_sales",
    "wikipedia": "league/example_wp_log_R",
    "yosemite": "league/example_yosemite_temps",
    "beijing_air": "league/pollution",
    "buildings": "league/bdg2_hourly",
    "bike_sharing": "league/bike_sharing",
    "multi_series": "league/multi_series",
    "victoria": "league/vic_electricity r/elecdaily r/elecdemand",
    "power_prices": "league/EPF-NP league/EPF-DE",
    "medicines": "r/a10 r/h02",
    "debit_cards": "r/debitcards",
    "euro_statistics": "r/elecequip r/euretail",
    "australian_statistics": "r/auscafe r/ausbeer r/qcement r/qgas r/gas r/wineind r/woolyrnq",
    "us_electricity": "r/usmelec",
    "uk_deaths": "r/ldeaths r/Seatbelts",
    "us_accidents": "r/USAccDeaths",
    "australian_travel": "r/austourists r/arrivals r/visnights r/departures r/ausair",
    "uk_gas": "r/UKgas",
    "nile": "r/Nile",
    "lake_huron": "r/LakeHuron",
    "guinea_rice": "r/guinearice",
    "lynx": "r/lynx",
    "blog": "r/hyndsight",
    "us_gasoline": "r/gasoline",
    "prisons": "r/prisonLF",
    "us_economy": "r/economics",
    "texas_housing": "r/txhousing",
    "stocks": "r/EuStockMarkets",
    "new_york_air": "r/airquality",
    "chicago": "r/Chicago",
    "england_demand": "r/taylor",
    "calls": "r/calls",
    "new_york_weather": "r/weather",
    "life_expectancy": "r/gapminder",
}
"""Development tables by source."""

STEPS = {"yearly": "Y", "quarterly": "Q", "monthly": "M", "weekly": "W", "daily": "D"}
"""Of the names of files of the corpus."""
MADE_UP = "real_"
"""Files of the corpus whose dates are made up; only the step is true, so no calendar is learned from them."""


def sealed(seed: int = SEED) -> tuple[str, ...]:
    """Returns the groups that nobody looks at until the weights are chosen: half, drawn by a seed."""
    names = sorted(GROUPS)
    return tuple(sorted(random.Random(seed).sample(names, len(names) // 2)))


def group_of(table: str) -> str:
    """Returns the group of a table such as gift/ett1 or r/nottem."""
    return next(group for group, tables in GROUPS.items() if table in tables.split())


def corpus(folder: Path) -> Iterator[RealSeries]:
    """Yields the series of SOURCE_STEP.parquet (unique_id, ds, y) and real_STEP.parquet (and source)."""
    for file in sorted(folder.glob("*.parquet")):
        name, _, step = file.stem.rpartition("_")
        frame = pl.read_parquet(file)
        keys = [key for key in ("source", "unique_id") if key in frame.columns]
        for key, rows in frame.sort(*keys, "ds").group_by(keys, maintain_order=True):
            yield RealSeries(
                source=str(key[0]) if len(key) > 1 else name,
                name=str(key[-1]),
                step=STEPS.get(step, step),
                values=rows["y"].cast(pl.Float64).fill_null(np.nan).to_numpy(),
                start=None if file.stem.startswith(MADE_UP) else np.datetime64(rows["ds"][0], "s"),
            )


def gift_tables(folder: Path) -> Iterator[tuple[str, list[Values]]]:
    """Yields each table of gift.py and its series."""
    for file in sorted(folder.glob("*.parquet")):
        frame = pl.read_parquet(file)
        if "unique_id" in frame.columns:
            parts = frame.sort("unique_id", "ds").partition_by("unique_id")
            series = [part["y"] for part in parts]
        else:
            series = [frame[name] for name in frame.columns if name != "ds"]
        yield f"gift/{file.stem.rpartition('_')[0]}", [_values(column) for column in series]


def listed_tables(folder: Path, lines: Path, prefix: str) -> Iterator[tuple[str, list[Values]]]:
    """Yields each table of a list of league.py and the series of its targets."""
    with lines.open(encoding="utf-8") as content:
        for row in csv.DictReader(content):
            frame = pl.read_csv(folder / row["file"], infer_schema_length=None, null_values=["NA", ""])
            frame = frame.rename(str.strip)
            series = [key for key in row["series"].split(";") if key]
            parts = frame.partition_by(series, maintain_order=True) if series else [frame]
            targets = row["target"].split(";")
            name = f"{prefix}/{Path(row['file']).stem}"
            yield name, [_values(part[target]) for part in parts for target in targets]


def m3_tables(folder: Path) -> Iterator[tuple[str, list[Values]]]:
    """Yields the four tables of M3 and their series."""
    for file in sorted(folder.glob("m3_*_train.parquet")):
        parts = pl.read_parquet(file).sort("unique_id", "ds").partition_by("unique_id")
        yield f"m3/{file.stem.split('_')[1]}", [_values(part["y"]) for part in parts]


def _values(column: pl.Series) -> Values:
    return column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_folders(parser)
    arguments = parser.parse_args()
    print(f"{len(GROUPS)} sources of development tables; sealed by seed {SEED}:")
    print("  " + ", ".join(sealed()))
    print("open:")
    print("  " + ", ".join(sorted({*GROUPS} - {*sealed()})))
    print(kept_series(arguments)[1])


def add_folders(parser: argparse.ArgumentParser) -> None:
    """Adds the folders of the corpus and of the development tables."""
    parser.add_argument("--corpus", type=Path, required=True)
    for name in ("gift", "league", "r", "m3"):
        parser.add_argument(f"--{name}", type=Path)


def kept_series(arguments: argparse.Namespace) -> tuple[list[RealSeries], str]:
    """Returns the series of the corpus that no development table holds, and lines that count the others."""
    league = Path(__file__).with_name("league.csv")
    readers: dict[str, Callable[[Path], Iterator[tuple[str, list[Values]]]]] = {
        "gift": gift_tables,
        "league": lambda folder: listed_tables(folder, league, "league"),
        "r": lambda folder: listed_tables(folder, folder / "list.csv", "r"),
        "m3": m3_tables,
    }
    lines = []
    tables: dict[str, list[Values]] = {}
    for name, reader in readers.items():
        folder = getattr(arguments, name)
        if folder is None:
            lines.append(f"--{name} not given: its tables are not compared")
            continue
        for table, values in reader(folder):
            tables.setdefault(group_of(table), []).extend(values)
    series = list(corpus(arguments.corpus))
    longer = [one for finer in series for one in coarser(finer)]
    kept, shared = leave_out([*series, *longer], tables)
    counts = f"{len(series):,} series and {len(longer):,} of their sums over longer steps"
    lines.append(f"corpus: {counts}, {len(kept):,} kept")
    for group, names in sorted(shared.items(), key=lambda item: -len(item[1])):
        if names:
            lines.append(f"  {group:24} {len(names):5,} left out, such as {names[0]}")
    return kept, "\n".join(lines)


if __name__ == "__main__":
    main()
