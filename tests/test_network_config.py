"""What cannot be built is refused before training, with the numbers."""

import pytest
from polars.testing import assert_frame_equal

import forecaster as fc
from forecaster.config import Config, parse_config
from forecaster.errors import ConfigError
from forecaster.runs.fit import resolve


def refused(**model):
    with pytest.raises(ConfigError) as caught:
        parse_config({"model": model}, source="config")
    return str(caught.value)


def test_a_width_that_heads_do_not_divide_is_refused():
    assert "width 30 is not a multiple of heads 4" in refused(width=30, heads=4)


def test_a_kind_of_attention_that_does_not_exist_is_refused_with_those_that_do():
    assert "'full', 'local', 'sparse' or 'low_rank'" in refused(attention="strided")


def test_a_size_of_full_attention_is_refused():
    assert "attention_size 3 has no effect with attention full" in refused(attention_size=3)


def test_a_patch_longer_than_the_context_is_refused_and_never_chosen(make_panel):
    panel = make_panel(2, 200)
    given = Config().replaced(horizon=4, model={"context_length": 10, "patch": 12})
    with pytest.raises(ConfigError, match=r"patch 12 is longer than model.context_length 10"):
        resolve(panel, given)
    chosen, _ = resolve(panel, Config().replaced(horizon=4, model={"context_length": 10}))
    assert chosen.model.patch == 10


@pytest.mark.parametrize("positions", ["learned", "elapsed"])
def test_a_network_of_many_choices_is_saved_and_forecasts_the_same_again(tmp_path, positions):
    """Channel attention over a wide table with covariates, through the public face."""
    table, future = wide_table()
    config = {
        "model": {
            "width": 8,
            "heads": 2,
            "attention": "local",
            "attention_size": 2,
            "channel_attention": True,
            "positions": positions,
            "conv_kernel": 2,
            "dropout": 0.2,
            "context_length": 24,
            "patch": 4,
        },
        "fit": {"steps": 4, "batch_size": 10},
        "tracking": {"enabled": False},
    }
    settings = {"known": ["promo"], "target": ["a", "b", "c"], "horizon": 6, "config": config}
    model = fc.fit(table, future=future, quiet=True, **settings)
    model.save(tmp_path / "model")
    forecast = model.predict(table, future=future).rows
    assert forecast.height == 3 * 6
    again = fc.load(tmp_path / "model").predict(table, future=future).rows
    assert_frame_equal(again, forecast, check_exact=True)


def wide_table():
    """A hundred days of three channels and a covariate known six days further."""
    import polars as pl

    days = pl.datetime_range(pl.datetime(2025, 1, 1), pl.datetime(2025, 4, 16), "1d", eager=True)
    step = pl.int_range(len(days), eager=True)
    known = pl.DataFrame({"day": days, "promo": (step % 5 == 0).cast(pl.Float64)})
    table = known.with_columns(
        ((step * k) % 7 + 10.0 * k).cast(pl.Float64).alias(name) for k, name in enumerate("abc", 1)
    )
    return table.head(100), known.tail(len(days) - 100)
