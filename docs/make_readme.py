"""Writes measured results into README.md and docs/results.md: what `make demo` has made, and a run of
benchmarks/league.py beside AutoETS and Theta.

make demo && python docs/make_readme.py [NOW.json]
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from math import nan
from pathlib import Path
from statistics import fmean, geometric_mean

import polars as pl

ROOT = Path(__file__).parents[1]
DEMO, README, RESULTS = ROOT / "demo", ROOT / "README.md", ROOT / "docs" / "results.md"
ROWS = 3
BESIDE = ("ridge", "ets", "AutoETS", "Theta", "LightGBM")
"""Models whose WQL stands beside forecaster's; the columns of the table of docs/results.md."""
PEERS = {"AutoETS": "AutoETS", "Theta": "Theta", "seasonal_naive": "seasonal naive"}
"""Those that README.md names lost tables for, as it calls them."""
LOST = 1.02
"""Ratio of losses from which on a table is lost."""


def sample() -> str:
    """The first rows of the forecasts, without the quantiles between the outer two."""
    lines = (DEMO / "forecasts.csv").read_text(encoding="utf-8").splitlines()[: ROWS + 1]
    cells = [line.split(",") for line in lines]
    return "\n".join(",".join([*row[:8], "…", *row[-2:]]) for row in cells)


def demo() -> str:
    """The row of the demo in the table of results; WQL is twice the pinball loss over the sum of |actual|."""
    rows = pl.read_parquet(DEMO / "backtest.parquet").filter(pl.col("actual").is_not_null())
    levels = [name for name in rows.columns if re.fullmatch(r"q0\.\d+", name)]
    missed = [pl.col("actual") - pl.col(name) for name in levels]
    pinball = [
        pl.max_horizontal(float(name[1:]) * gap, (float(name[1:]) - 1) * gap)
        for name, gap in zip(levels, missed, strict=True)
    ]
    wql = 2 * pl.mean_horizontal(pinball).sum() / pl.col("actual").abs().sum()
    of = dict(rows.group_by("model").agg(wql).iter_rows())
    inside = pl.col("actual").is_between("q0.1", "q0.9").mean()
    coverage = rows.filter(pl.col("model") == "forecaster").select(inside).item()
    names = ("forecaster", "ridge", "ETS", *BESIDE[2:])
    losses = [of.get(name, nan) / of["seasonal naive"] for name in names]
    return line("demo: 12 shops, daily (`make demo`)", losses, coverage)


def tables(path: Path) -> dict[str, dict[str, dict[str, float]]]:
    """The rows of a run of benchmarks/league.py by table and model, `loss` relative to seasonal naive's."""
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for row in json.loads(path.read_text(encoding="utf-8")):
        rows.setdefault(row["table"], {})[row["model"]] = row
    for of in rows.values():
        naive = of["seasonal_naive"]["wql"]
        for row in of.values():
            row["loss"] = row["wql"] / naive
    return rows


def league(rows: dict[str, dict[str, dict[str, float]]], text: str) -> str:
    """A text whose table has the losses of a run; a model that did not run keeps its cell."""
    for table, of in rows.items():
        losses = [of[name]["loss"] if name in of else nan for name in ("forecaster", *BESIDE)]
        new = line(table, losses, of["forecaster"]["coverage_80"]).split("|")
        (old,) = re.findall(rf"(?m)^\| {re.escape(table)} \|.*$", text)
        cells = [b if "–" in a else a for a, b in zip(new, old.split("|"), strict=True)]
        text = text.replace(old, "|".join(cells))
    return text


def summary(rows: dict[str, dict[str, dict[str, float]]]) -> str:
    """The rows of README.md's table that a run of benchmarks/league.py gives."""
    losses = {
        name: [of[name]["loss"] for of in rows.values()] for name in ("forecaster", "AutoETS", "Theta")
    }
    mean = {name: geometric_mean(values) for name, values in losses.items()}
    behind = []
    for name, title in PEERS.items():
        found = [
            f"{table} ({of['forecaster']['loss']:.2f} to {of[name]['loss']:.2f})"
            for table, of in rows.items()
            if of["forecaster"]["loss"] >= LOST * of[name]["loss"]
        ]
        behind.append(f"to {title} {', '.join(found)}" if found else f"to {title} none")
    held = [100 * of["forecaster"]["coverage_80"] for of in rows.values()]
    return "\n".join(
        [
            f"| {len(rows)} everyday tables: WQL / seasonal naive's, geometric mean | **{mean['forecaster']:.2f}** "
            f"| AutoETS {mean['AutoETS']:.2f}, Theta {mean['Theta']:.2f} |",
            f"| lost by {100 * LOST - 100:.0f} % or more | | {'; '.join(behind)} |",
            f"| actuals within the 80 % band | {fmean(held):.0f} % ({min(held):.0f} to {max(held):.0f} %) | |",
        ]
    )


def line(name: str, losses: list[float], coverage: float) -> str:
    """A row of the table; what is not known is –."""
    cells = [f"{loss:.2f}" for loss in losses] + [f"{100 * coverage:.0f} %"]
    return f"| {' | '.join([name, *('–' if 'nan' in cell else cell for cell in cells)])} |"


def main(run: Path | None) -> None:
    text, results = README.read_text(encoding="utf-8"), RESULTS.read_text(encoding="utf-8")
    text = re.sub(r"(?<=```text\n)store,cutoff,.*?(?=\n```)", sample(), text, flags=re.DOTALL)
    results = re.sub(r"(?m)^\| demo: .*$", demo(), results)
    if run is not None:
        rows = tables(run)
        results = league(rows, results)
        text = re.sub(
            r"(?m)^\| \d+ everyday .*\n\| lost .*\n\| actuals .*$", lambda _: summary(rows), text
        )
    README.write_text(text, encoding="utf-8")
    RESULTS.write_text(results, encoding="utf-8")
    shutil.copy(DEMO / "forecast.png", ROOT / "docs" / "images" / "demo_forecast.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
