"""The result of a search: its trials, the best settings, what is printed and logged of them."""

from __future__ import annotations

import shlex
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Column, Table

from forecaster.config import Config
from forecaster.errors import FitError, number_of
from forecaster.files import write_text
from forecaster.forecast.writer import NEEDS_MATPLOTLIB, can_draw
from forecaster.lazy import Figure
from forecaster.runs.console import Screen, progress_bar, time_left
from forecaster.runs.tracking import FIRST, NOTE, TrackedRun, without_password
from forecaster.runs.tune.space import apply
from forecaster.runs.tune.study import SweepPlan, counted

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from forecaster.runs.tune.trial import Evaluator

STATES = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
ALONE = "{} alone are best: nothing to tune in the network"
_SHOWN = 5  # of the best trials
_SILENCE_SECONDS = 10.0
_AXES = 8  # settings side by side that can be read
_COMPARED = 8  # trials, at least, that say which settings matter


@dataclass(frozen=True)
class Outcome:
    """The trials of a search."""

    plan: SweepPlan
    trials: tuple[FrozenTrial, ...]
    """Those that count, by number."""

    @classmethod
    def of(cls, plan: SweepPlan, study: Study) -> Outcome:
        """Returns the outcome of a study as it is now."""
        return cls(plan, tuple(counted(study.get_trials(deepcopy=False))))

    @property
    def ended(self) -> list[FrozenTrial]:
        """Trials that finished, were pruned or failed."""
        return [trial for trial in self.trials if trial.state.is_finished()]

    @property
    def finished(self) -> list[FrozenTrial]:
        """Trials with values."""
        return [trial for trial in self.trials if trial.state.name == "COMPLETE"]

    @property
    def best(self) -> FrozenTrial:
        """The trial whose fit has the smallest score; of several metrics, the first one.

        Raises:
            FitError: no trial has finished.
        """
        if not self.finished:
            failed = sum(trial.state.name == "FAIL" for trial in self.trials)
            notes = [note for trial in reversed(self.trials) if (note := _note(trial))]
            last = f"; the last one: {notes[0]}" if notes else ""
            raise FitError(
                f"study {self.plan.study}: none of {len(self.trials)} trials finished "
                f"({failed} failed){last}"
            )
        return min(self.finished, key=_rank)

    @property
    def front(self) -> list[FrozenTrial]:
        """The Pareto front."""
        every = self.finished
        return [trial for trial in every if not any(_dominates(other, trial) for other in every)]

    @property
    def preset(self) -> FrozenTrial | None:
        """The trial of the config as it is; None = it has not finished."""
        return next((trial for trial in self.finished if trial.user_attrs.get("preset")), None)

    @property
    def best_value(self) -> float:
        """The first metric of the best trial's fit."""
        return scores_of(self.best)[0]

    @property
    def preset_value(self) -> float | None:
        """The same of the preset."""
        return None if self.preset is None else scores_of(self.preset)[0]

    @property
    def gain(self) -> float | None:
        """Share by which the best first value is below the preset's; None = nothing to compare."""
        return 1 - self.best_value / self.preset_value if self.preset_value else None

    def config(self, trial: FrozenTrial) -> Config:
        """Returns all settings of a trial."""
        preset = trial.user_attrs.get("preset")
        return self.plan.config if preset else apply(self.plan.config, trial.params)

    def columns(self) -> dict[str, list[Any]]:
        """Returns a table with a row per trial: number, state, values, seconds, settings, note."""
        table: dict[str, list[Any]] = {
            "trial": [trial.number for trial in self.trials],
            "state": [STATES.get(trial.state.name, "waiting") for trial in self.trials],
        }
        for place, metric in enumerate(self.plan.metrics):
            table[metric] = [
                scores_of(trial)[place] if trial.state.name == "COMPLETE" else None
                for trial in self.trials
            ]
        if len(self.plan.metrics) > 1:
            front = {trial.number for trial in self.front}
            table["pareto"] = [trial.number in front for trial in self.trials]
        table["seconds"] = [trial.user_attrs.get("seconds") for trial in self.trials]
        for entry in self.plan.space.entries:
            table[entry.path] = [trial.params.get(entry.path) for trial in self.trials]
        table["note"] = [_note(trial) for trial in self.trials]
        return table

    def fit_command(self, best: Path) -> str:
        """Returns the command that fits the best config, for the working directory of the search."""
        plan, here = self.plan, Path.cwd()
        best = best.relative_to(here) if best.is_relative_to(here) else best
        words = ["forecaster", "fit", plan.source or "DATA"]
        for name in ("future", "covariates"):
            words += [f"--{name}", file] if (file := getattr(plan, name)) else []
        return shlex.join([*words, "--config", str(best), "--out", "MODEL"])

    def write_best(self, command: str) -> Path:
        """Writes the best config as YAML, beside the journal or in the working directory.

        Raises:
            FitError: no trial has finished.
            OutputError: the file cannot be written.
        """
        import yaml

        plan, trial, preset = self.plan, self.best, self.preset
        folder = Path() if "://" in plan.storage else Path(plan.storage).parent
        path = folder / f"{plan.study}.best.yaml"
        lines = [
            f"# Found by: {command}",
            f"# Trial {trial.number} of {len(self.trials)} in study {plan.study}: "
            f"{plan.metrics[0]} {self.best_value:.6g} on "
            f"{'the validation span' if plan.config.data.label is None else 'held-out classes'}.",
        ]
        if preset is not None:
            gain = "" if self.gain is None else f" ({improvement(self.gain)})"
            lines.append(f"# The preset, trial {preset.number}: {self.preset_value:.6g}{gain}.")
        if _experts_alone(trial):
            lines.append(f"# {ALONE.format(_beside(plan)).capitalize()}.")
        lines += ["#", f"#   {self.fit_command(path)}", "", ""]
        settings = yaml.safe_dump(
            self.config(trial).model_dump(mode="json"), sort_keys=False, allow_unicode=True
        )
        write_text(path, "\n".join(lines) + settings)
        return path


def improvement(gain: float) -> str:
    """Returns how a value compares with the preset's, in words."""
    if gain == 0:
        return "the preset is as good"
    return f"the best is {abs(100 * gain):.1f} % {'lower' if gain > 0 else 'higher'}"


def print_plan(console: Screen, evaluator: Evaluator) -> None:
    """Prints what is searched, and on which rows trials are scored."""
    plan = evaluator.plan
    paths = ", ".join(entry.path for entry in plan.space.entries)
    console.print_line(
        f"study {plan.study} in {without_password(plan.storage)}: {plan.trials} trials in all · "
        f"sampler {plan.sampler} · pruner {plan.pruner} · {number_of(plan.workers, 'worker')}"
    )
    console.print_line(f"searches {paths}")
    console.print_line(f"each trial is {evaluator.description}; trial 0 is the config as it is")


@contextmanager
def search_bar(
    console: Screen, plan: SweepPlan, study: Study, steps: int = 0
) -> Iterator[tuple[Callable[[FrozenTrial], None], Callable[[int], None]]]:
    """Yields what shows a trial that has ended, and what takes the steps that a running one has trained.

    The first is a bar or, without a terminal, a line now and then; `steps` are those of a whole trial.
    """
    outcome = Outcome.of(plan, study)
    before, begun = len(outcome.ended), time.monotonic()
    printed, estimated = begun, False
    if before:
        console.print_line(f"continues: {_standing(outcome)}")
    trials = TextColumn("{task.completed}/{task.total} trials{task.fields[best]}")
    columns = (TextColumn("searching"), BarColumn(), trials, TimeElapsedColumn(), TimeRemainingColumn())

    def estimate(step: int) -> None:
        """Prints once how long all trials take, at the pace of the first one: it may run for minutes."""
        nonlocal estimated
        spent = time.monotonic() - begun
        if not estimated and spent > _SILENCE_SECONDS and step <= steps:
            estimated = True
            trials = plan.trials - before
            left = time_left(spent * steps / step * ceil(trials / plan.workers) - spent)
            number = number_of(trials, "trial")
            console.print_line(f"at most about {left} for {number}, at the pace of the first one")

    def show(trial: FrozenTrial) -> None:
        nonlocal printed, estimated
        estimated = True
        outcome, now = Outcome.of(plan, study), time.monotonic()
        done = len(outcome.ended)
        progress.update(task, completed=done, best=_best(outcome))
        if error := trial.user_attrs.get("error"):
            console.print_notice(f"trial {trial.number} failed: {error}")
        if progress.disable and now - printed > _SILENCE_SECONDS:
            printed, pace = now, (now - begun) / max(1, done - before)
            left = time_left(pace * max(0, plan.trials - done))
            console.print_line(f"{_standing(outcome)} · about {left}")

    with progress_bar(console, *columns) as progress:
        task = progress.add_task("", total=plan.trials, best="")
        yield show, estimate


def print_results(console: Screen, outcome: Outcome) -> None:
    """Prints the best trials, or the Pareto front, and the preset."""
    plan, preset = outcome.plan, outcome.preset
    several = len(plan.metrics) > 1
    ranked = sorted(outcome.front if several else outcome.finished, key=_rank)
    shown = ranked[: None if several else _SHOWN]
    if preset is not None and preset not in shown:
        shown.append(preset)
    numbers = (Column(heading, justify="right") for heading in ("trial", *plan.metrics))
    table = Table(*numbers, Column("settings", overflow="fold"), box=None, pad_edge=False)
    for trial in shown:
        words = ", ".join(f"{name}={_text(value)}" for name, value in trial.params.items())
        values = (f"{value:.5g}" for value in scores_of(trial))
        table.add_row(str(trial.number), *values, escape("the preset" if trial is preset else words))
    console.print(table)
    states = Counter(trial.state.name for trial in outcome.ended)
    line = (
        f"{len(outcome.ended)} trials: {states['COMPLETE']} finished, {states['PRUNED']} pruned, "
        f"{states['FAIL']} failed"
    )
    if several:
        line += (
            f" · {len(outcome.front)} on the Pareto front; trial {outcome.best.number} has the lowest "
            f"{plan.metrics[0]}"
        )
    elif outcome.gain is not None:
        line += f" · {plan.metrics[0]} {outcome.best_value:.5g}: {improvement(outcome.gain)}"
        line += "" if outcome.gain == 0 else " than the preset's"
    console.print_line(line)
    if alone := sum(map(_experts_alone, outcome.finished)):
        best = f"; {ALONE.format(_beside(plan))}" if _experts_alone(outcome.best) else ""
        console.print_line(
            f"in {alone} of {len(outcome.finished)} finished trials the network has weight 0 %: "
            f"{_beside(plan)} alone{best}"
        )


def log_study(run: TrackedRun, study: Study, outcome: Outcome, console: Screen) -> None:
    """Logs counts, best values and settings, and figures of a study to its MLflow run."""
    if not run.recorded:
        return
    plan, ended, complete = outcome.plan, outcome.ended, outcome.finished
    counts = Counter(trial.state.name for trial in ended)
    tags = {
        f"trials.{STATES[state]}": str(counts[state]) for state in ("COMPLETE", "PRUNED", "FAIL")
    } | {"trials": str(len(ended)), "metrics": ", ".join(plan.metrics), NOTE: _standing(outcome)}
    if complete and len(plan.metrics) == 1:
        best = outcome.best
        tags |= {f"best.{name}": str(value) for name, value in best.params.items()}
        tags["best.trial"] = str(best.number)
    run.log_tags(tags)
    now = int(max((trial.datetime_complete.timestamp() for trial in ended), default=0) * 1000)
    if complete:
        lowest = map(min, zip(*map(scores_of, complete), strict=True))
        named = [*zip(plan.metrics, lowest, strict=True)]
        for prefix in (FIRST, "best/"):
            run.log_metrics([(f"{prefix}{name}", value, now, len(ended)) for name, value in named])
        if not can_draw():
            console.print_notice(f"no pictures of the study: {NEEDS_MATPLOTLIB}")
            return
        for name, figure in study_figures(study, plan.metrics):
            console.attempt(name, partial(run.log_figure, figure, name), "the trials are complete")


def study_figures(study: Study, metrics: tuple[str, ...]) -> Iterator[tuple[str, Figure]]:
    """Yields Optuna's figures of a study by file name, those that it has enough trials for."""
    import forecaster.forecast.plain_figure  # noqa: F401  # first: it imports matplotlib with any backend
    import matplotlib.pyplot as plt  # isort: skip
    import numpy as np
    from optuna.visualization import matplotlib as optuna_plots

    def first(trial: FrozenTrial) -> float:
        return scores_of(trial)[0]

    complete = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    if not complete:
        return
    names = sorted({name for trial in complete for name in trial.params})[:_AXES]
    named = {"target": first, "target_name": metrics[0]}
    plots: dict[str, Any] = {
        "history.png": lambda: optuna_plots.plot_optimization_history(study, **named),
        "settings.png": lambda: optuna_plots.plot_parallel_coordinate(study, names, **named),
    }
    if len(complete) >= _COMPARED:
        own = named | {"target": lambda trial: trial.values[0]}  # of all networks, even without weight
        plots["importance.png"] = lambda: optuna_plots.plot_param_importances(study, **own)
    if len(metrics) > 1:
        plots["pareto.png"] = lambda: optuna_plots.plot_pareto_front(study, target_names=[*metrics])
    for name, plot in plots.items():
        # Optuna sets a style for all figures of the process, and says that its plots are experimental.
        with plt.rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                figure = np.ravel(plot())[0].get_figure()
            except (ValueError, RuntimeError, IndexError, ZeroDivisionError):
                plt.close()  # too few trials
                continue
            figure.set_layout_engine("tight")
            yield name, figure
            plt.close(figure)


def _standing(outcome: Outcome) -> str:
    return f"{len(outcome.ended)}/{outcome.plan.trials} trials{_best(outcome)}"


def _best(outcome: Outcome) -> str:
    if not outcome.finished:
        return ""
    name, best, preset = outcome.plan.metrics[0], outcome.best.number, outcome.preset_value
    beside = "" if preset is None else f", preset {preset:.4f}"
    return f" · best {name} {outcome.best_value:.4f} (trial {best}){beside}"


def scores_of(trial: FrozenTrial) -> list[float]:
    """Returns the metrics of the model that a finished trial has fitted."""
    return [float(score) for score in trial.user_attrs.get("fitted", trial.values)]


def _rank(trial: FrozenTrial) -> tuple[list[float], list[float], int]:
    """Of equal fits, the experts alone, that comes first whose network does better with some weight."""
    return scores_of(trial), trial.values, trial.number


def _dominates(one: FrozenTrial, other: FrozenTrial) -> bool:
    pairs = list(zip(scores_of(one), scores_of(other), strict=True))
    return scores_of(one) != scores_of(other) and all(a <= b for a, b in pairs)


def _note(trial: FrozenTrial) -> str | None:
    attributes = trial.user_attrs
    if attributes.get("preset"):
        return "the preset"
    note: str | None = attributes.get("error") or attributes.get("refused")
    if "same_as" in attributes:
        return f"uses the same settings as trial {attributes['same_as']}"
    if note is None and trial.state.name == "COMPLETE" and _experts_alone(trial):
        return "network weight 0 %"
    if note is None and trial.state.name == "FAIL":
        return "its process ended"
    return note


def _beside(plan: SweepPlan) -> str:
    """What the network is blended with."""
    return "the experts" if plan.config.data.label is None else "the random kernels"


def _experts_alone(trial: FrozenTrial) -> bool:
    """Whether the network has no weight: its settings cannot have changed the score of the fit."""
    return bool(trial.user_attrs.get("network_weight") == 0)


def _text(value: object) -> str:
    if value is None:
        return "null"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
