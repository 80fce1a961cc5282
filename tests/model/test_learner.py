"""Training: averages, seeds, the best weights, a clear stop; tiny fits of a few steps."""

import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from unittest.mock import create_autospec

import numpy as np
import polars as pl
import pytest
import pytorch_lightning as pl_lightning
import torch

from forecaster.config import DataConfig, FitPlan
from forecaster.errors import FitError
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.window import resolve_window
from forecaster.model import learner as learner_module
from forecaster.model.heads import pinball
from forecaster.model.learner import KeepBest, Learner, is_out_of_memory
from forecaster.panel.build import open_panel
from forecaster.windows.store import training_store
from forecaster.windows.streams import WindowSequence


def fitted(panel, config, callbacks=()):
    config, split = resolve(panel, config)
    return fit_panel(panel, config, split, TrainingContext(callbacks=tuple(callbacks)))


class Watch(pl_lightning.Callback):
    """Keeps what a training looked like from inside, step by step."""

    def __init__(self):
        self.network, self.average, self.start = [], [], None

    def on_fit_start(self, trainer, learner):
        self.learner = learner
        self.start = copied(learner.average)

    def on_train_batch_end(self, trainer, learner, outputs, batch, batch_index):
        # Callbacks run before the module's own hook: this average is the one of the step before.
        self.network.append(copied(learner.network))
        self.average.append(copied(learner.average))


def copied(module):
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


def test_the_average_follows_the_weights_closely_at_first_and_slowly_later(
    make_panel, make_config, monkeypatch
):
    monkeypatch.setattr(learner_module, "_EMA_DECAY", 0.3)
    watch = Watch()
    fit = {"steps": 8, "validation": None}
    artifact = fitted(make_panel(2, 40), make_config(4, fit=fit), [watch])
    average = watch.start
    for step, network in enumerate(watch.network, start=1):
        decay = min(0.3, (1 + step) / (10 + step))
        average = {k: decay * average[k] + (1 - decay) * network[k] for k in network}
    for name, parameter in artifact.ensemble.members[0].named_parameters():
        torch.testing.assert_close(parameter, average[name], rtol=1e-4, atol=1e-6)
    assert any(not torch.equal(watch.network[-1][k], average[k]) for k in average)


def validation_loss(artifact, panel, split, batch_size):
    """The mean loss per observed cell of all validation windows, one window at a time."""
    member = artifact.ensemble.members[0]
    config = artifact.plan
    store = training_store(panel, config)
    total, count = 0.0, 0
    with torch.no_grad():
        for batch in WindowSequence(store, split.validation, split.validation_windows, batch_size):
            scale = member.encode(batch.inputs).scale
            quantiles = member.head(member.decode(member.encode(batch.inputs), batch.inputs))
            loss = pinball(quantiles, scale.apply(batch.target), member.head.levels)
            total += loss.nansum().item()
            count += int((~batch.target.isnan()).sum())
    return total / count


@pytest.mark.long
def test_9_early_stopping_returns_the_best_weights(make_panel, make_config, monkeypatch):
    """A rate far too high makes the curve rise again; the averaged weights kept give its lowest point."""
    monkeypatch.setattr(learner_module, "_EMA_DECAY", 0.3)
    monkeypatch.setattr(FitPlan, "validate_every", 2)
    panel = make_panel(2, 60, missing=0.1)
    fit = {"steps": 40, "learning_rate": 0.3}
    config, split = resolve(panel, make_config(4, fit=fit))
    artifact = fit_panel(panel, config, split)
    curve = artifact.metrics["curves"]["validation_loss"]
    losses = [loss for _, loss in curve]
    best = int(np.argmin(losses))
    assert len(losses) == 20  # all steps were run
    assert artifact.metrics["best_step"] == curve[best][0] < artifact.metrics["steps"]
    assert validation_loss(artifact, panel, split, 1) == pytest.approx(min(losses), rel=1e-5)
    assert losses[-1] > min(losses)


class FakeLearner(pl_lightning.LightningModule):
    """A learner whose one weight is the step; its validation losses are given."""

    global_step = 0

    def __init__(self):
        super().__init__()
        self.curves = {"validation_loss": []}
        self.average = torch.nn.Linear(1, 1)

    def meets(self, loss):
        self.global_step += 1
        self.curves["validation_loss"].append((self.global_step, loss))
        torch.nn.init.constant_(self.average.weight, self.global_step)


@pytest.mark.parametrize(
    ("losses", "best"),
    [([5.0, 4.0, 4.0, 3.0, 6.0, 3.5], 4), ([1.0, 2.0, 3.0], 1), ([float("nan"), 2.0, float("nan")], 2)],
)
def test_the_weights_of_the_first_least_loss_are_kept(losses, best):
    trainer = create_autospec(pl_lightning.Trainer, instance=True)
    keep, learner = KeepBest(), FakeLearner()
    for loss in losses:
        learner.meets(loss)
        keep.on_validation_end(trainer, learner)
    assert keep.step == keep.taken == best and keep.weights["weight"].item() == best


def test_a_fit_leaves_the_callers_random_numbers_alone(make_panel, make_config):
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    fitted(make_panel(1, 40), make_config(4, fit={"steps": 1}))
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.long
def test_a_wide_table_and_the_same_table_melted_long_give_the_same_forecasts(make_config):
    rng = np.random.default_rng(0)
    start = datetime(2024, 1, 1)
    frame = pl.DataFrame(
        {
            "time": [start + timedelta(hours=hour) for hour in range(70)],
            **{name: rng.normal(level, 2.0, 70) for name, level in (("a", 5), ("b", -50), ("c", 900))},
        }
    )
    config = make_config(4, fit={"steps": 3})
    forecasts = {}
    for layout in ("wide", "long"):
        panel = open_panel(frame, DataConfig(time="time", target=("a", "b", "c"), layout=layout))
        assert (panel.n_series, panel.n_channels) == ((1, 3) if layout == "wide" else (3, 1))
        artifact = fitted(panel, config)
        window = resolve_window(artifact, panel)
        forecasts[layout] = Predictor(artifact).predict(panel, window).quantiles
    wide, long = forecasts["wide"][0].transpose(1, 0, 2), forecasts["long"][:, :, 0]
    np.testing.assert_allclose(wide, long, rtol=1e-5)


def test_only_the_weights_of_linear_maps_decay(make_panel):
    from small_networks import EVERYTHING, make_network

    network = make_network(EVERYTHING)
    groups = (
        Learner(network, FitPlan(steps=400, batch_size=8), ["s"])
        .configure_optimizers()["optimizer"]
        .param_groups
    )
    decayed = {id(parameter) for parameter in groups[0]["params"]}
    names = {name for name, parameter in network.named_parameters() if id(parameter) in decayed}
    assert groups[0]["weight_decay"] == 0.05 and groups[1]["weight_decay"] == 0.0
    assert sum(len(group["params"]) for group in groups) == len(list(network.parameters()))
    assert {"output.weight", "encoder.0.attention.query.weight"} <= names
    assert not any(word in name for name in names for word in ("bias", "norm", "_embedding", "token"))


@pytest.mark.long
def test_the_steps_after_the_last_regular_validation_are_validated_too(make_panel, make_config):
    panel = make_panel(2, 60)
    config, split = resolve(panel, make_config(4, fit={"steps": 19}))
    artifact = fit_panel(panel, config, split)
    assert [step for step, _ in artifact.metrics["curves"]["validation_loss"]] == [*range(2, 19, 2), 19]


def test_a_validation_loss_that_is_not_finite_names_the_series(make_panel, make_config):
    panel = make_panel(3, 60)
    late = panel.indptr[2] - 5  # the last rows of the second series: validated, never trained on
    panel.values[late : late + 5 : 2, 0], panel.values[late + 1 : late + 5 : 2, 0] = 3e38, -3e38
    expected = r"the validation loss is not finite at step 1: 1 of 3 series in the batch, s1"
    with pytest.raises(FitError, match=expected):
        fitted(panel, make_config(4, fit={"steps": 3}))


LACKS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory"),
    MemoryError(),
]


@pytest.mark.parametrize("error", LACKS, ids=lambda error: type(error).__name__)
def test_a_lack_of_memory_names_the_settings_to_lower(make_panel, make_config, monkeypatch, error):
    def lacking(*_):
        raise error

    monkeypatch.setattr(learner_module, "window_losses", lacking)
    with pytest.raises(FitError, match=r"out of memory.*; lower fit.batch_size \(8\), model.context"):
        fitted(make_panel(2, 40), make_config(4))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))


COMPILED = """
from functools import partial
import numpy as np, torch
import forecaster as fc
torch.compile = partial(torch.compile, fullgraph=True, backend="eager")  # an error where it looks at values
losses = []
for dropout, compiled in ((0.1, True), (0.0, True), (0.0, False)):
    config = {"fit": {"steps": 3, "ensemble_size": 1}, "model": {"dropout": dropout, "experts": []}}
    model = fc.fit("data/demo.csv", horizon=28, config=config, compile=compiled, tracking=False, quiet=True)
    losses.append(model.metrics["curves"]["validation_loss"])
np.testing.assert_allclose(losses[1], losses[2], rtol=1e-5)
"""


@pytest.mark.slow
def test_a_compiled_loss_is_one_graph():
    """In a process of its own: torch cannot trace the checks of shapes."""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", COMPILED], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
