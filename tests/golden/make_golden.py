"""Writes the golden artifact: run once when the format changes, and commit the folder.

    python tests/golden/make_golden.py tests/golden/format-1

The folder holds the artifact, its table and future, and its forecasts. Every version that reads this
format has to load it and forecast the same.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import polars as pl

import forecaster as fc

DATA = Path(__file__).resolve().parents[2] / "data"
STORES = ["store_1", "store_4", "store_12"]
TINY = {
    "horizon": 28,
    "model": {"width": 8, "heads": 2, "encoder_layers": 1, "context_length": 28},
    "fit": {"steps": 40, "batch_size": 32},
    "tracking": {"enabled": False},
}


def main(folder: Path) -> None:
    """Fits a tiny model with every kind of covariate and keeps all that a later version must match."""
    folder.mkdir(parents=True)
    history = pl.read_csv(DATA / "demo.csv").filter(pl.col("store").is_in(STORES))
    weather = pl.col("sales").fill_null(0).cum_sum().mod(17).over("store").cast(pl.Float64)
    history = history.with_columns(weather.alias("weather")).filter(pl.col("date") >= "2025-07-01")
    future = pl.read_csv(DATA / "demo_future.csv").filter(pl.col("store").is_in(STORES))
    advertised = pl.when(pl.col("promo") == 0).then(pl.lit("none")).otherwise(pl.lit("tv")).alias("ad")
    history, future = history.with_columns(advertised), future.with_columns(advertised)
    os.chdir(folder)  # the artifact keeps the table's name as it was given
    history.write_csv("table.csv")
    future.write_csv("future.csv")
    model = fc.fit("table.csv", known=["price", "promo", "ad"], config=TINY, quiet=True)
    for member in model.artifact.ensemble.members:
        member.network_weight.fill_(0.5)  # validation may choose 0, which pins the experts only
    model.save("model")
    fc.load("model").predict("table.csv", future="future.csv").write("forecasts.csv")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
