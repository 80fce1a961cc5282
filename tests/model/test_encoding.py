"""Sinusoids as published, one number at a time."""

import math

import pytest
import torch

from forecaster.model.encoding import TimeEncoding, phase_sinusoids, sinusoids


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


def test_elapsed_time_is_the_published_position_shifted():
    """Whatever the shift, products of two encodings depend on how far apart they are alone."""
    published = sinusoids(torch.arange(24.0)[None], 32)[0]
    elapsed = sinusoids(torch.arange(24.0)[None] - 20, 32)[0]
    torch.testing.assert_close(elapsed[20:], published[:4])
    torch.testing.assert_close(elapsed @ elapsed.T, published @ published.T, rtol=0, atol=1e-4)


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


def test_a_time_encoding_is_the_sinusoid_plus_a_projection_of_phases():
    torch.manual_seed(0)
    encoding = TimeEncoding(width=8, cycles=2, harmonics=3)
    elapsed, phase = torch.randn(2, 5), torch.rand(2, 5, 2)
    added = encoding(elapsed, phase) - sinusoids(elapsed, 8)
    torch.testing.assert_close(added, encoding.phase(phase_sinusoids(phase, 3)), rtol=0, atol=1e-5)


def test_a_table_without_cycles_is_told_elapsed_time_alone():
    elapsed = torch.randn(2, 5)
    encoding = TimeEncoding(width=8, cycles=0, harmonics=3)
    assert torch.equal(encoding(elapsed, torch.zeros(2, 5, 0)), sinusoids(elapsed, 8))
    assert not list(encoding.parameters())
