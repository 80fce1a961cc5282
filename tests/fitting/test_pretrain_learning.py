"""Rows that attention over experts learns from, draws of them, and the training: exact when resumed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from forecaster.fitting.pretrain.corpus import RealSeries
from forecaster.fitting.pretrain.expert_rows import (
    CLOCKS,
    from_tensors,
    joined,
    rows_of_table,
    to_tensors,
)
from forecaster.fitting.pretrain.learning import (
    REAL,
    Pretrained,
    RowTable,
    batch_of,
    chances,
    learn,
    left_out,
    mirrored,
)
from forecaster.model.expert_attention import METHODS, SOLVED


def series(count=4, length=60, step="M", start="2001-01-01", seed=0):
    random = np.random.default_rng(seed)
    time = np.arange(length)
    values = 50 + 5 * np.sin(2 * np.pi * time / 12) + random.normal(size=(count, length))
    first = None if start is None else np.datetime64(start)
    return [RealSeries("made", str(number), step, row, first) for number, row in enumerate(values)]


@pytest.fixture(scope="module")
def rows():
    return rows_of_table(series(), CLOCKS["M"], 12, 300, seed=0)


def test_rows_hold_the_experts_of_the_table_and_what_followed(rows):
    evidence, truth = rows
    assert 0 < len(truth) <= 300 and truth.isfinite().any(dim=1).all()
    there = evidence.available.any(dim=0)
    pool = {name for name, one in zip(METHODS, there.tolist(), strict=True) if one}
    assert {"naive", "ets", "seasonal_naive", "slow_trend", "linear"} <= pool
    assert not pool & {"arx", "tsb", "second_naive"}
    for part in evidence.tensors().values():
        assert part.isfinite().all()
    # A sine with noise of 1 in 50: forecasts that miss by more than their spread would be of other rows.
    center = (evidence.weights[:, None] * evidence.forecasts).sum(dim=-1)
    assert (center - truth).abs().nanmedian() < 0.6


def test_some_histories_are_cut_short_and_those_that_are_not_are_whole(rows):
    history = rows.evidence.steps[:, 0]
    assert 0.1 < (history < 12).float().mean() < 0.5


def test_made_up_dates_leave_the_season_alone():
    found = rows_of_table(series(start=None), CLOCKS["M"], 12, 50, seed=0)
    assert (found.evidence.steps[:, 1] == 12).all()


@pytest.mark.parametrize("step", sorted(CLOCKS))
def test_every_clock_has_its_season(step):
    clock = CLOCKS[step]
    length = 3 * clock.season + 3 * clock.horizons[0] + 20
    found = rows_of_table(series(2, length, step, None), clock, clock.horizons[0], 20, seed=0)
    assert (found.evidence.steps[:, 1] == clock.season).all()


def test_a_table_too_short_for_a_window_has_none():
    assert rows_of_table(series(2, 5), CLOCKS["M"], 12, 50, seed=0) is None


def test_stored_rows_come_back(rows):
    stored = to_tensors(rows)
    for name, part in to_tensors(from_tensors(stored)).items():
        assert torch.equal(part.nan_to_num(), stored[name].nan_to_num())
    assert len(joined([rows, rows]).truth) == 2 * len(rows.truth)


def test_a_draw_is_real_by_three_quarters_and_takes_steps_and_sources_alike():
    def table(source, step, real):
        return RowTable(source, source, step, real, range(9))

    tables = [
        table("a", "M", True),
        table("a", "M", True),
        table("b", "M", True),
        table("c", "D", True),
    ]
    tables.append(table("made", "M", False))
    chance = chances(tables)
    assert chance.tolist() == pytest.approx([REAL / 8, REAL / 8, REAL / 4, REAL / 2, 1 - REAL])


def test_an_expert_is_always_left_and_solved_ones_go_more_often(rows):
    batch = batch_of(rows, np.arange(len(rows.truth)).repeat(20), np.zeros(20 * len(rows.truth), int))
    before = batch.rows.evidence.available
    after = left_out(batch, np.random.default_rng(0)).rows.evidence.available
    assert after.any(dim=1).all() and not (after & ~before).any()
    share = (before & ~after).sum(dim=0) / before.sum(dim=0).clamp(min=1)
    solved = [METHODS.index(name) for name in SOLVED if before[:, METHODS.index(name)].any()]
    assert 0.35 < share[solved].mean() < 0.55
    assert 0.1 < share[METHODS.index("naive")] < 0.25
    assert 0.02 < (after.sum(dim=1) == 1).float().mean() < 0.12


def test_half_of_the_rows_are_upside_down_and_counts_never(rows):
    counts = torch.arange(len(rows.truth)) % 3 == 0
    rows = rows._replace(evidence=replace(rows.evidence, counts=counts))
    batch = batch_of(rows, np.arange(len(counts)), np.zeros(len(counts), int))
    after = mirrored(batch, np.random.default_rng(0)).rows
    seen = ~rows.truth.isnan()
    is_turned = ((after.truth == -rows.truth) | ~seen).all(dim=1) & seen.any(dim=1)
    assert not is_turned[counts].any()
    assert 0.3 < is_turned[~counts].float().mean() < 0.7
    assert torch.equal(after.evidence.error, rows.evidence.error)
    sign = torch.where(is_turned, -1.0, 1.0)[:, None]
    assert torch.equal(after.evidence.recent, rows.evidence.recent * sign)
    assert torch.equal(after.evidence.zero, rows.evidence.zero * sign[:, 0])
    # Untrained, a forecast upside down is that of the row upside down.
    network, numbers = Pretrained(), np.arange(len(counts))
    with torch.no_grad():
        loss, of_turned = (network.losses(batch_of(one, numbers, numbers))[0] for one in (rows, after))
    torch.testing.assert_close(of_turned, loss)


def test_the_loss_is_the_pinball_of_nine_levels_in_units_of_the_row(rows):
    numbers = np.arange(12)
    network, batch = Pretrained(), batch_of(rows, numbers, numbers)
    with torch.no_grad():
        total, count = network.losses(batch)
    evidence, truth = batch.rows
    unit = evidence.unit
    quantiles = network.attention.requires_grad_(False).quantiles(
        evidence, evidence.forecasts, evidence.width, torch.eye(8)
    )
    for row in numbers:
        wanted, cells = 0.0, 0
        for place in range(8):
            if truth[row, place].isnan():
                continue
            cells += 1
            for level, value in zip(np.arange(1, 10) / 10, quantiles[row, place].tolist(), strict=True):
                error = (float(truth[row, place]) - value) / float(unit[row])
                wanted += 2 * max(level * error, (level - 1) * error) / 9
        assert count[row] == cells
        assert float(total[row]) == pytest.approx(wanted, rel=1e-3)


@pytest.mark.long
def test_a_resumed_training_ends_as_an_uninterrupted_one_and_lowers_the_loss(rows, tmp_path):
    tables = [RowTable("made", "made", "M", True, range(len(rows.truth)))]
    held_out = [batch_of(rows, np.arange(64), np.zeros(64, np.int64))]
    with torch.no_grad():
        total, count = Pretrained().losses(held_out[0])
    begun = float(total.sum() / count.sum())
    whole = learn(rows, tables, held_out, 8, tmp_path / "whole", every=4)

    class Killed(Exception):
        pass

    def stop(step):
        if step == 6:
            raise Killed

    with pytest.raises(Killed):
        learn(rows, tables, held_out, 8, tmp_path / "parts", every=4, after_step=stop)
    parts = learn(rows, tables, held_out, 8, tmp_path / "parts", every=4)
    for name, value in whole.average.state_dict().items():
        assert torch.equal(value, parts.average.state_dict()[name]), name
    assert whole.curves["validation_loss"] == parts.curves["validation_loss"]
    assert whole.curves["validation_loss"][-1][1] < begun


def test_a_training_may_go_on_from_weights(rows, tmp_path):
    tables = [RowTable("made", "made", "M", True, range(len(rows.truth)))]
    held_out = [batch_of(rows, np.arange(64), np.zeros(64, np.int64))]
    start = Pretrained().attention
    torch.nn.init.constant_(start.place, 0.5)
    found = learn(rows, tables, held_out, 1, tmp_path, start=start, every=1)
    # A step of Adam is as long as its rate.
    assert (found.average.attention.place - 0.5).abs().max() < 1e-3
