"""A classifier on a table with classes: scores beside its parts and the majority class, tracked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from forecaster.config import TrackingConfig
from forecaster.errors import ConfigError, DataError
from forecaster.evaluation.class_backtest import ClassBacktest
from forecaster.evaluation.class_scores import KERNELS, MAJORITY, NETWORK
from forecaster.evaluation.comparison import MODEL
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.classification import ClassPredictor, series_hashes, words_of
from forecaster.model.class_network import ClassEnsemble
from forecaster.panel.arrays import Bools, Ints
from forecaster.panel.audit import audit_panel
from forecaster.panel.findings import Finding, worst_first
from forecaster.panel.panel import Panel
from forecaster.runs.console import Screen
from forecaster.runs.tracking import log_scores, open_run


def backtest_classes(
    artifact: Artifact[ClassEnsemble], panel: Panel, tracking: TrackingConfig, name: str | None
) -> ClassBacktest:
    """Returns the scores of a model on the series of a table that the fit has not seen.

    See `Classifier.backtest`.

    Args:
        panel: opened with the schema of the artifact, classes too.
    """
    findings, label, classes = audit_panel(panel), panel.schema.label or "", artifact.classes
    seen = seen_in_fit(artifact, panel)
    if seen.any():
        findings.append(_left_out(panel, seen))
        panel = panel.some(np.flatnonzero(~seen))
    code = true_codes(panel, artifact.ensemble.per_step)
    if (code < 0).all():
        raise DataError(f"{panel.name}: expected classes in column '{label}', found none")
    mine, network, kernels = ClassPredictor(artifact).predict_by_parts(panel)
    share = artifact.ensemble.class_share.double().numpy()
    always = replace(mine, probabilities=np.where(mine.known[:, None], share, np.nan))
    classifications = {MODEL: mine, NETWORK: network, KERNELS: kernels, MAJORITY: always}
    words = panel.schema.categories[label]
    actual = words_of(words, np.where(code > 0, code - 1, -1), mine.dtype)
    unmet, found = words[len(classes) :], tuple(worst_first(findings))
    backtest = ClassBacktest(classifications, actual, code, unmet, found)
    with open_run(tracking, name or f"backtest {Path(panel.name).stem}", kind="backtest") as run:
        if run.recorded:
            log_scores(run, artifact, backtest, backtest.verdict)
            picture = {"backtest.png": lambda: run.log_figure(backtest.plot(), "backtest.png")}
            Screen(stderr=True).draw(picture, "the scores are complete")
    return backtest


def seen_in_fit(artifact: Artifact[ClassEnsemble], panel: Panel) -> Bools:
    """Returns [N] whether the fit has seen a series: by its values, or by its key at the same times."""
    assert artifact.series_hashes is not None
    fitted = artifact.series_hashes.tolist()
    values = {value for _, value, _, _ in fitted}
    times = {key: (begin, end) for key, _, begin, end in fitted}
    seen = panel.last_observed >= 0
    for number, (key, value, first, last) in enumerate(series_hashes(panel).tolist()):
        same_values = value in values
        same_times = key in times and times[key][0] <= last and first <= times[key][1]
        seen[number] &= same_values or same_times
    return seen


def _left_out(panel: Panel, seen: Bools) -> Finding:
    """Returns the warning on series of the fit.

    Raises:
        ConfigError: there are no others.
    """
    count, first = int(seen.sum()), panel.series_names[int(seen.argmax())]
    if count == panel.n_series:
        raise ConfigError(
            f"{panel.name}: expected series that the fit has not seen, found {count:,} with the key and the "
            f"times, or the values, of one of its series (the first: {first}); give other series, or other "
            "keys where the names alone are the same (the scores of the fit are of held-out series)"
        )
    text = (
        f"{count:,} of {panel.n_series:,} series are left out: they have the key and the times, or the "
        "values, of a series of the fit"
    )
    advice = "nothing to do; where the names alone are the same, give these series other keys"
    return Finding("warning", "in-sample", text, advice, first, "", count)


def true_codes(panel: Panel, per_step: bool) -> Ints:
    """Returns the class of each series or step, from 1, those that the model has not learned last; −1 = none.

    Raises:
        DataError: a series has two classes where a model has one for each.
    """
    code = panel.codes[:, -1].astype(np.int64)
    if per_step:
        return code
    owner, own = np.unique(np.stack([panel.owner, code])[:, code >= 0], axis=1)
    if len(bad := np.flatnonzero(np.bincount(owner) > 1)):
        raise DataError(
            f"{panel.name}: label '{panel.schema.label}' changes within {len(bad):,} of "
            f"{panel.n_series:,} series (first: {panel.series_names[bad[0]]}); the model learned one class per "
            "series"
        )
    found = np.full(panel.n_series, -1)
    found[owner] = own
    return found
