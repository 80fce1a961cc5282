"""The HTML report of a backtest or of a fit's validation windows: the verdict in words first, then evidence.

One self-contained page: no network, no script; all text that comes from a user is escaped; its size does
not grow with the number of series.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml

from forecaster.config import TrackingConfig
from forecaster.errors import number_of
from forecaster.evaluation import report_charts as charts
from forecaster.evaluation.bootstrap import skill_of
from forecaster.evaluation.comparison import MODEL, NAIVE, compare
from forecaster.evaluation.leaderboard import Leaderboard
from forecaster.evaluation.metrics import describe
from forecaster.evaluation.report_data import ReportContext, ReportData, number, percent, score_text
from forecaster.forecast.card import FEWEST_CUTOFFS, attention_line, calibration_line, network_line
from forecaster.forecast.plots import plot_curves
from forecaster.forecast.writer import html_page, html_table
from forecaster.panel.findings import listing

if TYPE_CHECKING:
    from forecaster.evaluation.backtest import Backtest
    from forecaster.evaluation.coverage import Coverage
    from forecaster.panel.findings import Finding

_VERDICTS = {"beats": ("good", "✓"), "loses to": ("bad", "✗")}
_COVERAGE_TOLERANCE = 0.05  # from the nominal coverage, up to which a band is trusted
_STRONG_BIAS = 0.25  # of the sum of absolute errors: visible in a picture
_OFF_MEDIAN = 0.1  # from the half of the actuals that should lie on either side
_GROWTH = 1.5  # error of the last third of cutoffs relative to the first third
_FIRST_COLUMNS = ("skill", "WQL", "MASE", "SQL", "RMSSE", "sMAPE", "MAE", "RMSE", "bias")
_NOTHING = "<p>No cell was scored, so there is nothing to show.</p>"


def render_report(backtest: Backtest) -> str:
    """The page as HTML text."""
    data, scored = ReportData(backtest), backtest.scored > 0
    sections = {
        "scores": ("Scores", _scores(backtest)),
        "series": ("Best and worst", _series(data) if scored else _NOTHING),
        "leads": ("By lead", charts.lead_figure(data) if scored else _NOTHING),
        "calibration": ("Calibration", _calibration(data) if scored else _NOTHING),
        "residuals": ("Residuals", charts.residual_figure(data) if scored else _NOTHING),
    }
    if (context := data.context) is not None:
        sections |= {
            "model": ("Model", _model(data, context)),
            "audit": ("Audit", _findings(context.findings)),
            "config": ("Config", _config(context)),
            "environment": ("Environment", _environment(context)),
        }
    links = "".join(f'<a href="#{name}">{title}</a>' for name, (title, _) in sections.items())
    title, subtitle = _title(data)
    body = "".join(
        f'<section id="{name}"><h2>{title}</h2>{content}</section>'
        for name, (title, content) in sections.items()
    )
    return html_page(
        title,
        f"<header><h1>{escape(title)}</h1><p>{escape(subtitle)}</p></header>"
        f"{verdict_section(data)}"
        f'<nav aria-label="Sections">{links}</nav><main>{body}</main>',
    )


def _trust_in_bands(found: Coverage | None) -> str:
    if found is None or not np.isfinite(found.share):
        return "No cell was scored, so nothing is known about the bands."
    text = f"The {found.band:g} % band holds {percent(found.share)} of the actuals"
    if math.isnan(found.low):
        return f"{text}: too few cutoffs to judge the bands."
    if off := found.off(_COVERAGE_TOLERANCE):
        points = 100 * abs(found.share - found.band / 100)
        return f"{text}: the bands are too {off}, by {points:.0f} points; {found.advice()}."
    return f"{text}: the bands can be trusted."


def _actions(data: ReportData, word: str) -> Iterator[str]:
    backtest, ranking, context = data.backtest, data.ranking, data.context
    model, found = backtest.scores[MODEL], backtest.coverage
    if backtest.scored == 0:
        yield "Score a table with actuals after the cutoffs: no cell here has one."
        return
    judged = not math.isnan(model["skill_low"])
    if judged and word == "loses to":
        yield (
            "Use seasonal naive instead until this is fixed: it is better here, and costs nothing. "
            "Give the model more history or known covariates, or search settings: forecaster tune."
        )
    if judged and word == "is level with":
        yield (
            "The difference from seasonal naive may be chance: score more windows (--windows) to know."
        )
    better = (name for name, gain in backtest.better.items() if gain.low > 0 and name != NAIVE)
    if best := next(better, ""):
        yield (
            f"The mark to beat is {best}: its WQL is {number(backtest.scores[best]['WQL'])}, the model's "
            f"{number(model['WQL'])}. Search for better settings with forecaster tune, or use {best}."
        )
    if context is not None and context.validation:
        yield (
            "These windows selected the weights, so the scores are slightly optimistic. For honest "
            "scores: forecaster backtest MODEL DATA --report report.html."
        )
    elif not judged:
        scored = number_of(len(data.cutoffs), "cutoff")
        yield f"Score more than {scored}, {FEWEST_CUTOFFS} without overlap, before you judge (--windows 8)."
    off = "" if found is None else found.off(_COVERAGE_TOLERANCE)
    if found is not None and (off == "narrow" or found.off()):
        cure = "leave rows for conformal calibration (fit.calibration)"
        if context is not None and calibration_line(context.artifact):
            cure = "fit on rows up to date: conformal calibration held on earlier windows, not on these"
        yield f"Make the bands {'wider' if off == 'narrow' else 'narrower'}: see the calibration curve, and {cure}."
    yield from _error_patterns(data)
    losing = int((ranking.skills < 0).sum())
    if word == "beats" and losing:
        yield (
            f"{losing:,} of {len(ranking.skills):,} {ranking.kinds} are forecast worse than by seasonal "
            "naive: look at the worst below, and use seasonal naive where it stays so."
        )
    if backtest.unscored > 0.05 * (backtest.unscored + backtest.scored):
        yield (
            f"See why {number_of(backtest.unscored, 'cell')} had no actual or no forecast: column status "
            "of the rows (--out)."
        )
    warnings = [one for one in context.findings if one.severity != "note"] if context else []
    if warnings:
        yield f"The audit has {number_of(len(warnings), 'warning')} about the table: see what to fix."


def _error_patterns(data: ReportData) -> Iterator[str]:
    bias, low, high = data.over_cutoffs(data.missed, "absolute")
    if abs(bias) > _STRONG_BIAS and (low > 0 or high < 0):
        actuals = float(data.backtest.tallies[MODEL].windows["total"].sum())
        means = actuals + float(data.missed.sum())
        way = "high" if bias > 0 else "low"
        yield (
            f"Forecasts are too {way} on the whole: their means add up to {number(means, 6)}, the actuals to "
            f"{number(actuals, 6)}. Look for a level shift after the training rows, or a missing covariate."
        )
    for word, side, cells in (("high", "below", data.below), ("low", "above", data.above)):
        share, least, _ = data.over_cutoffs(cells, "cells")
        if share > 0.5 + _OFF_MEDIAN and least > 0.5:
            yield f"The median is too {word}: {percent(share, 0)} of the actuals lie {side} it, not half."
    correlation, noise = data.autocorrelation
    if len(correlation) and correlation[0] > max(noise, 0.3):
        yield (
            f"One-step errors repeat from one cutoff to the next (correlation "
            f"{number(correlation[0], 2)}): try a longer model.context_length, or a missing covariate."
        )
    mase = data.over_time[1][MODEL]
    mase = mase[np.isfinite(mase)]
    third = len(mase) // 3
    if third >= 2 and mase[-third:].mean() > _GROWTH * mase[:third].mean() > 0:
        growth = number(float(mase[-third:].mean() / mase[:third].mean()), 2)
        yield (
            f"The error has grown {growth}-fold from the first third of cutoffs to the last: refit more "
            "often (--refit each)."
        )


def _title(data: ReportData) -> tuple[str, str]:
    forecast = data.backtest.forecasts[0]
    panel, text = forecast.panel, forecast.panel.calendar.text
    parts = [
        listing(panel.schema.target),
        number_of(panel.n_series, "series", "series"),
        f"horizon {number_of(forecast.time.shape[1], 'step')} of {panel.schema.freq}",
    ]
    if len(data.cutoffs):
        first, last = text(int(data.cutoffs[0])), text(int(data.cutoffs[-1]))
        parts.append(f"{number_of(len(data.cutoffs), 'cutoff')}, {first} to {last}")
    name = Path(panel.name).name if panel.kind == "file" else panel.name
    kind = "Validation" if data.context is not None and data.context.validation else "Backtest"
    return f"{kind}: {name}", " · ".join(parts)


def verdict_section(data: ReportData) -> str:
    """The report in three lines: the verdict, the trust in the bands, and the next steps, the most urgent first."""
    backtest = data.backtest
    model, naive = backtest.scores[MODEL], backtest.scores[NAIVE]
    word, found = compare(model, naive), backtest.coverage
    actions = list(_actions(data, word)) or [
        "No problem was found. Check the worst series before you use this model."
    ]
    cells = backtest.scored + backtest.unscored
    skill = skill_of(model)
    tiles = [
        ("skill over seasonal naive", percent(skill.skill), skill.interval()),
        ("MASE", number(model["MASE"], 3), f"seasonal naive {number(naive['MASE'], 3)}"),
        ("cells scored", f"{backtest.scored:,}", f"of {cells:,}; {backtest.unscored:,} unscored"),
    ]
    if found is not None:
        band, aim = f"{found.band:g} %", f"{found.interval()}, should be {found.band:g} %"
        tiles.insert(2, (f"{band} band holds", percent(found.share), aim))
    shown = "".join(
        f"<div><span>{escape(name)}</span><strong>{escape(value)}</strong><small>{escape(note)}</small></div>"
        for name, value, note in tiles
    )
    steps = "".join(f"<li>{escape(line)}</li>" for line in actions)
    kind, sign = _VERDICTS.get(word, ("even", "≈"))
    return (
        f'<section id="verdict" class="{kind}"><h2><span aria-hidden="true">{sign}</span> '
        f"The model {escape(backtest.verdict)}.</h2><p>{escape(_trust_in_bands(found))}</p>"
        f'<div class="tiles">{shown}</div><h3>What to do next</h3><ul>{steps}</ul></section>'
    )


def _scores(backtest: Backtest) -> str:
    text = (
        f"<p>All models over the same {number_of(backtest.scored, 'cell')}; "
        f"{number_of(backtest.unscored, 'cell')} without an actual or a forecast are in no score. "
        "★ is the best of its metric.</p>"
    )
    if not (isinstance(backtest, Leaderboard) and backtest.scored):
        return text + _score_table(backtest.scores)
    picture = charts.picture(
        backtest.plot(), f"{backtest.ranked_by} of all models, as in the table", narrow=True
    )
    ranked = {name: backtest.scores[name] for name in backtest.excess}
    every = _score_table(ranked, model_per_row=True)
    return (
        f"{picture}{_ranking(backtest)}{text}<details><summary>All metrics</summary>{every}</details>"
    )


def _ranking(board: Leaderboard) -> str:
    """The table of the console: a row per model, the best first."""
    band = f"coverage_{board.tallies[MODEL].band}"
    rows = []
    for name, (excess, *bounds) in board.excess.items():
        scores, more = board.scores[name], "–" if name == MODEL else percent(excess)
        if name != MODEL and not math.isnan(bounds[0]):
            more += f" <small>({' to '.join(map(percent, bounds))})</small>"
        cells = number(scores["WQL"]), more, number(scores["MASE"], 3), percent(scores[band])
        rows.append([escape(name), *cells, number(board.seconds.get(name, math.nan), 2)])
    head = ["model", "WQL", f"over {MODEL}", "MASE", _column(band), "seconds"]
    return f'<div class="narrow">{html_table(head, rows, f"Models by {board.ranked_by}")}</div>'


def _series(data: ReportData) -> str:
    ranking = data.ranking
    parts = [
        f"<p>{number_of(ranking.count, ranking.kind, ranking.kinds)} by MASE, each shown at its last scored "
        "cutoff.</p>",
        charts.window_figure(data),
    ]
    if len(ranking.skills) > len(ranking.best) + len(ranking.worst):
        rows = [
            [escape(one.name), number(one.mase, 3), number(one.wql, 3), percent(one.skill)]
            for one in ranking.listed
        ]
        parts += [
            f"<h3>Worst {len(ranking.listed)} of all {ranking.kinds}</h3>",
            html_table([ranking.kinds, "MASE", "WQL", "skill"], rows, f"Worst {ranking.kinds}"),
            charts.skill_figure(ranking),
        ]
    return "".join(parts)


def _calibration(data: ReportData) -> str:
    levels = data.backtest.forecasts[0].levels
    rows = []
    for low, inside in enumerate(data.inside):
        high = len(levels) - 1 - low
        if abs(levels[low] + levels[high] - 1) < 1e-9:
            nominal = levels[high] - levels[low]
            off = f"{100 * (inside - nominal):+.1f}".replace("-", "−")
            rows.append([percent(nominal, 0), percent(inside), off])
    table = html_table(["band", "holds", "off by, points"], rows, "Central bands")
    fitted = escape(calibration_line(data.context.artifact)) if data.context is not None else ""
    return (
        f"{table}<p><small>An actual on the edge of a band counts as inside. {fitted}</small></p>"
        f"{charts.calibration_figure(data)}"
    )


def _model(data: ReportData, context: ReportContext) -> str:
    artifact = context.artifact
    model, metrics = artifact.plan.model, artifact.metrics
    facts = {
        "network": f"width {model.width}, {model.heads} heads, {model.encoder_layers} + "
        f"{model.decoder_layers} layers, {model.decoder} decoder, head {model.head}",
        "context": f"{number_of(artifact.context_length, 'step')}, patches of {model.patch}",
        "trained until": data.backtest.panel.calendar.text(artifact.trained_until),
    }
    if line := network_line(artifact):
        facts["experts"] = line.removeprefix("experts: ")
    if line := attention_line(artifact):
        facts["weights of experts"] = line.removeprefix("weights of experts: ")
    parts = [_facts(facts)]
    if members := metrics.get("members"):
        rows = [
            [
                str(place),
                percent(one.get("weight", np.nan)),
                percent(one.get("network_weight", np.nan)),
                f"{one.get('best_step', 0):,} of {one.get('steps', 0):,}",
            ]
            for place, one in enumerate(members, start=1)
        ]
        head = ["member", "weight", "network weight", "best step"]
        parts.append(f"<h3>Ensemble members</h3>{html_table(head, rows, 'Ensemble')}")
    # The curves of further members have a path for a name, and look alike.
    every = metrics.get("curves", {})
    curves = {name: every[name] for name in ("train_loss", "validation_loss") if every.get(name)}
    if curves:
        parts.append(charts.picture(plot_curves(curves), "training and validation loss by step"))
    return "".join(parts)


def _findings(findings: Sequence[Finding]) -> str:
    if not findings:
        return "<p>The audit found nothing to report about the table.</p>"
    items = []
    for one in findings:
        first = f" First: {escape(one.first)}." if one.first else ""
        advice = f"<small>→ {escape(one.advice)}</small>" if one.advice else ""
        text = f"<code>{escape(one.rule)}</code> {escape(one.text)}.{first} {advice}"
        items.append(f"<li><b>{one.severity}</b> {text}</li>")
    return f'<ul class="findings">{"".join(items)}</ul>'


def _config(context: ReportContext) -> str:
    # As a config: the context of a plan is longer, for experts forecast from earlier cutoffs too.
    config = context.artifact.plan.as_config(TrackingConfig())
    settings = config.model_dump(mode="json", exclude={"tracking"})
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    return (
        "<p>All settings, with those chosen from the data filled in.</p>"
        f"<details><summary>The resolved config</summary><pre>{escape(text)}</pre></details>"
    )


def _environment(context: ReportContext) -> str:
    artifact = context.artifact
    return _facts(
        {
            "command": context.command,
            **({} if context.date is None else {"date": context.date}),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
            f"Python {platform.python_version()}",
            "versions": ", ".join(f"{name} {version}" for name, version in artifact.versions.items()),
            "table": f"fingerprint {context.fingerprint}",
            "trained on": f"{artifact.data}, fingerprint {artifact.fingerprint}",
        }
    )


def _facts(facts: Mapping[str, str]) -> str:
    return f"<dl>{''.join(f'<dt>{escape(k)}</dt><dd>{escape(v)}</dd>' for k, v in facts.items())}</dl>"


def _score_table(scores: Mapping[str, Mapping[str, float]], model_per_row: bool = False) -> str:
    """A row per metric and a column per model, or vice versa, the best marked; then the definitions."""
    names = list(dict.fromkeys(name for one in scores.values() for name in one))
    names = [name for name in names if not name.endswith(("_low", "_high"))]  # beside what they bound
    first = _FIRST_COLUMNS
    names.sort(key=lambda name: first.index(name) if name in first else len(first))
    rows = []
    for name in names:
        cells = [escape(_column(name))]
        best = _best(name, {model: one.get(name, np.nan) for model, one in scores.items()})
        for model, one in scores.items():
            text = score_text(name, one.get(name, np.nan))
            text = f'<b class="best">★ {text}</b>' if model in best else text
            low, high = (one.get(f"{name}_{end}", np.nan) for end in ("low", "high"))
            if low < high:
                text += f" <small>({score_text(name, low)} to {score_text(name, high)})</small>"
            cells.append(text)
        rows.append(cells)
    meanings = "".join(
        f"<dt>{escape(_column(name))}</dt><dd>{escape(text)}</dd>"
        for name in names
        if (text := describe(name))
    )
    head = ["metric", *scores]
    if model_per_row:
        head = ["model", *map(_column, names)]
        columns = zip(*(cells for _, *cells in rows), strict=True)
        rows = [[escape(model), *cells] for model, cells in zip(scores, columns, strict=True)]
    table = html_table(head, rows, "Scores by model")
    return f"{table}<details><summary>What the metrics mean</summary><dl>{meanings}</dl></details>"


def _column(name: str) -> str:
    kind, _, band = name.partition("_")
    band, *ties = band.split("_")
    shown = [kind, band, "%", *ties] if kind in ("coverage", "width") and band else name.split("_")
    return " ".join(shown)


def _best(name: str, values: Mapping[str, float]) -> set[str]:
    """The models with the best value; none where there is no better or worse."""
    kind, _, band = name.partition("_")
    known = {model: value for model, value in values.items() if math.isfinite(value)}
    if kind == "width" or len(known) < 2:
        return set()
    aim = float(band.split("_")[0]) / 100 if kind == "coverage" else 0.0
    loss = {model: -value if kind == "skill" else abs(value - aim) for model, value in known.items()}
    return {model for model, value in loss.items() if value == min(loss.values())}
