"""What is forecast of the tables that the accuracy benchmarks know; flags stand in for it, or on top."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from forecaster.errors import ConfigError


@dataclass(frozen=True)
class Setting:
    """What is forecast of a table, from what."""

    horizon: int
    target: tuple[str, ...] | None = None
    known: tuple[str, ...] = ()
    seasons: tuple[int, ...] = ()
    """Steps of each seasonal naive."""
    layout: str | None = None
    reserved: int = 0
    """Rows at the end that other benchmarks test."""


_WIND, _BIKE = "Wind power forecast", ("weather", "temp", "atemp", "hum", "windspeed")
SETTINGS = {
    "ETTh1": Setting(24),
    "EPF-DE": Setting(24, ("OT",), (_WIND, "Ampirion zonal load forecast"), reserved=480),
    "EPF-NP": Setting(24, ("OT",), ("Grid load forecast", _WIND), reserved=480),
    "vic_electricity": Setting(48, ("Demand",), ("Temperature", "Holiday"), (48, 336), reserved=2400),
    "bike_sharing": Setting(
        24, ("users",), ("holiday", "workingday", *_BIKE), (24, 168), reserved=1200
    ),
    "bdg2_hourly": Setting(24),
    "multi_series": Setting(3),
    "M4-Hourly-train": Setting(48, layout="rows"),
}
"""By the name of the file."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of a setting."""
    parser.add_argument("--target", nargs="*", help="columns to forecast")
    parser.add_argument("--known", nargs="*", help="columns known in advance")
    parser.add_argument("--horizon", type=int, help="leads")


def setting_of(path: Path, given: argparse.Namespace, *needed: str) -> Setting:
    """Returns what is known of a table, with what flags say on top.

    Raises:
        ConfigError: a setting is missing, or below 1.
    """
    known = vars(SETTINGS[path.stem]) if path.stem in SETTINGS else {}
    found = known | {
        name: tuple(value) if isinstance(value, list) else value
        for name in ("target", "known", "horizon", "seasons")
        if (value := getattr(given, name, None)) is not None
    }
    lacking = [f"--{name}" for name in needed if not found.get(name)]
    if lacking:
        raise ConfigError(f"{path}: expected {', '.join(lacking)}, found no setting of this table")
    if min(found["horizon"], given.windows, *found.get("seasons", ())) < 1:
        raise ConfigError("--horizon, --windows, --seasons: expected 1 or more")
    return Setting(**found)
