"""The tables of a report, as HTML; every word that comes from a user is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

import numpy as np

from forecaster.evaluation.report.evidence import Evidence
from forecaster.evaluation.report.numbers import number, percent, signed
from forecaster.evaluation.report.ranking import Item
from forecaster.evaluation.report.words import meaning
from forecaster.panel.findings import Finding

_FIRST = ("skill", "WQL", "MASE", "SQL", "RMSSE", "sMAPE", "MAE", "RMSE", "bias")
"""The scores that are looked at first; the others follow in their own order."""
_BEST = '<b class="best">★ {}</b>'


def table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str, kind: str = "") -> str:
    """Returns a table in a box of its own, which scrolls where it is wider than the screen.

    Args:
        head: of each column, plain text.
        rows: cells as HTML, the first of each row its heading.
        caption: what the table holds, read out before it.
        kind: a class.
    """
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>'
        for first, *rest in rows
    )
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(caption)}">'
        f'<table class="{kind}">'
        f"<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def scores(of: Mapping[str, Mapping[str, float]]) -> str:
    """Returns a row per model and a column per score, the best of each column marked."""
    names = _ordered(of)
    best = {
        name: _best(name, {model: mine.get(name, np.nan) for model, mine in of.items()})
        for name in names
    }
    rows = []
    for model, mine in of.items():
        cells = [escape(model)]
        for name in names:
            said = _said(name, mine.get(name, np.nan))
            said = _BEST.format(said) if model in best[name] else said
            low, high = (mine.get(f"{name}_{end}", np.nan) for end in ("low", "high"))
            if low < high:
                said += f" <small>({_said(name, low)} to {_said(name, high)})</small>"
            cells.append(said)
        rows.append(cells)
    return table(["model", *map(_title, names)], rows, "Scores by model", "numbers scores")


def meanings(of: Mapping[str, Mapping[str, float]]) -> str:
    """Returns what each score is."""
    told = [(name, meaning(name)) for name in _ordered(of)]
    items = "".join(
        f"<dt>{escape(_title(name))}</dt><dd>{escape(said)}</dd>" for name, said in told if said
    )
    return f"<details><summary>What the columns mean</summary><dl>{items}</dl></details>"


def worst(items: Sequence[Item], what: str) -> str:
    """Returns the scores of the items that are forecast worst."""
    rows = [
        [escape(one.name), number(one.mase, 3), number(one.wql, 3), percent(one.skill)] for one in items
    ]
    return table([what, "MASE", "WQL", "skill"], rows, f"Worst {what}", "numbers")


def bands(found: Evidence) -> str:
    """Returns how much of the truth each central band holds."""
    levels = found.forecasts[0].levels
    rows = []
    for low in range(len(levels) // 2):
        high = len(levels) - 1 - low
        if abs(levels[low] + levels[high] - 1) < 1e-9:
            # Edges count as inside, so that the widest band is the coverage of the scores.
            held = found.inside[low]
            aim = levels[high] - levels[low]
            rows.append([percent(aim, 0), percent(held), signed(round(100 * (held - aim), 1))])
    return table(["band", "holds", "off by, points"], rows, "Central bands", "numbers")


def members(found: Sequence[Mapping[str, float]]) -> str:
    """Returns what the parts of an ensemble count for, and attention within each."""
    rows = [
        [
            str(place),
            percent(one.get("weight", np.nan)),
            percent(one.get("share", np.nan)),
            f"{one.get('best_step', 0):,} of {one.get('steps', 0):,}",
        ]
        for place, one in enumerate(found, start=1)
    ]
    head = ["member", "weight", "attention's share", "best step"]
    return table(head, rows, "Members of the ensemble", "numbers")


def findings(found: Sequence[Finding]) -> str:
    """Returns what the audit found, or that it found nothing."""
    if not found:
        return "<p>The audit found nothing to say about the table.</p>"
    items = []
    for one in found:
        first = f" First: {escape(one.first)}." if one.first else ""
        advice = f"<small>→ {escape(one.advice)}</small>" if one.advice else ""
        said = f"<code>{escape(one.rule)}</code> {escape(one.text)}.{first}{advice}"
        items.append(f"<li><b>{one.severity}</b> {said}</li>")
    return f'<ul class="findings">{"".join(items)}</ul>'


def facts(of: Mapping[str, str]) -> str:
    """Returns names and what they are, one below the other."""
    return f"<dl>{''.join(f'<dt>{escape(k)}</dt><dd>{escape(v)}</dd>' for k, v in of.items())}</dl>"


def _ordered(of: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Returns the names of scores; the ends of an interval stand beside what they belong to."""
    names = list(dict.fromkeys(name for mine in of.values() for name in mine))
    names = [name for name in names if name not in ("skill_low", "skill_high")]
    return sorted(names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))


def _title(name: str) -> str:
    kind, _, share = name.partition("_")
    if kind in ("coverage", "width") and share:
        return f"{kind} {share} %"
    return name.replace("_", " ")


def _said(name: str, value: float) -> str:
    if name == "skill" or name.startswith("coverage"):
        return percent(value)
    return number(value)


def _best(name: str, of: Mapping[str, float]) -> set[str]:
    """Returns the models with the best value; none where there is no better or worse."""
    kind, _, share = name.partition("_")
    worth = {
        model: -value
        if kind == "skill"
        else abs(value - int(share) / 100)
        if kind == "coverage"
        else abs(value)
        for model, value in of.items()
        if np.isfinite(value)
    }
    if kind == "width" or len(worth) < 2:
        return set()
    least = min(worth.values())
    return {model for model, value in worth.items() if value == least}
