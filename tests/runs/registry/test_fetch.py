"""models:/… addresses: what is fetched of a version, and what is never touched."""

import copy
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forecast import tiny
from mlflow.tracking import MlflowClient
from runs.registry.conftest import fitted

import forecaster as fc
from forecaster.config import TrackingConfig
from forecaster.runs.registry import parse_address, publish

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")


@pytest.fixture(scope="module")
def store(tmp_path_factory, empty_store):
    """A folder whose store has two versions of `shop`, the first its champion."""
    folder = tmp_path_factory.mktemp("registry") / "forecaster"
    folder.mkdir()
    shutil.copy(empty_store, folder / "mlflow.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("XDG_DATA_HOME", str(folder.parent))
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        poor = fitted(5).artifact
        publish(poor, "shop", TrackingConfig())
        metrics = copy.deepcopy(poor.metrics)
        metrics["validation"]["scores"]["forecaster"]["WQL"] *= 2
        assert publish(replace(poor, metrics=metrics), "shop", TrackingConfig()).version == 2
    return folder


@pytest.fixture
def client(store, monkeypatch):
    """A client of the store, with its folder as the working one."""
    monkeypatch.chdir(store)
    monkeypatch.setenv("XDG_DATA_HOME", str(store.parent))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return MlflowClient(tracking_uri=f"sqlite:///{store}/mlflow.db")


@pytest.fixture
def package(client, tmp_path):
    """What the first version holds, copied to be registered again under the name `other`."""
    source = client.get_model_version_download_uri("shop", "1").removeprefix("file://")
    shutil.copytree(source, tmp_path / "package")
    return tmp_path / "package"


@pytest.fixture
def register(client):
    """Registers a folder as a version of `other`; returns its address."""

    def make(source: object) -> str:
        if not client.search_registered_models("name = 'other'"):
            client.create_registered_model("other")
        return f"models:/other/{client.create_model_version('other', str(source)).version}"

    return make


@pytest.mark.parametrize(
    "address", ["models:/shop@champion", "models:/shop/1", "models:/shop/2", "models:/shop/latest"]
)
def test_a_registered_model_is_the_model(client, address):
    model, here = fc.load(address), fitted(5)
    assert model.artifact.fingerprint == here.artifact.fingerprint
    found, wanted = (m.predict(tiny.plain()).quantiles for m in (model, here))
    assert np.array_equal(found, wanted)
    doubled = model.metrics != here.metrics
    assert doubled == (address in ("models:/shop/2", "models:/shop/latest"))


def test_what_names_a_version_is_read_or_refused():
    assert parse_address("models:/shop@champion") == ("shop", "@champion")
    assert parse_address("models:/my shop/12") == ("my shop", "/12")
    for wrong in ("models:/shop", "models:/", "models:/shop/../x", "models:/a/b@c", "models:/shop/v1"):
        with pytest.raises(
            fc.ConfigError, match="expected models:/NAME@champion, models:/NAME/VERSION"
        ):
            fc.load(wrong)


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("models:/shap@champion", "no model 'shap' in the MLflow store sqlite://.*; it has .*shop"),
        ("models:/shop@best", "model 'shop' has no version @best; it has @champion, /1, /2, /latest$"),
        ("models:/shop/3", "model 'shop' has no version /3; it has @champion, /1, /2, /latest$"),
    ],
)
def test_an_unknown_version_is_answered_with_the_known_ones(client, address, message):
    with pytest.raises(fc.ConfigError, match=message):
        fc.load(address)


def test_a_store_that_is_not_there_is_not_made(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(fc.ConfigError, match="it does not exist; forecaster fit creates it"):
        fc.load("models:/shop@champion")
    assert not list(tmp_path.iterdir())


def test_a_store_that_is_away_is_named_in_one_line(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(fc.ConfigError, match=r"MLflow store http://127.0.0.1:9: .*Connection refused"):
        fc.load("models:/shop@champion")


class _Payload:
    def __init__(self, trap):
        self.trap = trap

    def __reduce__(self):
        return Path.touch, (self.trap,)


def test_code_of_a_registered_version_never_runs(package, register, tmp_path):
    trap = tmp_path / "it ran"
    evil = f"import pathlib; pathlib.Path({str(trap)!r}).touch()\n"
    (package / "served.py").write_text(evil)
    for name in ("__init__.py", "api/__init__.py", "forecast/artifact.py", "runs/served.py"):
        (package / "code" / "forecaster" / name).write_text(evil)
    for name in ("python_model.pkl", "artifacts/model/member-00.pkl", "artifacts/model/contract.pkl"):
        (package / name).write_bytes(pickle.dumps(_Payload(trap)))
    (package / "artifacts" / "model" / "__init__.py").write_text(evil)
    told = (package / "MLmodel").read_text()
    (package / "MLmodel").write_text(told.replace("mlflow.pyfunc.loaders.code_model", "evil"))
    assert fc.load(register(package)).predict(tiny.plain()).status == ("ok",) * 3
    assert not trap.exists()


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "contract.json",
            lambda text: text.replace("member-00.safetensors", "../../../../secret"),
            "/contract.json: damaged (members.0.file: String should match pattern",
        ),
        ("plan.json", lambda text: None, ": not a saved model: plan.json is missing"),
        ("member-00.safetensors", lambda text: None, "/member-00.safetensors: cannot be read"),
    ],
)
def test_a_hostile_or_damaged_version_is_refused_by_its_address(
    package, register, file, change, message
):
    path = package / "artifacts" / "model" / file
    changed = change(path.read_text(errors="replace"))
    if changed is None:
        path.unlink()
    else:
        path.write_text(changed)
    address = register(package)
    with pytest.raises(fc.ArtifactError) as error:
        fc.load(address)
    assert str(error.value).startswith(address + message)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("source", ["/no/such/folder", "file:///nowhere", "s3://nobody/knows"])
def test_a_version_that_lies_nowhere_is_refused(register, source):
    address = register(source)
    with pytest.raises(fc.ArtifactError, match=rf"^{address}: .*cannot be fetched"):
        fc.load(address)
