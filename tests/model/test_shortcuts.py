"""Shortcuts change no result: what is computed for all inputs, as in a graph, is the same."""

from dataclasses import replace

import pytest
import torch
from small_networks import EVERYTHING, EXPERTS, PLAIN, make_inputs, make_network, with_linear

from forecaster.model.ensemble import Ensemble
from forecaster.model.experts import fill, fill_gapped
from forecaster.model.shortcuts import for_all_inputs, may_hold, shortcut, upper_bound

ARX = with_linear(phases=3).model_copy(
    update={
        "experts": ("naive", "tsb", "linear", "arx"),
        "drivers": ("first", "second"),
        "driver_length": 12,
    }
)
KINDS = {
    "experts": (PLAIN, {"pool": EXPERTS}),
    "covariates": (EVERYTHING, {"pool": EXPERTS}),
    "arx": (EVERYTHING, {"pool": ARX}),
    "binned": (PLAIN, {"head": "binned"}),
}


def windows(shape, settings, missing):
    inputs = make_inputs(shape, 5, missing, drivers=2 * (settings.get("pool") is ARX), driver_length=12)
    # A row without history, a short one and one without change.
    history, context = inputs.history, inputs.context
    for values in (history, context):
        values[0, :, 0] = torch.nan
        values[1, :-2, 0] = torch.nan
        values[2] = 3.0
    return replace(inputs, history_observed=~history.isnan(), observed=~context.isnan())


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize(("shape", "settings"), KINDS.values(), ids=KINDS)
def test_forecasts_are_the_same_without_shortcuts(shape, settings, missing):
    network = make_network(shape, **settings)
    if experts := network.experts:
        experts.cold_scale[1:], experts.cold_level[1:, 0], experts.profile[1] = 2.0, 5.0, 0.1
        if arx := experts.arx:
            arx.maps[:, :, arx.tail + 2 : arx.tail + 5].normal_(std=0.1)
            arx.used[1] = True
    inputs, ensemble = windows(shape, settings, missing), Ensemble([network], [1.0])
    with for_all_inputs():
        expected = ensemble(inputs)
    torch.testing.assert_close(ensemble(inputs), expected, rtol=1e-5, atol=1e-5)
    assert expected.isfinite().all()


def test_rows_with_gaps_alone_are_filled_as_all_rows_are():
    values = torch.randn(6, 30, generator=torch.manual_seed(0))
    observed = torch.rand(6, 30, generator=torch.manual_seed(1)) > 0.3
    observed[2:4] = True
    observed[5] = False
    for some, wanted in zip(fill_gapped(values, observed, 7), fill(values, observed, 7), strict=True):
        assert torch.equal(some, wanted)


def test_decisions_by_values_are_those_of_all_inputs_inside():
    @shortcut(lambda: "general")
    def chosen():
        return "fast"

    def decisions():
        return (
            may_hold(torch.zeros(2, dtype=torch.bool)),
            upper_bound(torch.tensor([3, 1]), 9),
            chosen(),
        )

    assert decisions() == (False, 3, "fast")
    with pytest.raises(KeyError), for_all_inputs():
        assert decisions() == (True, 9, "general")
        raise KeyError
    assert decisions() == (False, 3, "fast")
