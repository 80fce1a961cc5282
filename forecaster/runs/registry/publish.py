"""A saved model becomes a version in MLflow's registry, and the champion where it is the best.

What comes in: the folder of a model and a name. What goes out: the number of its version, and one
sentence on the champion. Promised: a model that is there already is not registered twice; the alias
moves only after a win that can be shown; a version is there whole or not at all.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forecaster.config import TrackingConfig
from forecaster.errors import ArtifactError, ConfigError
from forecaster.forecast.artifact import Artifact, load_artifact
from forecaster.runs.registry.challenge import Verdict, challenge
from forecaster.runs.registry.fetch import CHAMPION, fetch_version, open_registry
from forecaster.runs.registry.package import CARD, data_files, write_package
from forecaster.runs.tracking.store import experiment_id, first_line
from forecaster.runs.transfer import ancestry

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient


@dataclass(frozen=True)
class Published:
    """A model under a name."""

    name: str
    """Of the registered model."""
    version: int
    """Its number."""
    is_champion: bool
    """Whether the alias `champion` points at it."""
    sentence: str
    """What became of the champion, and why."""

    @property
    def address(self) -> str:
        """What `load`, `forecaster predict` and `mlflow models serve` take."""
        return f"models:/{self.name}{f'@{CHAMPION}' if self.is_champion else f'/{self.version}'}"


def publish(
    folder: Path,
    name: str,
    tracking: TrackingConfig,
    data: object | None = None,
    run_id: str | None = None,
) -> Published:
    """Registers a saved model under a name and compares it with the champion.

    Args:
        folder: written by a fit.
        name: of the registered model, made if it is not there.
        tracking: where the store is.
        data: a table with rows after everything that both models have seen, to score them on where
            their own validation cannot be compared.
        run_id: the run that the model came from.

    Raises:
        ArtifactError: the folder holds no model.
        ConfigError: the store cannot be reached, or refuses the name.
        DataError: the table cannot be understood.
    """
    artifact = load_artifact(folder)
    _check_name(name)
    uri, client = open_registry(tracking, create=True)
    with _said_in_one_line(uri):
        version = _registered(client, folder, name, _digest(folder))
        if version is None:
            experiment = experiment_id(client, tracking.experiment, uri)
            version = _register(client, artifact, folder, name, experiment, run_id)
        champion = _champion(client, name)
        if champion == version:
            return Published(name, version, True, f"{name} version {version} is the champion already")
        verdict = _verdict(client, uri, artifact, name, champion, data)
        if verdict.wins:
            client.set_registered_model_alias(name, CHAMPION, str(version))
            became = f"{name} version {version} is the champion"
        else:
            became = f"{name} version {version} is registered, version {champion} stays the champion"
        return Published(name, version, verdict.wins, f"{became}: {verdict.reason}")


def _check_name(name: str) -> None:
    if not name.strip() or set(name) & set("/:@"):
        raise ConfigError(f"--mlflow {name!r}: expected a name without / : and @, as sales")


@contextmanager
def _said_in_one_line(uri: str) -> Iterator[None]:
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException as error:
        raise ConfigError(f"MLflow store {uri}: {first_line(error)}") from error


def _digest(folder: Path) -> str:
    """Returns what tells one model from another."""
    digest = hashlib.sha256()
    for file in data_files(folder):
        digest.update(file.encode() + b"\0" + (folder / file).read_bytes())
    return digest.hexdigest()


def _registered(client: MlflowClient, folder: Path, name: str, digest: str) -> int | None:
    """Returns the version of this very model under a name, if there is one."""
    found = client.search_model_versions(f"name = '{name}' and tags.digest = '{digest}'")
    return max((int(version.version) for version in found), default=None)


def _register(
    client: MlflowClient,
    artifact: Artifact,
    folder: Path,
    name: str,
    experiment: str,
    run_id: str | None,
) -> int:
    from mlflow.exceptions import MlflowException

    tags, card = _tags(artifact, _digest(folder)), folder / CARD
    made = client.create_logged_model(experiment, source_run_id=run_id, tags=tags)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            package = write_package(artifact, folder, Path(scratch) / "package", made.model_id)
            client.log_model_artifacts(made.model_id, str(package))
        except BaseException:
            client.finalize_logged_model(made.model_id, "FAILED")
            raise
    client.finalize_logged_model(made.model_id, "READY")
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    # A store that is opened here, not behind a server, looks models up where the environment says.
    served = client.tracking_uri.startswith("http")
    version = client.create_model_version(
        name,
        source=f"models:/{made.model_id}" if served else made.artifact_location,
        run_id=run_id,
        tags=tags,
        description=card.read_text(encoding="utf-8") if card.exists() else None,
        model_id=made.model_id if served or run_id else None,
    )
    return int(version.version)


def _tags(artifact: Artifact, digest: str) -> dict[str, str]:
    """Returns what a list of versions shows of a model."""
    told: dict[str, Any] = {
        "digest": digest,
        "fingerprint": artifact.fingerprint,
        "data": artifact.data,
        "target": ", ".join(artifact.schema.target),
        "trained_until": ancestry(artifact)["until"],
        "horizon": artifact.horizon,
        "freq": artifact.schema.freq,
    }
    for model, scores in artifact.metrics.get("validation", {}).get("scores", {}).items():
        for metric, value in scores.items():
            told[f"validation.{model}.{metric}".replace(" ", "_")] = f"{value:.6g}"
    return {key: str(value)[:500] for key, value in told.items()}


def _champion(client: MlflowClient, name: str) -> int | None:
    version = client.get_registered_model(name).aliases.get(CHAMPION)
    return None if version is None else int(version)


def _verdict(
    client: MlflowClient,
    uri: str,
    artifact: Artifact,
    name: str,
    champion: int | None,
    data: object | None,
) -> Verdict:
    if champion is None:
        return Verdict(True, "there was none")
    try:
        with tempfile.TemporaryDirectory() as scratch:
            there = fetch_version(client, uri, name, champion, Path(scratch))
            rival = load_artifact(there)
    except ArtifactError as error:
        reason = f"it is no model that this version can read ({error}); set the alias by hand"
        return Verdict(False, reason)
    return challenge(artifact, rival, data)
