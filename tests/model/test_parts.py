"""Memory that does not suffice for a batch: computed in parts, with the same gradient."""

import io
from functools import partial

import pytest
import torch
from rich.console import Console

from forecaster.errors import FitError
from forecaster.forecast.artifact import shape_of
from forecaster.model import learner
from forecaster.model.loss import window_losses
from forecaster.model.network import Network
from forecaster.model.parts import Parts, is_lack_of_memory
from forecaster.runs.fit import fit_panel, resolve
from forecaster.runs.progress import TrainingBar
from forecaster.runs.train import TrainingContext
from forecaster.windows.datamodule import TrainingStream
from forecaster.windows.store import training_store

LACKS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:119] DefaultCPUAllocator: can't allocate memory"),
    RuntimeError("not enough memory: you tried to allocate 8589934592 bytes."),
    MemoryError(),
]


def _fit(make_panel, make_config, said=None, **sections):
    panel = make_panel(3, 60, past=1, missing=0.1)
    config, split = resolve(panel, make_config(4, **sections))
    console = Console(file=said or io.StringIO(), width=200)
    around = TrainingContext(callbacks=(TrainingBar(console),))
    return fit_panel(panel, config, split, around)


def _lacking(monkeypatch, fits, error=LACKS[0], backward=False):
    """Lets no more windows be scored at once than fit; returns the sizes that were tried."""
    tried = []

    def small_memory(network, batch, *settings):
        windows = len(batch.cutoff)
        tried.append(windows)
        total, count = window_losses(network, batch, *settings)
        if windows > fits and backward and torch.is_grad_enabled():
            total.register_hook(fail)
        elif windows > fits:
            fail()
        return total, count

    def fail(gradient=None):
        raise error

    monkeypatch.setattr(learner, "window_losses", small_memory)
    return tried


def test_a_fit_in_parts_is_the_fit_of_whole_batches(monkeypatch, make_panel, make_config):
    slow = {"learning_rate": 1e-5}  # a rate that does not magnify rounding, as Adam does
    whole = _fit(make_panel, make_config, fit=slow)
    tried, said = _lacking(monkeypatch, 2), io.StringIO()
    parts = _fit(make_panel, make_config, said, fit=slow)
    assert tried[:4] == [8, 4, 2, 2] and not any(size > 2 for size in tried[4:])
    for name, curve in whole.metrics["curves"].items():
        ours = parts.metrics["curves"][name]
        assert [step for step, _ in ours] == [step for step, _ in curve]
        assert [v for _, v in ours] == pytest.approx([v for _, v in curve], rel=1e-6)
    for one, other in zip(*(a.ensemble.parameters() for a in (whole, parts)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_memory_that_runs_out_on_the_way_back_is_enough_in_parts(monkeypatch, make_panel, make_config):
    settings = {"validation": None, "learning_rate": 1e-5}
    whole = _fit(make_panel, make_config, fit=settings)
    tried = _lacking(monkeypatch, 3, backward=True)
    parts = _fit(make_panel, make_config, fit=settings)
    assert tried[:3] == [8, 4, 4]
    for one, other in zip(*(a.ensemble.parameters() for a in (whole, parts)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_a_window_that_does_not_fit_alone_is_one_clear_line(monkeypatch, make_panel, make_config):
    tried = _lacking(monkeypatch, 0)
    with pytest.raises(FitError, match="memory does not hold a single window") as e:
        _fit(make_panel, make_config)
    assert tried == [8, 4, 2, 1]
    assert str(e.value) == (
        "memory does not hold a single window: CUDA out of memory. Tried to allocate 2.00 GiB.; lower "
        "model.width, model.context_length or the number of layers"
    )


def test_other_faults_are_not_taken_for_a_lack_of_memory(monkeypatch, make_panel, make_config):
    tried = _lacking(monkeypatch, 4, RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        _fit(make_panel, make_config)
    assert tried == [8]
    assert not is_lack_of_memory(ValueError("out of memory"))
    assert all(map(is_lack_of_memory, LACKS))


@pytest.mark.parametrize("most", [1, 3, 8, 100])
def test_gradients_of_parts_add_up_to_that_of_the_whole(make_panel, make_config, most):
    panel = make_panel(3, 60, past=1, missing=0.3)
    config, split = resolve(panel, make_config(4))
    torch.manual_seed(0)
    network = Network(config.model, shape_of(panel, 4))
    batch = next(iter(TrainingStream(training_store(panel, config), split.train, 8, 0)))
    gradients = []
    for size in (None, most):
        parts = Parts()
        parts.most = size
        total, count = parts.scored(partial(window_losses, network), batch)
        network.zero_grad()
        (total.sum() / count.sum()).backward()
        gradients.append([w.grad.clone() for w in network.parameters() if w.grad is not None])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
