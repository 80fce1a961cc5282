"""The same product on a GPU, within rounding: fit, resume, predict, bf16, two processes."""

from pathlib import Path

import numpy as np
import pytest
import torch

import forecaster as fc
from forecaster.model.hardware import cuda_count, device, on_device
from forecaster.runs.progress import TrainingBar

DATA = Path(__file__).parents[1] / "data"
DEMO = {"data": DATA / "demo.csv", "future": DATA / "demo_future.csv"}
SMALL = {"fit": {"steps": 20, "ensemble_size": 1}, "tracking": {"enabled": False}}

gpu = pytest.mark.gpu
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA GPU")


def fitted(**options):
    return fc.fit(**DEMO, horizon=28, config=SMALL, quiet=True, **options)


def apart(one, other):
    """The largest difference of two forecasts, in spreads of the first."""
    spread = one.quantiles[..., -1:] - one.quantiles[..., :1]
    return float((np.abs(one.quantiles - other.quantiles) / spread).max())


@pytest.fixture(scope="module")
def model():
    """A model fitted on the GPU."""
    return fitted()


@gpu
@needs_gpu
def test_a_gpu_is_used_without_being_asked_for_and_forecasts_as_the_processor(model):
    assert device() == "cuda:0"
    torch.cuda.reset_peak_memory_stats()
    there = model.predict(**DEMO)
    assert torch.cuda.max_memory_allocated() > 0
    assert apart(there, model.predict(**DEMO, device="cpu")) < 1e-3


@gpu
@needs_gpu
def test_a_fit_on_a_gpu_scores_as_one_on_the_processor(model):
    here = fitted(device="cpu")
    there, beside = (own.metrics["validation"]["scores"]["forecaster"]["WQL"] for own in (model, here))
    assert there == pytest.approx(beside, rel=0.02)
    assert fitted(precision="bf16").metrics["steps"] == 20


@gpu
@needs_gpu
def test_a_model_of_a_gpu_forecasts_on_the_processor_after_it_was_saved(tmp_path, model):
    model.save(tmp_path / "model")
    with on_device("cpu"):
        assert apart(model.predict(**DEMO), fc.load(tmp_path / "model").predict(**DEMO)) < 1e-3


@gpu
@needs_gpu
def test_a_fit_that_was_stopped_on_a_gpu_resumes_there(tmp_path, model, monkeypatch):
    def stop(bar, trainer, *_):
        if trainer.global_step == 10:
            raise RuntimeError("stopped")

    with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="stopped"):
        patch.setattr(TrainingBar, "on_train_batch_start", stop)
        fitted(out=tmp_path / "model", checkpoint_every=4)
    resumed = fitted(out=tmp_path / "model", checkpoint_every=4)
    assert apart(model.predict(**DEMO), resumed.predict(**DEMO)) < 1e-3


@gpu
@needs_gpu
def test_two_gpus_train_and_forecast_together(tmp_path, model):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    assert fitted(devices=2).metrics["steps"] == 20
    model.predict_to(tmp_path / "p.parquet", **DEMO, devices=2)


def test_the_processor_computes_where_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert (device(1), cuda_count()) == ("cuda:1", 2)
    with on_device("cpu"):
        assert (device(1), cuda_count()) == ("cpu", 0)
        with on_device("cuda"):
            assert device() == "cuda:0"
    assert cuda_count() == 2


def test_a_device_that_is_not_there_is_refused_before_any_work():
    with pytest.raises(fc.ConfigError, match=r"device 'gpu': expected one of cpu, cuda"):
        fc.fit("missing.csv", device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(fc.ConfigError, match=r"device cuda: torch finds no CUDA GPU"):
            fc.fit("missing.csv", device="cuda")
