"""Writes measured results into README.md: what `make demo` has made, and rows of benchmarks/league.py.

make demo && python docs/make_readme.py [NOW.json]
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from itertools import groupby
from math import nan
from pathlib import Path
from statistics import geometric_mean

import polars as pl

ROOT = Path(__file__).parents[1]
DEMO, README = ROOT / "demo", ROOT / "README.md"
ROWS = 3
BESIDE = ("ridge", "ets", "AutoETS", "Theta", "LightGBM")
"""Models whose WQL stands beside forecaster's; the columns of the table of results."""


def sample() -> str:
    """The first rows of the forecasts, without the quantiles between the outer two."""
    lines = (DEMO / "forecasts.csv").read_text(encoding="utf-8").splitlines()[: ROWS + 1]
    cells = [line.split(",") for line in lines]
    return "\n".join(",".join([*row[:7], "…", *row[-2:]]) for row in cells)


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


def league(path: Path) -> str:
    """The rows of a run of benchmarks/league.py, and the geometric mean of what has a row for all tables."""
    lines, columns = [], []
    rows = json.loads(path.read_text(encoding="utf-8"))
    for table, own in groupby(rows, key=lambda row: row["table"]):
        of = {row["model"]: row for row in own}
        naive = of["seasonal_naive"]["wql"]
        losses = [of[name]["wql"] / naive if name in of else nan for name in ("forecaster", *BESIDE)]
        columns.append(losses)
        lines.append(line(table, losses, of["forecaster"]["coverage_80"]))
    means = [geometric_mean(one) if min(one) > 0 else nan for one in zip(*columns, strict=True)]
    return "\n".join([*lines, line(f"**geometric mean of these {len(lines)}**", means, nan)])


def line(name: str, losses: list[float], coverage: float) -> str:
    """A row of the table; what is not known is –."""
    cells = [f"{loss:.2f}" for loss in losses] + [f"{100 * coverage:.0f} %"]
    return f"| {' | '.join([name, *('–' if 'nan' in cell else cell for cell in cells)])} |"


def main(rows: Path | None) -> None:
    text = README.read_text(encoding="utf-8")
    text = re.sub(r"(?<=```text\n)store,cutoff,.*?(?=\n```)", sample(), text, flags=re.DOTALL)
    text = re.sub(r"(?m)^\| demo: .*$", demo(), text)
    if rows is not None:
        text = re.sub(r"(?m)(^\| demo: .*\n)(\|.*\n)*", lambda own: own[1] + league(rows) + "\n", text)
    README.write_text(text, encoding="utf-8")
    shutil.copy(DEMO / "forecast.png", ROOT / "docs" / "images" / "demo_forecast.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else None)
