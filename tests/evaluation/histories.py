"""Flat stores of ragged series with gaps, and a baseline on them against a slow loop."""

import numpy as np
from hypothesis import strategies as st

from forecaster.evaluation.error_scales import Histories

LEVELS = [0.1, 0.5, 0.9]


@st.composite
def problems(draw):
    """Histories of a few series with a season, two channels, pairs in any order; horizon, season length."""
    lengths = draw(st.lists(st.integers(0, 40), min_size=1, max_size=5))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    season = draw(st.integers(1, 8))
    wave = 30 * np.sin(np.arange(indptr[-1]) * 2 * np.pi / season)[:, None]
    values = 100 + wave + random.normal(0, 10, (indptr[-1], 2))
    values[random.random(values.shape) < draw(st.sampled_from([0.0, 0.3, 0.9]))] = np.nan
    series = random.integers(0, len(lengths), draw(st.integers(0, 8)))
    cutoff = np.array([random.integers(indptr[s] - 1, indptr[s + 1]) for s in series], np.int64)
    return Histories(values, indptr, cutoff, series), draw(st.integers(1, 12)), season


def check_against_loop(baseline, slow, problem, **tolerance):
    """`slow` forecasts one channel up to its cutoff."""
    (values, indptr, cutoff, series), horizon, season = problem
    found = baseline(*problem, LEVELS)
    assert found.shape == (len(series), horizon, 2, 3) and found.dtype == np.float64
    for k, s in enumerate(series):
        for channel in range(2):
            history = values[indptr[s] : cutoff[k] + 1, channel]
            wanted = slow(history, horizon, season, LEVELS)
            np.testing.assert_allclose(found[k, :, channel], wanted, **tolerance)
