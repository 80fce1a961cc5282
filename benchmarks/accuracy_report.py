"""Output of the accuracy benchmarks: flags, rows, intervals, Markdown tables.

Scores of windows (`accuracy.Found`) become a table with means and spreads over seeds, the command that
made it, and a JSON list of rows {dataset, model, horizon, seed, metric, value}.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from accuracy import Found, Rows, value

from forecaster.config import Config, load_config, parse_duration
from forecaster.errors import ForecasterError
from forecaster.files import atomic_file, check_writable

ROOT = Path(__file__).parents[1]
_DRAWS = 2000


@dataclass(frozen=True)
class Row:
    """One figure."""

    dataset: str
    model: str
    horizon: int
    seed: int
    metric: str
    value: float


def rows_of(found: Found) -> list[Row]:
    """Returns scores as rows."""
    return [
        Row(dataset, model, horizon, seed, metric, value(pairs))
        for (dataset, horizon, seed, model), scores in found.items()
        for metric, pairs in scores.items()
    ]


def wanted(rows: Iterable[Row], **fields: Any) -> list[float]:
    """Returns the values of the rows that have these fields."""
    return [r.value for r in rows if all(getattr(r, name) == wanted for name, wanted in fields.items())]


def cell(values: Sequence[float], digits: int = 3) -> str:
    """Returns a mean over seeds, ± the standard deviation where they differ."""
    if not values:
        return "–"
    mean = f"{statistics.fmean(values):.{digits}f}"
    same = len(values) < 2 or max(values) - min(values) < 1e-9
    return mean if same else f"{mean} ± {statistics.stdev(values):.{digits}f}"


def interval(
    score: Callable[[list[Rows]], float], counts: Sequence[int], share: float = 0.95
) -> tuple[float, float]:
    """Returns the block-bootstrap interval of a score.

    Errors of windows that follow each other are alike, so blocks of them are drawn, a third root of
    their number long, around the end and on from the start (Politis and Romano 1992).

    Args:
        score: of drawn windows: an array of window numbers per set of windows.
        counts: windows of each set.
        share: of the draws that lie inside.
    """
    rng, found = np.random.default_rng(0), []
    for _ in range(_DRAWS):
        drawn = []
        for count in counts:
            length = max(1, round(count ** (1 / 3)))
            starts = rng.integers(0, count, -(-count // length))
            drawn.append(((starts[:, None] + np.arange(length)) % count).ravel()[:count])
        found.append(score(drawn))
    low, high = np.quantile(found, [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Returns a Markdown table."""
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ["---"] * len(header), *lines])


def flags(description: str, config: str) -> argparse.ArgumentParser:
    """Returns a parser with the flags that all these scripts have.

    Args:
        description: first line of the help.
        config: default file of settings, from the root of the checkout.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--config", type=Path, default=ROOT / config, help=f"settings; {config}")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="on top of it")
    parser.add_argument("--seeds", type=_many, default=3, metavar="N", help="fits: seeds 0 … N - 1; 3")
    parser.add_argument("--budget", metavar="TIME", help="bounds the training of a fit, as 90s or 2m")
    parser.add_argument("--json", type=Path, metavar="OUT", help="file for the rows")
    parser.add_argument("--no-track", action="store_true", help="record nothing in MLflow")
    parser.add_argument(
        "--validation",
        type=_many,
        nargs="?",
        const=1,
        default=0,
        metavar="SPANS",
        help="for choosing: so many spans before the test span are scored, which is not read; 1",
    )
    return parser


def settled(given: argparse.Namespace) -> Config:
    """Returns the config of the flags, after a check that rows can be written.

    Raises:
        ConfigError: a setting or a flag is wrong.
        OutputError: the file for the rows cannot be written.
    """
    if given.json is not None:
        check_writable(given.json)
    config = load_config(given.config, given.set)
    if given.budget is not None:
        config = config.replaced(fit={"budget_seconds": parse_duration(given.budget, "--budget")})
    if given.no_track:
        config = config.replaced(tracking={"enabled": False})
    return config


def finish(given: argparse.Namespace, rows: Sequence[Row], table: str, began: float) -> None:
    """Prints the table, what was run and how long it took, and writes the rows.

    Args:
        given: parsed `flags`.
        rows: all of them.
        table: in Markdown.
        began: when, by `time.monotonic`.
    """
    script, *flags_given = sys.argv
    command = shlex.join(["python", f"benchmarks/{Path(script).name}", *flags_given])
    minutes = (time.monotonic() - began) / 60
    seeds = f"seeds 0 … {given.seeds - 1}" if given.seeds > 1 else "seed 0"
    machine = f"{os.cpu_count()} cores ({platform.machine()})"
    if given.json is not None:
        with atomic_file(given.json) as path:
            path.write_text(json.dumps([asdict(row) for row in rows], indent=1), encoding="utf-8")
    print(table)
    print(f"\n`{command}` · {date.today()} · {seeds} · {machine} · {minutes:.1f} minutes")


def guarded(main: Callable[[], None]) -> None:
    """Runs a script; what its caller can mend is one line and exit code 2."""
    try:
        main()
    except ForecasterError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        sys.exit(2)


def _many(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected 1 or more")
    return int(text)
