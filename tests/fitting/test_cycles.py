"""Without a clock, season and periods are found in training rows, kept, and told to the network."""

import numpy as np
import polars as pl
import pytest
import torch

import forecaster as fc
from forecaster.config import Config, DataConfig
from forecaster.fitting.fit import resolve
from forecaster.fitting.plan import with_found_cycles
from forecaster.model.positions import step_of_cycle
from forecaster.panel.build import open_panel
from forecaster.panel.calendar import Calendar, cycle_steps

TINY = {
    "model": {"width": 8, "heads": 2, "encoder_layers": 1, "context_length": 24, "experts": ["naive"]},
    "fit": {"steps": 2, "batch_size": 8},
    "tracking": {"enabled": False},
}


def waves(rows: int = 300, later: float = 12.0) -> pl.DataFrame:
    """A table without a clock: waves of 12 steps, in its last fifth of another length."""
    step = np.arange(rows)
    length = np.where(step < 0.8 * rows, 12.0, later)
    noise = np.random.default_rng(0).normal(size=rows)
    return pl.DataFrame({"y": 10 + 5 * np.sin(2 * np.pi * step / length) + 0.3 * noise})


def test_found_cycles_are_kept_with_the_model_and_used_again():
    model = fc.fit(waves(), horizon=6, time="row", config=TINY, quiet=True)
    assert model.config.data.season_length == 12 and model.config.data.periods == (12,)
    assert model.artifact.schema.periods == (12,) and model.artifact.shape.cycles == 1
    again = model.open(waves(200))
    assert again.calendar.cycles == ("12 steps",) and again.calendar.season_length == 12
    assert set(model.predict(waves(200)).status) == {"ok"}


def test_rows_after_the_training_rows_do_not_decide():
    config = Config(horizon=6, data=DataConfig(time="row"))
    for later in (12.0, 5.0):
        panel = with_found_cycles(open_panel(waves(later=later), config.data), config)
        assert panel.calendar.periods == (12,)


@pytest.mark.parametrize(
    ("told", "season", "periods"),
    [
        ({"periods": []}, 12, ()),
        ({"periods": [8, 20]}, 12, (8, 20)),
        ({"season_length": 4}, 4, (12,)),
        ({"season_length": 4, "periods": [8]}, 4, (8,)),
    ],
)
def test_what_is_declared_holds(told, season, periods):
    config = Config().replaced(horizon=6, data={"time": "row"} | told)
    panel = with_found_cycles(open_panel(waves(), config.data), config)
    plan, _ = resolve(panel, config)
    assert (plan.data.season_length, plan.data.periods) == (season, periods)


def test_numbered_rows_of_several_series_share_a_season_and_no_phase():
    both = pl.concat([waves().with_columns(id=pl.lit(name)) for name in "ab"])
    config = Config(horizon=6, data=DataConfig(time="row", series=("id",)))
    calendar = with_found_cycles(open_panel(both, config.data), config).calendar
    assert (calendar.season, calendar.periods) == (12, ())
    counted = both.with_columns(step=pl.int_range(pl.len()).over("id"))
    config = Config(horizon=6, data=DataConfig(time="step", series=("id",)))
    calendar = with_found_cycles(open_panel(counted, config.data), config).calendar
    assert (calendar.season, calendar.periods) == (12, (12,))


def test_a_clock_is_told_further_periods_only_when_they_are_declared():
    days = pl.date_range(pl.date(2023, 1, 1), pl.date(2023, 10, 27), eager=True)
    frame = waves().with_columns(day=days)
    assert fc.fit(frame, horizon=6, config=TINY, quiet=True).artifact.shape.cycles == 2
    model = fc.fit(frame, horizon=6, periods=[12], config=TINY, quiet=True)
    assert model.artifact.shape.cycles == 3 and set(model.predict(frame).status) == {"ok"}


@pytest.mark.parametrize("freq", [
    "15min", "30min", "1h", "2h", "1d", "1b", "1b-mon..sat", "1b-tue-thu-sat",
    "1h-mon..fri-08:00..17:00", "1mo", "1moe", "1q",
])  # fmt: skip
@pytest.mark.parametrize("first", ["2023-01-02", "2023-01-02 00:07:30", "2024-01-01 18:45"])
def test_rows_a_step_apart_are_a_step_of_the_cycle_apart(freq, first):
    calendar = Calendar(freq, None, False)
    time = calendar.shift(calendar.parse(first), np.arange(3000))
    steps = cycle_steps(calendar, calendar.cycles[0])
    at = step_of_cycle(torch.from_numpy(calendar.phase(time)[:, 0]), steps)
    assert (at.diff() % steps == 1).all()


def test_a_cycle_without_a_phase_is_at_its_first_step():
    assert step_of_cycle(torch.tensor([0.0, torch.nan, 0.999999]), 12).tolist() == [0, 0, 0]
