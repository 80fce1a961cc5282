"""A CSV file to a Panel, beside the fastest plain polars read + parse of the same file.

    python benchmarks/ingest.py [--rows 5000000] [--repeats 7]

Two files of the same rows are made in a temporary folder (seed 0): 500 hourly stamps per series,
sorted by series and time, and shuffled. The panel is `open_panel` with nothing declared: delimiter,
kinds, format of the times, roles, order, step and gaps are found. The plain reads only read the
columns and parse the times with a given format; the fastest of them is the measure.

Time: all variants take turns in this process after one round to warm up. Figures are the minimum and
the median of the rounds, in wall time, with all cores; the verdict is on the minima, which what else a
machine does changes least. Memory: each variant in a process of its own. What counts is how far the
highest resident size of `open_panel` lies above that of `read_csv` + parse, in sizes of the file's
cells as float64 (rows x columns x 8 bytes). Both files have to give the same panel, bit for bit.

Caveat: an hourly grid repeats each stamp once per series, which polars' date parser remembers, in the
plain reads as well as in ours.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from forecaster.config import DataConfig
from forecaster.panel.build import open_panel
from forecaster.panel.panel import Panel

STEPS, COLUMNS = 500, 3
FORMAT = "%Y-%m-%d %H:%M:%S"
TIME_TARGETS = {"sorted": 1.5, "shuffled": 3.0}
MEMORY_TARGET = 2.5
MEMORY_ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description="CSV to Panel beside a plain polars read + parse")
    parser.add_argument("--rows", type=int, default=5_000_000, help="rows of the file")
    parser.add_argument(
        "--repeats", type=int, default=7, help="rounds in which all variants take turns"
    )
    parser.add_argument("--peak", nargs=2, metavar=("VARIANT", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        print(own_peak(*given.peak))
        return
    with tempfile.TemporaryDirectory() as folder:
        files = make_files(Path(folder), max(given.rows, 4 * STEPS))
        if not same_panel(*(open_panel(path, DataConfig()) for path in files.values())):
            sys.exit("the sorted and the shuffled file give different panels")
        print_times(files, given.repeats)
        print_memory(files, given.rows)


def make_files(folder: Path, rows: int) -> dict[str, Path]:
    """Returns the paths of a sorted and a shuffled CSV file of the same rows."""
    number = np.arange(rows)
    frame = pl.DataFrame({"series": [f"store_{k:05}" for k in range(-(-rows // STEPS))]})
    frame = frame[number // STEPS].with_columns(
        pl.Series("time", 1_704_067_200_000_000 + 3_600_000_000 * (number % STEPS)).cast(
            pl.Datetime("us")
        ),
        pl.Series("value", np.random.default_rng(0).normal(100, 20, rows).round(2)),
    )
    files = {name: folder / f"{name}.csv" for name in TIME_TARGETS}
    frame.write_csv(files["sorted"], datetime_format=FORMAT)
    frame.sample(fraction=1, shuffle=True, seed=0).write_csv(files["shuffled"], datetime_format=FORMAT)
    return files


def _read(path: Path) -> pl.DataFrame:
    frame = pl.read_csv(path, schema_overrides={"time": pl.String})
    return frame.with_columns(pl.col("time").str.to_datetime(FORMAT))


def _scan(path: Path) -> pl.LazyFrame:
    text = pl.scan_csv(path, schema_overrides={"time": pl.String})
    return text.with_columns(pl.col("time").str.to_datetime(FORMAT))


PLAIN: dict[str, Callable[[Path], object]] = {
    "read_csv": _read,
    "scan_csv": lambda path: _scan(path).collect(),
    "scan_csv, streaming": lambda path: _scan(path).collect(engine="streaming"),
}
VARIANTS: dict[str, Callable[[Path], object]] = {
    **PLAIN,
    "open_panel": lambda path: open_panel(path, DataConfig()),
}


def same_panel(one: Panel, other: Panel) -> bool:
    """Whether two panels hold the same keys and bits."""
    arrays = ("values", "codes", "time", "indptr", "static", "static_codes")
    bits = all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in arrays)
    return bits and one.keys.equals(other.keys) and one.calendar.freq == other.calendar.freq


def print_times(files: dict[str, Path], repeats: int) -> None:
    """Prints the seconds of every variant on every file, and ours as a ratio to the fastest other."""
    table = Table(title=f"seconds, minimum / median of {repeats} rounds")
    table.add_column("file")
    for name in (*VARIANTS, "ratio", "target", "verdict"):
        table.add_column(name, justify="right")
    for kind, path in files.items():
        spent: dict[str, list[float]] = {name: [] for name in VARIANTS}
        for repeat in range(repeats + 1):
            for name, read in VARIANTS.items():
                begun = time.perf_counter()
                read(path)
                if repeat:
                    spent[name].append(time.perf_counter() - begun)
        cells = [f"{min(own):.2f} / {statistics.median(own):.2f}" for own in spent.values()]
        ratios = []
        for figure in (min, statistics.median):
            ratios.append(figure(spent["open_panel"]) / min(figure(spent[name]) for name in PLAIN))
        goal = TIME_TARGETS[kind]
        table.add_row(
            kind, *cells, f"{ratios[0]:.2f} / {ratios[1]:.2f}", f"<= {goal}", verdict(ratios[0], goal)
        )
    Console(width=140).print(table)


def print_memory(files: dict[str, Path], rows: int) -> None:
    """Prints the peak memory of a plain read and of ours, and the difference between them."""
    size = rows * COLUMNS * 8 / 1e6
    table = Table(title=f"peak MB above the imports; the cells as float64 are {size:.0f} MB")
    table.add_column("file")
    for name in ("read_csv", "open_panel", "above the reader's", "target", "verdict"):
        table.add_column(name, justify="right")
    for kind, path in files.items():
        base, plain, ours = (peak(name, path) for name in ("imports", "read_csv", "open_panel"))
        above = (ours - plain) / size
        figures = (f"{plain - base:.0f}", f"{ours - base:.0f}", f"{above:.2f} x")
        table.add_row(kind, *figures, f"<= {MEMORY_TARGET} x", verdict(above, MEMORY_TARGET))
    Console(width=140).print(table)


def verdict(figure: float, target: float) -> str:
    """Returns PASS, or by how much the target is missed."""
    return "PASS" if figure <= target else f"over by {100 * (figure / target - 1):.0f} %"


def peak(variant: str, path: Path) -> float:
    """Returns the median peak memory of fresh processes that read a file, in MB."""
    command = [sys.executable, __file__, "--peak", variant, str(path)]
    runs = [
        subprocess.run(command, check=True, capture_output=True, text=True)
        for _ in range(MEMORY_ROUNDS)
    ]
    return statistics.median(float(run.stdout) for run in runs)


def own_peak(variant: str, path: str) -> float:
    """Returns this process's peak memory after a read, in MB."""
    if variant in VARIANTS:
        VARIANTS[variant](Path(path))
    status = Path("/proc/self/status")
    if status.exists():
        # ru_maxrss starts at the size of the process that called this one.
        high = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(high.split()[1]) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    main()
