"""A saved model whose fit was not recorded, recorded after the fact: `forecaster runs log`.

What comes in: an artifact's folder. What goes out: a run in a store. Promised: a model that has a run
already gets no second one unless that is asked for; a store that is away is said to be.
"""

from __future__ import annotations

from pathlib import Path

from forecaster.config import TrackingConfig
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import load_artifact
from forecaster.runs.tracking.content import MODEL, curve_points, log_artifact, model_digest
from forecaster.runs.tracking.run import open_run
from forecaster.runs.tracking.spool import spool_folder, waiting
from forecaster.runs.tracking.store import client_class, first_line, probe, tracking_uri


def log_saved(folder: Path, config: TrackingConfig, again: bool = False) -> str:
    """Records a saved artifact as a run; returns the store's address.

    Args:
        folder: the artifact.
        config: says where.
        again: also where the model has a run already.

    Raises:
        ArtifactError: there is no model.
        ConfigError: the model has a run already, the store cannot be reached, or was lost half-way.
    """
    artifact = load_artifact(folder)
    if not again:
        _refuse_known(folder, model_digest(artifact), config)
    with open_run(config, folder.resolve().name) as run:
        run.log_metrics(curve_points(artifact))
        log_artifact(run, artifact, folder)
    if run.lost:
        rest = f"nor kept: {run.dropped}" if run.dropped else f"kept in {spool_folder().name}"
        raise ConfigError(
            f"MLflow store {run.uri}: {run.lost}; the run was not logged whole, the rest is {rest}, "
            "send it with: forecaster runs sync"
        )
    return run.uri


def _refuse_known(folder: Path, digest: str, config: TrackingConfig) -> None:
    uri = tracking_uri(config)
    for run in waiting(spool_folder()):
        if any(entry.get("tags", {}).get(MODEL) == digest for entry in run.entries()):
            raise ConfigError(
                f"{folder}: its run waits in {run.folder.parent.name} already, send it with: "
                "forecaster runs sync (--again records it once more)"
            )
    away = probe(uri)
    try:
        if away:
            raise ConnectionError(away)
        client = client_class()(tracking_uri=uri)
        experiment = client.get_experiment_by_name(config.experiment)
        if experiment is None:
            return
        wanted = f"tags.`{MODEL}` = '{digest}'"
        found = client.search_runs([experiment.experiment_id], wanted, max_results=1)
    except Exception as error:  # MLflow's own errors are of many kinds
        raise ConfigError(f"MLflow store {uri}: {first_line(error)}; nothing was logged") from error
    if found:
        info = found[0].info
        raise ConfigError(
            f"{folder}: recorded already as run {info.run_id[:8]} ({info.run_name}) in experiment "
            f"{config.experiment}; --again records it once more"
        )
