"""The losses of windows: what several devices need of them."""

from dataclasses import replace

import pytest
import torch
from small_networks import EVERYTHING, HORIZON, PLAIN, make_inputs, make_network

from forecaster.model.loss import window_losses
from forecaster.windows.batch import Batch

VARIANTS = [
    {},
    {"decoder": "autoregressive", "patch": 3},
    {"decoder": "autoregressive", "head": "student_t", "patch": 3},
    {"channel_attention": True},
    {"positions": "learned"},
    {"attention": "low_rank", "cross_attention": "low_rank"},
    {"attention": "sparse"},
    {"stem_kernel": 3, "stochastic_depth": 0.5, "activation": "swiglu"},
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
