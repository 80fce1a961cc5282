"""Quantiles at any level from the fitted ones, and the mean: against slow loops and hand-checkable numbers."""

from statistics import NormalDist

import numpy as np
import pytest
import torch

from forecaster.model.expert_attention import LEVELS, offsets
from forecaster.model.tails import GRID, TAIL, at_levels, mean_of, tail

normal = NormalDist().inv_cdf
WANTED = (0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 0.55, 0.9, 0.95, 0.99, 0.9999)


def rising(count, rows=4, seed=0):
    random = torch.Generator().manual_seed(seed)
    return torch.randn(rows, count, generator=random, dtype=torch.float64).sort(dim=-1).values


def test_other_levels_lie_between_the_fitted_ones_and_beyond_them_by_the_tail():
    fitted = offsets(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)))
    assert at_levels(fitted, LEVELS, LEVELS) is fitted
    found = at_levels(fitted, LEVELS, WANTED)
    assert (found.diff(dim=-1) > 0).all()
    assert torch.equal(found[:, [4, 6, 8]], fitted[:, [0, 4, 8]])
    beyond = fitted[:, 8] + (fitted[:, 8] - fitted[:, 4]) * TAIL[0.95]
    torch.testing.assert_close(found[:, 9], beyond)
    below = fitted[:, 0] + (fitted[:, 0] - fitted[:, 4]) * TAIL[0.95]
    torch.testing.assert_close(found[:, 3], below)
    share = (normal(0.25) - normal(0.2)) / (normal(0.3) - normal(0.2))
    torch.testing.assert_close(found[:, 5], torch.lerp(fitted[:, 1], fitted[:, 2], share))


def test_the_tail_rises_from_the_median_on():
    levels = [0.5, 0.7, 0.8999, 0.9, 0.9001, 0.95, 0.97, 0.999, 0.9999]
    reach = [tail(level) for level in levels]
    assert reach == sorted(reach)
    assert reach[0] == -1 and reach[3] == 0 and reach[5] == TAIL[0.95]


@pytest.mark.parametrize(
    "fitted", [(0.5,), (0.1, 0.5), (0.5, 0.8), (0.2, 0.5, 0.95), (0.01, 0.5, 0.99)]
)
def test_any_fitted_levels_have_rising_quantiles_at_all_others(fitted):
    quantiles = rising(len(fitted))
    found = at_levels(quantiles, fitted, WANTED)
    assert (found.diff(dim=-1) >= 0).all()
    assert torch.equal(at_levels(quantiles, fitted, (0.5, *fitted))[:, 1:], quantiles)
    for row in range(len(quantiles)):  # one cell, one level at a time
        slow = [quantile(quantiles[row].tolist(), fitted, level) for level in WANTED]
        np.testing.assert_allclose(found[row], slow, rtol=1e-12, atol=1e-12)


def quantile(known, fitted, level):
    """The definition, for one level."""
    median = known[fitted.index(0.5)]
    if len(fitted) == 1 or level in fitted:
        return known[fitted.index(level)] if level in fitted else median
    if (level > 0.5 and fitted[-1] == 0.5) or (level < 0.5 and fitted[0] == 0.5):
        return 2 * median - quantile(known, fitted, 1 - level)
    for place in range(len(fitted) - 1):
        low, high = fitted[place], fitted[place + 1]
        if low < level < high:
            share = (normal(level) - normal(low)) / (normal(high) - normal(low))
            return known[place] + share * (known[place + 1] - known[place])
    outermost = 0 if level < 0.5 else -1
    reach = [1 + tail(max(one, 1 - one)) for one in (level, fitted[outermost])]
    return median + (known[outermost] - median) * reach[0] / reach[1]


def test_a_factor_widens_what_lies_beyond_the_outermost_level_alone():
    quantiles = rising(9)
    plain, wide = (at_levels(quantiles, LEVELS, WANTED, factor) for factor in (1.0, 2.0))
    assert torch.equal(plain[:, 4:9], wide[:, 4:9])
    edge = quantiles[:, [-1]]
    torch.testing.assert_close(wide[:, 9:] - edge, 2 * (plain[:, 9:] - edge))
    assert (wide.diff(dim=-1) > 0).all()


def test_outermost_levels_of_another_fit_have_the_same_tail():
    """The quantiles of 0.95 that 0.9 implies imply the same 0.99."""
    narrow = rising(3)
    wide = at_levels(narrow, (0.1, 0.5, 0.9), (0.05, 0.5, 0.95))
    torch.testing.assert_close(
        at_levels(wide, (0.05, 0.5, 0.95), (0.01, 0.99)),
        at_levels(narrow, (0.1, 0.5, 0.9), (0.01, 0.99)),
    )


def test_a_constant_of_any_size_stays_what_it_is():
    flat = torch.full((2, 9), 1e9 + 1 / 3, dtype=torch.float64)
    assert torch.equal(at_levels(flat, LEVELS, WANTED), flat[:, :1].expand(2, len(WANTED)))
    assert torch.equal(mean_of(flat, LEVELS), flat[:, 0])


@pytest.mark.parametrize("fitted", [LEVELS, (0.1, 0.5, 0.9), (0.5,), (0.1, 0.5)])
def test_the_mean_is_that_of_a_loop_over_the_grid(fitted):
    quantiles = rising(len(fitted))
    slow = [at_levels(quantiles, fitted, (level,))[:, 0] for level in GRID]
    torch.testing.assert_close(mean_of(quantiles, fitted), torch.stack(slow).mean(dim=0))


def test_symmetric_quantiles_have_their_median_as_mean_and_skewed_ones_lie_towards_their_long_tail():
    half = rising(4).abs().sort(dim=-1).values
    symmetric = torch.cat([-half.flip(-1), torch.zeros(4, 1), half], dim=-1) + 7
    torch.testing.assert_close(mean_of(symmetric, LEVELS), torch.full((4,), 7.0, dtype=torch.float64))
    skewed = torch.where(symmetric > 7, 7 + 3 * (symmetric - 7), symmetric)
    assert (mean_of(skewed, LEVELS) > 7).all()


def test_the_mean_of_a_lognormal_is_found_within_two_percent_of_it():
    spread = 0.5
    quantiles = torch.tensor([[np.exp(spread * normal(level)) for level in LEVELS]])
    found = float(mean_of(quantiles, LEVELS)[0])
    assert abs(found / np.exp(spread**2 / 2) - 1) < 0.02


def test_scaled_and_shifted_quantiles_scale_and_shift_the_mean():
    quantiles = rising(9)
    torch.testing.assert_close(
        mean_of(3 * quantiles - 200, LEVELS), 3 * mean_of(quantiles, LEVELS) - 200
    )
