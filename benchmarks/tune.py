"""What a search costs beside its training, and what a second worker saves.

    python benchmarks/tune.py            # both comparisons: 6 minutes
    python benchmarks/tune.py --quick    # a few small trials, to see that it runs

Overhead: the demo table, a journal and an SQLite tracking store, one worker. From the time between two
finished trials the time inside resolve, fit and scoring is subtracted; what is left is ask, tell and
tracking. The first trials are left out: they load libraries.

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
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of both sides; before torch reads it

from forecaster.config import load_config
from forecaster.panel.build import open_panel
from forecaster.runs.resume import FitRequest
from forecaster.runs.tracking import open_run
from forecaster.runs.tune import trial
from forecaster.runs.tune.search import run_trials
from forecaster.runs.tune.study import SweepPlan, counted, open_study, plan_search

DATA = Path(__file__).parents[1] / "data" / "demo.csv"
SPACE = "fit.learning_rate: {float: [0.0005, 0.02], log: true}\nmodel.dropout: {float: [0.0, 0.3]}\n"
OVERHEAD_TARGET, WORKERS_TARGET = 0.3, 0.6
WARM = 3


def make_plan(folder: Path, name: str, trials: int, steps: int) -> SweepPlan:
    """Returns the plan of a study of equal trials."""
    (folder / "space.yaml").write_text(SPACE, encoding="utf-8")
    settings = ["horizon=28", f"fit.steps={steps}", "data.known=[price,promo]"]
    config = load_config(None, [*settings, f"tracking.uri=sqlite:///{folder}/mlflow.db"])
    return plan_search(
        open_panel(str(DATA), config.data),
        config,
        FitRequest(config, DATA),
        space=folder / "space.yaml",
        study=name,
        storage=folder / f"{name}.journal",
        pruner="none",
        metrics=None,
        timeout=None,
        trials=trials,
        sampler="random",
    )


def overhead(folder: Path, trials: int, steps: int) -> list[tuple[float, float]]:
    """Returns seconds inside fit and scoring, and outside, by trial."""
    inside = 0.0

    def timed(work: Any) -> Any:
        def call(*args: Any, **named: Any) -> Any:
            nonlocal inside
            begun = time.perf_counter()
            try:
                return work(*args, **named)
            finally:
                inside += time.perf_counter() - begun

        return call

    for name in ("resolve", "fit_panel"):
        setattr(trial, name, timed(getattr(trial, name)))
    plan = make_plan(folder, "overhead", trials, steps)
    evaluator, ended = trial.Evaluator(plan), []
    evaluator.backtest = timed(evaluator.backtest)  # type: ignore[method-assign]
    with open_run(plan.config.tracking, plan.study, kind="sweep") as run:
        assert run.recorded, "the tracking store cannot be written"

        def note(_: object) -> None:
            ended.append((time.perf_counter(), inside))

        run_trials(plan, open_study(plan), run, note, evaluator)
    spans = zip(ended[WARM:], ended[WARM + 1 :], strict=False)
    return [(b[1] - a[1], b[0] - a[0] - (b[1] - a[1])) for a, b in spans]


def sweep(folder: Path, name: str, trials: int, steps: int, workers: int) -> None:
    """Runs a study to its end: the measured process."""
    plan = replace(make_plan(folder, name, trials, steps), workers=workers)
    study = open_study(plan)
    with open_run(plan.config.tracking, plan.study, kind="sweep") as run:
        run_trials(plan, study, run, evaluate=trial.Evaluator(plan) if workers == 1 else None)
    assert len(counted(study.get_trials())) == plan.trials


def main() -> None:
    """Prints both comparisons."""
    parser = argparse.ArgumentParser(description="what a search costs, and what a second worker saves")
    parser.add_argument("--quick", action="store_true", help="fewer trials, to see that it runs")
    parser.add_argument("--rounds", type=int, default=1, help="turns of one and two workers")
    parser.add_argument("--sweep", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.sweep:
        folder, name, *numbers = given.sweep
        sweep(Path(folder), name, *map(int, numbers))
        return
    measured, trials, steps = (4, 6, 6) if given.quick else (20, 36, 60)
    with tempfile.TemporaryDirectory(prefix="forecaster-bench-") as scratch:
        spans = overhead(Path(scratch), WARM + measured, steps=20)
        fitted, outside = zip(*spans, strict=True)
        beside = statistics.median(outside)
        print(
            f"a trial, median of {len(spans)}: resolve, fit and scoring {statistics.median(fitted):.3f} s; "
            f"beside them {beside:.3f} s ({min(outside):.3f} to {max(outside):.3f}), target at most "
            f"{OVERHEAD_TARGET} s: {verdict(beside <= OVERHEAD_TARGET)}"
        )
        taken: dict[int, list[float]] = {1: [], 2: []}
        for round_ in range(given.rounds):
            for workers in (1, 2) if round_ % 2 == 0 else (2, 1):
                words = ("--sweep", scratch, f"round-{round_}-{workers}", trials, steps, workers)
                begun = time.perf_counter()
                subprocess.run([sys.executable, __file__, *map(str, words)], check=True)
                taken[workers].append(time.perf_counter() - begun)
    one, two = min(taken[1]), min(taken[2])
    enough = "" if one >= 60 else " (too short a study to say: under 60 s)"
    print(
        f"{trials} trials of {steps} steps, whole processes, one thread per worker: one worker {one:.1f} s, "
        f"two {two:.1f} s ({two / one:.2f}), target at most {WORKERS_TARGET}: "
        f"{verdict(two / one <= WORKERS_TARGET)}{enough}"
    )


def verdict(holds: bool) -> str:
    """Returns whether a target is met, in words."""
    return "met" if holds else "not met"


if __name__ == "__main__":
    main()
