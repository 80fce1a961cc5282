"""Words for values: there and back, cross-entropy, quantiles of a histogram by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forecaster.model.heads import BinnedHead, Vocabulary, Words
from forecaster.model.scaling import Scale

UNIT = Scale(torch.zeros(1, 1), torch.ones(1, 1))
FOUR = Vocabulary(4, 2.0)  # bins [−2, −1), [−1, 0), [0, 1), [1, 2]


def test_values_fall_into_equal_bins_and_what_is_beyond_into_the_outermost():
    values = torch.tensor([-9.0, -2.0, -1.01, -1.0, 0.0, 0.99, 1.0, 2.0, torch.inf, torch.nan])
    assert FOUR.tokens(values).tolist() == [0, 0, 0, 1, 2, 2, 3, 3, 3, 4]
    assert FOUR.values(torch.arange(4)).tolist() == [-1.5, -0.5, 0.5, 1.5]


@given(st.integers(2, 5000), st.floats(0.5, 50))
def test_a_word_means_a_value_of_its_own_bin(bins, limit):
    vocabulary = Vocabulary(bins, limit)
    numbers = torch.arange(bins)
    assert torch.equal(vocabulary.tokens(vocabulary.values(numbers)), numbers)


def test_missing_values_have_a_vector_of_their_own():
    words = Words(FOUR, 8)
    vectors = words(torch.tensor([[0.2, torch.nan, 0.9]]))
    assert torch.equal(vectors[0, 0], vectors[0, 2])
    assert torch.equal(vectors[0, 1], words.embedding.weight[4])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_loss_is_the_cross_entropy_with_the_label_shared_out(smoothing):
    """(1 − ε)·(−log p of the word) + ε·(mean of −log p over all words)."""
    torch.manual_seed(0)
    raw, target = torch.randn(3, 5, 2, 4), 1.5 * torch.randn(3, 5, 2)
    scale = Scale(torch.full((3, 2), 1.0), torch.full((3, 2), 2.0))
    loss = BinnedHead((0.5,), FOUR, smoothing).loss(raw, scale, 1 + 2 * target)
    surprise = -raw.double().log_softmax(-1).numpy()
    word = np.clip(np.floor(target.numpy() + 2), 0, 3).astype(int)[..., None]
    chosen = np.take_along_axis(surprise, word, axis=-1)[..., 0]
    expected = (1 - smoothing) * chosen + smoothing * surprise.mean(axis=-1)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)


def test_quantiles_mean_mode_and_draws_of_a_histogram_by_hand():
    """Probabilities ⅛, ⅛, ½, ¼ of the bins from −2 on: the cdf is 0, ⅛, ¼, ¾, 1 at −2, −1, 0, 1, 2.

    0.1 lies 0.8 of the way through the first bin, 0.5 half-way through the third (0.25 + 0.25), 0.9 at
    0.6 of the last. The mean is −1.5/8 − 0.5/8 + 0.5/2 + 1.5/4 = 0.375.
    """
    head = BinnedHead((0.1, 0.5, 0.9), FOUR, 0.0)
    raw = torch.tensor([0.125, 0.125, 0.5, 0.25]).log()[None, None, None]
    assert head.quantiles(raw, UNIT)[0, 0, 0].tolist() == pytest.approx([-1.2, 0.5, 1.6], abs=1e-6)
    assert head.mean(raw, UNIT).item() == pytest.approx(0.375)
    assert head.mode(raw, UNIT).item() == 0.5
    uniform = torch.tensor([[[[0.1, 0.9]]]], dtype=torch.float64)
    assert head.sample(raw, UNIT, uniform).item() == pytest.approx(-1.2)


def test_the_initial_distribution_is_a_standard_normal():
    head = BinnedHead((0.1, 0.5, 0.9), Vocabulary(1000, 6.0), 0.0)
    raw = head.initial_bias()[None, None, None]
    expected = [-1.2815516, 0.0, 1.2815516]
    assert head.quantiles(raw, UNIT)[0, 0, 0].tolist() == pytest.approx(expected, abs=1e-3)
