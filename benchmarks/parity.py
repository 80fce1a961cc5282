"""Forecasts and losses of this tree beside those of another commit: a refactor changes neither.

    python benchmarks/parity.py [--against COMMIT] [--only smoke,golden] [--tolerance 1e-6]

Each case fits a preset with few steps to the demo data and forecasts with it, through the command line
alone: in this tree, and in a temporary worktree of the other commit, each in its own processes. Compared
as files: the forecasts (CSV) and the numbers of metrics.json (losses of every validation, weights,
scores). Prints per case whether the forecasts are byte-equal, else the largest relative difference, and
the same of the metrics. Exits with 1 where a difference is above the tolerance or rows differ.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEFORE = "4ccf377"
"""The commit before the first of the rooms' new order."""
DATA = ("data/demo.csv", "--future", "data/demo_future.csv")
GOLDEN = "tests/golden/format-*"
"""One folder in each tree: that of the format it reads."""


@dataclass(frozen=True)
class Case:
    """What is fitted and forecast. Paths are those of the tree."""

    name: str
    fit: Sequence[str] = ()
    predict: Sequence[str] = DATA
    model: str = ""
    """Folder of a model that is there; empty = the fitted one."""


def preset(name: str, *settings: str, file: str | None = None) -> Case:
    """Returns a fit of a preset to the demo data with some settings; `file`: of another name."""
    options = [part for setting in settings for part in ("--set", setting)]
    config = ("--config", f"configs/{file or name}.yaml")
    return Case(name, (*DATA, "--horizon", "28", *config, *options))


CASES = (
    preset("default", "fit.steps=40"),
    preset("smoke"),
    preset("vanilla", "fit.steps=20"),
    preset("long", "fit.steps=4", "model.context_length=512"),
    preset("ensemble", "fit.steps=20", "fit.ensemble_size=2", "fit.refit=true", file="default"),
    Case(
        "classes",
        ("data/demo.csv", "--label", "category", "--set", "fit.steps=20"),
        predict=("data/demo.csv",),
    ),
    Case(
        "golden",
        predict=(f"{GOLDEN}/table.csv", "--future", f"{GOLDEN}/future.csv"),
        model=f"{GOLDEN}/model",
    ),
)


def run(tree: Path, arguments: Sequence[str]) -> None:
    """Runs a verb of the package in a tree; its paths are relative to the tree."""
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    words = (glob(word, root_dir=tree)[0] if word.startswith(GOLDEN) else word for word in arguments)
    command = [sys.executable, "-m", "forecaster", *words]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{tree}: forecaster {' '.join(arguments)}\n{done.stdout}{done.stderr}")


def results(tree: Path, case: Case, folder: Path) -> tuple[Path, Path | None]:
    """Returns the files of forecasts and of metrics that a case makes in a tree."""
    forecasts, model = folder / "forecasts.csv", case.model
    if case.fit:
        model = str(folder / "model")
        run(tree, ("fit", *case.fit, "--out", model, "--no-tracking"))
    run(tree, ("predict", model, *case.predict, "--out", str(forecasts)))
    return forecasts, folder / "model" / "metrics.json" if case.fit else None


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yields the numbers of nested JSON with their places; seconds are no result."""
    if isinstance(value, Mapping):
        for key, entry in value.items():
            if "second" not in key:
                yield from numbers(entry, f"{path}.{key}")
    elif isinstance(value, list):
        for number, entry in enumerate(value):
            yield from numbers(entry, f"{path}.{number}")
    elif isinstance(value, int | float):
        yield path, float(value)


def relative(one: float, other: float) -> float:
    """Returns the distance of two numbers relative to the larger."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    return abs(one - other) / max(abs(one), abs(other))


def cells(file: Path) -> list[list[str]]:
    """Returns the cells of a CSV file."""
    with file.open(newline="") as rows:
        return list(csv.reader(rows))


def difference(one: str, other: str) -> float:
    """Returns the relative distance of two cells; two texts that differ are infinitely far."""
    if one == other:
        return 0.0
    try:
        return relative(float(one), float(other))
    except ValueError:
        return math.inf


def distance_of_rows(one: Path, other: Path) -> float:
    """Returns the largest relative distance of two files of forecasts; infinite where rows differ."""
    ours, theirs = cells(one), cells(other)
    if [len(row) for row in ours] != [len(row) for row in theirs]:
        return math.inf
    pairs = (pair for rows in zip(ours, theirs, strict=True) for pair in zip(*rows, strict=True))
    return max((difference(*pair) for pair in pairs), default=0.0)


def distance_of_metrics(one: Path, other: Path) -> float:
    """Returns the largest relative distance of the metrics that both have; infinite if none is."""
    ours, theirs = (dict(numbers(json.loads(file.read_text()))) for file in (one, other))
    shared = ours.keys() & theirs.keys()
    return max((relative(ours[key], theirs[key]) for key in shared), default=math.inf)


def worded(distance: float) -> str:
    """Returns a distance as text."""
    return "equal" if distance == 0 else f"{distance:.1e}"


def compare(here: Path, there: Path, case: Case, scratch: Path) -> float:
    """Runs a case in both trees and prints its line; returns the largest distance."""
    files = []
    for name, tree in (("here", here), ("there", there)):
        folder = scratch / case.name / name
        folder.mkdir(parents=True)
        files.append(results(tree, case, folder))
    (forecasts, metrics), (old_forecasts, old_metrics) = files
    distance = distance_of_rows(forecasts, old_forecasts)
    words = f"{case.name:8}  forecasts {worded(distance)}"
    if metrics is not None and old_metrics is not None:
        of_metrics = distance_of_metrics(metrics, old_metrics)
        words += f"  metrics {worded(of_metrics)}"
        distance = max(distance, of_metrics)
    print(words, flush=True)
    return distance


def main() -> int:
    """Compares the cases; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--against", default=BEFORE, metavar="COMMIT")
    parser.add_argument("--only", metavar="A,B", help="names of cases")
    parser.add_argument("--tolerance", type=float, default=1e-6)
    options = parser.parse_args()
    names = [case.name for case in CASES] if options.only is None else options.only.split(",")
    if unknown := sorted(set(names) - {case.name for case in CASES}):
        parser.error(f"--only {','.join(unknown)}: expected {', '.join(case.name for case in CASES)}")
    git = ["git", "-C", str(ROOT)]
    with tempfile.TemporaryDirectory() as scratch:
        there = Path(scratch) / "tree"
        subprocess.run([*git, "worktree", "add", "-q", "--detach", there, options.against], check=True)
        try:
            chosen = (case for case in CASES if case.name in names)
            largest = max(compare(ROOT, there, case, Path(scratch)) for case in chosen)
        finally:
            subprocess.run([*git, "worktree", "remove", "--force", there], check=True)
    return int(largest > options.tolerance)


if __name__ == "__main__":
    sys.exit(main())
