"""An MLflow store, built once and copied: building one takes seconds."""

import shutil
import warnings
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory) -> Path:
    """The file of an SQLite store without runs."""
    path = tmp_path_factory.mktemp("store") / "mlflow.db"
    with (
        warnings.catch_warnings()
    ):  # MLflow's own tables: the test that meets them first is not at fault
        warnings.filterwarnings("ignore", "The ``noload`` loader strategy is deprecated")
        MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(autouse=True)
def undrawn(undrawn) -> None:
    """No test here looks at a figure."""


@pytest.fixture
def place(tmp_path, monkeypatch, empty_store) -> Path:
    """A working folder that is the user's data folder too, with a store; nothing points elsewhere."""
    folder = tmp_path / "forecaster"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    shutil.copy(empty_store, folder / "mlflow.db")
    return folder
