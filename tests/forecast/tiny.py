"""A small shop, the smallest config, and models of them fitted once per session."""

from datetime import date, timedelta
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import yaml

import forecaster as fc

HORIZON = 7
STORES = ("a", "b", "c")
START = date(2024, 1, 1)
TINY = {
    "fit": {"steps": 2, "batch_size": 32},
    "model": {"width": 16, "heads": 2, "encoder_layers": 1},
    "tracking": {"enabled": False},
}


def config_with(**model: object) -> dict:
    """The smallest config with other settings of the model."""
    return TINY | {"model": TINY["model"] | model}


NETWORK = config_with(experts=[])
"""Without experts: a third of the time, for what does not depend on them."""


ONE = config_with(experts=["naive"])
"""With one expert: experts are not weighed, nor their weights tuned, which takes half the time of a fit."""


def day(number: int) -> date:
    """The day `number` days after the shop's first."""
    return START + timedelta(days=number)


def shop(days: int = 100, stores: tuple[str, ...] = STORES, seed: int = 0) -> pl.DataFrame:
    """Daily sales of stores: store, date, sales, price (known), visitors (past), city (static)."""
    rng = np.random.default_rng(seed)
    dates = [day(n) for n in range(days)]
    tables = []
    for number, store in enumerate(stores):
        week = np.sin(2 * np.pi * np.arange(days) / 7)
        sales = 10.0 * (number + 1) + 3 * week + rng.normal(size=days)
        columns = {
            "store": [store] * days,
            "date": dates,
            "sales": sales.round(3),
            "price": rng.choice([1.0, 2.0, 3.0], days),
            "visitors": (5 * sales + rng.normal(size=days)).round(2),
            "city": ["north" if number % 2 else "south"] * days,
        }
        tables.append(pl.DataFrame(columns))
    return pl.concat(tables)


def prices(days: int = 100, ahead: int = HORIZON, stores: tuple[str, ...] = STORES) -> pl.DataFrame:
    """The prices of the days after `shop(days)`."""
    rows = [(store, day(days + n), float(n % 3 + 1)) for store in stores for n in range(ahead)]
    return pl.DataFrame(rows, schema=["store", "date", "price"], orient="row")


def plain(days: int = 100) -> pl.DataFrame:
    """The shop without covariates."""
    return shop(days).select("store", "date", "sales")


@cache
def model() -> fc.Forecaster:
    """A model of the shop: price known in advance."""
    return fc.fit(shop(), horizon=HORIZON, known="price", config=TINY, quiet=True)


@cache
def plain_model() -> fc.Forecaster:
    """A model of the shop without covariates."""
    return fc.fit(plain(), horizon=HORIZON, config=TINY, quiet=True)


@cache
def network_model() -> fc.Forecaster:
    """A model of the shop without covariates and experts."""
    return fc.fit(plain(), horizon=HORIZON, config=NETWORK, quiet=True)


@cache
def known_network_model() -> fc.Forecaster:
    """A model of the shop without experts: price known in advance."""
    return fc.fit(shop(), horizon=HORIZON, known="price", config=NETWORK, quiet=True)


def signed(days: int = 100) -> pl.DataFrame:
    """The shop without covariates, counted from its mean: below and above zero."""
    return plain(days).with_columns(pl.col("sales") - pl.col("sales").mean().round())


@cache
def signed_model() -> fc.Forecaster:
    """A model of values below and above zero."""
    return fc.fit(signed(), horizon=HORIZON, config=TINY, quiet=True)


@cache
def ahead() -> fc.Forecast:
    """What `model` says of the days after the shop's last."""
    return model().predict(shop(), future=prices())


def write_tiny(path: Path, **more: object) -> Path:
    """Writes the smallest config as YAML."""
    path.write_text(yaml.safe_dump(TINY | more), encoding="utf-8")
    return path


def bits(values: np.ndarray) -> bytes:
    """The bytes of an array, for comparisons in which NaN equals NaN and -0 is not 0."""
    return np.ascontiguousarray(values).tobytes()


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its content, folders as empty names ending in "/"."""
    return {
        str(path.relative_to(folder)) + "/" * path.is_dir(): b"" if path.is_dir() else path.read_bytes()
        for path in folder.rglob("*")
    }
