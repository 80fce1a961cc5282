"""What a search found: its trials, the best of them, and the preset beside it.

What comes in: a plan and the trials of its study. What goes out: the best config, values, a table of
all trials, and a YAML file that `fit --config` takes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.config import Config
from forecaster.errors import FitError
from forecaster.files import atomic_file
from forecaster.runs.tune.objective import PRESET, REFUSED
from forecaster.runs.tune.plan import SweepPlan
from forecaster.runs.tune.space import Space, apply
from forecaster.runs.tune.study import counted

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

STATES = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running"}
"""Our words for Optuna's."""


@dataclass(frozen=True)
class Outcome:
    """The trials of a search."""

    plan: SweepPlan
    """What was searched."""
    trials: tuple[FrozenTrial, ...]
    """Those that count, in their order."""

    @property
    def ended(self) -> list[FrozenTrial]:
        """Trials that are told: finished, pruned or failed."""
        return [trial for trial in self.trials if trial.state.is_finished()]

    @property
    def finished(self) -> list[FrozenTrial]:
        """Trials with values."""
        return [trial for trial in self.trials if trial.state.name == "COMPLETE"]

    @property
    def best(self) -> FrozenTrial:
        """The trial with the smallest value; of several metrics, of the first one.

        Raises:
            FitError: no trial has finished.
        """
        if not self.finished:
            raise FitError(self._nothing())
        return min(self.finished, key=lambda trial: (trial.values, trial.number))

    @property
    def front(self) -> list[FrozenTrial]:
        """Finished trials that no other one beats in every metric."""
        every = self.finished
        return [trial for trial in every if not any(_dominates(other, trial) for other in every)]

    @property
    def preset(self) -> FrozenTrial | None:
        """The trial of the config as it is; None = it has not finished."""
        return next((trial for trial in self.finished if trial.user_attrs.get(PRESET)), None)

    @property
    def gain(self) -> float | None:
        """Share by which the best first value is below the preset's; None = nothing to compare."""
        if self.preset is None or not self.preset.values[0]:
            return None
        return float(1 - self.best.values[0] / self.preset.values[0])

    def settings(self, trial: FrozenTrial) -> Config:
        """Returns the whole config of a trial."""
        if trial.user_attrs.get(PRESET):
            return self.plan.settings
        return apply(self.plan.settings, trial.params)

    def columns(self) -> dict[str, list[Any]]:
        """Returns a table with a row per trial: its number, state, values, seconds, settings, note."""
        front = {trial.number for trial in self.front}
        several = len(self.plan.metrics) > 1
        table: dict[str, list[Any]] = {
            "trial": [trial.number for trial in self.trials],
            "state": [STATES.get(trial.state.name, "waiting") for trial in self.trials],
        }
        for place, metric in enumerate(self.plan.metrics):
            table[metric] = [
                trial.values[place] if trial.state.name == "COMPLETE" else None for trial in self.trials
            ]
        if several:
            table["pareto"] = [trial.number in front for trial in self.trials]
        table["seconds"] = [trial.user_attrs.get("seconds") for trial in self.trials]
        for entry in Space(self.plan.space).entries:
            table[entry.path] = _column([trial.params.get(entry.path) for trial in self.trials])
        table["note"] = [_note(trial) for trial in self.trials]
        return table

    def write_best(self, path: Path, command: str) -> None:
        """Writes the best config as YAML, whole or not at all.

        Args:
            path: of the file.
            command: that made the search.

        Raises:
            FitError: no trial has finished.
            OutputError: the file cannot be written.
        """
        import yaml

        metric = self.plan.metrics[0]
        trial, told = self.best, [f"# Found by: {command}"]
        line = f"# Trial {trial.number} of {len(self.trials)} in study {self.plan.study}: "
        told.append(f"{line}{metric} {trial.values[0]:.6g} on the validation span.")
        if self.preset is not None:
            said = "" if self.gain is None else f" ({improvement(self.gain)})"
            told.append(f"# The preset, trial {self.preset.number}: {self.preset.values[0]:.6g}{said}.")
        told += ["#", f"#   forecaster fit {self.plan.source} --config {path.name} --out MODEL", "", ""]
        settings = yaml.safe_dump(
            self.settings(trial).model_dump(mode="json"), sort_keys=False, allow_unicode=True
        )
        with atomic_file(path) as file:
            file.write_text("\n".join(told) + settings, encoding="utf-8")

    def _nothing(self) -> str:
        failed = [trial for trial in self.trials if trial.state.name == "FAIL"]
        notes = [note for trial in reversed(self.trials) if (note := _note(trial))]
        said = f"; the last said: {notes[0]}" if notes else ""
        return (
            f"study {self.plan.study}: none of {len(self.trials)} trials finished "
            f"({len(failed)} failed){said}"
        )


def outcome_of(plan: SweepPlan, trials: Iterable[FrozenTrial]) -> Outcome:
    """Returns what a search found, from all trials of its study."""
    return Outcome(plan, tuple(counted(trials)))


def improvement(gain: float) -> str:
    """Returns how a value compares with the preset's, in words."""
    if gain == 0:
        return "the preset is the best"
    return f"the best is {abs(100 * gain):.1f} % {'lower' if gain > 0 else 'higher'}"


def _dominates(one: FrozenTrial, other: FrozenTrial) -> bool:
    return one.values != other.values and all(
        mine <= theirs for mine, theirs in zip(one.values, other.values, strict=True)
    )


def _note(trial: FrozenTrial) -> str | None:
    attributes = trial.user_attrs
    if attributes.get(PRESET):
        return "the preset"
    note: str | None = attributes.get("error") or attributes.get(REFUSED)
    return note


def _column(values: list[Any]) -> list[Any]:
    """Returns values of one kind: text where a choice mixes kinds."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1 and not kinds <= {int, float}:
        return [None if value is None else str(value) for value in values]
    return values
