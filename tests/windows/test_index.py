"""Window numbers and their order against nested loops."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.windows.index import WindowIndex, permuted, window_order

counts = st.lists(st.integers(0, 6), min_size=1, max_size=6)


def slow_windows(first, count, stride, members):
    return [
        (series, channel, first[series] + step * stride)
        for series in range(len(first))
        for channel in np.flatnonzero(members[series])
        for step in range(count[series])
    ]


@settings(max_examples=50, deadline=None)
@given(counts, st.integers(1, 4), st.integers(1, 3), st.booleans(), st.randoms())
def test_locate_equals_a_triple_loop_in_any_order_of_numbers(count, stride, channels, sparse, random):
    first = np.cumsum([7 * c for c in count]) - 3
    members = np.ones((len(count), channels), bool)
    if sparse:
        members[:] = [[random.random() < 0.5 for _ in range(channels)] for _ in count]
    index = WindowIndex(first, np.array(count), stride, channels, members if sparse else None)
    expected = slow_windows(first, count, stride, members)
    assert len(index) == len(expected)
    numbers = list(range(len(expected)))
    random.shuffle(numbers)
    if numbers:
        found = index.locate(np.array(numbers))
        assert list(zip(*found, strict=True)) == [expected[number] for number in numbers]
        assert all(array.dtype == np.int64 for array in found)
        assert index.numbers(*found).tolist() == numbers


@pytest.mark.parametrize("size", [1, 2, 10, 4097])
@pytest.mark.parametrize("seed", [0, 2**40])
@pytest.mark.parametrize("epoch", [0, 17])
def test_a_keyed_permutation_is_a_bijection(size, seed, epoch):
    numbers = permuted(np.arange(size), size, seed, epoch)
    assert numbers.dtype == np.int64
    assert sorted(numbers.tolist()) == list(range(size))


def test_orders_differ_between_epochs_and_seeds():
    orders = [
        tuple(permuted(np.arange(1000), 1000, seed, epoch).tolist())
        for seed, epoch in itertools.product(range(3), range(3))
    ]
    assert len(set(orders)) == len(orders)


def test_an_order_looks_random():
    """Neighbours, displacements and which half comes first, each within 5 sigma of chance."""
    size = 4097
    numbers = permuted(np.arange(size), size, 0, 0)
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 5 / np.sqrt(size)
    assert abs(np.corrcoef(numbers, np.arange(size))[0, 1]) < 5 / np.sqrt(size)
    early = (numbers[: size // 2] < size // 2).mean()
    assert abs(early - 0.5) < 5 * 0.5 / np.sqrt(size)
    assert (numbers == np.arange(size)).sum() < 10  # one fixed point is expected


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("size", [1, 2, 10, 101])
def test_the_ranks_of_an_epoch_together_meet_every_window_once(world, size):
    epochs = world * 2  # so that each rank's share of them is a whole number of windows
    share = epochs * size // world
    ranks = [window_order(size, 5, 0, share, rank=rank, world=world) for rank in range(world)]
    met = np.stack(ranks, axis=1).reshape(epochs, size)  # position p belongs to rank p mod world
    for epoch in met:
        assert sorted(epoch.tolist()) == list(range(size))


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(0, 90), st.integers(1, 50), st.integers(1, 3), st.integers(0, 9))
def test_resuming_at_a_window_gives_the_tail(size, start, count, world, seed):
    for rank in range(world):
        whole = window_order(size, seed, 0, start + count, rank=rank, world=world)
        tail = window_order(size, seed, start, count, rank=rank, world=world)
        assert tail.tolist() == whole[start:].tolist()


def test_a_stretch_may_straddle_epochs():
    stretch = window_order(10, 0, 7, 16)
    epochs = [permuted(np.arange(10), 10, 0, epoch).tolist() for epoch in range(3)]
    assert stretch.tolist() == epochs[0][7:] + epochs[1] + epochs[2][:3]
