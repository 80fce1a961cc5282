"""What a report says in words: the verdict, whether the bands can be trusted, what to do next.

What comes in: `Evidence` and a `Ranking`. What goes out: plain sentences. Promised: a loss is said as
plainly as a win, and what may be chance is said to be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forecaster.evaluation.report.evidence import Evidence
from forecaster.evaluation.report.numbers import counted, number, percent
from forecaster.evaluation.report.origin import Origin
from forecaster.evaluation.report.ranking import Ranking
from forecaster.evaluation.rivals import MODEL, NAIVE
from forecaster.evaluation.verdict import compared

_TOLERANCE = 0.05  # of a coverage: what 100 independent windows cannot tell from chance
_FEW_CUTOFFS = 4
_STRONG_BIAS = 0.4  # of the mean absolute error: it is then easily seen in a picture
_GROWN = 1.5  # the error of the last third of cutoffs, in those of the first

MEANINGS = {
    "MAE": "mean absolute error of the median, in the units of the data",
    "RMSE": "root of the mean squared error, in the units of the data: large errors count more",
    "MSE": "mean squared error, in squared units of the data",
    "MASE": "mean absolute error in units of seasonal naive's on the history: below 1 is better",
    "RMSSE": "root mean squared error in units of the root mean squared step of the history",
    "sMAPE": "mean of 200·|error| / (|truth| + |forecast|), percent",
    "WQL": "weighted quantile loss: how good all quantiles are, large series count more",
    "SQL": "quantile loss in units of seasonal naive's error on the history: every series counts alike",
    "CRPS": "continuous ranked probability score of sample paths, in the units of the data",
    "CRPS_quantiles": "the same from the quantiles: mean quantile loss, in the units of the data",
    "bias": "mean of forecast − truth, in the units of the data: above 0 is too high",
    "skill": "1 − WQL / WQL of seasonal naive: above 0 is better than it",
}
"""By name of a score."""


@dataclass(frozen=True)
class Verdict:
    """The page in three lines."""

    word: str
    """beats, loses to, or anything else where neither is shown."""
    headline: str
    bands: str
    """Whether the bands can be trusted."""
    todo: tuple[str, ...]
    """What to do next, the most urgent first."""


def meaning(score: str) -> str:
    """Returns what a score is."""
    kind, _, share = score.partition("_")
    if kind == "coverage" and share:
        return f"share of truths within the {share} % band: should be {share} %"
    if kind == "width" and share:
        return f"mean width of the {share} % band, in the units of the data"
    return MEANINGS.get(score, "")


def verdict(found: Evidence, ranked: Ranking, origin: Origin | None) -> Verdict:
    """Returns what all the figures come to."""
    backtest = found.backtest
    mine, naive = backtest.scores[MODEL], backtest.scores[NAIVE]
    word = compared(mine["WQL"], naive["WQL"])
    if mine["skill_low"] <= 0 <= mine["skill_high"]:
        word = "may match"
    headline = f"The model {backtest.verdict}."
    todo = tuple(_todo(found, ranked, origin, word)) or (
        "Nothing here speaks against using this model. Look at the worst series before you do.",
    )
    return Verdict(word, headline, _bands(found), todo)


def coverage_of(found: Evidence) -> tuple[float, float]:
    """Returns the share that the widest band should hold, and the one it holds."""
    scores = found.backtest.scores[MODEL]
    name = next(name for name in scores if name.startswith("coverage"))
    return int(name.split("_")[1]) / 100, scores[name]


def _bands(found: Evidence) -> str:
    aim, held = coverage_of(found)
    if not np.isfinite(held):
        return "No cell was scored, so nothing is known about the bands."
    said = f"The {percent(aim, 0)} band holds {percent(held)} of the truth"
    if abs(held - aim) <= _TOLERANCE:
        return f"{said}: the bands can be taken at their word."
    if held < aim:
        return f"{said}: the bands are too narrow, so expect surprises more often than they say."
    return f"{said}: the bands are too wide, so the model is surer than it says."


def _todo(found: Evidence, ranked: Ranking, origin: Origin | None, word: str) -> Iterator[str]:
    scores = found.backtest.scores
    mine = scores[MODEL]
    if found.backtest.scored == 0:
        yield "Score a table with truths after the cutoffs: no cell here has one."
        return
    if word == "loses to":
        yield (
            "Use seasonal naive instead until this is mended: it is better here, and costs nothing. "
            "Give the model more history or covariates known in advance, or search: forecaster tune."
        )
    if word == "may match":
        yield (
            "The difference from seasonal naive may be chance: score more windows (--windows) to know."
        )
    better = [
        name for name, of in scores.items() if name not in (MODEL, NAIVE) and of["WQL"] < mine["WQL"]
    ]
    if better:
        best = min(better, key=lambda name: scores[name]["WQL"])
        yield (
            f"Take {best} as the mark to beat: its WQL is {number(scores[best]['WQL'])}, the model's "
            f"{number(mine['WQL'])}. Search for better settings with forecaster tune, or use it."
        )
    yield from _chance(found, origin)
    aim, held = coverage_of(found)
    if np.isfinite(held) and abs(held - aim) > _TOLERANCE:
        yield (
            "Do not plan with these bands as they are: see the calibration curve, and leave rows for "
            "calibrating them (fit.calibration)."
        )
    yield from _habits(found)
    losing = int((ranked.skills < 0).sum())
    if word == "beats" and losing:
        yield (
            f"{losing:,} of {len(ranked.skills):,} {ranked.kinds} are forecast worse than by seasonal "
            "naive: look at the worst below, and use seasonal naive where it stays so."
        )
    unscored, scored = found.backtest.unscored, found.backtest.scored
    if unscored > 0.05 * (unscored + scored):
        missing = counted(unscored, "cell")
        yield f"See why {missing} had no truth or no forecast: column status of the rows (--out) tells."
    warned = [one for one in origin.findings if one.severity != "note"] if origin else []
    if warned:
        yield f"The audit has {counted(len(warned), 'warning')} about the table: see what to mend."


def _chance(found: Evidence, origin: Origin | None) -> Iterator[str]:
    if origin is not None and origin.validation:
        yield (
            "These windows chose the weights to keep, so the scores flatter a little. For honest ones: "
            "forecaster backtest MODEL DATA --report report.html."
        )
    elif len(found.cutoffs) < _FEW_CUTOFFS:
        scored = counted(len(found.cutoffs), "cutoff")
        yield f"Score more than {scored} before you trust this (--windows 8)."


def _habits(found: Evidence) -> Iterator[str]:
    """Yields what the errors have in common: a side, an echo, a growth."""
    error = found.errors
    side = float(error.mean() / np.abs(error).mean()) if len(error) and np.abs(error).any() else 0.0
    if abs(side) > _STRONG_BIAS:
        yield (
            f"Forecasts are too {'high' if side > 0 else 'low'} on the whole: look for a level that "
            "changed after the training, or a covariate that would tell."
        )
    echo, noise = found.autocorrelation
    if len(echo) and echo[0] > max(noise, 0.3):
        yield (
            f"One-step errors repeat from one cutoff to the next (correlation {number(echo[0], 2)}): "
            "try a longer model.context_length, or a missing covariate."
        )
    mase = found.over_time[MODEL]
    mase = mase[np.isfinite(mase)]
    third = len(mase) // 3
    if third >= 2 and mase[-third:].mean() > _GROWN * mase[:third].mean() > 0:
        growth = float(mase[-third:].mean() / mase[:third].mean())
        yield (
            f"The error has grown {number(growth, 2)}-fold from the first "
            "third of cutoffs to the last: refit more often (--refit each)."
        )
