"""The losses of windows: what several devices need of them, and slow twins of each."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_networks import EVERYTHING, EXPERTS, HORIZON, PLAIN, make_inputs, make_network

from forecaster.model.scaling import Scale
from forecaster.windows.batch import Batch

VARIANTS = [
    {},
    {"decoder": "autoregressive", "patch": 3},
    {"decoder": "autoregressive", "head": "student_t", "patch": 3},
    {"channel_attention": True},
    {"positions": "learned"},
    {"attention": "low_rank"},
    {"attention": "sparse"},
    {"conv_kernel": 3, "style": "vaswani2017"},
    {"pool": EXPERTS},
]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize("shape", [PLAIN, EVERYTHING, replace(EVERYTHING, regular=False)])
def test_every_weight_has_a_gradient_at_each_step_as_devices_that_average_them_expect(shape, settings):
    network = make_network(shape, **settings).requires_grad_(True).train()
    inputs = make_inputs(shape)
    target = torch.randn(len(inputs.elapsed), HORIZON, shape.channels)
    keys = torch.zeros(len(target), dtype=torch.int64)
    total, _ = network.losses(Batch(inputs, target, keys, keys, keys))
    total.sum().backward()
    without = [name for name, weight in network.named_parameters() if weight.grad is None]
    assert [name for name in without if not name.startswith("experts.")] == []  # these are solved


def slow_pinball(level, error):
    return 2 * max(level * error, (level - 1) * error)


def taught(**options):
    """A network, a batch with a hole in each window but the first, and its losses."""
    network = make_network(PLAIN).requires_grad_(True)
    inputs = make_inputs(PLAIN)
    count = len(inputs.elapsed)
    target = torch.randn(count, HORIZON, PLAIN.channels, generator=torch.manual_seed(1))
    target[1:, 2, 0] = torch.nan
    keys = torch.zeros(count, dtype=torch.int64)
    total, weight = network.losses(Batch(inputs, target, keys, keys, keys), **options)
    memory = network.encode(inputs)
    raw = network.decode(memory, inputs)
    quantiles = network.head(raw).detach().numpy().astype(float)
    truth = memory.scale.apply(target).numpy().astype(float)
    return network, total, weight, quantiles, truth


@pytest.mark.parametrize("loss", ["mae", "huber"])
def test_a_median_that_learns_alone_has_the_loss_of_a_slow_loop(loss):
    network, total, weight, quantiles, truth = taught(loss=loss)
    levels = network.config.quantile_levels
    m = levels.index(0.5)
    for window in range(len(total)):
        expected = 0.0
        for lead, channel in np.ndindex(*truth.shape[1:]):
            value = truth[window, lead, channel]
            if np.isnan(value):
                continue
            error = abs(value - quantiles[window, lead, channel, m])
            if loss == "huber":
                error = error**2 / 2 if error < 1 else error - 0.5
            others = [
                slow_pinball(levels[n], value - quantiles[window, lead, channel, n])
                for n in range(len(levels))
                if n != m
            ]
            expected += error + np.mean(others)
        assert float(total[window].detach()) == pytest.approx(expected, rel=1e-4)
        assert float(weight[window]) == np.isfinite(truth[window]).sum()


def test_other_quantiles_pull_a_median_that_learns_alone_nowhere():
    head = make_network(PLAIN).head
    raw = torch.randn(2, 3, 1, head.size, generator=torch.manual_seed(2)).requires_grad_()
    target = torch.randn(2, 3, 1, generator=torch.manual_seed(3))
    scale = Scale(torch.zeros(2, 1), torch.zeros(2, 1), torch.ones(2, 1))
    head.median_loss(raw, scale, target, "mae").sum().backward()
    slopes = raw.grad[..., head.median]
    torch.testing.assert_close(slopes, -(target - raw.detach()[..., head.median]).sign())
    assert bool((raw.grad != 0).any(dim=0).all())  # the others learn all the same
