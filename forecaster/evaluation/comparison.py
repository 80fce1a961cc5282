"""A model beside its baselines, scored over the same cells, and the verdict in one sentence.

Axes: N window (a series at one cutoff) · H lead · C channel · Q quantile level · S sample path.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from forecaster.config import PRESETS, Expert
from forecaster.evaluation.baselines import seasonal_naive
from forecaster.evaluation.bootstrap import Skill, skill_of
from forecaster.evaluation.error_scales import Histories, Scales, scales_at
from forecaster.evaluation.metrics import Scores, Tally, given_levels, tally
from forecaster.forecast.bands import Columns
from forecaster.panel.arrays import Floats, Ints
from forecaster.panel.panel import Panel

MODEL = "forecaster"
NAIVE = "seasonal naive"
PERSISTENCE = "naive"
RIDGE = "ridge"
EXPERT_OF: dict[str, Expert] = {
    NAIVE: "seasonal_naive",
    PERSISTENCE: "naive",
    "drift": "drift",
    "ETS": "ets",
    RIDGE: "linear",
}
"""By baseline, the expert that it is alone."""
EXPERTS = "experts"
"""Of a leaderboard: all experts of the table, weighted, without a network."""
NO_FIT = "no fit"
"""Of a leaderboard: what `predict` forecasts from the table alone."""
_ALONE, _PRESET = "expert ", "preset "

_FORECASTS = 100  # of lead 1, from which the verdict speaks of it
_FAR_SUM = 0.25  # of the sum of actuals, from which the verdict speaks of that of forecasts
_NAMED = 3  # rivals with a lower WQL that the verdict names


def seasonal_naive_at(
    panel: Panel,
    series: Ints,
    cutoff: Ints,
    horizon: int,
    levels: Sequence[float],
) -> tuple[Floats, Scales, float]:
    """Forecasts of seasonal naive, and the scales, at given cutoffs.

    Args:
        panel: the table.
        series: [N] number of each series.
        cutoff: [N] row of the last step that may be read; one before its series' first = no history.
        horizon: leads.
        levels: quantile levels.

    Returns:
        [N, H, C, Q] quantiles, data units, NaN where a channel has no history; the scales of these windows; the
        seconds of the forecasts.
    """
    values, indptr = panel.values[:, : panel.n_channels], panel.indptr
    season = panel.calendar.season_length
    ends = np.maximum(cutoff, indptr[series] - 1)
    histories = Histories(values, indptr, ends, series)
    begun = perf_counter()
    quantiles = seasonal_naive(histories, horizon, season, levels)
    seconds = perf_counter() - begun
    return quantiles, scales_at(histories, season), seconds


def tally_models(
    actual: Floats,
    quantiles: Mapping[str, Floats],
    levels: Sequence[float],
    scales: Scales,
    paths: Floats | None = None,
    columns: Columns = (),
) -> dict[str, Tally]:
    """Each model's tally over the cells that all models forecast.

    Args:
        actual: [N, H, C] NaN = missing.
        quantiles: by model, [N, H, C, Q] and those of `further_levels`.
        levels: fitted quantile levels.
        scales: of the windows.
        paths: [N, S, H, C] sample paths of "forecaster", if any.
        columns: bands and quantiles that were asked for.
    """
    shared = shared_actual(actual, {name: q[..., : len(levels)] for name, q in quantiles.items()})
    return {
        name: tally(shared, q, levels, scales, paths if name == MODEL else None, columns)
        for name, q in quantiles.items()
    }


def shared_actual(actual: Floats, quantiles: Mapping[str, Floats]) -> Floats:
    """Returns [N, H, C] the actuals of the cells that all models forecast, at all levels of theirs, else NaN."""
    everywhere = np.logical_and.reduce(
        [(np.isfinite(q) | ~given_levels(q)).all(axis=-1) for q in quantiles.values()]
    )
    return np.where(everywhere, actual, np.nan)


def expert_of(name: str) -> Expert | None:
    """Returns the expert that a row is alone; None = it is none."""
    alone = name.removeprefix(_ALONE)
    return alone if name.startswith(_ALONE) else EXPERT_OF.get(name)  # type: ignore[return-value]


def maker_of(name: str) -> tuple[str, dict[str, Any]] | None:
    """Returns the verb and its options that make the model of a row; None where there is none.

    >>> maker_of("ETS"), maker_of("no fit"), maker_of("mine")
    (('fit', {'experts': 'ets'}), ('predict', {}), None)
    """
    if name == NO_FIT:
        return "predict", {}
    if name == EXPERTS:  # without validation windows no network is trained beside them
        return "fit", {"config": {"fit": {"validation": None}}}
    if expert := expert_of(name):
        return "fit", {"experts": expert}
    preset = name.removeprefix(_PRESET)
    return ("fit", {"preset": preset}) if name != preset and preset in PRESETS else None


def compare(model: Scores, naive: Scores) -> str:
    """Returns "beats", "is level with", "loses to", or a phrase for an undefined WQL (all actuals 0).

    Level is what the interval of the skill does not tell apart; without one (few cutoffs) nothing is decided.
    """
    wql, other, skill = model["WQL"], naive["WQL"], skill_of(model)
    if math.isnan(wql) or math.isnan(other):
        return "cannot be compared (its WQL is not defined) with"
    if wql == other or skill.low <= 0 <= skill.high:
        return "is level with"
    if other > 0 and math.isnan(skill.low):
        return "is undecided against"
    return "beats" if wql < other else "loses to"


def compare_with_naive(model: Scores, naive: Scores) -> str:
    """Returns how "forecaster" compares with seasonal naive in WQL: what `compare` says, with its numbers."""
    word = compare(model, naive)
    if naive["WQL"] == 0 and word == "loses to":
        return f"loses to seasonal naive: its WQL is {model['WQL']:.4g}, that of seasonal naive 0"
    skill = skill_of(model)
    if math.isnan(skill.skill) or skill.skill == 0:
        return f"{word} seasonal naive"
    lower = skill.skill > 0
    gain = skill if lower else Skill(-skill.skill, -skill.high, -skill.low)
    text = (
        f"{word} seasonal naive: its WQL is {100 * gain.skill:.1f} % {'lower' if lower else 'higher'} "
        f"({gain.interval()})"
    )
    if lower and model["MASE"] > naive["MASE"]:
        # Better bands can hide worse medians.
        text += f", but its MASE is {100 * (model['MASE'] / naive['MASE'] - 1):.1f} % higher"
    return text


def better_models(scores: Mapping[str, Scores]) -> list[str]:
    """Returns the models of lower WQL than "forecaster", the best first."""
    wql = {name: one["WQL"] for name, one in scores.items()}
    return sorted((name for name in wql if wql[name] < wql[MODEL]), key=lambda name: (wql[name], name))


def name_better_models(gains: Mapping[str, Skill]) -> str:
    """Returns which models beside seasonal naive have a lower WQL than "forecaster", by what their intervals say.

    Args:
        gains: the skill over "forecaster" of models of lower WQL, the best first.
    """
    named: dict[str, list[str]] = {}
    for name, gain in gains.items():
        head = "better than it" if gain.low > 0 else "level with it"
        interval = f", {gain.interval()}"
        if math.isnan(gain.low):
            head, interval = "of lower WQL", ""
        if name != NAIVE:
            text = f"{name} (WQL {100 * gain.skill:.1f} % lower{interval})"
            named.setdefault(head, []).append(text)
    return "".join(
        f"; {head}: {', '.join(texts[:_NAMED])}"
        + f" and {len(texts) - _NAMED} more" * (len(texts) > _NAMED)
        for head, texts in named.items()
    )


def compare_sums(tally: Tally) -> str:
    """Returns what part of the actuals the forecasts add up to, where it is far from all; else nothing.

    Medians of counts with many zeros do: also where each is the best forecast. Sums of negative numbers
    are not compared.
    """
    actual, total, error = (float(tally.windows[name].sum()) for name in ("actual", "total", "signed"))
    if not 0 < total == actual or abs(error) <= _FAR_SUM * total:
        return ""
    return f"; its forecasts (medians) add up to {100 * (1 + error / total):.0f} % of the actuals"


def compare_first_lead(tallies: Mapping[str, Tally]) -> str:
    """Returns that naive errs less one step ahead, where enough such forecasts are scored; else nothing."""
    if PERSISTENCE not in tallies:
        return ""
    mine, theirs = (tallies[name].by_lead() for name in (MODEL, PERSISTENCE))
    better, enough = theirs["MAE"][0] < mine["MAE"][0], mine["cells"][0] >= _FORECASTS
    text = f"; at lead 1 naive has the lower MAE: {theirs['MAE'][0]:.4g} against {mine['MAE'][0]:.4g}"
    return text if better and enough else ""
