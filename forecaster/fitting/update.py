"""A fitted model brought up to date with the rows that came after it; its settings stay.

    bands      factors that follow the errors of its own forecasts of the new rows
    experts    and effects and experts solved from all rows; factors of held-out rows, as in a fit
    all        and attention over experts, and networks that count, trained on from where they are

A model without a fit is made anew. What is new is judged before the experts are solved from all rows: on cutoffs
that neither the model of before nor the held-out part of the new one has seen.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import torch

from forecaster.errors import DataError, number_of
from forecaster.evaluation.backtest import Backtest
from forecaster.evaluation.comparison import MODEL
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.fit import fit_panel
from forecaster.fitting.held_out import calibration_set, cutoffs_of, scored, uncalibrated
from forecaster.fitting.mixture import experts_alone
from forecaster.fitting.no_fit import unfitted
from forecaster.fitting.reporter import Reporter
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.calibrate import adapted
from forecaster.forecast.error_levels import measured_errors, recent_digests
from forecaster.forecast.paths import ErrorLevels, pair_hashes
from forecaster.forecast.source import coded
from forecaster.panel.findings import Finding
from forecaster.panel.panel import Panel
from forecaster.windows.index import Int64, drawn_cutoffs, even_draw
from forecaster.windows.split import MOST_WINDOWS, Split, split_panel

Refitted = Literal["bands", "experts", "all"]
"""What of a model is learned again."""

BEFORE = "before"
"""Name of the model that was updated, beside its update."""
_NEWEST = 2  # horizons; errors of longer ago say little of today's bands


@dataclass(frozen=True)
class NewRows:
    """What a table has that a model has not seen."""

    since: int
    """Time of the last target that it has seen."""
    until: int
    """Time of the last target."""
    steps: int
    """Between both; 0 = nothing is new."""
    changed: int
    """Series and channels whose targets before are not those of the fit."""
    compared: int
    """Of so many."""

    @property
    def findings(self) -> list[Finding]:
        """A warning of changed rows."""
        if not self.changed:
            return []
        text = (
            f"{self.changed:,} of {number_of(self.compared, 'series', 'series')} have other targets in rows that "
            "the model has seen than when it was fitted"
        )
        return [Finding("warning", "revised", text, "where most rows were revised, fit again")]


def new_rows(artifact: Artifact, panel: Panel) -> NewRows:
    """Returns what of a table is new to a model.

    Raises:
        DataError: the table ends before the model does, or does not reach back far enough.
    """
    check_dated(panel)
    since, until, calendar = artifact.trained_until, panel.last_time(), panel.calendar
    if until < since:
        raise DataError(
            f"{panel.name}: expected the table as it is now, with rows until {calendar.text(since)} and later "
            f"ones, found none after {calendar.text(until)}: give the whole table"
        )
    changed, compared = _changed(artifact, panel)
    least = artifact.context_length + artifact.horizon
    begin = int(panel.time.min())
    known = int(calendar.steps(begin, since)) + 1
    if known < least and changed:
        raise DataError(
            f"{panel.name}: expected {least:,} steps or more until {calendar.text(since)}, where the model ends "
            f"(a context and a horizon), found {known:,}: give more of the history"
        )
    return NewRows(since, until, int(calendar.steps(since, until)), changed, compared)


def check_dated(panel: Panel) -> None:
    """Raises DataError where rows have no times, and so no row is known to be new."""
    if panel.schema.time is None:
        raise DataError(
            f"{panel.name}: expected rows with times; rows without are numbered from the end of each table, so it "
            "cannot be known which are new: add a column of times and fit again"
        )


def updated(
    artifact: Artifact, panel: Panel, found: NewRows, refit: Refitted, context: TrainingContext
) -> Artifact:
    """Returns a model that knows all rows of a table; the one of before stays as it is.

    Args:
        artifact: the model.
        panel: the table as it is now, with the model's schema but words for new categories.
        found: of `new_rows`.
        refit: what is learned again.
        context: reporter, callbacks, and whether errors are kept.

    Raises:
        FitError: the loss is not finite; names the series.
    """
    judged: dict[str, Any] = {}
    if artifact.metrics.get("expert_weights") == {}:
        new = replace(unfitted(panel, artifact.requested), metrics=artifact.metrics)
        new = replace(new, errors=measured_errors(new, panel))
    elif refit == "bands" or (refit == "experts" and not artifact.plan.model.pool.experts):
        new, judged = _with_moved_bands(artifact, panel, found.since)
        seen = panel.until(found.until)
        new = replace(new, data=panel.name, fingerprint=seen.fingerprint())
    else:
        new, judged = _with_new_experts(artifact, panel, refit, context)
    if context.errors and new.errors is artifact.errors and artifact.errors is not None:
        new = replace(new, errors=measured_errors(new, coded(panel, new)))
    today = datetime.now(UTC).date().isoformat()
    return replace(
        new,
        trained_until=found.until,
        parent=artifact.ancestry | {"updated": today},
        request=artifact.request,
        metrics=new.metrics | {"update": {"refit": refit, "steps": found.steps, **judged}},
    )


def _changed(artifact: Artifact, panel: Panel) -> tuple[int, int]:
    """How many series and channels have other recent targets than the fit has read, and of how many."""
    errors = artifact.errors
    if not isinstance(errors, ErrorLevels):
        return 0, 0
    hashes = pair_hashes(panel, np.arange(panel.n_series))  # [N, C]
    _, place, kept = np.intersect1d(hashes.ravel(), errors.hashes, return_indices=True)
    series, channel = np.divmod(place, hashes.shape[1])
    now = recent_digests(artifact, panel, artifact.trained_until, series, channel)
    return int((now != errors.recent[kept]).sum()), len(kept)


def _with_moved_bands(
    artifact: Artifact, panel: Panel, since: int
) -> tuple[Artifact, dict[str, float]]:
    """The model with factors that have followed the errors of its own forecasts of the new rows."""
    panel, horizon = coded(panel, artifact), artifact.horizon
    panel = panel.reaching(np.full(panel.n_series, panel.last_time()), horizon)
    cutoffs = _new_cutoffs(panel, since, horizon, artifact.plan.fit.stride)
    if cutoffs.shape[1] < 2 or uncalibrated(artifact.plan) is not None:
        return artifact, {}
    levels, ensemble = artifact.plan.model.quantile_levels, artifact.ensemble
    held_out = calibration_set(artifact, panel, cutoffs)
    factor, effect = adapted(held_out, levels)
    before = ensemble.conformal_factors
    total = factor * (torch.ones(len(levels)) if before is None else before)
    losses = {"loss": effect["after"]["pinball"], "loss_before": effect["before"]["pinball"]}
    new = replace(
        artifact,
        ensemble=ensemble.with_factors(total, ensemble.tail_factor),
        metrics=artifact.metrics | {"calibration": effect},
    )
    return new, {"windows": len(held_out.step), **losses}


def _new_cutoffs(panel: Panel, since: int, horizon: int, stride: int) -> Int64:
    """[2, n] series and row of cutoffs from a time on with a truth after them, of the newest rows."""
    begin, last = panel.indptr[:-1], panel.last_observed
    first = np.maximum(panel.row_at(since), np.maximum(begin, last - _NEWEST * horizon))
    first = first + (last - first) % stride
    return drawn_cutoffs(first, last - stride, stride, MOST_WINDOWS)


def _with_new_experts(
    artifact: Artifact, panel: Panel, refit: Refitted, context: TrainingContext
) -> tuple[Artifact, dict[str, float]]:
    """The model with experts of all rows, and of "all" with what is trained on."""
    plan, tunes = artifact.plan, refit == "all"
    if not tunes or experts_alone(artifact.ensemble.networks):
        plan = plan.with_fit(steps=0, by_evidence=False)
    judge = _Judge(artifact, context.reporter)
    context = replace(context, reporter=judge, tunes=tunes)
    new = fit_panel(panel, plan, split_panel(panel, plan), context, artifact)
    return replace(new, plan=artifact.plan), judge.found


class _Judge(Reporter):
    """Compares a model with the one before, on windows that neither has seen; passes all else on but the start."""

    def __init__(self, before: Artifact, inner: Reporter):
        self._before, self._inner = before, inner
        self.found: dict[str, float] = {}
        """Windows, and WQL of both; empty without such windows."""

    def notice(self, text: str) -> None:
        self._inner.notice(text)

    def stage(self, doing: str) -> AbstractContextManager[None]:
        return self._inner.stage(doing)

    def validation(self, backtest: Backtest) -> None:
        self._inner.validation(backtest)

    def held_out(self, artifact: Artifact, panel: Panel, split: Split) -> None:
        every = split.validation
        row = every.locate(np.arange(len(every)))[2]
        unseen = np.flatnonzero(panel.time[row] >= self._before.trained_until)
        if not len(unseen):
            return
        kept = unseen[even_draw(len(unseen), MOST_WINDOWS)]
        series, row = cutoffs_of(split, kept)
        scores = scored({MODEL: artifact, BEFORE: self._before}, panel, series, row).scores
        losses = {"loss": scores[MODEL]["WQL"], "loss_before": scores[BEFORE]["WQL"]}
        self.found = {"windows": len(series), **losses}
