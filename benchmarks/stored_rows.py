"""Rows of a benchmark, each in a file of its own, so that a run that was stopped continues where it was."""

from __future__ import annotations

import argparse
import json
import math
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from forecaster import Config, ConfigError, load_config
from forecaster.files import atomic_file

ROOT = Path(__file__).resolve().parents[1]

Row = dict[str, Any]


def commit() -> str:
    """Returns the commit of this tree; `-dirty` with changes that are not committed."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def stored(out: Path, name: str, make: Callable[[], Row], asked: str = "") -> Row:
    """Returns the row of a name: from OUT.parts where this commit has written it as asked, else made and written.

    Args:
        out: file of all rows; the parts lie beside it.
        name: of the row, such as table and seed.
        make: makes the row; `commit` is added to it.
        asked: settings of the run; a row made with others is made again.
    """
    version = commit()
    file = out.with_name(f"{out.name}.parts") / f"{name.replace('/', '-')}.json"
    if file.exists():
        part: Row = json.loads(file.read_text(encoding="utf-8"))
        same = (part["commit"], part.get("asked")) == (version, asked)
        if same and not version.endswith("-dirty"):
            return {key: value for key, value in part.items() if key != "asked"}
    row = make() | {"commit": version}
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, row | {"asked": asked})
    return row


def table_name(row: Mapping[str, Any]) -> str:
    """Returns what a row is of: a config of gift.py, a table of league.py, a period of mcomp.py."""
    return str(next(row[key] for key in ("config", "table", "period") if key in row))


def add_no_fit(parser: argparse.ArgumentParser) -> None:
    """Adds the flag of forecasts without a fit."""
    parser.add_argument("--no-fit", action="store_true", help="forecasts of the tables alone")


def fits_of(given: argparse.Namespace) -> list[tuple[str, int | None, Config | None]]:
    """Returns name, seed and settings of each fit that --seeds and --set ask for; with --no-fit no settings.

    Raises:
        ConfigError: a setting is wrong, or is one of a fit beside --no-fit.
    """
    if not given.no_fit:
        both = [*given.set, "tracking.enabled=false"]
        return [
            (str(seed), seed, load_config(None, [*both, f"fit.seed={seed}"])) for seed in given.seeds
        ]
    if given.set or given.seeds != [0]:
        raise ConfigError("--set, --seeds: they are of fits; leave them out, or --no-fit")
    return [("no-fit", None, None)]


def made_by(row: Mapping[str, Any]) -> str:
    """Returns the seed of a row in words.

    >>> made_by({"seed": 2}), made_by({"seed": None})
    ('seed 2', 'no fit')
    """
    return "no fit" if row["seed"] is None else f"seed {row['seed']}"


def write(file: Path, content: Any) -> None:
    """Writes JSON, whole or not at all."""
    with atomic_file(file) as path:
        path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def geometric(values: Iterable[float]) -> float:
    """Returns the geometric mean of positive values; NaN of nothing."""
    logarithms = [math.log(value) for value in values]
    return math.exp(sum(logarithms) / len(logarithms)) if logarithms else math.nan


def whole_numbers(text: str) -> Sequence[int]:
    """Returns the numbers of 0,1,2."""
    return [int(number) for number in text.split(",")]
