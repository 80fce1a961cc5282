"""Dropout: how many values it takes, and what it leaves alone."""

import pytest
import torch

from forecaster.model.dropout import Dropout


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.5, 0.9])
def test_the_share_that_is_0_is_the_rate_and_the_mean_stays(rate):
    torch.manual_seed(0)
    out = Dropout(rate)(torch.ones(300, 1000))
    dropped = (out == 0).double()
    spread = (rate * (1 - rate)) ** 0.5
    assert abs(dropped.mean() - rate) < 4 * spread / 300_000**0.5 + 1 / 65_536
    # No place is taken more often than others: not in any row, column, or turn of four.
    assert (dropped.mean(0) - rate).abs().max() < 5 * spread / 300**0.5
    assert (dropped.mean(1) - rate).abs().max() < 5 * spread / 1000**0.5
    turns = dropped.flatten().view(-1, 4).mean(0)
    assert (turns - rate).abs().max() < 5 * spread / 75_000**0.5
    torch.testing.assert_close(
        out[out != 0].unique(), torch.tensor([1 / (1 - rate)]), rtol=1e-3, atol=0
    )
    assert abs(out.mean() - 1) < 4 * spread / (1 - rate) / 300_000**0.5 + 1e-4


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    dropped = (Dropout(0.3)(torch.ones(400_000)) == 0).double() - 0.3
    for lag in (1, 2, 3, 4, 8):
        together = (dropped[lag:] * dropped[:-lag]).mean() / 0.21
        assert abs(together) < 5 / 400_000**0.5


def test_gradients_pass_where_values_do_and_nowhere_else():
    values = torch.randn(37, 5, requires_grad=True)
    torch.manual_seed(1)
    out = Dropout(0.4)(values)
    out.sum().backward()
    assert torch.equal(values.grad == 0, out == 0)
    torch.testing.assert_close(out, values.detach() * values.grad)


def test_nothing_is_dropped_outside_training_or_at_rate_0():
    values = torch.randn(6, 3)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values


def test_the_same_seed_drops_the_same_and_the_kind_of_number_stays():
    drop = Dropout(0.2)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        values = torch.ones(1001, dtype=dtype)
        torch.manual_seed(3)
        once = drop(values)
        torch.manual_seed(3)
        assert torch.equal(once, drop(values))
        assert once.dtype == dtype
