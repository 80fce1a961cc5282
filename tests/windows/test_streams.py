"""The order of batches: the keyed permutation for training, once through for validation."""

from itertools import islice

import numpy as np
import pytest

from forecaster.windows.index import window_order
from forecaster.windows.split import split_panel
from forecaster.windows.store import training_store
from forecaster.windows.streams import TrainingStream, WindowSequence


@pytest.fixture(scope="module")
def store_and_index(make_panel, make_plan):
    panel, plan = make_panel(2, 40, targets=2), make_plan(4)
    return training_store(panel, plan), split_panel(panel, plan).train


def keys(batches):
    """(series, channel, cutoff) of every window met; the code of a channel is its number + 1."""
    return [
        window
        for batch in batches
        for window in zip(
            batch.series.tolist(),
            (batch.inputs.channel[:, 0] - 1).tolist(),
            batch.cutoff.tolist(),
            strict=True,
        )
    ]


def located(index, numbers):
    return list(zip(*(array.tolist() for array in index.locate(numbers)), strict=True))


@pytest.mark.parametrize(("rank", "world"), [(0, 1), (1, 3)])
def test_training_batches_follow_the_window_order_over_epochs(store_and_index, rank, world):
    store, index = store_and_index
    size, steps = 32, 12
    assert size * steps > len(index)  # into the next epoch, in the midst of a batch
    stream = TrainingStream(store, index, size, seed=7, rank=rank, world=world)
    order = window_order(len(index), 7, 0, size * steps, rank=rank, world=world)
    assert keys(islice(stream, steps)) == located(index, order)


def test_a_stream_that_starts_at_step_k_gives_the_tail(store_and_index):
    store, index = store_and_index
    whole = keys(islice(TrainingStream(store, index, 8, seed=1), 9))
    tail = keys(islice(TrainingStream(store, index, 8, seed=1, first_step=5), 4))
    assert tail == whole[5 * 8 :]


def test_a_stream_outlives_the_numbers_computed_at_once(store_and_index, monkeypatch):
    store, index = store_and_index
    expected = keys(islice(TrainingStream(store, index, 8, seed=2), 10))
    monkeypatch.setattr("forecaster.windows.streams._AHEAD", 24)
    assert keys(islice(TrainingStream(store, index, 8, seed=2), 10)) == expected


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_batch_of_all_ranks_together_is_the_batch_of_one_device(store_and_index, world):
    store, index = store_and_index
    size, steps = 10, 9
    one = islice(TrainingStream(store, index, size * world, seed=3), steps)
    ranks = [
        islice(TrainingStream(store, index, size, seed=3, rank=rank, world=world), steps)
        for rank in range(world)
    ]
    for whole, *shares in zip(one, *ranks, strict=True):
        assert [len(share.cutoff) for share in shares] == [size] * world
        assert sorted(keys(shares)) == sorted(keys([whole]))


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("held", [1, 2, 13, 40])
def test_each_validation_window_is_on_one_rank_once(store_and_index, world, held):
    """Neither padded nor repeated; a rank that has none left still has as many batches."""
    store, index = store_and_index
    numbers = np.arange(held) * 3 % len(index)
    ranks = [
        list(WindowSequence(store, index, numbers, 5, rank=rank, world=world)) for rank in range(world)
    ]
    assert {len(batches) for batches in ranks} == {-(-held // (5 * world))}
    met = [window for batches in ranks for window in keys(batches)]
    assert sorted(met) == sorted(located(index, numbers))


def test_with_channel_attention_a_window_holds_all_channels(make_panel, make_plan):
    """Each cutoff of each series once; `locate` still names the window."""
    panel = make_panel(2, 40, targets=3)
    plan = make_plan(4, model={"channel_attention": True})
    store = training_store(panel, plan)
    together, apart = split_panel(panel, plan), split_panel(panel, make_plan(4))
    assert len(apart.train) == 3 * len(together.train)
    batch = next(iter(WindowSequence(store, together.train, np.arange(len(together.train)), 10**6)))
    assert batch.target.shape[2] == 3 and batch.inputs.channel.tolist()[0] == [1, 2, 3]
    pairs = list(zip(batch.series.tolist(), batch.cutoff.tolist(), strict=True))
    assert len(set(pairs)) == len(pairs) == len(together.train)
