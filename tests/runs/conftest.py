"""No figure is drawn, and each test that asks for a place has a store of its own."""

import shutil
from pathlib import Path

import pytest


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
