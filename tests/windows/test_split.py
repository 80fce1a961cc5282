"""All cutoff arithmetic against a loop over rows."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.errors import DataError
from forecaster.windows import split as split_module
from forecaster.windows.split import split_panel

HOUR = 3_600_000_000
WATCHED = {"calibration": None}


@pytest.fixture(scope="module")
def make_config(make_config):
    """The factory of configs with patches of four steps."""
    return partial(make_config, model={"patch": 4})


def windows(index):
    return set(zip(*(array.tolist() for array in index.locate(np.arange(len(index)))), strict=True))


def last_target(panel, series):
    rows = range(panel.indptr[series], panel.indptr[series + 1])
    return max(row for row in rows if not np.isnan(panel.values[row, : panel.n_channels]).all())


def slow_windows(panel, split, horizon, patch):
    """The rules of the drawing in split.py, row by row: (training, validation) windows."""
    train, validation = set(), set()
    for series in range(panel.n_series):
        last = last_target(panel, series)
        for cutoff in range(panel.indptr[series], last + 1):
            if cutoff - panel.indptr[series] + 1 < patch or cutoff + horizon > last:
                continue
            for channel in np.flatnonzero(panel.present[series]):
                if panel.time[cutoff + horizon] <= split:
                    train.add((series, channel, cutoff))
                if panel.time[cutoff + 1] > split:
                    validation.add((series, channel, cutoff))
    return train, validation


@settings(max_examples=15, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(25, 60),
    st.integers(1, 5),
    st.integers(1, 2),
    st.sampled_from([0.1, 0.3]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
)
def test_windows_equal_a_loop_over_rows(
    make_panel, make_config, n_series, n_rows, horizon, targets, share, ragged, sparse, seed
):
    panel = make_panel(
        n_series, n_rows, targets=targets, ragged=ragged, gaps=0.1, missing=0.2, seed=seed
    )
    if sparse and targets > 1:  # a group may lack a channel
        panel = replace(panel, members=np.arange(targets) != np.arange(n_series)[:, None] % 3)
    split = split_panel(panel, make_config(horizon, fit={"validation": share}))
    train, validation = slow_windows(panel, split.split, horizon, patch=4)
    assert len(split.train) == len(train) and windows(split.train) == train
    assert len(split.validation) == len(validation) and windows(split.validation) == validation
    assert split.end == max(panel.time[last_target(panel, s)] for s in range(n_series))
    for begin, end, train_end in zip(panel.indptr, panel.indptr[1:], split.train_end, strict=False):
        assert train_end == begin + (panel.time[begin:end] <= split.split).sum()


@pytest.mark.parametrize("irregular", [False, True])
def test_no_training_target_lies_after_the_split_and_no_validation_target_on_or_before_it(
    make_panel, make_config, irregular
):
    panel = make_panel(4, 80, ragged=True, irregular=irregular, gaps=0.1)
    assert len(set(panel.time[panel.indptr[1:] - 1].tolist())) == 4  # each series ends elsewhere
    split = split_panel(panel, make_config(3))
    assert len(split.train) and len(split.validation)
    ahead = np.arange(1, 4)
    for index, allowed in (
        (split.train, lambda time: time <= split.split),
        (split.validation, lambda time: time > split.split),
    ):
        series, _, cutoff = index.locate(np.arange(len(index)))
        targets = cutoff[:, None] + ahead
        assert (targets < panel.indptr[series + 1][:, None]).all()
        assert allowed(panel.time[targets]).all()


def test_the_split_leaves_the_asked_share_of_the_time_axis(make_panel, make_config):
    panel = make_panel(1, 100)
    split = split_panel(panel, make_config(4, fit={"validation": 0.2}))
    assert split.end == panel.time[99] and split.split == panel.time[79]
    assert len(split.validation) == 20 - 4 + 1 and len(split.train) == 80 - 4 - 4 + 1


def test_validation_has_at_least_one_horizon(make_panel, make_config):
    panel = make_panel(1, 100)
    split = split_panel(panel, make_config(30, fit={"validation": 0.01}))
    assert (split.end - split.split) // HOUR == 30 and len(split.validation) == 1


def test_rows_after_the_last_target_belong_to_no_window(make_panel, make_config):
    panel = make_panel(1, 60, known=1)
    values = panel.values.copy()
    values[50:, 0] = np.nan
    future = replace(panel, values=values)
    split = split_panel(future, make_config(4))
    assert split.end == panel.time[49]
    cut = split_panel(panel.until(panel.time[49]), make_config(4))
    assert windows(split.train) == windows(cut.train)
    assert windows(split.validation) == windows(cut.validation)


def test_a_short_table_trains_on_everything_rather_than_validate(make_panel, make_config):
    panel = make_panel(1, 9)
    split = split_panel(panel, make_config(4, fit={"validation": 0.3}))
    assert split.split == split.end and (split.train_end == panel.indptr[1:]).all()
    assert len(split.validation) == 0 and windows(split.train) == {(0, 0, 3), (0, 0, 4)}


def test_a_table_too_short_for_one_window_is_refused_with_the_numbers(make_panel, make_config):
    panel = make_panel(2, 9)
    expected = (
        r"horizon 7 is longer than the history allows: a training window needs 4 \+ 7 rows, "
        r"the longest of 2 series has 9; shorten --horizon to 4 or add history"
    )
    with pytest.raises(DataError, match=expected):
        split_panel(panel, make_config(7))


def test_the_shorter_horizon_that_a_refusal_names_is_accepted(make_panel, make_config):
    for rows in (5, 6, 9):
        panel = make_panel(1, rows)
        with pytest.raises(DataError) as refused:
            split_panel(panel, make_config(rows))
        advised = int(str(refused.value).split("--horizon to ")[1].split()[0])
        assert len(split_panel(panel, make_config(advised)).train) >= 1


def test_a_table_shorter_than_a_patch_is_told_that_no_horizon_helps(make_panel, make_config):
    with pytest.raises(DataError, match=r"longest of 1 series has 4; lower model.patch below 4 or add"):
        split_panel(make_panel(1, 4), make_config(3))


def test_the_stride_counts_cutoffs_back_from_the_last_row_of_each_series(make_panel, make_config):
    panel = make_panel(3, 60, ragged=True)
    dense = split_panel(panel, make_config(3))
    wide = split_panel(panel, make_config(3, fit={"stride": 5}))
    for every, spaced in ((dense.train, wide.train), (dense.validation, wide.validation)):
        kept = [w for w in windows(every) if (panel.last_observed[w[0]] - w[2]) % 5 == 0]
        assert kept and sorted(windows(spaced)) == sorted(kept)


def test_a_drawn_validation_of_many_series_keeps_its_bound_and_meets_late_cutoffs(
    make_panel, make_config, monkeypatch
):
    monkeypatch.setattr(split_module, "MOST_WINDOWS", 100)
    panel = make_panel(300, 60)
    split = split_panel(panel, make_config(4, fit=WATCHED))
    series, _, cutoff = split.validation.locate(split.validation_windows)
    assert len(split.validation_windows) == 100 and len(set(series.tolist())) > 60
    assert (cutoff - panel.indptr[series]).max() == 55


@settings(max_examples=20, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(40, 120),
    st.integers(1, 9),
    st.integers(1, 2),
    st.sampled_from([0.1, 0.5, 0.8]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 5),
)
def test_calibration_comes_after_all_that_is_watched(
    make_panel, make_config, n_series, n_rows, horizon, targets, share, ragged, irregular, seed
):
    panel = make_panel(
        n_series, n_rows, targets=targets, ragged=ragged, irregular=irregular, gaps=0.1, seed=seed
    )
    split = split_panel(panel, make_config(horizon, fit={"validation": 0.4, "calibration": share}))
    if len(split.calibration_windows) == 0:
        assert split.validation_windows.tolist() == list(range(len(split.validation)))
        return
    assert len(split.validation_windows) and not set(split.validation_windows) & set(
        split.calibration_windows
    )
    ahead = np.arange(1, horizon + 1)
    watched, calibrating = (
        split.validation.locate(part)[2]
        for part in (split.validation_windows, split.calibration_windows)
    )
    # One date for all series: every cutoff that calibrates, and every target, is later.
    assert panel.time[watched].max() < panel.time[calibrating + 1].min()
    room = round((split.end - split.split) / panel.calendar.step) - horizon + 1
    if room >= 2 * horizon:
        assert panel.time[watched[:, None] + ahead].max() < panel.time[calibrating[:, None] + 1].min()


def test_the_watched_and_the_calibrating_cutoffs_are_those_of_the_drawing(make_panel, make_config):
    panel = make_panel(1, 200)
    split = split_panel(panel, make_config(10, fit={"validation": 0.5}))
    watched, calibrating = (
        split.validation.locate(part)[2]
        for part in (split.validation_windows, split.calibration_windows)
    )
    # 100 validated rows: cutoffs 99 … 189, of which 9 lie between and 41 are on either side.
    assert watched.tolist() == list(range(99, 140)) and calibrating.tolist() == list(range(149, 190))


def test_both_parts_are_drawn_evenly_where_there_are_too_many(make_panel, make_config, monkeypatch):
    monkeypatch.setattr(split_module, "MOST_WINDOWS", 96)
    panel = make_panel(1, 24 * 40)
    split = split_panel(panel, make_config(4, fit={"validation": 0.5}))
    for part in (split.validation_windows, split.calibration_windows):
        _, _, cutoff = split.validation.locate(part)
        assert len(part) == 96 and len(set((panel.time[cutoff] // HOUR % 24).tolist())) >= 22
        assert cutoff.max() - cutoff.min() > 24 * 9
