"""What the 80 % band holds on windows that follow the fit, before and after calibration.

    python benchmarks/coverage.py ETTh1.csv vic_electricity.csv … [--windows 100] [--until 2017-10-20]
    python benchmarks/coverage.py sales.csv --target units --known price promo --horizon 28

A model is fitted once, on all rows before the first cutoff; then its quantiles are compared with what
followed at so many cutoffs, one horizon apart, with and without the conformal factors. A
window is a cutoff of one series. Width and pinball loss are in units of the window's own scale, so that
large series do not drown small ones; the last column has the pinball loss in units of the data too. The
interval holds 95 % of the coverages of cutoffs drawn anew in blocks. Some tables have their settings
here; others need flags. `--until` cuts rows off
first, and `--validation` leaves the last windows out: choose on those.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import accuracy_report as report
import numpy as np
from accuracy import Floats, Rows, say
from accuracy_report import Row
from known_tables import Setting, add_flags, setting_of

from forecaster.config import Config
from forecaster.evaluation.metrics import pinball
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.fitting.plan import with_found_cycles
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.predictor import Predictor
from forecaster.panel.build import open_panel
from forecaster.panel.categories import recoded
from forecaster.panel.panel import Panel

WINDOWS = 100
_BATCH = 512  # windows whose quantiles are held at once
COUNTS = ("inside", "cells", "width", "pinball", "loss")
"""Sums over the observed cells of a cutoff."""


@dataclass(frozen=True)
class Sums:
    """What was counted at each cutoff: [K, 5], in the order of `COUNTS`."""

    before: Floats
    after: Floats
    windows: int


def main() -> None:
    parser = report.flags("coverage of the 80 % band", "configs/default.yaml")
    parser.add_argument("paths", type=Path, nargs="+", help="tables")
    add_flags(parser)
    parser.add_argument("--windows", type=int, default=WINDOWS, help=f"at least so many; {WINDOWS}")
    parser.add_argument("--until", help="date after which all rows are cut off")
    given, began = parser.parse_args(), time.monotonic()
    config = report.settled(given)
    found = {
        (path.stem, seed): measured(path, setting_of(path, given, "horizon"), config, given, seed)
        for path in given.paths
        for seed in range(given.seeds)
    }
    report.finish(given, rows_of(found, given), written(found), began)


def measured(path: Path, setting: Setting, config: Config, given: Namespace, seed: int) -> Sums:
    """Returns what a model of one table holds, cutoff by cutoff, before and after calibration."""
    begun = time.monotonic()
    roles = {"target": setting.target, "known": setting.known, "layout": setting.layout}
    config = config.replaced(
        horizon=setting.horizon, data=roles, fit={"seed": seed * config.fit.ensemble_size}
    )
    panel = open_panel(path, config.data)
    if given.until is not None:
        panel = panel.until(panel.calendar.parse(given.until))
    elif setting.reserved:
        panel = panel.until(int(panel.time[-1 - setting.reserved]))
    times = cutoffs_of(panel, setting.horizon, given.windows, given.validation)
    seen = with_found_cycles(panel.until(times[0]), config)
    artifact = fit_panel(seen, *resolve(seen, config))
    panel = recoded(
        panel.with_cycles(artifact.schema.season_length, artifact.schema.periods),
        artifact.schema.categories,
    )
    ensemble = artifact.ensemble.with_factors(None, artifact.ensemble.tail_factor)
    plain = replace(artifact, ensemble=ensemble)
    before, after = ([counted(one, panel, cutoff) for cutoff in times] for one in (plain, artifact))
    sums = Sums(
        before=np.array([counts for counts, _ in before]),
        after=np.array([counts for counts, _ in after]),
        windows=sum(count for _, count in before),
    )
    calibration = artifact.metrics.get("calibration", {})
    say(
        f"{path.stem} · {setting.horizon} steps · seed {seed} · {sums.windows:,} windows · "
        f"{time.monotonic() - begun:.0f} s · coverage {coverage(sums.before):.3f} → "
        f"{coverage(sums.after):.3f}, calibrated on {calibration.get('cutoffs', 0):,} cutoffs"
    )
    return sums


def cutoffs_of(panel: Panel, horizon: int, windows: int, earlier: int) -> list[int]:
    """Returns times of cutoffs one horizon apart, so many that there are enough windows.

    Args:
        panel: all rows that may be scored.
        horizon: leads.
        windows: at least so many, over all series.
        earlier: spans of so many that lie between these and the end.
    """
    last = panel.last_observed
    end, count = int(panel.time[last[last >= 0]].max()), -(-windows // panel.n_series)
    while True:
        past = panel.calendar.before(end, horizon * count * (1 + earlier))
        times = [int(cutoff) for cutoff in past[: horizon * count : horizon]]
        found = sum(len(forecastable(panel, cutoff, horizon)) for cutoff in times)
        if found >= windows or times[0] <= int(panel.time.min()):
            return times
        count += 1


def forecastable(panel: Panel, cutoff: int, horizon: int) -> Rows:
    """Returns the series that have begun at a cutoff and have a whole horizon of rows after it."""
    at, first = panel.row_at(cutoff), panel.first_observed
    begun = (at >= 0) & (first >= 0) & (first <= at)
    return np.flatnonzero(begun & (at + horizon < panel.indptr[1:]))


def counted(artifact: Artifact, panel: Panel, cutoff: int) -> tuple[Floats, int]:
    """Returns the sums of one cutoff over all series that can be forecast, and how many these are."""
    horizon, levels = artifact.horizon, artifact.plan.model.quantile_levels
    at, series = panel.row_at(cutoff), forecastable(panel, cutoff, horizon)
    predictor, total = Predictor(artifact), np.zeros(len(COUNTS))
    for start in range(0, len(series), _BATCH):
        own = series[start : start + _BATCH]
        quantiles = predictor.quantiles(panel, own, at[own]).astype(np.float64)
        ahead = at[own][:, None] + np.arange(1, horizon + 1)
        actual = panel.values[ahead, : panel.n_channels].astype(np.float64)
        scale = predictor.scales(panel, own, at[own]).scale.double().numpy()[:, None]
        loss = pinball(actual, quantiles, levels).mean(axis=-1)
        low, high = quantiles[..., 0], quantiles[..., -1]
        real = ~np.isnan(actual)
        parts = (
            (low <= actual) & (actual <= high),
            real,
            np.where(real, (high - low) / scale, 0.0),
            loss / scale,
            loss,
        )
        total += [float(np.nansum(part)) for part in parts]
    return total, len(series)


def coverage(sums: Floats) -> float:
    """Returns the share of the truth inside the band."""
    return mean(sums, "inside")


def _coverage_of(sums: Floats, drawn: Sequence[Rows]) -> float:
    return coverage(sums[drawn[0]])


def mean(sums: Floats, name: str) -> float:
    """Returns a sum per observed cell."""
    total = sums.sum(axis=0)
    return float(total[COUNTS.index(name)] / total[1])


def rows_of(found: dict[tuple[str, int], Sums], given: Namespace) -> list[Row]:
    """Returns the figures as rows."""
    return [
        Row(
            name,
            f"{model}",
            setting_of(Path(name), given, "horizon").horizon,
            seed,
            metric,
            mean(counts, column),
        )
        for (name, seed), sums in found.items()
        for model, counts in (("before", sums.before), ("after", sums.after))
        for metric, column in (("coverage_80", "inside"), ("width", "width"), ("pinball", "pinball"))
    ]


def written(found: dict[tuple[str, int], Sums]) -> str:
    """Returns a table: a line per data set, means over seeds, and what all of them come to."""
    header = ("data", "windows", "held before", "held after", "95 % interval", "width", "pinball")
    lines, covered = [], []
    for name in dict.fromkeys(name for name, _ in found):
        seeds = [sums for (other, _), sums in found.items() if other == name]
        before, after = (
            np.mean([getattr(one, w) for one in seeds], axis=0) for w in ("before", "after")
        )
        low, high = report.interval(partial(_coverage_of, after), [len(after)])
        ratio = {column: mean(after, column) / mean(before, column) for column in COUNTS[2:]}
        covered.append((coverage(before), coverage(after)))
        lines.append(
            (
                name,
                f"{seeds[0].windows:,}",
                *(f"{100 * share:.1f} %" for share in covered[-1]),
                f"{100 * low:.1f} – {100 * high:.1f} %",
                f"× {ratio['width']:.3f}",
                f"× {ratio['pinball']:.4f} (data units × {ratio['loss']:.4f})",
            )
        )
    both = (f"{100 * share:.1f} %" for share in np.mean(covered, axis=0))
    lines.append(("**mean**", "", *both, "", "", ""))
    return report.markdown(header, lines)


if __name__ == "__main__":
    report.guarded(main)
