"""A model of labels on a table with labels: scores beside its parts and the majority class, tracked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from forecaster.config import TrackingConfig
from forecaster.errors import ConfigError, DataError
from forecaster.evaluation.comparison import MODEL
from forecaster.evaluation.label_backtest import LabelBacktest
from forecaster.evaluation.label_scores import KERNELS, MAJORITY, NETWORK
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.labelling import Labeller, words_of
from forecaster.model.label_network import LabelEnsemble
from forecaster.panel.audit import audit_panel
from forecaster.panel.panel import Panel
from forecaster.runs.tracking import NOTE, open_run, score_points
from forecaster.windows.index import Int64


def backtest_labels(
    artifact: Artifact[LabelEnsemble], panel: Panel, tracking: TrackingConfig, name: str | None
) -> LabelBacktest:
    """Returns the scores of a model on a table; see `Classifier.backtest`.

    Args:
        panel: opened with the schema of the artifact, labels too.
    """
    if panel.fingerprint() == artifact.fingerprint:
        raise ConfigError(
            f"{panel.name}: the model was fitted to this table: it would be scored on what it has seen; "
            "give one of other series (the scores of the fit are of held-out series)"
        )
    audit_panel(panel)
    label, words = artifact.schema.label or "", artifact.classes
    code = true_codes(panel, artifact.ensemble.per_step)
    if (code < 0).all():
        raise DataError(f"{panel.name}: expected labels in column '{label}', found none")
    mine, network, kernels = Labeller(artifact).label_by_parts(panel)
    share = artifact.ensemble.class_share.double().numpy()
    always = replace(mine, probabilities=np.where(mine.known[:, None], share, np.nan))
    labellings = {MODEL: mine, NETWORK: network, KERNELS: kernels, MAJORITY: always}
    unmet = panel.unmet.get(label, ())
    place = np.where(code > 0, code - 1, np.where(code == 0, len(words), -1))
    actual = words_of((*words, unmet[0] if len(unmet) == 1 else "other"), place, mine.dtype)
    backtest = LabelBacktest(labellings, actual, code, tuple(unmet))
    with open_run(tracking, name or f"backtest {Path(panel.name).stem}", kind="backtest") as run:
        if run.recorded:
            run.log_params(artifact.plan.model_dump(mode="json"))
            run.log_dataset(panel.name, panel.fingerprint(), panel.schema, "evaluation")
            run.log_metrics(score_points(backtest.scores, "backtest"))
            run.log_tags({NOTE: backtest.verdict})
            run.log_figure(backtest.plot(), "backtest.png")
    return backtest


def true_codes(panel: Panel, per_step: bool) -> Int64:
    """Returns the class of each series or step, from 1: 0 = one the model has not learned, −1 = none.

    Raises:
        DataError: a series has two labels where a model has one for each.
    """
    code = panel.codes[:, -1].astype(np.int64)
    if per_step:
        return code
    owner, own = np.unique(np.stack([panel.owner, code])[:, code >= 0], axis=1)
    if len(bad := np.flatnonzero(np.bincount(owner) > 1)):
        raise DataError(
            f"{panel.name}: label '{panel.schema.label}' changes within {len(bad):,} of "
            f"{panel.n_series:,} series (first: {panel.labels[bad[0]]}); the model learned one label per "
            "series"
        )
    found = np.full(panel.n_series, -1)
    found[owner] = own
    return found
