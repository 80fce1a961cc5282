"""The work of a trial: settings in, fitted, scored on a span that the fit has not seen.

What comes in: a plan, and the trials of its study. What goes out: a value per metric, small = good.
Promised: rows after `until` are not there; the rows that are scored come after everything that weights,
scales, found periods and early stopping of the trial have seen.

    first row                              first cutoff            end, or `until`
    ├── trains ──────────┤── early stopping ──┤── scored ────────────┤╌╌ holdout ╌╌
                            fit.validation    c [horizon] c [horizon] …   fit.validation
                            of what is left                               of the time axis

The fit is that of `forecaster fit --until FIRST_CUTOFF`, the scores are those of a rolling backtest:
the weights stay, each forecast reads the rows up to its own cutoff.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from forecaster.config import Config, FitConfig
from forecaster.errors import ConfigError, DataError, FitError
from forecaster.evaluation.backtest import Backtest, rolling_cutoffs, run_backtest
from forecaster.evaluation.comparison import CHEAP_BASELINES, MODEL
from forecaster.evaluation.metrics import Scores
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.predictor import Predictor
from forecaster.panel.build import open_panel
from forecaster.panel.categories import recoded
from forecaster.panel.panel import Panel
from forecaster.runs.fit import fit_panel, prepare, with_found_cycles
from forecaster.runs.progress import BufferedLogger
from forecaster.runs.tracking.content import score_points
from forecaster.runs.tracking.sweep import open_trial
from forecaster.runs.train import TrainingContext
from forecaster.runs.tune.entries import Values
from forecaster.runs.tune.plan import Metric, SweepPlan
from forecaster.runs.tune.pruning import PruneBehind
from forecaster.runs.tune.space import Space, apply
from forecaster.windows.split import split_time

if TYPE_CHECKING:
    from optuna import Trial

PRESET = "preset"
"""User attribute of the trial that tries the config as it is."""
RUN = "run"
"""User attribute: key of the trial's tracked run."""
REFUSED = "refused"
"""User attribute: why settings were not tried."""
MOST_CUTOFFS = 32
"""Cutoffs that are scored at most: enough to judge by, and quick beside the fit."""


class Objective:
    """Called with a trial, returns its values; the panel is opened once."""

    def __init__(self, plan: SweepPlan, panel: Panel | None = None):
        """Takes what is searched.

        Args:
            plan: of the search.
            panel: its table until `plan.until`; None = opened here.

        Raises:
            DataError: the table cannot be understood, or is too short to score anything.
        """
        config = plan.settings
        self.plan, self.space = plan, Space(plan.space)
        panel = search_panel(plan) if panel is None else panel
        self.cutoffs = scored_cutoffs(panel, config)
        self._seen = with_found_cycles(panel.until(self.cutoffs[0]), config)
        calendar = self._seen.calendar
        self._panel = panel.with_cycles(calendar.season, calendar.periods)

    @property
    def text(self) -> Callable[[int], str]:
        """Writes a time of the table."""
        return self._panel.calendar.text

    def __call__(self, trial: Trial) -> float | tuple[float, ...]:
        """Returns the value of each metric.

        Raises:
            TrialPruned: the trial fell behind, or its settings contradict each other or the table.
            FitError: the loss is not finite, or a metric is not defined.
        """
        from optuna import TrialPruned

        plan, begun = self.plan, time.monotonic()
        preset = bool(trial.user_attrs.get(PRESET))
        values, config = self._settings(trial, preset)
        watch = () if plan.pruner == "none" else (PruneBehind(trial, spared=preset),)
        again = trial.user_attrs.get("retry_of")
        told = (plan.settings.tracking, plan.parent_run, plan.study, trial.number, again)
        with open_trial(*told) as run:
            if run.key:
                trial.set_user_attr(RUN, run.key)
            run.log_params(values)
            try:
                config, split = prepare(self._seen, config)
            except (ConfigError, DataError) as error:
                # Nothing was computed: the sampler learns to stay away from here.
                trial.set_user_attr(REFUSED, str(error))
                raise TrialPruned(str(error)) from None
            logger = BufferedLogger(run) if run.recorded else None
            artifact = fit_panel(self._seen, config, split, TrainingContext(logger, watch))
            trial.set_user_attr("steps", artifact.metrics["steps"])
            if any(pruning.step is not None for pruning in watch):
                raise TrialPruned(f"behind others at step {artifact.metrics['steps']}")
            backtest = self.backtest(artifact)
            trial.set_user_attr("scores", backtest.scores)
            run.log_metrics(score_points(backtest.scores, "validation"))
            trial.set_user_attr("seconds", round(time.monotonic() - begun, 3))
            return self._values(backtest)

    def backtest(self, artifact: Artifact) -> Backtest:
        """Returns the scores of a fit on the span set aside for them."""
        predictor = Predictor(artifact)
        panel = recoded(self._panel, artifact.schema.categories)

        def said(cutoffs: Sequence[int]) -> Iterator[dict[str, Forecast]]:
            return ({MODEL: forecast} for forecast in predictor.forecasts_at(panel, cutoffs))

        return run_backtest(self.cutoffs, said, CHEAP_BASELINES)

    def check(self) -> None:
        """Refuses a search whose config does not fit the table, before its first trial.

        Raises:
            ConfigError: settings contradict each other or the table.
            DataError: what is left of the table is too short to train on.
        """
        prepare(self._seen, self.plan.settings)

    def _settings(self, trial: Trial, preset: bool) -> tuple[Values, Config]:
        """Returns what the trial proposes, and the config with it.

        Raises:
            TrialPruned: the schema refuses the combination.
        """
        from optuna import TrialPruned

        config = self.plan.settings
        if preset:
            inside = self.space.preset(config)
            return self.space.suggest(trial, only=inside), config
        values = self.space.suggest(trial)
        try:
            return values, apply(config, values)
        except ConfigError as error:
            trial.set_user_attr(REFUSED, str(error))
            raise TrialPruned(str(error)) from None

    def _values(self, backtest: Backtest) -> float | tuple[float, ...]:
        values = tuple(value_of(backtest.scores[MODEL], metric) for metric in self.plan.metrics)
        for metric, value in zip(self.plan.metrics, values, strict=True):
            if not math.isfinite(value):
                raise FitError(
                    f"{metric} is not defined on the {backtest.scored:,} cells of the validation span; "
                    "take another --metric"
                )
        return values if len(values) > 1 else values[0]


def value_of(scores: Scores, metric: Metric) -> float:
    """Returns a metric out of a backtest's scores."""
    return scores["RMSE"] ** 2 if metric == "MSE" else scores[metric]


def search_panel(plan: SweepPlan) -> Panel:
    """Returns the table of a plan, without what comes after its `until`.

    Raises:
        DataError: the table cannot be understood.
    """
    panel = open_panel(plan.source, plan.settings.data, covariates=plan.covariates, future=plan.future)
    return panel if plan.until is None else panel.until(panel.calendar.parse(plan.until))


def scored_cutoffs(panel: Panel, config: Config) -> list[int]:
    """Returns the cutoffs whose horizons are scored: at the end of the table, none overlapping.

    They lie in the last share `fit.validation` of the time axis (the default share, where that is off),
    evenly spread where there would be more than `MOST_CUTOFFS`.

    Raises:
        DataError: the table holds no target, or is shorter than the horizon.
    """
    assert config.horizon is not None
    if (panel.last_observed < 0).all():
        raise DataError(f"{panel.name}: no target is observed, nothing to compare settings by")
    share = config.fit.validation or FitConfig().validation
    held = config.replaced(fit={"validation": share})
    last = panel.last_observed
    end = int(panel.time[last[last >= 0]].max())
    steps = round((end - split_time(panel, held)) / panel.calendar.step)
    windows = max(1, min(MOST_CUTOFFS, steps // config.horizon))
    stride = max(config.horizon, (steps - config.horizon) // max(1, windows - 1))
    return rolling_cutoffs(panel, windows, config.horizon, stride)
