"""The losses of windows: what several devices need of them, and slow twins of each."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_networks import EVERYTHING, HORIZON, PLAIN, make_inputs, make_network

from forecaster.config import Config
from forecaster.errors import ConfigError
from forecaster.model.loss import LossOptions, spectral_losses, window_losses
from forecaster.model.scaling import Scale
from forecaster.runs.fit import fit_panel, prepare
from forecaster.windows.batch import Batch

VARIANTS = [
    {},
    {"decoder": "autoregressive", "patch": 3},
    {"decoder": "autoregressive", "head": "student_t", "patch": 3},
    {"channel_attention": True},
    {"positions": "learned"},
    {"attention": "low_rank", "cross_attention": "low_rank"},
    {"attention": "sparse"},
    {"conv_kernel": 3, "stochastic_depth": 0.5, "activation": "swiglu"},
]


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize("shape", [PLAIN, EVERYTHING, replace(EVERYTHING, regular=False)])
def test_every_weight_has_a_gradient_at_each_step_as_devices_that_average_them_expect(shape, settings):
    network = make_network(shape, **settings).requires_grad_(True).train()
    inputs = make_inputs(shape)
    target = torch.randn(len(inputs.elapsed), HORIZON, shape.channels)
    keys = torch.zeros(len(target), dtype=torch.int64)
    total, _ = window_losses(network, Batch(inputs, target, keys, keys))
    total.sum().backward()
    assert [name for name, weight in network.named_parameters() if weight.grad is None] == []


def slow_pinball(level, error):
    return 2 * max(level * error, (level - 1) * error)


def taught(**options):
    """A network, a batch with a hole in each window but the first, and its losses under a options."""
    network = make_network(PLAIN).requires_grad_(True)
    inputs = make_inputs(PLAIN)
    count = len(inputs.elapsed)
    target = torch.randn(count, HORIZON, PLAIN.channels, generator=torch.manual_seed(1))
    target[1:, 2, 0] = torch.nan
    keys = torch.zeros(count, dtype=torch.int64)
    total, weight = window_losses(network, Batch(inputs, target, keys, keys), LossOptions(**options))
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
    scale = Scale(torch.zeros(2, 1), torch.ones(2, 1))
    head.median_loss(raw, scale, target, "mae").sum().backward()
    slopes = raw.grad[..., head.median]
    torch.testing.assert_close(slopes, -(target - raw.detach()[..., head.median]).sign())
    assert bool((raw.grad != 0).any(dim=0).all())  # the others learn all the same


def test_the_loss_of_a_spectrum_is_that_of_a_slow_transform_over_windows_with_all_leads():
    _, plain, weight, quantiles, truth = taught()
    network, total, same_weight, *_ = taught(frequency_weight=0.7)
    assert torch.equal(weight, same_weight)
    median = quantiles[..., network.config.quantile_levels.index(0.5)]
    for window in range(len(total)):
        expected = 0.0
        for channel in range(truth.shape[2]):
            error = median[window, :, channel] - truth[window, :, channel]
            if np.isnan(error).any():
                continue
            sizes = []
            for turn in range(HORIZON // 2 + 1):
                wave = np.exp(-2j * np.pi * turn * np.arange(HORIZON) / HORIZON)
                sizes.append(abs((error * wave).sum()) / np.sqrt(HORIZON))
            expected += HORIZON * np.mean(sizes)
        found = float((total - plain)[window].detach())
        assert found == pytest.approx(0.7 * expected, rel=1e-3)


def test_a_window_without_all_leads_gives_its_spectrum_no_slope():
    median = torch.zeros(2, HORIZON, 1, requires_grad=True)
    truth = torch.zeros(2, HORIZON, 1)  # an error of 0 has a slope too, and it is finite
    truth[0, 3] = torch.nan
    spectral_losses(median, truth).sum().backward()
    assert bool((median.grad[0] == 0).all()) and bool(median.grad.isfinite().all())


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        (
            {"fit": {"loss": "mae"}, "model": {"head": "student_t"}},
            r"fit\.loss mae teaches a median by itself, and head student_t learns .* by its likelihood",
        ),
        (
            {"fit": {"frequency_weight": 0.3}, "model": {"head": "negative_binomial"}},
            r"frequency_weight 0\.3 .* head negative_binomial does not forecast at once: .* quantile",
        ),
        (
            {"fit": {"frequency_weight": 0.3}, "model": {"decoder": "autoregressive"}},
            r"frequency_weight 0\.3 .* decoder autoregressive does not forecast at once: .* direct",
        ),
        (
            {"fit": {"linear_rate": 0.01}, "model": {"linear": "none"}},
            r"fit\.linear_rate 0\.01 teaches linear maps, and model\.linear none has none",
        ),
    ],
)
def test_losses_that_mean_nothing_to_a_network_are_refused_with_the_reason(sections, expected):
    with pytest.raises(ConfigError, match=expected):
        Config().replaced(**sections)


@pytest.mark.parametrize("kind", ["skip", "blend"])
def test_linear_maps_learn_at_their_rate_and_stay_without_one(make_panel, make_config, kind):
    panel = make_panel(2, 60)

    def maps(rate):
        model = {"linear": kind, "lookbacks": (12,)}
        config, split = prepare(panel, make_config(4, fit={"linear_rate": rate}, model=model))
        return fit_panel(panel, config, split).ensemble.members[0].linear.maps[0]

    still, slow, fast = maps(None), maps(1e-5), maps(1e-3)
    moved = [(other - still).abs().max() for other in (slow, fast)]
    assert 0 < moved[0] <= 6e-5 and 1e-4 < moved[1] <= 6e-3  # Adam: at most a rate a step
