"""`Study`, what a search found: the best config, a model fitted with it, all trials.

What comes in: an outcome. What goes out: a config, a `Forecaster`, and a row per trial as the caller's
own kind of frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from forecaster.config import Config
from forecaster.errors import ConfigError
from forecaster.fitted import Forecaster

if TYPE_CHECKING:
    from forecaster.forecast.artifact import Artifact
    from forecaster.runs.tune.outcome import Outcome


class Study:
    """The trials of a search, the best of them, and the preset beside it."""

    def __init__(self, outcome: Outcome, kind: str, artifact: Artifact | None):
        self._outcome, self._kind, self._artifact = outcome, kind, artifact

    def __repr__(self) -> str:
        plan = self._outcome.plan
        ended = len(self._outcome.ended)
        return f"Study({plan.study}: {ended} trials, {plan.metrics[0]} {self.best_value:.5g})"

    @property
    def name(self) -> str:
        """Name of the study; the same name continues it."""
        return self._outcome.plan.study

    @property
    def best(self) -> Config:
        """The config with the smallest value; of several metrics, of the first one."""
        return self._outcome.config(self._outcome.best)

    @property
    def best_value(self) -> float:
        """Its value on the validation span."""
        return float(self._outcome.best.values[0])

    @property
    def preset_value(self) -> float | None:
        """Value of the config as it is; None = its trial has not finished."""
        preset = self._outcome.preset
        return None if preset is None else float(preset.values[0])

    @property
    def trials(self) -> Any:
        """A row per trial, as the caller's kind of frame: state, values, seconds, settings, note."""
        from forecaster.panel.frames import frame_of, to_kind

        return to_kind(frame_of(self._outcome.columns()), self._kind)

    @property
    def model(self) -> Forecaster:
        """A model of the best config, fitted to all rows.

        Raises:
            ConfigError: the search ran with `refit=False`.
        """
        if self._artifact is None:
            raise ConfigError("refit was False, so there is no model: fit(data, config=study.best)")
        return Forecaster(self._artifact)
