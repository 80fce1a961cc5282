"""Faster training: products in bfloat16, a compiled network; what is saved stays float32."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from forecaster.config import ModelPlan
from forecaster.forecast.artifact import shape_of
from forecaster.model.loss import LossOptions, window_losses
from forecaster.model.network import Network
from forecaster.runs import precision
from forecaster.runs.fit import fit_panel, prepare
from forecaster.runs.precision import Measured
from forecaster.windows.datamodule import TrainingStream
from forecaster.windows.store import training_store

DATA = Path(__file__).parents[2] / "data"


def fitted(panel, config):
    config, split = prepare(panel, config)
    return fit_panel(panel, config, split)


def same(one, other):
    first, second = (artifact.ensemble.members[0].state_dict() for artifact in (one, other))
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("model", [{}, {"decoder": "autoregressive", "head": "student_t"}])
def test_the_loss_of_products_in_bfloat16_is_float32_and_near(make_panel, make_config, model):
    panel = make_panel(2, 60, known=1)
    config, split = prepare(panel, make_config(4, model=model | {"patch": 2, "width": 32}))
    torch.manual_seed(0)
    network = Network(ModelPlan.of(config.model), shape_of(panel, 4))
    torch.nn.init.normal_(network.output.weight, std=0.3)
    batch = next(iter(TrainingStream(training_store(panel, config), split.train, 32, seed=0)))
    full, cast = (window_losses(network, batch, LossOptions(bf16=cast)) for cast in (False, True))
    assert cast[0].dtype == cast[1].dtype == torch.float32
    assert not torch.equal(full[0], cast[0]) and torch.equal(full[1], cast[1])
    torch.testing.assert_close(cast[0].mean(), full[0].mean(), rtol=0.01, atol=0)


def test_bf16_trains_otherwise_and_keeps_float32_weights(make_panel, make_config):
    panel = make_panel(2, 60)
    full, bf16 = (fitted(panel, make_config(4, fit={"precision": name})) for name in ("full", "bf16"))
    assert not same(full, bf16)
    member = bf16.ensemble.members[0]
    assert {weight.dtype for weight in member.parameters()} == {torch.float32}
    curves = [artifact.metrics["curves"]["validation_loss"] for artifact in (full, bf16)]
    np.testing.assert_allclose(curves[1], curves[0], rtol=0.01)


@pytest.mark.parametrize(
    ("measured", "chosen"),
    [(Measured(1.0, 0.5), "bf16"), (Measured(1.0, 0.97), "full"), (None, "full")],
)
def test_auto_takes_what_is_faster_and_the_artifact_says_which(
    make_panel, make_config, monkeypatch, measured, chosen
):
    monkeypatch.setattr(precision, "_measure", lambda *_: measured)
    panel = make_panel(2, 60)
    auto = fitted(panel, make_config(4, fit={"precision": "auto"}))
    assert auto.config.fit.precision == chosen
    assert auto.metrics.get("seconds_per_step") == (measured and vars(measured))
    assert same(auto, fitted(panel, make_config(4, fit={"precision": chosen})))


def test_measuring_changes_neither_weights_nor_random_numbers(make_panel, make_config, monkeypatch):
    monkeypatch.setattr(precision, "_multiplies_bf16", lambda device: True)
    panel = make_panel(2, 60)
    settings = {"model": {"dropout": 0.2}}
    auto = fitted(panel, make_config(4, fit={"precision": "auto"}, **settings))
    seconds = auto.metrics["seconds_per_step"]
    assert seconds["full"] > 0 and seconds["bf16"] > 0
    told = make_config(4, fit={"precision": auto.config.fit.precision}, **settings)
    assert same(auto, fitted(panel, told))


SCRIPT = """
import sys
import forecaster as fc
data, future, compiled, precision, steps, out = sys.argv[1:]
model = {"width": 16, "heads": 2, "encoder_layers": 1, "dropout": 0.0}
fit = {"steps": int(steps), "batch_size": 32, "patience": None, "validate_every": int(steps)}
config = {"model": model, "fit": fit, "tracking": {"enabled": False}}
fc.fit(data, 7, future=future, config=config, out=out, compile=compiled == "True", precision=precision)
"""


def run(folder, out, compiled=False, precision="full", steps=10):
    """Fits in a process of its own: shapes are checked in this one, which cannot be compiled."""
    words = [DATA / "demo.csv", DATA / "demo_future.csv", compiled, precision, steps, out]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, words)],
        cwd=folder, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return load_file(folder / out / "member-00.safetensors"), done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with a C++ compiler")
def test_a_compiled_network_learns_the_same_under_the_same_names(tmp_path):
    (plain, _), (compiled, said) = (run(tmp_path, str(on), compiled=on) for on in (False, True))
    assert said == ""
    assert plain.keys() == compiled.keys()
    for name, weight in plain.items():
        np.testing.assert_allclose(compiled[name], weight, rtol=0, atol=1e-4, err_msg=name)


@pytest.mark.slow
def test_after_200_steps_in_bfloat16_the_loss_is_within_one_percent(tmp_path):
    losses = []
    for name in ("full", "bf16"):
        run(tmp_path, name, precision=name, steps=200)
        metrics = json.loads((tmp_path / name / "metrics.json").read_text())
        losses.append(metrics["curves"]["validation_loss"][-1])
    assert losses[0][0] == losses[1][0] == 200
    assert losses[1][1] == pytest.approx(losses[0][1], rel=0.01)
