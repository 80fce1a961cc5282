"""Intervals of skills: paired, seeded, as wide as what is shared makes them, right as often as said."""

from itertools import product

import numpy as np
import pytest

from forecaster.evaluation import bootstrap
from forecaster.evaluation.bootstrap import paired_skills


def _losses(seed, cutoffs=12, series=8):
    random = np.random.default_rng(seed)
    rival = random.uniform(1, 3, (cutoffs, series))
    return rival * random.uniform(0.6, 1.2, rival.shape), rival


def paired_skill(loss, rival, overlap=1):
    return paired_skills({"ours": loss}, rival, overlap)["ours"]


def test_models_scored_together_are_as_alone():
    loss, rival = _losses(7)
    together = paired_skills({"ours": loss, "theirs": rival[::-1], "rival": rival}, rival)
    assert together["ours"] == paired_skill(loss, rival)
    assert together["rival"] == (0.0, 0.0, 0.0)


def test_the_pairs_matter_not_how_hard_the_windows_are():
    _, rival = _losses(1)
    found = paired_skill(0.75 * rival, rival)
    assert found.skill == pytest.approx(0.25)
    assert found.low == pytest.approx(0.25) and found.high == pytest.approx(0.25)
    other = paired_skill(0.75 * np.roll(rival, 3, axis=0), rival)
    assert other.high - other.low > 0.01


def test_equal_models_cannot_be_told_apart_and_one_window_has_no_interval():
    _, rival = _losses(2)
    shuffled = np.random.default_rng(0).permutation(rival.ravel()).reshape(rival.shape)
    found = paired_skill(shuffled, rival)
    assert found.low < 0 < found.high
    alone = paired_skill(np.array([[1.0]]), np.array([[2.0]]))
    assert alone.skill == 0.5 and np.isnan([alone.low, alone.high]).all()
    nothing = paired_skill(np.ones((2, 2)), np.zeros((2, 2)))
    assert np.isnan(nothing).all()


def test_the_interval_is_that_of_all_draws_there_are(monkeypatch):
    loss, rival = _losses(3, cutoffs=5, series=1)
    drawn = [
        1 - loss[list(some)].sum() / rival[list(some)].sum() for some in product(range(5), repeat=5)
    ]
    found = paired_skill(loss, rival)
    assert min(drawn) <= found.low <= found.high <= max(drawn)
    monkeypatch.setattr(bootstrap, "DRAWS", 20_000)
    low, high = np.quantile(drawn, [0.025, 0.975])
    many = paired_skill(loss, rival)
    assert (many.low, many.high) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))


def test_what_all_series_share_at_a_cutoff_is_not_counted_many_times():
    """A hundred series that move as one say no more than one of them."""
    loss, rival = _losses(4, series=1)
    one = paired_skill(loss, rival)
    many = paired_skill(np.repeat(loss, 100, axis=1), np.repeat(rival, 100, axis=1))
    assert many.high - many.low == pytest.approx(one.high - one.low, rel=0.15)


def test_cutoffs_whose_horizons_overlap_are_drawn_together():
    """Each loss eight times over is no more evidence than once."""
    loss, rival = _losses(5, cutoffs=20, series=1)
    once = paired_skill(loss, rival)
    repeated = [np.repeat(one, 8, axis=0) for one in (loss, rival)]
    blocks, naive = paired_skill(*repeated, overlap=8), paired_skill(*repeated)
    width = once.high - once.low
    assert naive.high - naive.low < 0.5 * width < 0.75 * width < blocks.high - blocks.low


def test_the_interval_holds_the_true_skill_about_as_often_as_it_says():
    """200 worlds of 16 cutoffs and 6 series with errors shared by cutoff and by series."""
    random = np.random.default_rng(6)
    held = 0
    for _ in range(200):
        shared = random.normal(0, 0.2, (16, 1)) + random.normal(0, 0.1, (1, 6))
        rival = np.ones((16, 6))
        loss = 0.8 + shared + random.normal(0, 0.2, (16, 6))
        found = paired_skill(loss, rival)
        held += found.low <= 0.2 <= found.high
    assert 0.88 <= held / 200 <= 0.99
