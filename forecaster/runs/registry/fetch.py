"""`models:/NAME@champion`: a version in MLflow's registry, fetched as data alone.

What comes in: an address — models:/NAME@ALIAS, models:/NAME/VERSION or models:/NAME/latest. What goes
out: the model. Promised: of all that a version may hold only the files of a saved model are fetched,
by names this file knows; what else is there — code, pickles, environments — is never read.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from forecaster.config import TrackingConfig
from forecaster.errors import ArtifactError, ConfigError
from forecaster.forecast.artifact import Artifact, load_artifact
from forecaster.runs.registry.package import INSIDE, data_files
from forecaster.runs.tracking.store import client_class, first_line, probe, tracking_uri

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

CHAMPION = "champion"
SCHEME = "models:/"


class Address(NamedTuple):
    """Which version of which model."""

    name: str
    alias: str | None
    version: str | None
    """A number or "latest"; None where an alias says which."""


def is_address(path: object) -> bool:
    """Returns whether something names a registered model rather than a folder."""
    return str(path).startswith(SCHEME)


def load_registered(address: str, tracking: TrackingConfig) -> Artifact:
    """Returns the model at an address; runs no code from there.

    Args:
        address: models:/NAME@ALIAS, models:/NAME/VERSION or models:/NAME/latest.
        tracking: where the store is.

    Raises:
        ConfigError: the store cannot be reached, or knows no such model, alias or version.
        ArtifactError: the version holds no saved model, or a damaged one.
    """
    wanted = parse_address(address)
    uri, client = open_registry(tracking)
    from mlflow.exceptions import MlflowException

    try:
        version = _find(client, uri, wanted)
    except MlflowException as error:
        raise ConfigError(f"{address}: MLflow store {uri}: {first_line(error)}") from error
    with tempfile.TemporaryDirectory() as scratch:
        folder = fetch_version(client, uri, wanted.name, version, Path(scratch))
        try:
            return load_artifact(folder)
        except ArtifactError as error:
            raise ArtifactError(str(error).replace(str(folder), address)) from error


def parse_address(address: str) -> Address:
    """Returns the parts of an address.

    Raises:
        ConfigError: it is none.
    """
    found = re.fullmatch(r"models:/+([^/:@]+)(?:@([^/:@]+)|/(\d+|latest))", address)
    if found is None:
        raise ConfigError(
            f"{address}: expected {SCHEME}NAME@{CHAMPION}, {SCHEME}NAME/VERSION or {SCHEME}NAME/latest"
        )
    return Address(*found.groups())


def open_registry(tracking: TrackingConfig, create: bool = False) -> tuple[str, MlflowClient]:
    """Returns the address of the store and a client of it.

    Args:
        tracking: where the store is.
        create: make a local store that is not there.

    Raises:
        ConfigError: it does not answer, or there is none.
    """
    uri = tracking_uri(tracking)
    advice = "MLFLOW_TRACKING_URI says where the store is"
    local = Path(uri.removeprefix("sqlite:///"))
    if not create and uri.startswith("sqlite:///") and not local.exists():
        raise ConfigError(f"MLflow store {uri}: there is no such file; {advice}")
    lost = probe(uri)
    if lost:
        raise ConfigError(f"MLflow store {uri}: {lost}; {advice}")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    try:
        client: MlflowClient = client_class()(tracking_uri=uri)
    except Exception as error:  # whatever a store raises, it is one that cannot be used
        raise ConfigError(f"MLflow store {uri}: {first_line(error)}; {advice}") from error
    return uri, client


def fetch_version(client: MlflowClient, uri: str, name: str, version: int, scratch: Path) -> Path:
    """Returns a folder with the files of a saved model, and nothing else, of a registered version.

    Args:
        client: of the store.
        uri: address of the store.
        name: of the registered model.
        version: its number.
        scratch: a folder to fetch to.

    Raises:
        ArtifactError: the version holds no saved model, or files cannot be fetched.
    """
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    address = f"{SCHEME}{name}/{version}"
    folder = scratch / INSIDE
    try:
        source = client.get_model_version_download_uri(name, str(version))
        store = get_artifact_repository(source, tracking_uri=uri)
    except Exception as error:  # an address that no part of MLflow can open
        raise ArtifactError(f"{address}: cannot be fetched ({first_line(error)})") from error

    def fetch(file: str) -> None:
        try:
            store.download_artifacts(f"{INSIDE}/{file}", str(scratch))
        except Exception as error:  # as many kinds as there are stores
            raise ArtifactError(
                f"{address}: {file} cannot be fetched ({first_line(error)}); expected a version that "
                "forecaster export registered"
            ) from error

    fetch("contract.json")
    for file in data_files(folder, address):
        if file != "contract.json":
            fetch(file)
    return folder


def _find(client: MlflowClient, uri: str, wanted: Address) -> int:
    """Returns the number of a version; says what there is where it is not there."""
    from mlflow.exceptions import MlflowException

    name = wanted.name
    try:
        aliases = client.get_registered_model(name).aliases
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        known = sorted(model.name for model in client.search_registered_models(max_results=100))
        raise ConfigError(
            f"no model '{name}' in the MLflow store {uri}; it has {', '.join(known) or 'none'}"
        ) from error
    versions = sorted(int(found.version) for found in client.search_model_versions(f"name = '{name}'"))
    if wanted.alias is not None:
        if wanted.alias not in aliases:
            raise ConfigError(
                f"model '{name}' has no alias '{wanted.alias}'; it has "
                f"{', '.join(sorted(aliases)) or 'none'}, and {_counted(versions)}"
            )
        return int(aliases[wanted.alias])
    if wanted.version == "latest" and versions:
        return versions[-1]
    if wanted.version == "latest" or int(str(wanted.version)) not in versions:
        raise ConfigError(
            f"model '{name}' has no version {wanted.version}; it has {_counted(versions)}"
        )
    return int(str(wanted.version))


def _counted(versions: list[int]) -> str:
    if not versions:
        return "no versions"
    return f"version{'s' * (len(versions) > 1)} {', '.join(map(str, versions[-10:]))}"
