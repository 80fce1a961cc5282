"""Networks are counted, and checked against the weights of another, without being built."""

import pytest
import torch
from small_networks import EVERYTHING, EXPERTS, HORIZON, PLAIN

from forecaster.config import PRESETS, Config, ExpertPlan, load_preset
from forecaster.model.class_network import ClassEnsemble, ClassNetwork
from forecaster.model.embedding import Shape
from forecaster.model.network import Network
from forecaster.model.size import blueprint, count_parameters
from forecaster.model.transfer import adapt, merge


def numbers_of(module):
    """How many values a saved file of a module holds."""
    return sum(values.numel() for values in module.state_dict().values())


def plan_of(preset, **settings):
    """The network of a preset, small numbers in the place of those that a table settles."""
    model = (Config() if preset is None else load_preset(preset)).model
    patch = model.patch or 4
    sizes = {"width": 8 * model.heads, "context_length": 4 * patch}
    return model.settled(**sizes, patch=patch, decoder_patch=min(patch, HORIZON), **settings)


@pytest.mark.parametrize("shape", [PLAIN, EVERYTHING], ids=["plain", "everything"])
@pytest.mark.parametrize("preset", [None, *PRESETS])
def test_as_many_numbers_are_counted_as_a_network_has(preset, shape):
    pool = ExpertPlan() if preset == "vanilla" else EXPERTS
    plan = plan_of(preset, pool=pool, encoder_layers=4)
    assert count_parameters(plan, shape) == numbers_of(Network(plan, shape))


@pytest.mark.parametrize("head", ["classes", "step_classes"])
def test_as_many_numbers_are_counted_as_an_ensemble_of_labels_has(head):
    plan, shape = plan_of(None, head=head, encoder_layers=3), Shape(0, 3, known=1, classes=4)
    ensemble = ClassEnsemble([ClassNetwork(plan, shape) for _ in range(3)])
    assert count_parameters(plan, shape, networks=3) == numbers_of(ensemble)


def test_adapters_add_no_numbers_to_what_is_saved():
    plan = plan_of(None, pool=EXPERTS)
    network = Network(plan, PLAIN)
    adapt(network, 2)
    assert numbers_of(network) > count_parameters(plan, PLAIN)
    merge(network)
    assert numbers_of(network) == count_parameters(plan, PLAIN)


def test_a_blueprint_has_the_shapes_of_the_network_and_draws_nothing():
    plan = plan_of(None, pool=EXPERTS, encoder_layers=3)
    before = torch.random.get_rng_state()
    drawn = blueprint(plan, EVERYTHING).state_dict()
    assert torch.equal(torch.random.get_rng_state(), before)
    built = Network(plan, EVERYTHING).state_dict()
    assert {name: weights.shape for name, weights in drawn.items()} == {
        name: weights.shape for name, weights in built.items()
    }
    assert all(weights.is_meta for weights in drawn.values())
