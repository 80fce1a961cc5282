"""What a search costs beside its training, and what a second worker saves.

    python benchmarks/tune.py            # both tables: 6 minutes
    python benchmarks/tune.py --quick    # a few small trials, to see that it runs

Overhead: the demo table, a journal and an SQLite tracking store, one worker. Of every trial the time
inside the fit and the scoring is taken away from the time since the trial before was told; what is left
is proposing, claiming, telling, recording and the objective's own lines, on the wall and in processor
time, which leaves out what else the machine does. The first trials are left out: they load libraries.

Workers: the same study (random settings, the same seed, no pruner), by one worker and by two, one
thread each, in turn; whole processes, with their imports.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of both sides; before torch reads it

from rich.console import Console
from rich.table import Table

from forecaster.config import load_config
from forecaster.panel.build import open_panel
from forecaster.runs.tracking.sweep import open_sweep
from forecaster.runs.tune import objective as objectives
from forecaster.runs.tune.options import Tables, TuneOptions, plan_search
from forecaster.runs.tune.plan import SweepPlan, read_plan
from forecaster.runs.tune.space import load_space
from forecaster.runs.tune.study import finished, open_study
from forecaster.runs.tune.worker import Session, run_worker
from forecaster.runs.tune.workers import run_workers

DATA = Path(__file__).parents[1] / "data" / "demo.csv"
SPACE = "fit.learning_rate: {float: [0.0005, 0.02], log: true}\nmodel.dropout: {float: [0.0, 0.3]}\n"
OVERHEAD_TARGET, WORKERS_TARGET = 0.3, 0.6
WARM = 3


class Inside:
    """Seconds spent in some functions."""

    def __init__(self) -> None:
        self.seconds = self.busy = 0.0

    def timed(self, work: Any) -> Any:
        """Returns a function that does the same and adds to the seconds."""

        def call(*told: Any, **named: Any) -> Any:
            begun, busy = time.perf_counter(), time.process_time()
            try:
                return work(*told, **named)
            finally:
                self.seconds += time.perf_counter() - begun
                self.busy += time.process_time() - busy

        return call


def make_plan(folder: Path, name: str, trials: int, steps: int) -> SweepPlan:
    """Returns the plan of a study of equal trials."""
    (folder / "space.yaml").write_text(SPACE, encoding="utf-8")
    settings = ["horizon=28", f"fit.steps={steps}", "fit.patience=null", "data.known=[price,promo]"]
    config = load_config(None, [*settings, f"tracking.uri=sqlite:///{folder}/mlflow.db"])
    panel = open_panel(str(DATA), config.data)
    options = TuneOptions(trials=trials, study=name, sampler="random", pruner="none")
    space = load_space(folder / "space.yaml")
    plan = plan_search(panel, Tables(str(DATA)), config, options, space)
    return replace(plan, storage=str(folder / f"{name}.journal"))


@contextmanager
def tracked(plan: SweepPlan) -> Iterator[SweepPlan]:
    """Yields the plan with the run that holds its trials'."""
    with open_sweep(plan.settings.tracking, plan.study, plan.storage) as sweep:
        assert sweep.key, "the tracking store cannot be written"
        yield replace(plan, parent_run=sweep.key)


def overhead(folder: Path, trials: int, steps: int) -> list[tuple[float, float, float]]:
    """Returns seconds inside fit and scoring, outside, and outside of processor time, by trial."""
    inside = Inside()
    told: list[tuple[float, ...]] = []

    def note(_: object) -> None:
        told.append((time.perf_counter(), inside.seconds, time.process_time(), inside.busy))

    objectives.fit_panel = inside.timed(objectives.fit_panel)
    with tracked(make_plan(folder, "overhead", trials, steps)) as plan:
        objective = objectives.Objective(plan)
        objective.backtest = inside.timed(objective.backtest)  # type: ignore[method-assign]
        run_worker(plan, objective, told=note)
    pairs = zip(told[WARM:], told[WARM + 1 :], strict=False)
    spans = [[b - a for a, b in zip(*pair, strict=True)] for pair in pairs]
    return [(fitted, whole - fitted, busy - inner) for whole, fitted, busy, inner in spans]


def sweep(path: Path, workers: int) -> None:
    """Runs a study to its end: what the measured processes do."""
    plan = replace(read_plan(path), workers=workers)
    study = open_study(plan)
    run_workers(plan, study, Session.begin(study, plan))
    assert len(finished(study.get_trials())) == plan.trials


def timed_sweep(folder: Path, name: str, trials: int, steps: int, workers: int) -> float:
    """Returns the seconds of a whole process that runs a study."""
    with tracked(make_plan(folder, name, trials, steps)) as plan:
        plan.write(folder / f"{name}.json")
        words = ["--sweep", str(folder / f"{name}.json"), "--workers", str(workers)]
        begun = time.perf_counter()
        subprocess.run([sys.executable, __file__, *words], check=True)
        return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description="what a search costs, and what a second worker saves")
    parser.add_argument("--quick", action="store_true", help="fewer trials, to see that it runs")
    parser.add_argument("--rounds", type=int, default=1, help="turns of one and two workers")
    parser.add_argument("--sweep", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--workers", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.sweep:
        sweep(given.sweep, given.workers)
        return
    console, steps = Console(width=100), 6 if given.quick else 60
    with tempfile.TemporaryDirectory(prefix="forecaster-bench-") as scratch:
        folder = Path(scratch)
        spans = overhead(folder, trials=WARM + (4 if given.quick else 20), steps=20)
        show_overhead(console, spans)
        trials = 6 if given.quick else 36
        taken: dict[int, list[float]] = {1: [], 2: []}
        for round_ in range(given.rounds):
            for workers in (1, 2) if round_ % 2 == 0 else (2, 1):
                name = f"round-{round_}-{workers}"
                taken[workers].append(timed_sweep(folder, name, trials, steps, workers))
    show_workers(console, trials, taken)


def show_overhead(console: Console, spans: list[tuple[float, float, float]]) -> None:
    """Prints what a trial costs beside its training."""
    fitted, outside, busy = (list(column) for column in zip(*spans, strict=True))
    table = Table(title=f"a trial beside its training, {len(spans)} trials")
    headings = ("fit and scoring, s", "beside them, s: median", "least", "most", "processor: median")
    for heading in headings:
        table.add_column(heading, justify="right")
    median = statistics.median
    figures = (median(fitted), median(outside), min(outside), max(outside), median(busy))
    table.add_row(*(f"{figure:.3f}" for figure in figures))
    console.print(table)
    verdict = "met" if figures[1] <= OVERHEAD_TARGET else "not met"
    print(f"target: median <= {OVERHEAD_TARGET} s, {verdict}")


def show_workers(console: Console, trials: int, taken: dict[int, list[float]]) -> None:
    """Prints what a second worker saves."""
    table = Table(title=f"the same study of {trials} trials, one thread per worker, whole processes")
    for heading in ("workers", "s: least", "ratio"):
        table.add_column(heading, justify="right")
    ratio = min(taken[2]) / min(taken[1])
    for workers, seconds in taken.items():
        table.add_row(str(workers), f"{min(seconds):.1f}", "" if workers == 1 else f"{ratio:.2f}")
    console.print(table)
    verdict = "met" if ratio <= WORKERS_TARGET else "not met"
    enough = "" if min(taken[1]) >= 60 else " (too short a study to say: under 60 s)"
    print(f"target: ratio <= {WORKERS_TARGET}, {verdict}{enough}")


if __name__ == "__main__":
    main()
