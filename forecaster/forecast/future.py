"""The check of a table and of its future: what is refused, and what is found, before it is forecast."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forecaster.errors import DataError, number_of
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.runner import blocks_of
from forecaster.forecast.window import ForecastWindow, locate_leads, unknown_cells
from forecaster.panel.audit import check_panel
from forecaster.panel.findings import Finding, listing, refuse_errors, worst_first
from forecaster.panel.panel import NO_TIME, Only, Panel
from forecaster.windows.cleaning import outliers_found


def audited(
    panel: Panel, artifact: Artifact, window: ForecastWindow, only: Only = None
) -> tuple[Panel, list[Finding]]:
    """Returns the panel of the series to forecast, and findings; one where the model has seen what is forecast.

    Raises:
        DataError: the audit finds errors, there is no such series, or a covariate known in advance is missing
            after the cutoff.
    """
    panel, findings = _with_new_series(panel, artifact, window, only)
    findings += check_panel(panel, target=artifact.plan.target)
    if artifact.ensemble.forecasts_cold and panel.schema.time is not None:
        findings = [
            replace(finding, severity="warning") if finding.rule == "unobserved" else finding
            for finding in findings
        ]
    refuse_errors(findings)
    findings += _check_known(panel, artifact, window)
    own = window.cutoffs(panel)
    end = np.where(own == NO_TIME, panel.indptr[1:], panel.rows_until(own))
    pool = artifact.plan.model.pool
    findings += outliers_found(panel, end, pool.seasons[0], artifact.effects, pool.history_length)
    # Without times rows are numbered from the end of each table: nothing can be compared.
    cutoff, seen, text = window.cutoff, artifact.trained_until, panel.calendar.text
    if cutoff is not None and cutoff < seen and panel.schema.time is not None:
        line = f"the model was trained until {text(seen)}: it has seen what follows {text(cutoff)}"
        advice = "score it with forecaster backtest, which fits again on the rows before"
        findings.append(Finding("warning", "in-sample", line, advice, where=text(cutoff)))
    return panel, worst_first(findings)


def _with_new_series(
    panel: Panel, artifact: Artifact, window: ForecastWindow, only: Only
) -> tuple[Panel, list[Finding]]:
    """Returns the panel of the series to forecast, and a warning on new ones that cannot begin.

    A series that only the future table has needs every known covariate over the horizon: the name may be
    a typing error, whose few rows are no series.

    Raises:
        DataError: there is no such series, or it cannot begin.
    """
    new = np.arange(panel.n_series - panel.n_new, panel.n_series)
    if not len(new):
        return panel.only(only), []
    begun = locate_leads(panel.some(new), artifact, window).cold
    names = [panel.series_names[number] for number in new[~begun]]
    if not names:
        return panel.only(only), []
    text = f"{len(names):,} of {len(new):,} new series cannot be forecast, and are left out: {listing(names, 5)}"
    advice = f"give every known covariate of the {window.horizon} steps after the table's last target"
    if not artifact.ensemble.forecasts_cold:
        advice = "there is no level for new series: it takes five series or more, and experts"
    finding = Finding("warning", "keys", text, advice, names[0], count=len(names))
    if only is not None and {*panel.numbers(only)} & {*new[~begun]}:
        raise DataError(f"{text}; {advice}", [finding])
    return panel.some(np.append(np.arange(new[0]), new[begun])).only(only), [finding]


def _check_known(panel: Panel, artifact: Artifact, window: ForecastWindow) -> list[Finding]:
    """Refuses a future whose known covariates are not all given, where there is a forecast.

    Returns findings: of each covariate that is filled, and where the horizon patch in which the forecast ends
    reads steps that are not given.

    Raises:
        DataError: names the first that is missing, and how many series lack some.
    """
    schema, model = panel.schema, artifact.plan.model
    names = (*schema.known_numeric, *schema.known_category)
    first_missing: dict[str, str] = {}
    lacking = np.zeros(len(names), np.int64)  # series that lack some value up to the horizon
    filled = np.zeros(len(names), np.int64)  # cells up to the horizon
    extended = np.zeros(len(names), np.bool_)  # columns whose last value stands for steps after it
    patch, horizon = model.decoder_patch, window.horizon
    read = artifact.horizon if model.decoder_mask == "full" else -(-horizon // patch) * patch
    for part in blocks_of(panel) if names else ():
        leads = locate_leads(part, artifact, window)
        chosen = leads.chosen
        empty = unknown_cells(leads.panel, leads.rows[chosen, :read])  # [series, H, known]
        extended |= empty[:, horizon:].any(axis=(0, 1))
        empty = empty[:, :horizon]
        if window.fill is not None:
            bare = locate_leads(part, artifact, replace(window, fill=None)).panel
            filled += (unknown_cells(bare, leads.rows[chosen, :horizon]) & ~empty).sum(axis=(0, 1))
        lacking += empty.any(axis=1).sum(axis=0)
        for column in np.flatnonzero(empty.any(axis=(0, 1))):
            row, lead = np.argwhere(empty[..., column])[0]
            series = chosen[row]
            time = panel.calendar.text(int(leads.time[series, lead]))
            where = f"series {part.series_names[series]} at {time} (lead {lead + 1}"
            first_missing.setdefault(names[column], where)
    for name in schema.known:
        if name in first_missing:
            raise DataError(
                f"{panel.name}: '{name}' is known in advance, but has no value for {first_missing[name]} "
                f"of {horizon}); {lacking[names.index(name)]} of {panel.n_series} series lack some: give "
                "them with --future FILE, let predict fill them (--fill-known), or shorten --horizon"
            )
    findings = [
        Finding(
            "warning",
            "filled",
            f"'{name}': {number_of(int(count), 'step')} without a value are filled ({window.fill})",
            "the forecast holds only if they come true: give them with --future FILE",
            count=int(count),
        )
        for name, count in zip(names, filled, strict=True)
        if count
    ]
    if not extended.any():
        return findings
    text = (
        f"--horizon {horizon} needs known covariates for {read} steps (a whole patch); some are missing"
    )
    advice = "the values at the last lead are repeated: give all steps with --future FILE"
    where = listing([name for name, is_extended in zip(names, extended, strict=True) if is_extended])
    held = Finding("warning", "held", text, advice, where=where, count=int(extended.sum()))
    return [*findings, held]
