"""Batches against a slow twin that cuts each window cell by cell, and the promises of the store."""

from dataclasses import fields, replace

import numpy as np
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from forecaster.config import DataConfig, ExpertPlan, ModelPlan
from forecaster.model.scaling import ContextScaler
from forecaster.panel.build import open_panel
from forecaster.panel.calendar import Calendar
from forecaster.panel.store import open_store, writing
from forecaster.windows.batch import Inputs
from forecaster.windows.index import window_order
from forecaster.windows.split import split_panel
from forecaster.windows.store import WindowStore
from forecaster.windows.streams import WindowSequence

L, H, T = 9, 4, 14
DRIVERS = 2  # the last columns before those known in advance
NAMES = [field.name for field in fields(Inputs)]


def cutoffs(panel, horizon=H):
    """(series, cutoff) of every window that has its horizon, from a series' first row on."""
    return [
        (series, cutoff)
        for series in range(panel.n_series)
        for cutoff in range(panel.indptr[series], panel.indptr[series + 1] - horizon)
    ]


def store_of(panel, length=L, horizon=H, history=T):
    drivers = panel.schema.columns[-DRIVERS:]
    pool = ExpertPlan(history_length=history, drivers=drivers, driver_length=history + 3)
    plan = ModelPlan(context_length=length, patch=1, decoder_patch=1, pool=pool)
    return WindowStore(panel, plan, horizon, outliers=True)


def batch_of(panel, wanted, channel=None, **lengths):
    store = store_of(panel, **lengths)
    series, cutoff = (np.array(column, np.int64) for column in zip(*wanted, strict=True))
    chosen = None if channel is None else np.full(len(series), channel)
    return store.batch(series, chosen, cutoff)


def slow_window(panel, series, channel, cutoff, length=L, horizon=H, history=T):
    """One window, cell by cell: every field of a batch, without its first axis."""
    schema = panel.schema
    begin, end = panel.indptr[series : series + 2]
    channels = range(panel.n_channels) if channel is None else [channel]
    past, known = len(schema.past_numeric), len(schema.known_numeric)
    past_codes = len(schema.past_category)
    cells, codes, elapsed, phase = [], [], [], []
    for offset in range(1 - length, horizon + 1):
        row = cutoff + offset
        own = begin <= row < end
        cells.append(panel.values[row] if own else np.full(panel.values.shape[1], np.nan))
        codes.append(
            np.maximum(panel.codes[row], 0) if own else np.zeros(panel.codes.shape[1], np.int32)
        )
        gone = (panel.time[row] - panel.time[cutoff]) / panel.calendar.step if own else offset
        elapsed.append(offset if panel.regular else gone)
        here = panel.time[[row if own else begin]]
        phase.append(panel.calendar.phase(here)[0] if own else np.full(len(panel.calendar.cycles), -1))
    cells, codes = np.array(cells), np.array(codes).reshape(length + horizon, -1)
    targets = cells[:, list(channels)]
    covariates = cells[:, panel.n_channels :]
    so_far = np.full((history, len(targets[0])), np.nan)
    own = panel.values[max(begin, cutoff + 1 - history) : cutoff + 1, list(channels)]
    so_far[history - len(own) :] = own
    drivers = np.full((history + 3, len(schema.columns[-DRIVERS:])), np.nan)
    end = len(schema.columns)
    first = max(begin, cutoff + 1 - len(drivers))
    own = panel.values[first : cutoff + 1, end - drivers.shape[1] : end]
    drivers[len(drivers) - len(own) :] = own
    return {
        "context": targets[:length],
        "observed": ~np.isnan(targets[:length]),
        "past": covariates[:length, :past],
        "past_observed": ~np.isnan(covariates[:length, :past]),
        "known": covariates[:, past : past + known],
        "known_observed": ~np.isnan(covariates[:, past : past + known]),
        "static": panel.static[series],
        "static_category": np.maximum(panel.static_codes[series], 0),
        "past_category": codes[:length, :past_codes],
        "known_category": codes[:, past_codes:],
        "phase": np.array(phase, np.float32),
        "elapsed": np.array(elapsed, np.float32),
        "channel": np.array(channels) + 1,
        "history": so_far,
        "history_observed": ~np.isnan(so_far),
        "drivers": drivers,
        "effect": np.zeros((0, len(targets[0]))),
        "effect_variance": np.zeros((0, len(targets[0]))),
        "multiplies": np.zeros(0, bool),
        "calendar": np.zeros((0, len(targets[0]))),
        "error_ratios": np.zeros((0, 3)),
        "target": targets[length:],
        "series": series,
        "cutoff": cutoff,
        "time": panel.time[cutoff],
    }


def assert_equal_to_slow_windows(panel, channel, **lengths):
    wanted = cutoffs(panel, lengths.get("horizon", H))
    batch = batch_of(panel, wanted, channel, **lengths)
    found = {name: getattr(batch.inputs, name).numpy() for name in NAMES}
    found |= {name: getattr(batch, name).numpy() for name in ("target", "series", "cutoff", "time")}
    assert len(found["cutoff"]) == len(wanted) > 0
    for i, (series, cutoff) in enumerate(wanted):
        expected = slow_window(panel, series, channel, cutoff, **lengths)
        assert set(expected) == set(found)
        own = expected["phase"] >= 0  # nothing is promised of phases outside the series
        for name, cells in expected.items():
            mine = np.where(own, found[name][i], -1) if name == "phase" else found[name][i]
            np.testing.assert_array_equal(mine, cells, err_msg=f"{name} of window {i}")


@pytest.mark.parametrize("irregular", [False, True])
@pytest.mark.parametrize(("targets", "channel"), [(1, None), (1, 0), (3, None), (3, 0), (3, 2)])
def test_a_batch_equals_windows_cut_cell_by_cell(make_panel, targets, channel, irregular):
    panel = make_panel(
        3,
        40,
        targets=targets,
        past=1,
        known=2,
        categories=True,
        static=True,
        missing=0.2,
        gaps=0.15,
        ragged=True,
        irregular=irregular,
    )
    assert panel.regular is not irregular
    assert_equal_to_slow_windows(panel, channel)


@settings(max_examples=10, deadline=None)
@given(
    n_series=st.integers(1, 3),
    n_rows=st.integers(26, 40),
    targets=st.integers(1, 2),
    known=st.integers(0, 1),
    categories=st.booleans(),
    irregular=st.booleans(),
    length=st.integers(2, 50),
    horizon=st.integers(1, 5),
    history=st.integers(1, 50),
    seed=st.integers(0, 9),
)
def test_any_batch_equals_windows_cut_cell_by_cell(
    make_panel, n_series, n_rows, targets, length, horizon, history, **kind
):
    panel = make_panel(n_series, n_rows, targets=targets, gaps=0.1, ragged=True, missing=0.1, **kind)
    lengths = {"length": length, "horizon": horizon, "history": history}
    assert_equal_to_slow_windows(panel, targets - 1, **lengths)


@pytest.mark.parametrize("read", [L, 5])
def test_a_history_is_left_out_only_where_no_scale_is_taken_from_it(make_panel, read):
    panel = make_panel(3, 60, targets=2, gaps=0.2, ragged=True, missing=0.1)
    values = panel.values.copy()
    for begin, level in ((4, 0.0), (25, 7.0), (45, 1e9), (70, 3.0), (110, np.nan)):
        values[begin : begin + 13, :2] = level
    panel = replace(panel, values=values)
    pool = ExpertPlan(history_length=T)
    plan = ModelPlan(context_length=L, attention_length=read, patch=1, decoder_patch=1, pool=pool)
    store = WindowStore(panel, plan, H, outliers=True)
    scaler, left_out = ContextScaler(2), 0
    for series, cutoff in cutoffs(panel):
        for channel in (np.array([0]), np.array([1]), None):
            where = np.array([series]), channel, np.array([cutoff])
            scales = []
            for history in (True, False):
                inputs = store.batch(*where, history=history).inputs
                parts = inputs.context[:, -read:], inputs.observed[:, -read:], inputs.channel
                scales.append(scaler(*parts, inputs.history, inputs.history_observed))
            left_out += not inputs.history_observed.any()
            assert inputs.history.shape == (1, T, 2 if channel is None else 1)
            assert all(map(torch.equal, *scales))
    assert 100 < left_out < 3 * len(cutoffs(panel))


PHASED = {
    "hours, one on the hour and one at half past": ("1h", ["2024-02-28 22:00", "2024-02-28 20:30"]),
    "two hours, even and odd": ("2h", ["2024-12-30 22:00", "2024-12-30 21:00"]),
    "weeks from different weekdays": ("1w", ["2024-01-01", "2023-11-08"]),
    "months from the 31st and the 15th": ("1mo", ["2023-10-31", "2023-08-15"]),
    "months from the 31st and from a day that its grid happens to meet": (
        "1mo",
        ["2024-01-31", "2024-02-29"],
    ),
    "month ends": ("1moe", ["2023-10-31", "2023-08-31"]),
    "quarters of different months": ("1q", ["2020-01-01", "2019-11-01"]),
    "business days": ("1b", ["2023-12-27", "2023-12-20"]),
    "days but Sundays": ("1b-mon..sat", ["2023-12-27", "2023-12-20"]),
    "hours of a shop": ("1h-mon..sat-08:00..19:00", ["2023-12-27 09:00", "2023-12-23 18:30"]),
    "days": ("1d", ["2023-12-27", "2024-02-20"]),
}


@pytest.mark.parametrize("case", PHASED)
def test_phases_are_those_of_the_true_timestamps(case):
    """Series of one step may sit on different grids; each is told its own time."""
    freq, starts = PHASED[case]
    calendar = Calendar(freq, None, False)
    firsts = [int(np.datetime64(start, "us").astype(np.int64)) for start in starts]
    clocks = [calendar.shift(first, np.arange(24)) for first in firsts]
    tables = [
        pl.DataFrame({"id": f"s{s}", "time": pl.Series(clock).cast(pl.Datetime("us")), "y": 1.0})
        for s, clock in enumerate(clocks)
    ]
    panel = open_panel(pl.concat(tables), DataConfig(series=("id",), target=("y",), freq=freq))
    assert panel.regular
    np.testing.assert_array_equal(panel.time, np.concatenate(clocks))
    assert_equal_to_slow_windows(panel, None)


def test_a_padded_context_is_told_the_time_before_the_first_row(make_panel):
    panel = make_panel(2, 30, ragged=True)
    for series in range(2):
        first = int(panel.indptr[series])
        (phase,) = batch_of(panel, [(series, first)]).inputs.phase.numpy()
        times = panel.calendar.shift(int(panel.time[first]), np.arange(1 - L, H + 1))
        np.testing.assert_array_equal(phase, panel.calendar.phase(times))


def bits(batch):
    """All tensors of a batch as bytes, so that NaN equals NaN and 0 does not equal −0."""
    tensors = [getattr(batch.inputs, name) for name in NAMES] + [batch.target, batch.series]
    return [tensor.contiguous().numpy().tobytes() for tensor in tensors]


@pytest.mark.parametrize("noise", [np.nan, 1e30, -7.0])
@pytest.mark.parametrize("channel", [None, 1])
@pytest.mark.parametrize("irregular", [False, True])
def test_cells_outside_a_series_are_masked_never_read(make_panel, noise, channel, irregular):
    """Three series back to back: the middle one's windows do not change with its neighbours."""
    panel = make_panel(
        3, 20, targets=2, past=1, known=1, categories=True, static=True, irregular=irregular
    )
    begin, end = panel.indptr[1:3]
    wanted = [(1, cutoff) for cutoff in range(begin, end - H)]
    values, codes = panel.values.copy(), panel.codes.copy()
    static, static_codes = panel.static.copy(), panel.static_codes.copy()
    values[:begin], values[end:] = noise, noise
    codes[:begin], codes[end:] = 2, 2
    static[[0, 2]], static_codes[[0, 2]] = noise, 2
    other = replace(panel, values=values, codes=codes, static=static, static_codes=static_codes)
    assert bits(batch_of(other, wanted, channel)) == bits(batch_of(panel, wanted, channel))


@pytest.mark.parametrize("channel", [None, 0])
def test_a_window_does_not_depend_on_the_windows_beside_it(make_panel, channel):
    panel = make_panel(3, 20, targets=2, known=1, categories=True, static=True, missing=0.1)
    wanted = cutoffs(panel)
    together = batch_of(panel, wanted, channel)
    for i, window in enumerate(wanted):
        alone = batch_of(panel, [window], channel)
        row = replace(
            together,
            inputs=Inputs(*(getattr(together.inputs, name)[i : i + 1] for name in NAMES)),
            target=together.target[i : i + 1],
            series=together.series[i : i + 1],
        )
        assert bits(row) == bits(alone)


def test_a_store_looks_at_the_panels_own_memory(make_panel):
    """No copy: what is written to the panel afterwards is seen in the next batch."""
    panel = make_panel(2, 30, known=1, categories=True)
    store = store_of(panel)
    panel.values[20, 1] = 123.0
    panel.codes[20] = 1
    inputs = store.batch(np.array([0]), None, np.array([20])).inputs
    assert inputs.known[0, L - 1, 0] == 123.0
    assert inputs.past_category[0, L - 1, 0] == 1


@pytest.mark.parametrize("targets", [1, 2])
def test_a_batch_never_writes_to_the_panel(make_panel, targets):
    panel = make_panel(2, 20, targets=targets, known=1, categories=True)
    before = panel.fingerprint()
    batch = batch_of(panel, cutoffs(panel))
    batch.inputs.context.fill_(5.0)
    batch.target.fill_(5.0)
    assert panel.fingerprint() == before


@pytest.mark.parametrize(
    "options",
    [
        {"targets": 2, "past": 1, "known": 1, "categories": True, "static": True, "gaps": 0.2},
        {"irregular": True, "known": 1},
        {"ragged": True, "missing": 0.3},
    ],
)
def test_3_batches_from_a_mapped_store_are_bit_equal_to_those_in_memory(
    make_panel, make_config, tmp_path, monkeypatch, options
):
    monkeypatch.setattr("forecaster.panel.arrays.BLOCK_CELLS", 64)
    panel = make_panel(4, 70, **options)
    with writing(tmp_path / "store") as writer:
        for _, part in panel.parts():
            writer.append(part)
        writer.finish(DataConfig(), ())
    mapped = open_store(tmp_path / "store")
    config = make_config(3)
    index = split_panel(panel, config).train
    assert len(index) == len(split_panel(mapped, config).train) > 0
    numbers = window_order(len(index), seed=0, start=0, count=2 * len(index))  # two whole epochs
    for one, other in zip(
        WindowSequence(store_of(panel, 12, 3), index, numbers, 32),
        WindowSequence(store_of(mapped, 12, 3), index, numbers, 32),
        strict=True,
    ):
        for part, twin in ((one, other), (one.inputs, other.inputs)):
            for field in fields(part):
                cells, same = getattr(part, field.name), getattr(twin, field.name)
                if isinstance(cells, torch.Tensor):
                    assert cells.dtype == same.dtype
                    assert cells.numpy().tobytes() == same.numpy().tobytes(), field.name
