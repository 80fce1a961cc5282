"""Which of two models is better, where that can be shown.

What comes in: a new model, the champion, and a table if there is one. What goes out: who wins, and
why in figures. Promised: no score counts that one of them could know; where none is left, nobody wins.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from forecaster.errors import DataError
from forecaster.evaluation.backtest import rolling_cutoffs, run_backtest
from forecaster.evaluation.comparison import MODEL, NAIVE
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.predictor import Predictor
from forecaster.panel.audit import check_panel
from forecaster.panel.build import open_panel
from forecaster.panel.findings import refuse_errors
from forecaster.panel.panel import Panel
from forecaster.runs.transfer import ancestry, comparable

_CUTOFFS = 64  # at most: the latest ones
_RIVAL = "champion"


class Verdict(NamedTuple):
    """Whether a new model beats the champion."""

    wins: bool
    reason: str


def challenge(new: Artifact, champion: Artifact, data: object | None = None) -> Verdict:
    """Returns whether a model has a lower WQL than the champion.

    Models that were validated on the same windows of the same table are compared by these scores.
    Others are scored again on a table, at cutoffs after everything that either of them has seen.

    Args:
        new: the model.
        champion: the one to beat.
        data: a table with rows that neither has seen; None = there is none.

    Raises:
        DataError: the table cannot be understood.
    """
    unlike = _unlike(new, champion)
    if unlike is not None:
        return Verdict(False, f"{unlike}, so their scores cannot be compared; set the alias by hand")
    mine, theirs = (model.metrics.get("validation") for model in (new, champion))
    apart = _apart(new, champion)
    if apart is None and mine and theirs:
        scores = mine["scores"][MODEL]["WQL"], theirs["scores"][MODEL]["WQL"]
        return _compared(*scores, f"the same {mine['windows']:,} validation windows")
    seen = max((new, champion), key=lambda model: model.trained_until)
    until = ancestry(seen)["until"]
    advice = f"{new.horizon} steps or more after {until}"
    if data is None:
        return Verdict(
            False, f"{apart}; to score both again, export with --data and a table of {advice}"
        )
    return _scored_again(new, champion, data, f"{apart}, and --data does not hold {advice}")


def _unlike(new: Artifact, old: Artifact) -> str | None:
    """Returns in what two models answer different questions."""
    for what, mine, theirs in (
        ("forecasts", new.schema.target, old.schema.target),
        ("has the horizon", new.horizon, old.horizon),
        ("has the quantile levels", new.config.model.quantile_levels, old.config.model.quantile_levels),
    ):
        if mine != theirs:
            words = [_words(part) for part in (mine, theirs)]
            return f"it {what} {words[0]}, the champion {words[1]}"
    if not comparable(new.schema, old.schema):
        return f"their clocks differ ({new.schema.freq} and {old.schema.freq})"
    return None


def _words(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _apart(new: Artifact, old: Artifact) -> str | None:
    """Returns why two validations are not of the same windows."""
    if new.fingerprint != old.fingerprint:
        return "the two were fitted to different data"
    mine, theirs = (model.metrics.get("validation", {}).get("cutoffs") for model in (new, old))
    if mine is None or theirs is None:
        return "one of the two has no validation scores"
    return None if mine == theirs else "the two were validated on different windows"


def _compared(mine: float, theirs: float, where: str) -> Verdict:
    """Returns the verdict of two WQLs."""
    if math.isnan(mine) or math.isnan(theirs):
        return Verdict(False, f"WQL is not defined on {where}")
    if mine == theirs:
        return Verdict(False, f"both have WQL {mine:.4g} on {where}")
    apart = f" ({100 * abs(mine / theirs - 1):.1f} %)" if theirs else ""
    word = "lower" if mine < theirs else "higher"
    return Verdict(
        mine < theirs,
        f"its WQL {mine:.4g} is {word} than the champion's {theirs:.4g}{apart} on {where}",
    )


def _scored_again(new: Artifact, champion: Artifact, data: object, too_short: str) -> Verdict:
    """Returns the verdict of both models, as they are, at cutoffs that neither has seen."""
    models = (new, champion)
    panels = [open_panel(data, model.config.data, schema=model.schema) for model in models]
    refuse_errors(check_panel(panels[0]))
    windows = _unseen(panels[0], max(model.trained_until for model in models), new.horizon)
    if windows < 1:
        return Verdict(False, too_short)
    cutoffs = rolling_cutoffs(panels[0], windows, new.horizon)
    predictors = [Predictor(model) for model in models]

    def said(some: Sequence[int]) -> Iterator[dict[str, Forecast]]:
        both = (
            predictor.forecasts_at(panel, some)
            for predictor, panel in zip(predictors, panels, strict=True)
        )
        return (dict(zip((MODEL, _RIVAL), pair, strict=True)) for pair in zip(*both, strict=True))

    scores = run_backtest(cutoffs, said, [NAIVE]).scores
    first, last = (panels[0].calendar.text(cutoff) for cutoff in (cutoffs[0], cutoffs[-1]))
    where = f"{panels[0].name}, {windows} cutoff{'s' * (windows > 1)} from {first} to {last}"
    return _compared(scores[MODEL]["WQL"], scores[_RIVAL]["WQL"], where)


def _unseen(panel: Panel, seen: int, horizon: int) -> int:
    """Returns how many cutoffs, a horizon apart, have all of their leads after a time."""
    last = panel.last_observed
    if (last < 0).all():
        raise DataError(f"{panel.name}: no target is observed, nothing to compare forecasts with")
    end = int(panel.time[last[last >= 0]].max())
    steps = int(panel.calendar.steps(np.array([seen]), np.array([end]))[0])
    return min(steps // horizon, _CUTOFFS)
