"""What a fit leaves behind, recorded: config, dataset, versions, scores, files.

What comes in: an artifact, or scores by model. What goes out: parameters, tags, points and files of
a run.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path

from forecaster.forecast.artifact import Artifact
from forecaster.runs.tracking.entries import Point
from forecaster.runs.tracking.run import TrackedRun

MODEL = "forecaster.model"
"""Tag that holds the digest of the weights whose files a run has."""


def log_artifact(run: TrackedRun, artifact: Artifact, folder: Path | None) -> None:
    """Records everything a finished fit left behind, curves apart.

    Args:
        run: an open run.
        artifact: as saved.
        folder: where it was saved; None = its files are not recorded.
    """
    run.log_params(artifact.plan.model_dump(mode="json", exclude={"tracking"}))
    run.log_dataset(artifact.data, artifact.fingerprint, artifact.schema, "training")
    commit = artifact.versions.get("git_commit")
    tags = {f"version.{name}": version for name, version in artifact.versions.items()}
    tags["fingerprint"] = artifact.fingerprint
    if artifact.parent is not None:
        tags["parent.fingerprint"] = artifact.parent["fingerprint"]
        tags["parent.until"] = artifact.parent["until"]
    if commit:
        tags["mlflow.source.git.commit"] = tags.pop("version.git_commit")
    run.log_tags(tags)
    scores = artifact.metrics.get("validation", {}).get("scores", {})
    run.log_metrics(score_points(scores, "validation"))
    if folder is not None:
        run.log_tags({MODEL: model_digest(artifact)})
        run.log_folder(folder, "model")


def model_digest(artifact: Artifact) -> str:
    """Returns a digest of all weights: equal for a model and its copies only."""
    digest = hashlib.sha256()
    for member in artifact.ensemble.members:
        for name, weight in sorted(member.state_dict().items()):
            digest.update(name.encode() + weight.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()[:32]


def score_points(scores: Mapping[str, Mapping[str, float]], stage: str) -> list[Point]:
    """Returns scores by model as metric points: "validation/forecaster/WQL"."""
    now = int(time.time() * 1000)
    return [
        (f"{stage}/{model.replace(' ', '_')}/{name}", value, now, 0)
        for model, mine in scores.items()
        for name, value in mine.items()
    ]


def curve_points(artifact: Artifact) -> list[Point]:
    """Returns the loss curves that an artifact keeps, for a run that is logged after the fact."""
    now = int(time.time() * 1000)
    curves = artifact.metrics.get("curves", {})
    return [(name, value, now, step) for name, curve in curves.items() for step, value in curve]
