"""Weighted quantile loss of the default fit over a list of tables, beside no fit, baselines and other packages.

    python benchmarks/league.py benchmarks/league.csv --root DATA --json now.json [--compare before.json] \\
        [--seeds 0,1,2]
    python benchmarks/league.py benchmarks/league.csv --root DATA --json peers.json \\
        --peers .venv-peers/bin/python --skip AutoARIMA           # after `make peers`
    python benchmarks/league.py benchmarks/league.csv --root DATA --json now.json --beside peers.json

LIST.csv has a row per table: file (from --root), time, series, target, known, past, future (a second
table with covariates, joined on series and time), horizon, season, windows (8) and until (rows after it
are dropped before anything else). `;` stands between several names; an empty cell is inferred. Windows
do not overlap and end with the table. The model is fitted once, before the first cutoff, and forecasts
all of them; all models are scored on the same cells.

Losses are relative to seasonal naive's, and so are differences: (WQL − WQL of a rival) / WQL of seasonal
naive, in percent, with the interval that holds 95 % of the differences of cutoffs drawn anew in blocks;
* = above 0 as a whole, a loss that is no chance. Two or three cutoffs make an interval too narrow.
Rows of the JSON: {table, model, seed, n, wql, mase, coverage_80, bias, lead1_mae, seconds, commit} and, per
cutoff, sums of the quantile loss (pinball), of the sizes of the actuals (actual), and of the cells, plain and with
ties shared out (cells_at, inside_at, inside_ties_at: coverage_tables.py). What is printed is of means over seeds.
A run that was stopped continues (OUT.parts has a file a table and seed). bias: sum of forecasts /
sum of actuals − 1, of tables of at least 20 series. seconds: forecaster's are those of all models but
the peers; each peer has its own.

--beside: rows of another run of the same list stand in for models that this run does not have; those
that were scored on other cells are left out. Peers: see league_peers.py.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, fields
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from accuracy_report import ROOT, guarded
from numpy.typing import NDArray
from stored_rows import Row, stored, whole_numbers, write

from forecaster import Backtest, Config, ConfigError, ForecasterError, backtest, load_config
from forecaster.evaluation.backtest import actual_of, windows_of
from forecaster.evaluation.bootstrap import paired_skills
from forecaster.evaluation.comparison import shared_actual
from forecaster.evaluation.metrics import Tally, tally
from forecaster.files import check_writable

MODEL, NO_FIT, NAIVE = "forecaster", "no_fit", "seasonal_naive"
PEERS = ("AutoETS", "Theta", "LightGBM", "AutoARIMA", "Prophet")
FEWEST_SERIES = 20
"""Of a panel whose bias is told."""


@dataclass(frozen=True)
class Entry:
    """A table of the list; the names are those of its columns."""

    file: str
    time: str = ""
    series: str = ""
    target: str = ""
    known: str = ""
    past: str = ""
    future: str = ""
    horizon: str = ""
    season: str = ""
    windows: str = ""
    until: str = ""

    @property
    def table(self) -> str:
        return Path(self.file).stem

    @property
    def options(self) -> dict[str, Any]:
        """What `forecaster.backtest` is told of the table."""
        names = ("time", "series", "target", "known", "past")
        lists = {name: getattr(self, name).split(";") for name in names if getattr(self, name)}
        counts = {"horizon": self.horizon, "windows": self.windows, "season_length": self.season}
        return lists | {name: int(count) for name, count in counts.items() if count}


def main() -> None:
    parser = argparse.ArgumentParser(description="WQL of the default fit over a list of tables")
    parser.add_argument("list", type=Path, help="CSV file: a row per table")
    parser.add_argument("--root", type=Path, required=True, help="folder of the tables")
    parser.add_argument("--json", type=Path, required=True, metavar="OUT", help="file for the rows")
    parser.add_argument("--preset", help="settings: a YAML file, or the name of one in configs/")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="on top of it")
    parser.add_argument("--seeds", type=whole_numbers, default=[0], metavar="0,1,2", help="fits; 0")
    parser.add_argument("--only", action="append", metavar="TABLE", help="this table; may be repeated")
    parser.add_argument("--jobs", type=int, default=1, help="processes, a table each; 1")
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help="interpreter of `make peers`")
    parser.add_argument("--skip", action="append", default=[], choices=PEERS, help="a peer not to run")
    parser.add_argument("--beside", type=Path, metavar="JSON", help="rows of models not run here")
    parser.add_argument("--compare", type=Path, metavar="JSON", help="earlier rows of forecaster")
    given = parser.parse_args()
    check_writable(given.json)
    if given.peers and not given.peers.is_file():
        raise ConfigError(f"--peers {given.peers}: expected the python of `make peers`, found no file")
    configs = {seed: settled(given.preset, given.set, seed) for seed in given.seeds}
    chosen = entries(given.list, given.only)
    peers = [name for name in PEERS if name not in given.skip] if given.peers else []
    beside, before = (
        json.loads(path.read_text()) if path else [] for path in (given.beside, given.compare)
    )
    rows: list[Row] = []
    failed: list[str] = []
    # Other packages draw nothing, so they stand beside the first seed alone.
    jobs = [
        Job(entry, seed, configs[seed], peers if seed == given.seeds[0] else [])
        for entry in chosen
        for seed in given.seeds
    ]
    run = partial(kept, out=given.json, root=given.root, python=given.peers)
    for (entry, seed, _, _), found in zip(jobs, each(run, jobs, given.jobs), strict=True):
        if isinstance(found, ForecasterError):
            failed.append(entry.table)
            print(f"{entry.table}: {found}", file=sys.stderr)
            continue
        rows += found + (fitting(beside, found) if seed == given.seeds[0] else [])
        write(given.json, rows)
        print(f"{entry.table}, seed {seed}: {found[0]['seconds']:.0f} s", file=sys.stderr, flush=True)
    if rows:
        print(written(over_seeds(rows), over_seeds(before)))
    if not any(row["model"] in PEERS for row in rows):
        print("other packages: not run (--peers, --beside)")
    if failed:
        raise ConfigError(f"{', '.join(dict.fromkeys(failed))}: no forecast, see above")


def settled(preset: str | None, overrides: Sequence[str], seed: int) -> Config:
    """Returns the settings of the fits; nothing is recorded."""
    named = None if preset is None else ROOT / "configs" / f"{preset}.yaml"
    path = named if named is not None and named.is_file() else preset
    return load_config(path, [*overrides, f"fit.seed={seed}", "tracking.enabled=false"])


def entries(path: Path, only: Sequence[str] | None = None) -> list[Entry]:
    """Returns the tables of a list, or some of them.

    Raises:
        ConfigError: the list cannot be read, or lacks a table.
    """
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            found = [Entry(**row) for row in csv.DictReader(lines, restval="")]
        [entry.options for entry in found]  # its numbers are numbers
    except (OSError, TypeError, ValueError) as error:
        names = ",".join(field.name for field in fields(Entry))
        raise ConfigError(f"{path}: expected a CSV file with the columns {names} ({error})") from None
    unknown = set(only or ()) - {entry.table for entry in found}
    if unknown:
        raise ConfigError(f"--only {sorted(unknown)[0]}: no such table in {path}")
    return [entry for entry in found if only is None or entry.table in only]


class Job(NamedTuple):
    """A table, and the fit of it."""

    entry: Entry
    seed: int
    config: Config
    peers: Sequence[str]
    """Other packages that run beside it."""


def each(run: Callable[[Job], Any], jobs: Sequence[Job], processes: int) -> Iterator[Any]:
    """Yields what is found of each table and seed, or the error, in their order."""
    if processes == 1:
        yield from map(run, jobs)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(run, jobs)


def kept(job: Job, out: Path, root: Path, python: Path | None) -> list[Row] | ForecasterError:
    """Returns a row per model of one table and seed, forecaster first, stored beside OUT; or why there is none."""
    asked = json.dumps([job.config.model_dump(mode="json"), asdict(job.entry), [*job.peers]])
    make = partial(measured, job, root, python)
    try:
        part = stored(out, f"{job.entry.table}-{job.seed}", make, asked)
    except ForecasterError as error:
        return error
    return [row | {"commit": part["commit"]} for row in part["rows"]]


def measured(job: Job, root: Path, python: Path | None) -> Row:
    """Returns the rows of one table and seed, under `rows`."""
    entry, config, peers = job.entry, job.config, job.peers
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        score = partial(
            backtest,
            shortened(root / entry.file, entry, Path(folder)),
            covariates=root / entry.future if entry.future else None,
            tracking=False,
            quiet=True,
            **entry.options,
        )
        made = score(config=config)
        seconds: dict[str, float] = {MODEL: time.monotonic() - began}
        tallies, scored = dict(made.tallies), scored_actual(made)
        began = time.monotonic()
        bare = score(fit=False).forecasts
        quantiles = np.concatenate([one.quantiles for one in bare])
        tallies[NO_FIT] = tally(scored, quantiles, bare[0].levels, made.scales)
        seconds[NO_FIT] = time.monotonic() - began
        if python is not None and peers:
            found = peer_tallies(made, scored, Path(folder), python, peers)
            tallies |= {name: one for name, (one, _) in found.items()}
            seconds |= {name: spent for name, (_, spent) in found.items()}
    cutoffs = windows_of(made.forecasts)[1]
    several = made.forecasts[0].panel.n_series >= FEWEST_SERIES
    total = float(np.nansum(scored)) if several else 0.0
    names = {name: name if name in PEERS else name.lower().replace(" ", "_") for name in tallies}
    rows = [
        {"table": entry.table, "model": names[name], "seed": job.seed}
        | row_of(one, cutoffs, total)
        | {"seconds": seconds.get(name)}
        for name, one in tallies.items()
    ]
    return {"rows": rows}


def shortened(path: Path, entry: Entry, folder: Path) -> Path:
    """Returns the path of a table without the rows after `until`: a copy in a folder, if there are any."""
    if not entry.until:
        return path
    import pandas as pd

    cells = pd.read_csv(path, dtype=str, keep_default_na=False)
    if entry.time not in cells:
        raise ConfigError(f"{path}: until needs one column of times, found no column '{entry.time}'")
    kept = cells[pd.to_datetime(cells[entry.time]) <= pd.Timestamp(entry.until)]
    kept.to_csv(folder / path.name, index=False)
    return folder / path.name


def row_of(one: Tally, cutoffs: NDArray[np.int64], total: float) -> Row:
    """Returns the scores of a model: sums per cutoff from [N] cutoffs, bias from the sum of actuals."""
    scores, number = one.overall(), np.unique(cutoffs, return_inverse=True)[1]
    sums = {"pinball": "pinball", "actual": "actual", "cells_at": "cells"}
    if "banded" in one.windows:  # quantile levels have a symmetric pair
        sums |= {"inside_at": "banded", "inside_ties_at": "banded_ties"}
    at_cutoff = {
        name: np.bincount(number, one.windows[source].sum(axis=1)).tolist()
        for name, source in sums.items()
    }
    return {
        "n": int(one.windows["cells"].sum()),
        "wql": scores["WQL"],
        "mase": scores["MASE"],
        "coverage_80": scores["coverage_80"],
        "bias": float(one.windows["signed"].sum()) / total if total else None,
        "lead1_mae": float(one.by_lead()["MAE"][0]),
        **at_cutoff,
    }


def scored_actual(made: Backtest) -> NDArray[np.float64]:
    """[N, H, C] the actuals of the cells that all models of a backtest forecast, else NaN."""
    return np.concatenate(
        [
            shared_actual(actual_of(one), {MODEL: one.quantiles, **beside})
            for one, beside in zip(made.forecasts, made.baselines, strict=True)
        ]
    )


def peer_tallies(
    made: Backtest, actual: NDArray[np.float64], folder: Path, python: Path, peers: Sequence[str]
) -> dict[str, tuple[Tally, float]]:
    """Returns tallies and seconds of other packages' forecasts at the cutoffs of a backtest.

    Files for `league_peers.py`: rows.csv (series, step, time, y, known covariates) and cutoffs.csv
    (series, step of the last row that may be read); series are numbered, those of a channel on their
    own. It writes quantiles.csv (model, series, step, lead, levels) and seconds.csv; a model that fails
    is in neither.
    """
    panel, levels = made.forecasts[0].panel, made.forecasts[0].levels
    channels, horizon = panel.n_channels, made.forecasts[0].time.shape[1]
    series, cutoff = windows_of(made.forecasts)
    owner, schema = panel.series_at(np.arange(panel.n_rows)), panel.schema
    numbers = [panel.values[:, schema.columns.index(name)] for name in schema.known_numeric]
    codes = [panel.codes[:, schema.code_columns.index(name)] for name in schema.known_category]
    known = {f"x{k}": own for k, own in enumerate(numbers)} | {
        f"c{k}": own for k, own in enumerate(codes)
    }
    when = pl.Series(panel.time)
    rows = {
        "step": np.arange(panel.n_rows) - panel.indptr[owner],
        "time": when if panel.calendar.integer else when.cast(pl.Datetime("us")),
    }
    pl.concat(
        pl.DataFrame({"series": owner * channels + c, "y": panel.values[:, c]} | rows | known)
        for c in range(channels)
    ).fill_nan(None).write_csv(folder / "rows.csv")
    last = panel.rows_until(cutoff, series) - 1 - panel.indptr[series]
    names = (series[:, None] * channels + np.arange(channels)).ravel()
    ends = pl.DataFrame({"series": names, "step": np.repeat(last, channels)})
    ends.write_csv(folder / "cutoffs.csv")
    season = str(panel.calendar.season_length)
    script = str(Path(__file__).with_name("league_peers.py"))
    command = [str(python), script, str(folder), str(horizon), season, *peers]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    print(done.stderr, end="", file=sys.stderr)
    if done.returncode:
        return {}
    found = pl.read_csv(folder / "quantiles.csv")
    spent = pl.read_csv(folder / "seconds.csv")
    cells = ends.join(pl.DataFrame({"lead": range(1, horizon + 1)}), how="cross")
    shape = (len(series), channels, horizon, len(levels))
    tallies = {}
    for model, seconds in zip(spent["model"], spent["seconds"], strict=True):
        own = cells.join(found.filter(model=model), on=cells.columns, how="left", maintain_order="left")
        quantiles = own.select(f"q{level:g}" for level in levels).to_numpy()
        quantiles = quantiles.reshape(shape).transpose(0, 2, 1, 3)
        tallies[model] = tally(actual, quantiles, levels, made.scales), seconds
    return tallies


def fitting(beside: Sequence[Row], found: Sequence[Row]) -> list[Row]:
    """Returns the rows of other models that were scored on the cells of these."""
    own, base = {row["model"] for row in found}, found[0]
    return [
        row
        for row in beside
        if row["table"] == base["table"]
        and row["model"] not in own
        and row["n"] == base["n"]
        and np.allclose(row["actual"], base["actual"])
    ]


def over_seeds(rows: Sequence[Row]) -> list[Row]:
    """Returns a row per table and model, the mean over seeds of all figures.

    >>> over_seeds([{"table": "t", "model": "m", "wql": 1.0, "pinball": [k, 4], "bias": None} for k in (1, 3)])
    [{'table': 't', 'model': 'm', 'wql': 1.0, 'pinball': [2.0, 4.0], 'bias': None}]
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["table"], row["model"]), []).append(row)
    return [{key: _mean([row[key] for row in own]) for key in own[0]} for own in groups.values()]


def _mean(values: Sequence[Any]) -> Any:
    if isinstance(values[0], str | None):
        return values[0]
    mean = np.mean(values, axis=0)
    return mean.tolist()


def difference(rows: Mapping[str, Row], rival: str) -> tuple[float, float, float]:
    """Returns (WQL of forecaster − WQL of a rival) / WQL of seasonal naive, with its 95 % interval.

    >>> row = lambda *sums: {"pinball": sums}
    >>> difference({"forecaster": row(3, 3), "ets": row(1, 1), "seasonal_naive": row(4, 4)}, "ets")
    (0.5, 0.5, 0.5)
    """
    ours, theirs, naive = (
        np.array(rows[name]["pinball"], np.float64)[:, None] for name in (MODEL, rival, NAIVE)
    )
    block = max(1, round(len(naive) ** (1 / 3)))
    skill, low, high = paired_skills({rival: ours - theirs}, naive, block)[rival]
    return 1 - skill, 1 - high, 1 - low


def geometric(values: Sequence[float]) -> float:
    """Returns the geometric mean; NaN of nothing."""
    positive = [value for value in values if value > 0]
    return math.exp(sum(map(math.log, positive)) / len(positive)) if positive else math.nan


def written(rows: Sequence[Row], before: Sequence[Row] = ()) -> str:
    """Returns the tables of losses and of differences, the means, and the tables that are lost."""
    tables: dict[str, dict[str, Row]] = {}
    for row in rows:
        tables.setdefault(row["table"], {})[row["model"]] = row
    models = [name for name in dict.fromkeys(row["model"] for row in rows) if name != NAIVE]
    rivals = [name for name in models if name != MODEL]

    def relative(table: str, model: str) -> float:
        found = tables[table]
        known = model in found and found[NAIVE]["wql"] > 0
        return found[model]["wql"] / found[NAIVE]["wql"] if known else math.nan

    width = max(map(len, [*tables, "geometric mean"]))
    head = ["WQL / seasonal naive's".ljust(width), *(f"{name:>11}" for name in models)]
    lines = ["".join([*head, "   MASE  cov80    bias  seconds  lost to"])]
    lost = 0
    for table, found in tables.items():
        ours = found[MODEL]
        values = {name: relative(table, name) for name in models}
        better = [name for name in found if found[name]["wql"] < ours["wql"]]
        best = min(better, key=lambda name: found[name]["wql"], default="")
        lost += bool(better)
        bias = "–" if ours["bias"] is None else f"{100 * ours['bias']:+.1f} %"
        cells = "".join(f"{_number(value, '.3f'):>11}" for value in values.values())
        lines.append(
            f"{table:<{width}}{cells} {ours['mase']:>6.3f} {ours['coverage_80']:>6.3f} {bias:>7} "
            f"{ours['seconds']:>8.0f}  {best}"
        )
    shared = [table for table, found in tables.items() if {*models} <= {*found}]
    for title, some in {"geometric mean": [*tables], f"of {len(shared)} that all have": shared}.items():
        means = [geometric([relative(table, name) for table in some]) for name in models]
        if title == "geometric mean" or len(shared) < len(tables):
            lines.append(title.ljust(width) + "".join(f"{_number(one, '.3f'):>11}" for one in means))
    lines += ["", "difference, % of seasonal naive's WQL [95 %]; * = lost, the whole interval above 0"]
    lines.append(" " * width + "".join(f"{name:>18}" for name in [NAIVE, *rivals]))
    proven = 0
    for table, found in tables.items():
        gaps = [difference(found, name) if name in found else None for name in [NAIVE, *rivals]]
        proven += any(gap is not None and gap[1] > 0 for gap in gaps)
        lines.append(f"{table:<{width}}" + "".join(f"{_interval(gap):>18}" for gap in gaps))
    lines += ["", f"lost: {lost} of {len(tables)} tables; {proven} with an interval above 0"]
    old = {row["table"]: row["wql"] for row in before if row["model"] == MODEL}
    ratios = {name: found[MODEL]["wql"] / old[name] for name, found in tables.items() if name in old}
    if ratios:
        low, high = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
        lines.append(
            f"WQL / WQL before: {geometric([*ratios.values()]):.4f} over {len(ratios)} tables, from "
            f"{ratios[low]:.3f} ({low}) to {ratios[high]:.3f} ({high})"
        )
    return "\n".join(lines)


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else format(value, form)


def _interval(cell: tuple[float, float, float] | None) -> str:
    if cell is None:
        return "–"
    gap, low, high = (100 * value for value in cell)
    star = "*" if low > 0 else ""
    return f"{star}{gap:+.0f} [{low:+.0f} {high:+.0f}]"


if __name__ == "__main__":
    guarded(main)
