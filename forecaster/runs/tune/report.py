"""What a search says: what it is about, how far it is, what it found.

What comes in: an objective, trials as they are told, an outcome. What goes out: lines, a bar and a
table on a console.
"""

from __future__ import annotations

import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from forecaster.runs.tune.objective import Objective
from forecaster.runs.tune.outcome import Outcome, improvement, outcome_of
from forecaster.runs.tune.storage import hidden

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

_SHOWN = 5  # of the best trials
_SILENCE_SECONDS = 10.0


def say_plan(console: Console, objective: Objective) -> None:
    """Says what is searched, and on which rows it is scored."""
    plan, text = objective.plan, objective.text
    first, last = objective.cutoffs[0], objective.cutoffs[-1]
    _say(
        console,
        f"study {plan.study} in {hidden(plan.storage)}: {plan.trials} trials in all · "
        f"sampler {plan.sampler} · pruner {plan.pruner} · {_count(plan.workers, 'worker')}",
    )
    _say(console, f"searches {', '.join(entry.path for entry in objective.space.entries)}")
    _say(
        console,
        f"each trial is fitted to the rows until {text(first)} and scored by "
        f"{', '.join(plan.metrics)} at {_count(len(objective.cutoffs), 'cutoff')} until {text(last)}; "
        "trial 0 is the config as it is",
    )


class SearchBar:
    """How far a search is: a line that moves, or one now and then where none can."""

    def __init__(self, console: Console, outcome: Outcome):
        self._console, self._plan = console, outcome.plan
        self._trials = {trial.number: trial for trial in outcome.ended}
        self._progress = Progress(
            TextColumn("searching"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total} trials{task.fields[best]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            refresh_per_second=4,
        )
        self._task = self._progress.add_task("", total=self._plan.trials, best="")
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        if self._trials:
            _say(self._console, f"goes on: {self._line()}")
        self._progress.start()
        self._move()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def told(self, trial: FrozenTrial) -> None:
        """Moves on by a trial."""
        self._trials[trial.number] = trial
        self._move()
        error = trial.user_attrs.get("error")
        if error is not None:
            _say(self._console, f"trial {trial.number} failed: {error}", style="yellow")
        if self._progress.disable and time.monotonic() - self._said > _SILENCE_SECONDS:
            self._said = time.monotonic()
            _say(self._console, self._line())

    def stop(self) -> None:
        """Takes the bar away."""
        self._progress.stop()

    def _move(self) -> None:
        outcome = outcome_of(self._plan, self._trials.values())
        self._progress.update(self._task, completed=len(outcome.ended), best=_best(outcome))

    def _line(self) -> str:
        outcome = outcome_of(self._plan, self._trials.values())
        return f"{len(outcome.ended)} of {self._plan.trials} trials{_best(outcome)}"


def say_results(console: Console, outcome: Outcome) -> None:
    """Says which trials were the best, and what the preset is worth beside them."""
    plan, preset = outcome.plan, outcome.preset
    several = len(plan.metrics) > 1
    ranked = sorted(
        outcome.front if several else outcome.finished, key=lambda trial: (trial.values, trial.number)
    )
    shown = ranked[: None if several else _SHOWN]
    if preset is not None and preset not in shown:
        shown.append(preset)
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.add_column("trial", justify="right")
    for metric in plan.metrics:
        table.add_column(metric, justify="right")
    table.add_column("settings", overflow="fold")
    for trial in shown:
        mine = trial is preset
        words = "the preset" if mine else ", ".join(f"{k}={_text(v)}" for k, v in trial.params.items())
        values = (f"{value:.5g}" for value in trial.values)
        table.add_row(str(trial.number), *values, escape(words))
    console.print(table)
    states = [trial.state.name for trial in outcome.ended]
    line = (
        f"{len(states)} trials: {states.count('COMPLETE')} finished, {states.count('PRUNED')} pruned, "
        f"{states.count('FAIL')} failed"
    )
    if several:
        line += (
            f" · {len(outcome.front)} that no other beats in everything; trial {outcome.best.number}"
        )
        line += f" has the lowest {plan.metrics[0]}"
    elif outcome.gain is not None:
        line += f" · {plan.metrics[0]} {outcome.best.values[0]:.5g}: {improvement(outcome.gain)}"
        line += "" if outcome.gain == 0 else " than the preset's"
    _say(console, line)


def _best(outcome: Outcome) -> str:
    if not outcome.finished:
        return ""
    name, best, preset = outcome.plan.metrics[0], outcome.best, outcome.preset
    told = "" if preset is None else f", preset {preset.values[0]:.4f}"
    return f" · best {name} {best.values[0]:.4f} (trial {best.number}){told}"


def _text(value: object) -> str:
    if value is None:
        return "null"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'s' * (number != 1)}"


def _say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, soft_wrap=True, markup=False, highlight=False)
