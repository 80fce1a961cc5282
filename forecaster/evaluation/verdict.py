"""Whether a model is worth having, in one sentence.

What comes in: scores by model. What goes out: words. Promised: a model that loses to seasonal naive is
said to lose; a win that could be chance is not called one; a baseline that is better is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from forecaster.evaluation.rivals import MODEL, NAIVE
from forecaster.evaluation.tally import Scores


def verdict_of(scores: Mapping[str, Scores]) -> str:
    """Returns how "forecaster" stands to seasonal naive, and which baselines are better than it.

    Args:
        scores: by model, WQL and MASE; of "forecaster" also its skill with the interval, if any.
    """
    return _against_naive(scores[MODEL], scores[NAIVE]) + _better(scores)


def compared(wql: float, naive: float) -> str:
    """Returns "beats", "matches", "loses to", or what to say where the truth is all zeros."""
    if math.isnan(wql) or math.isnan(naive):
        return "cannot be compared (its WQL is not defined) with"
    return "beats" if wql < naive else "matches" if wql == naive else "loses to"


def _against_naive(mine: Scores, naive: Scores) -> str:
    word = compared(mine["WQL"], naive["WQL"])
    if word == "loses to" and naive["WQL"] == 0:
        return f"loses to seasonal naive: its WQL is {mine['WQL']:.4g}, that of seasonal naive 0"
    if word not in ("beats", "loses to"):
        return f"{word} seasonal naive"
    skill, low, high = (mine.get(name, math.nan) for name in ("skill", "skill_low", "skill_high"))
    if low <= 0 <= high and word == "beats":
        word = "cannot be told apart from"
    said = f"{word} seasonal naive: its WQL is {_difference(skill)}"
    if not math.isnan(low):
        bounds = (low, high) if skill > 0 else (-high, -low)
        said += " (95 % interval {:.1f} to {:.1f} %)".format(*(100 * bound for bound in bounds))
    if low <= 0 <= high and word == "loses to":
        said += ", which may be chance"
    if word == "beats" and mine["MASE"] > naive["MASE"]:
        # Better bands can hide worse medians.
        said += f", but its MASE is {100 * (mine['MASE'] / naive['MASE'] - 1):.1f} % higher"
    return said


def _better(scores: Mapping[str, Scores]) -> str:
    """Returns the baselines with a lower WQL, best first, seasonal naive apart."""
    wql = scores[MODEL]["WQL"]
    found = sorted(
        (mine["WQL"], name)
        for name, mine in scores.items()
        if name not in (MODEL, NAIVE) and mine["WQL"] < wql
    )
    if not found:
        return ""
    listed = [f"{name} (WQL {100 * (1 - rival / wql):.1f} % lower)" for rival, name in found]
    return f"; better than it: {', '.join(listed)}"


def _difference(skill: float) -> str:
    return f"{abs(100 * skill):.1f} % {'lower' if skill > 0 else 'higher'}"
