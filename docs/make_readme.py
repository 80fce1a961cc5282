"""Writes into README.md what `make demo` has made: the sample of its forecasts, its scores, its picture.

make demo && python docs/make_readme.py
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import polars as pl

ROOT = Path(__file__).parents[1]
DEMO, README = ROOT / "demo", ROOT / "README.md"
ROWS = 3


def sample() -> str:
    """The first rows of the forecasts, without the quantiles between the outer two."""
    lines = (DEMO / "forecasts.csv").read_text(encoding="utf-8").splitlines()[: ROWS + 1]
    cells = [line.split(",") for line in lines]
    return "\n".join(",".join([*row[:7], "…", *row[-2:]]) for row in cells)


def scores() -> str:
    """The row of the demo in the table of results; WQL is twice the pinball loss over the sum of |actual|."""
    rows = pl.read_parquet(DEMO / "backtest.parquet").filter(pl.col("actual").is_not_null())
    levels = [name for name in rows.columns if re.fullmatch(r"q0\.\d+", name)]

    def wql(model: str) -> float:
        own = rows.filter(pl.col("model") == model)
        missed = [pl.col("actual") - pl.col(name) for name in levels]
        losses = [
            pl.max_horizontal(float(name[1:]) * gap, (float(name[1:]) - 1) * gap)
            for name, gap in zip(levels, missed, strict=True)
        ]
        return own.select(2 * pl.mean_horizontal(losses).sum() / pl.col("actual").abs().sum()).item()

    own, naive = wql("forecaster"), wql("seasonal naive")
    inside = pl.col("actual").is_between("q0.1", "q0.9").mean()
    coverage = rows.filter(pl.col("model") == "forecaster").select(inside).item()
    cells = ("demo: 12 shops, daily", "`make demo`", "4 × 28 days", f"{own:.3f}", f"{naive:.3f}")
    return f"| {' | '.join(cells)} | {1 - own / naive:.1%} | {coverage:.1%} |".replace("%", " %")


if __name__ == "__main__":
    text = README.read_text(encoding="utf-8")
    text = re.sub(r"(?<=```text\n)store,cutoff,.*?(?=\n```)", sample(), text, flags=re.DOTALL)
    text = re.sub(r"(?m)^\| demo: .*$", scores(), text)
    README.write_text(text, encoding="utf-8")
    shutil.copy(DEMO / "forecast.png", ROOT / "docs" / "images" / "demo_forecast.png")
