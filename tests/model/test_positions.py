"""Sinusoids as published, one number at a time."""

import math

import pytest
import torch

from forecaster.config import ModelPlan
from forecaster.model.positions import HARMONICS, TimeEncoding, phase_sinusoids, sinusoids


def slow_sinusoid(position, width):
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i + 1) = cos of the same; the paper's 3.5."""
    found = []
    for i in range(width // 2):
        angle = position / 10000 ** (2 * i / width)
        found += [math.sin(angle), math.cos(angle)]
    return found


@pytest.mark.parametrize("width", [2, 8, 64])
def test_sinusoids_are_the_published_ones(width):
    positions = torch.arange(50.0)[None]
    expected = torch.tensor([[slow_sinusoid(p, width) for p in range(50)]])
    torch.testing.assert_close(sinusoids(positions, width), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("position", [-336.0, -0.25, 0.0, 1.5, 95.75])
def test_positions_may_be_negative_and_real(position):
    found = sinusoids(torch.tensor([[position]]), 16)[0, 0]
    assert found.tolist() == pytest.approx(slow_sinusoid(position, 16), abs=1e-4)


def test_phases_become_sines_and_cosines_of_whole_turns():
    phase = torch.tensor([[[0.0, 0.9], [0.3, 0.25]]])
    found = phase_sinusoids(phase, 2)
    assert found.shape == (1, 2, 8)
    for n in range(2):
        expected = []
        for turn in phase[0, n].tolist():
            expected += [math.sin(2 * math.pi * k * turn) for k in (1, 2)]
            expected += [math.cos(2 * math.pi * k * turn) for k in (1, 2)]
        assert found[0, n].tolist() == pytest.approx(expected, abs=1e-6)


def test_an_empty_phase_slot_gives_zeros_and_leaves_the_others_alone():
    whole = phase_sinusoids(torch.tensor([[[0.4, 0.7]]]), 3)
    holed = phase_sinusoids(torch.tensor([[[torch.nan, 0.7]]]), 3)
    assert (holed[..., :6] == 0).all() and torch.equal(holed[..., 6:], whole[..., 6:])


def make_encoding(positions, cycles=0, context=5, horizon=3):
    torch.manual_seed(0)
    settings = {"context_length": 5, "patch": 1, "decoder_patch": 1}
    config = ModelPlan(width=8, heads=2, positions=positions, **settings)
    encoding = TimeEncoding(config, cycles, context, horizon)
    if encoding.learned is not None:
        torch.nn.init.normal_(encoding.learned)
    return encoding


def test_a_time_encoding_is_the_sinusoid_plus_a_projection_of_phases():
    encoding = make_encoding("elapsed", cycles=2)
    elapsed, phase = torch.randn(2, 5), torch.rand(2, 5, 2)
    added = encoding(elapsed, phase, 0) - sinusoids(elapsed, 8)
    expected = encoding.phase(phase_sinusoids(phase, HARMONICS))
    torch.testing.assert_close(added, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("first", [0, 5, 6])
def test_sinusoidal_positions_are_the_published_ones_in_context_and_horizon_each(first):
    """Tokens 0 … 4 are the context; the horizon's first is position 0 again, whatever the clock."""
    elapsed = torch.randn(2, 2)
    found = make_encoding("sinusoidal")(elapsed, torch.zeros(2, 2, 0), first)
    for n, position in enumerate({0: (0, 1), 5: (0, 1), 6: (1, 2)}[first]):
        for row in range(2):
            assert found[row, n].tolist() == pytest.approx(slow_sinusoid(position, 8), abs=1e-6)


def test_learned_positions_give_every_token_of_context_and_horizon_its_own_vector():
    encoding = make_encoding("learned")
    table = encoding.learned
    assert table.shape == (8, 8)
    context = encoding(torch.randn(2, 5), torch.zeros(2, 5, 0), 0)
    horizon = encoding(torch.randn(2, 3), torch.zeros(2, 3, 0), 5)
    for row in range(2):
        assert torch.equal(torch.cat([context[row], horizon[row]]), table)
