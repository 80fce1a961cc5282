"""Whole processes that forecast many series: a CSV file in, a Parquet file of forecasts out.

    python benchmarks/batch_forecast.py [--repeats 3] [--cache ~/.cache/forecaster-peers]
    python benchmarks/batch_forecast.py --million [--series 1000000] [--rows 100]
    python benchmarks/batch_forecast.py --growth
    python benchmarks/batch_forecast.py [--experts] --against WORKTREE [--repeats 5]

Without a flag: 10,000 hourly series of 500 rows (seed 0), 5 million rows of CSV, a model of width 64
with 2 + 1 layers, 168 -> 24. `forecaster predict` and neuralforecast's PatchTST of the same width, 2
encoder layers and patches of 24 (in an environment that `peers.py` makes) take turns, each from the
start of its process to its end, imports included. Wall time is the least of the rounds, memory the
median of the processes' peaks. Both write nine quantiles of 240,000 rows.

--million: Parquet of 1 million series x 100 rows, generated in chunks, converted and forecast from
the store, each in a process of its own: seconds, series per second, peak memory in all and without the
pages of mapped files, which the system takes back when it needs them.

--growth: seconds for 10,000 to 100,000 series from a store, and what each further 10,000 cost; in
wall time, and in processor time, which other work on the machine changes less.

--against: the same command of another checkout in turn with this one's, in the same interpreter; each fits
its own model first. With --experts the model is that of the defaults, experts included, 24 leads.
"""

from __future__ import annotations

import argparse
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import peers
import polars as pl
from rich.console import Console
from rich.table import Table

CONTEXT, HORIZON = 168, 24
TIME_TARGET, MEMORY_TARGET = 0.5, 0.6
MOST_MEMORY = 2000  # MB
GROWTH_TARGET = 0.15
AGAINST_TIME, AGAINST_MEMORY = 1.6, 1.2
"""Most that this checkout may take of another one's."""
ROOT = Path(__file__).resolve().parents[1]
SETS = [
    "model.width=64",
    "model.encoder_layers=2",
    "model.decoder_layers=1",
    f"model.context_length={CONTEXT}",
    "model.patch=24",
    "model.experts=[]",
    "fit.steps=20",
    "tracking.enabled=false",
]
DEFAULTS = ["tracking.enabled=false"]
FORECASTER = [sys.executable, "-m", "forecaster"]
OUT = ["--out", "forecasts.parquet", "--overwrite"]


def main() -> None:
    parser = argparse.ArgumentParser(description="batch forecasts as whole processes")
    parser.add_argument("--series", type=int, help="10,000; with --million 1,000,000")
    parser.add_argument("--rows", type=int, help="of a series: 500; with --million 100")
    parser.add_argument("--repeats", type=int, help="rounds in which all take turns: 3; --against 5")
    parser.add_argument("--cache", type=Path, default=peers.CACHE, help="environments of the peers")
    parser.add_argument("--million", action="store_true", help="one large store, memory bounded")
    parser.add_argument("--growth", action="store_true", help="seconds per further 10,000 series")
    parser.add_argument("--experts", action="store_true", help="the default model, with its experts")
    parser.add_argument("--against", type=Path, metavar="WORKTREE", help="another checkout, in turn")
    given = parser.parse_args()
    if given.against and not (given.against / "forecaster").is_dir():
        parser.error(f"--against {given.against}: expected a checkout, found no folder forecaster")
    series, rows, repeats = given.series or 10_000, given.rows or 500, given.repeats or 3
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        if given.million:
            million(folder, given.series or 1_000_000, given.rows or 100)
        elif given.growth:
            growth(folder, given.rows or 200, repeats)
        elif given.experts or given.against:
            checkouts = {"this checkout": ROOT} | (
                {"the other": given.against} if given.against else {}
            )
            settings = DEFAULTS if given.experts else SETS
            in_turn(folder, series, rows, given.repeats or 5, checkouts, settings)
        else:
            beside_peer(folder, series, rows, repeats, given.cache)


def beside_peer(folder: Path, series: int, rows: int, repeats: int, cache: Path) -> None:
    """Prints seconds and memory of ours and of neuralforecast, and their ratios."""
    file = csv_of(folder, series, rows)
    fit(folder)
    python = peers.installed(cache.expanduser() / "neuralforecast", peers.PEERS["neuralforecast"])
    script = str(Path(__file__).with_name("peer_batch.py"))
    other = str(folder / "peer")
    measured([str(python), script, "make", str(file), other], folder)
    commands = {
        "forecaster": [*FORECASTER, "predict", "model", str(file), *OUT],
        "neuralforecast": [str(python), script, "run", str(file), other, "peer.parquet"],
    }
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in commands}
    for _ in range(repeats):
        for name, command in commands.items():
            runs[name].append(measured(command, folder))
    for name in ("forecasts", "peer"):
        rows_out = pl.scan_parquet(folder / f"{name}.parquet").select(pl.len()).collect().item()
        assert rows_out == HORIZON * series, (name, rows_out)
    best, peak = printed(runs, series, rows, file)
    for what, figures, goal in (("time", best, TIME_TARGET), ("memory", peak, MEMORY_TARGET)):
        ratio = figures["forecaster"] / figures["neuralforecast"]
        print(f"{what}: {ratio:.2f} x, target <= {goal} x: {verdict(ratio <= goal)}")


def in_turn(
    folder: Path,
    series: int,
    rows: int,
    repeats: int,
    checkouts: Mapping[str, Path],
    settings: Sequence[str],
) -> None:
    """Prints seconds and memory of the command of each checkout, and the ratios of the first to the second."""
    file = csv_of(folder, series, rows)
    for name, root in checkouts.items():
        fit(folder, settings, f"model of {name}", root)
    runs: dict[str, list[tuple[float, float, float]]] = {name: [] for name in checkouts}
    for _ in range(repeats):
        for name, root in checkouts.items():
            command = [*FORECASTER, "predict", f"model of {name}", str(file), *OUT]
            runs[name].append(measured(command, folder, root))
            made = pl.scan_parquet(folder / "forecasts.parquet").select(pl.len()).collect().item()
            assert made == HORIZON * series, (name, made)
    best, peak = printed(runs, series, rows, file)
    if len(checkouts) > 1:
        ours, other = checkouts
        for what, figures, goal in (("time", best, AGAINST_TIME), ("memory", peak, AGAINST_MEMORY)):
            ratio = figures[ours] / figures[other]
            print(f"{what}: {ratio:.2f} x, target <= {goal} x: {verdict(ratio <= goal)}")


def csv_of(folder: Path, series: int, rows: int) -> Path:
    """Returns a CSV file of a panel."""
    file = folder / "panel.csv"
    with file.open("wb") as target:
        for number, frame in enumerate(chunks(series, rows)):
            frame.write_csv(target, include_header=number == 0, datetime_format="%Y-%m-%d %H:%M:%S")
    return file


def printed(
    runs: Mapping[str, Sequence[tuple[float, float, float]]], series: int, rows: int, file: Path
) -> tuple[dict[str, float], dict[str, float]]:
    """Prints seconds and MB of programs that took turns; returns the least seconds and the median peaks."""
    table = Table(title=f"{series:,} series x {rows} rows, {file.stat().st_size / 1e6:.0f} MB of CSV")
    for heading in ("program", "s", "MB"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    best = {name: min(run[0] for run in own) for name, own in runs.items()}
    peak = {name: statistics.median(run[1] for run in own) for name, own in runs.items()}
    for name, own in runs.items():
        table.add_row(name, " ".join(f"{run[0]:.2f}" for run in own), f"{peak[name]:.0f}")
    Console(width=110).print(table)
    return best, peak


def million(folder: Path, series: int, rows: int) -> None:
    """Prints seconds, throughput and peak memory of a conversion and of a forecast from the store."""
    source = written(folder, series, rows)
    fit(folder)
    steps = {
        "convert": [*FORECASTER, "convert", str(source), "store", "--freq", "1h"],
        "predict": [*FORECASTER, "predict", "model", "store", *OUT],
    }
    table = Table(title=f"{series:,} series x {rows} rows")
    for heading in ("step", "s", "series per s", "peak MB", "without mapped files"):
        table.add_column(heading, justify="left" if heading == "step" else "right")
    worst = 0.0
    for name, command in steps.items():
        seconds, peak, own = measured(command, folder)
        table.add_row(name, f"{seconds:.1f}", f"{series / seconds:,.0f}", f"{peak:.0f}", f"{own:.0f}")
        worst = max(worst, peak)
    Console(width=110).print(table)
    counted = pl.scan_parquet(folder / "forecasts.parquet").select(
        pl.len().alias("rows"), pl.col("series").n_unique().alias("series")
    )
    found = counted.collect(engine="streaming").row(0)
    assert found == (HORIZON * series, series), found
    print(f"peak memory {worst:.0f} MB, target < {MOST_MEMORY}: {verdict(worst < MOST_MEMORY)}")


def growth(folder: Path, rows: int, repeats: int) -> None:
    """Prints the seconds of forecasts of more and more series, and what each further 10,000 cost."""
    counts = [10_000, 40_000, 70_000, 100_000]
    source = written(folder, counts[-1], rows)
    fit(folder)
    commands = {}
    for count in counts:
        part = folder / f"part-{count}.parquet"
        wanted = pl.scan_parquet(source / "*.parquet").filter(pl.col("series") < name_of(count))
        wanted.sink_parquet(part)
        store = f"store-{count}"
        measured([*FORECASTER, "convert", str(part), store, "--freq", "1h"], folder)
        part.unlink()
        commands[count] = [*FORECASTER, "predict", "model", store, *OUT]
    walls, works = (dict.fromkeys(counts, float("inf")) for _ in range(2))
    for _ in range(repeats):
        for count, command in commands.items():
            before = _worked()
            walls[count] = min(walls[count], measured(command, folder)[0])
            works[count] = min(works[count], _worked() - before)
    for name, spent in (("wall time", walls), ("processor time", works)):
        print(f"{name}:", ", ".join(f"{count:,} series {spent[count]:.2f} s" for count in counts))
        marginal = [
            (spent[more] - spent[less]) / (more - less) * 10_000
            for less, more in itertools.pairwise(counts)
        ]
        mean = (spent[counts[-1]] - spent[counts[0]]) / (counts[-1] - counts[0]) * 10_000
        apart = max(abs(own / mean - 1) for own in marginal)
        each = ", ".join(f"{own:.3f}" for own in marginal)
        print(f"s per further 10,000: {each}, mean {mean:.3f}")
        print(f"apart by {apart:.0%}, target {GROWTH_TARGET:.0%}: {verdict(apart <= GROWTH_TARGET)}")


def _worked() -> float:
    """Returns the processor seconds of all processes that were started and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def name_of(number: int) -> str:
    """Returns the key of a series; keys sort as numbers do."""
    return f"store_{number:07}"


def chunks(series: int, rows: int) -> Iterator[pl.DataFrame]:
    """Yields the rows of a panel of hourly days with noise, 5,000 series at a time."""
    rng = np.random.default_rng(0)
    clock = pl.Series(1_704_067_200_000_000 + 3_600_000_000 * np.arange(rows)).cast(pl.Datetime("us"))
    day = np.sin(2 * np.pi * np.arange(rows) / 24)
    for first in range(0, series, 5000):
        count = min(5000, series - first)
        keys = pl.DataFrame({"series": [name_of(number) for number in range(first, first + count)]})
        values = rng.normal(100, 5, (count, rows)) + rng.uniform(5, 20, (count, 1)) * day
        yield keys[np.repeat(np.arange(count), rows)].with_columns(
            time=clock[np.tile(np.arange(rows), count)], value=values.ravel().round(2)
        )


def written(folder: Path, series: int, rows: int) -> Path:
    """Returns the folder of a panel in Parquet files."""
    source = folder / "source"
    source.mkdir()
    for number, frame in enumerate(chunks(series, rows)):
        frame.write_parquet(source / f"chunk-{number:04}.parquet")
    return source


def fit(
    folder: Path, settings: Sequence[str] = SETS, model: str = "model", root: Path | None = None
) -> None:
    """Fits a model to a few series of the same kind; how good it is changes no time."""
    next(chunks(50, 500)).write_parquet(folder / "few.parquet")
    sets = [word for setting in settings for word in ("--set", setting)]
    horizon = ["--horizon", str(HORIZON), "--freq", "1h"]
    done = subprocess.run(
        [*FORECASTER, "fit", "few.parquet", *horizon, *sets, "--out", model],
        cwd=folder,
        env=_environment(root),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(done.stderr[-2000:])


def measured(command: list[str], folder: Path, root: Path | None = None) -> tuple[float, float, float]:
    """Returns seconds, peak memory and peak memory without mapped files (MB) of a process.

    Args:
        command: runs in the folder.
        folder: of the files.
        root: checkout whose package is imported; None = the one that is installed.
    """
    begun = time.perf_counter()
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, cwd=folder, env=_environment(root), stdout=subprocess.DEVNULL, stderr=errors
        )
        peak = own = 0.0
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            high, anonymous = _memory(status)
            peak, own = max(peak, high), max(own, anonymous)
            time.sleep(0.01)
        seconds = time.perf_counter() - begun
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{' '.join(command)}: {errors.read()[-2000:]}")
    return seconds, peak, own


def _environment(root: Path | None) -> dict[str, str]:
    """Returns this process's own; modules are kept compiled, as pip leaves those of the peer."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return own if root is None else own | {"PYTHONPATH": str(root.resolve())}


def _memory(status: Path) -> tuple[float, float]:
    """Returns the highest resident size and the present one without mapped files, in MB."""
    try:
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return tuple(int(fields[name].split()[0]) * 1024 / 1e6 for name in ("VmHWM", "RssAnon"))  # type: ignore[return-value]
    except (OSError, KeyError):  # it has ended
        return 0.0, 0.0


def verdict(passed: bool) -> str:
    """Returns PASS, or that the target is missed."""
    return "PASS" if passed else "MISSED"


if __name__ == "__main__":
    main()
