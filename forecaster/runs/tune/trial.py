"""Evaluate one trial: fit its settings, score them on rows that the fit has not seen.

    first row                              first cutoff            end, or `until`
    ├── training ────────┤── validation ──┤── scored ──────────────┤╌╌ holdout ╌╌
                            fit.validation    c [horizon] c [horizon] …   fit.validation
                            of what is left                               of the time axis

The fit of a forecaster is that of `forecaster fit --until FIRST_CUTOFF`; the scores are those of a
rolling backtest without refits. Trials are ranked by the scores of the fitted model. Where validation gives
the network no weight, these are those of the experts alone, which settings of the network do not change: the
sampler learns from the scores with a quarter of the weight instead, which also rank such trials among each
other.

Classifiers are scored by the log loss of series held out in the fit itself; without network weight, by that of
the networks alone.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytorch_lightning as pl

from forecaster.config import Config, FitConfig, Plan
from forecaster.errors import ConfigError, DataError, FitError, number_of
from forecaster.evaluation.backtest import Backtest, rolling_cutoffs, run_backtest
from forecaster.evaluation.class_scores import NETWORK
from forecaster.evaluation.comparison import MODEL
from forecaster.evaluation.metrics import Scores
from forecaster.fitting.classes import fit_classes, resolve_classes
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.fitting.mixture import NETWORK_WEIGHTS
from forecaster.fitting.plan import with_found_cycles
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.predictor import Predictor
from forecaster.model.class_network import ClassEnsemble
from forecaster.panel.build import open_panel
from forecaster.panel.categories import recoded
from forecaster.panel.panel import Panel
from forecaster.runs.progress import BufferedLogger
from forecaster.runs.tracking import score_points
from forecaster.runs.tune.study import SweepPlan, digest
from forecaster.runs.tune.worker import Report, TrialRequest, TrialResult

_OF_NETWORKS = {
    "model": {"dropout", "attention", "attention_size", "channel_attention", "style"},
    "fit": {"steps", "batch_size", "seed", "learning_rate", "weight_decay", "loss"},
}
Objectives = tuple[float, ...]
TrialScores = tuple[dict[str, Scores], Objectives, Objectives]
"""All scores of a fit, the metrics of the search, and what the sampler learns from."""
MOST_CUTOFFS = 32
"""Cutoffs scored at most: enough to compare trials, and quick compared with the fit."""


class Evaluator:
    """Evaluates the trials of a search; opens its table once."""

    def __init__(self, plan: SweepPlan, panel: Panel | None = None):
        """Opens the table, unless given, up to `plan.until`.

        Raises:
            DataError: the table cannot be understood, or is too short to score anything.
        """
        if panel is None:
            panel = open_panel(
                plan.source, plan.config.data, covariates=plan.covariates, future=plan.future
            )
            if plan.until is not None:
                panel = panel.until(panel.calendar.parse(plan.until, "--until"))
        self.plan = plan
        self.steps = 0
        """Training steps of a trial of the config as it is, at most; 0 before `check`."""
        self._resolve: Callable[[Config], tuple[Plan, Any]]
        self._fit: Callable[[Plan, Any, TrainingContext], Artifact[Any]]
        self._scores: Callable[[Artifact[Any]], TrialScores]
        if plan.config.data.label is not None:
            self.description = (
                "fitted to the table and scored by log_loss on series that are held out in turn"
            )
            self._resolve, self._fit = partial(resolve_classes, panel), partial(fit_classes, panel)
            self._scores = _class_scores
            return
        self.cutoffs = cutoffs = scored_cutoffs(panel, plan.config)
        seen, text = with_found_cycles(panel.until(cutoffs[0]), plan.config), panel.calendar.text
        self._panel = panel.with_cycles(seen.calendar.season, seen.calendar.periods)
        self.description = (
            f"fitted to the rows until {text(cutoffs[0])} and scored by {', '.join(plan.metrics)} at "
            f"{number_of(len(cutoffs), 'cutoff')} until {text(cutoffs[-1])}"
        )
        self._resolve, self._fit = partial(resolve, seen), partial(fit_panel, seen)
        self._scores = self._forecast_scores

    def check(self) -> None:
        """Raises ConfigError or DataError if the config does not fit the table."""
        fit = self._resolve(self.plan.config)[0].fit
        self.steps = fit.steps * fit.ensemble_size * (2 if fit.refit else 1)

    def __call__(self, request: TrialRequest, report: Report) -> TrialResult:
        """Fits and scores the settings of a trial; `report` receives its validation losses."""
        begun, run = time.monotonic(), request.run
        try:
            plan, prepared = self._resolve(request.config)
        except (ConfigError, DataError) as error:
            # Nothing was fitted: pruned, so that the sampler learns to avoid such settings.
            return TrialResult("PRUNED", None, str(error), {"refused": str(error)})
        pruning = StopPruned(report, request.prunable)
        logger = BufferedLogger(run) if run.recorded else None
        used = used_settings(plan)
        if used in request.finished:
            return request.finished[used]
        artifact = self._fit(plan, prepared, TrainingContext(logger, (pruning,)))
        attributes = {name: artifact.metrics.get(name) for name in ("steps", "network_weight")}
        if pruning.step is not None:
            return TrialResult("PRUNED", None, f"behind others at step {pruning.step}", attributes)
        scores, fitted, values = self._scores(artifact)
        run.log_metrics(score_points(scores, "validation"))
        attributes |= {"used": used, "fitted": fitted, "scores": scores}
        attributes["seconds"] = round(time.monotonic() - begun, 3)
        return TrialResult("COMPLETE", values, None, attributes)

    def _forecast_scores(self, artifact: Artifact) -> TrialScores:
        backtest = self.backtest(artifact)
        fitted = values = self._values(backtest)
        if artifact.metrics.get("network_weight") == 0 and len(artifact.plan.model.pool.experts) > 1:
            values = self._values(self.backtest(with_network(artifact)))
        return backtest.scores, fitted, values

    def backtest(self, artifact: Artifact) -> Backtest:
        """Returns the scores of a fit on the rows after its training."""
        predictor = Predictor(artifact)
        panel = recoded(self._panel, artifact.schema.categories)

        def forecasts(cutoffs: Sequence[int]) -> Iterator[dict[str, Forecast]]:
            return ({MODEL: forecast} for forecast in predictor.forecasts_at(panel, cutoffs))

        return run_backtest(self.cutoffs, forecasts)

    def _values(self, backtest: Backtest) -> Objectives:
        scores = backtest.scores[MODEL]
        values = tuple(
            scores["RMSE"] ** 2 if metric == "MSE" else scores[metric] for metric in self.plan.metrics
        )
        for metric, value in zip(self.plan.metrics, values, strict=True):
            if not math.isfinite(value):
                raise FitError(
                    f"{metric} is not defined on the {backtest.scored:,} cells of the validation span; "
                    "take another --metric"
                )
        return values


def _class_scores(artifact: Artifact[ClassEnsemble]) -> TrialScores:
    scores = artifact.metrics["validation"]["scores"]
    network = NETWORK if artifact.metrics["network_weight"] == 0 else MODEL
    return scores, (scores[MODEL]["log_loss"],), (scores[network]["log_loss"],)


def used_settings(plan: Plan) -> str:
    """Returns a digest of the settings that a fit of the plan uses; one expert alone is not trained."""
    unused = _OF_NETWORKS if len(plan.model.pool.experts) == 1 else {}
    return digest(plan.model_dump(mode="json", exclude=unused))


def with_network(artifact: Artifact) -> Artifact:
    """Returns an artifact whose networks have the least weight above 0."""
    ensemble = copy.deepcopy(artifact.ensemble)
    for member in ensemble.networks:
        member.network_weight.fill_(NETWORK_WEIGHTS[1])
    return replace(artifact, ensemble=ensemble)


class StopPruned(pl.Callback):
    """Reports each validation loss of a trial, and stops the training once it is pruned."""

    def __init__(self, report: Report, prunable: bool):
        self._report, self._prunable = report, prunable
        self.step: int | None = None
        """Step at which the trial was pruned."""

    def on_validation_end(self, trainer: pl.Trainer, learner: pl.LightningModule) -> None:
        """Reports the last validation, on rank 0; of an ensemble, those of its first member."""
        if not trainer.is_global_zero or learner.name:
            return
        step, loss = learner.curves["validation_loss"][-1]
        prune = self._report(step, loss)
        # Stopping after the last step would save nothing.
        if prune and self._prunable and step < trainer.max_steps:
            self.step, trainer.should_stop = step, True


def scored_cutoffs(panel: Panel, config: Config) -> list[int]:
    """Returns the cutoffs whose horizons are scored: at the end of the table, none overlapping.

    They lie in the last share `fit.validation` of the time axis, evenly spread where there would be
    more than `MOST_CUTOFFS`.

    Raises:
        DataError: the table holds no target, or is shorter than the horizon.
    """
    assert config.horizon is not None
    share = config.fit.validation or FitConfig().validation
    end = panel.last_time("nothing to compare settings by")
    begin = panel.split_time(config.horizon, share)
    steps = round((end - begin) / panel.calendar.step)
    windows = max(1, min(MOST_CUTOFFS, steps // config.horizon))
    stride = max(config.horizon, (steps - config.horizon) // max(1, windows - 1))
    return rolling_cutoffs(panel, windows, config.horizon, stride)
