"""A `Backtest` as one page: no network, no script, light and dark, on a phone and on paper.

What comes in: a `Backtest`, with its `Origin` where it is known. What goes out: HTML text. Promised:
all text that comes from a user is escaped; every number is that of the backtest; the page stays small
whatever the number of series.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import yaml

from forecaster.evaluation.report import pictures, tables
from forecaster.evaluation.report.chart import Look, key
from forecaster.evaluation.report.evidence import Evidence, evidence
from forecaster.evaluation.report.numbers import counted, number, percent
from forecaster.evaluation.report.origin import Origin
from forecaster.evaluation.report.ranking import Ranking, ranking
from forecaster.evaluation.report.style import STYLE
from forecaster.evaluation.report.words import Verdict, coverage_of, verdict
from forecaster.evaluation.rivals import MODEL, NAIVE
from forecaster.forecast import svg
from forecaster.forecast.artifact import calibration_line
from forecaster.forecast.writer import html_page
from forecaster.panel.table import listing

if TYPE_CHECKING:
    from forecaster.evaluation.backtest import Backtest

_BAND = Look("var(--blue)", mark="band")
_SIGNS = {"beats": "✓", "loses to": "✗", "matches": "=", "may match": "≈"}


def page_of(backtest: Backtest) -> str:
    """Returns the page."""
    found = evidence(backtest)
    ranked = ranking(found)
    origin = backtest.origin
    said = verdict(found, ranked, origin)
    sections = {
        "scores": ("Scores", _scores(found)),
        "series": ("Best and worst", _series(found, ranked)),
        "leads": ("By lead", _leads(found)),
        "calibration": ("Calibration", _calibration(found, origin)),
        "residuals": ("Residuals", _residuals(found)),
    }
    if origin is not None:
        sections |= {
            "model": ("Model", _model(found, origin)),
            "audit": ("Audit", tables.findings(origin.findings)),
            "config": ("Config", _config(origin)),
            "environment": ("Environment", _environment(origin)),
        }
    links = "".join(f'<a href="#{name}">{title}</a>' for name, (title, _) in sections.items())
    title, about = _title(found, origin)
    body = [
        f"{svg.HATCH}<header><h1>{escape(title)}</h1><p>{escape(about)}</p></header>",
        _verdict(found, said),
        f'<nav aria-label="Sections">{links}</nav><main>',
        *(
            f'<section id="{name}"><h2>{title}</h2>{content}</section>'
            for name, (title, content) in sections.items()
        ),
        "</main>",
    ]
    return html_page(title, "".join(body), STYLE)


def _title(found: Evidence, origin: Origin | None) -> tuple[str, str]:
    forecast = found.forecasts[0]
    panel, text = forecast.panel, forecast.panel.calendar.text
    horizon = forecast.time.shape[1]
    fit = origin is not None and origin.validation
    about = [
        listing(panel.schema.target),
        counted(panel.n_series, "series", "series"),
        f"{counted(horizon, 'step')} of {panel.schema.freq} ahead",
    ]
    if len(found.cutoffs):
        first, last = text(int(found.cutoffs[0])), text(int(found.cutoffs[-1]))
        about.append(f"{counted(len(found.cutoffs), 'cutoff')}, {first} to {last}")
    name = Path(panel.name).name if panel.kind == "file" else panel.name
    return f"{'Validation' if fit else 'Backtest'}: {name}", " · ".join(about)


def _verdict(found: Evidence, said: Verdict) -> str:
    backtest = found.backtest
    mine, naive = backtest.scores[MODEL], backtest.scores[NAIVE]
    aim, held = coverage_of(found)
    cells = backtest.scored + backtest.unscored
    bounds = f"95 % interval {percent(mine['skill_low'])} to {percent(mine['skill_high'])}"
    sure = bounds if np.isfinite(mine["skill_low"]) else "too few windows for an interval"
    tiles = [
        ("skill against seasonal naive", percent(mine["skill"]), sure),
        ("MASE", number(mine["MASE"], 3), f"seasonal naive {number(naive['MASE'], 3)}"),
        (f"{percent(aim, 0)} band holds", percent(held), f"should be {percent(aim, 0)}"),
        ("cells scored", f"{backtest.scored:,}", f"of {cells:,}; {backtest.unscored:,} unscored"),
    ]
    drawn = "".join(
        f"<div><span>{escape(name)}</span><strong>{escape(value)}</strong><small>{escape(note)}</small></div>"
        for name, value, note in tiles
    )
    todo = "".join(f"<li>{escape(line)}</li>" for line in said.todo)
    kind = {"beats": "good", "loses to": "bad"}.get(said.word, "even")
    return (
        f'<section id="verdict" class="{kind}"><h2><span class="sign" aria-hidden="true">'
        f"{_SIGNS.get(said.word, '?')}</span> {escape(said.headline)}</h2><p>{escape(said.bands)}</p>"
        f'<div class="tiles">{drawn}</div><h3>What to do next</h3><ul>{todo}</ul></section>'
    )


def _scores(found: Evidence) -> str:
    backtest = found.backtest
    return (
        f"<p>All models over the same {counted(backtest.scored, 'cell')}; "
        f"{counted(backtest.unscored, 'cell')} without a truth or a forecast are in no score. "
        "★ is the best of its column.</p>"
        f"{tables.scores(backtest.scores)}{tables.meanings(backtest.scores)}"
    )


def _series(found: Evidence, ranked: Ranking) -> str:
    if not ranked.best:
        return '<p class="none">No cell was scored, so there is nothing to rank.</p>'
    what = ranked.kinds
    share = round(100 * coverage_of(found)[0])
    looks = [pictures.TRUTH, pictures.MEDIAN, _BAND]
    best = "".join(pictures.window(found, one, f"best {n}") for n, one in enumerate(ranked.best, 1))
    parts = [
        f"<p>{counted(ranked.count, ranked.kind, what)} by MASE, "
        f"each shown at its last scored cutoff.</p>",
        key(["truth", "median forecast", f"{share} % band"], looks),
        f'<h3>Best</h3><div class="grid">{best}</div>',
    ]
    if ranked.worst:
        worst = "".join(
            pictures.window(found, one, f"worst {n}") for n, one in enumerate(ranked.worst, 1)
        )
        parts.append(f'<h3>Worst</h3><div class="grid">{worst}</div>')
    if len(ranked.skills) > len(ranked.best) + len(ranked.worst):
        listed = tables.worst(ranked.listed, what)
        parts.append(
            f'<h3>All {what}</h3><div class="grid two">{pictures.skills(ranked)}'
            f"<div><h3>Worst {len(ranked.listed)}</h3>{listed}</div></div>"
        )
    return "".join(parts)


def _models(found: Evidence) -> str:
    names = list(found.tallies)
    return key(names, [pictures.look_of(name, names) for name in names])


def _leads(found: Evidence) -> str:
    aim, _ = coverage_of(found)
    name = f"coverage_{round(100 * aim)}"
    drawn = [
        pictures.by_lead(
            found, "MASE", "Error by lead", "Mean absolute error of the median, in scales."
        ),
        pictures.by_lead(found, "WQL", "Quantile loss by lead", "How good all quantiles are."),
        pictures.by_lead(
            found,
            name,
            "Coverage by lead",
            f"The {percent(aim, 0)} band should follow the dashed line.",
        ),
    ]
    return f'{_models(found)}<div class="grid">{"".join(drawn)}</div>'


def _calibration(found: Evidence, origin: Origin | None) -> str:
    learned = calibration_line(origin.artifact) if origin is not None else ""
    drawn = f"{pictures.calibration(found)}{pictures.ranks(found)}"
    return (
        f'<div class="grid">{drawn}<div><h3>Central bands</h3>{tables.bands(found)}'
        f"<p><small>A band holds a truth on its edge. {escape(learned)}</small></p></div></div>"
    )


def _residuals(found: Evidence) -> str:
    drawn = [
        pictures.by_cutoff(found),
        pictures.errors(found),
        pictures.bias(found),
        pictures.autocorrelation(found),
    ]
    return (
        "<p>Errors in scales: divided by the mean error of seasonal naive on the history of their "
        f'series.</p>{_models(found)}<div class="grid two">{"".join(drawn)}</div>'
    )


def _model(found: Evidence, origin: Origin) -> str:
    artifact = origin.artifact
    model, metrics = artifact.config.model, artifact.metrics
    facts = {
        "network": f"width {model.width}, {model.heads} heads, {model.encoder_layers} + "
        f"{model.decoder_layers} layers, {model.decoder} decoder, head {model.head}",
        "context": f"{counted(artifact.context_length, 'step')}, patches of {model.patch}",
        "trained until": found.forecasts[0].panel.calendar.text(artifact.trained_until),
    }
    drawn = [f"<div>{tables.facts(facts)}</div>"]
    if members := metrics.get("members"):
        drawn.append(f"<div><h3>Members</h3>{tables.members(members)}</div>")
    # Further members' curves have a path for a name, and look alike.
    every = metrics.get("curves", {})
    curves = {name: every[name] for name in ("train_loss", "validation_loss") if name in every}
    if curves:
        drawn.append(pictures.training(curves))
    return f'<div class="grid">{"".join(drawn)}</div>'


def _config(origin: Origin) -> str:
    text = yaml.safe_dump(
        origin.artifact.config.model_dump(mode="json"), sort_keys=False, allow_unicode=True
    )
    return (
        "<p>All settings, with what was left to the data filled in: saved as config.yaml, they fit "
        "this model again.</p><details><summary>The resolved config</summary>"
        f"<pre>{escape(text)}</pre></details>"
    )


def _environment(origin: Origin) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in origin.artifact.versions.items())
    date = {} if origin.date is None else {"date": origin.date}
    return tables.facts(
        {
            "command": origin.command,
            **date,
            "machine": origin.machine,
            "versions": versions,
            "table": f"fingerprint {origin.fingerprint}",
            "trained on": f"{origin.artifact.data}, fingerprint {origin.artifact.fingerprint}",
        }
    )
