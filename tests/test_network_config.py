"""What cannot be built is refused before training, with the numbers."""

import pytest
from polars.testing import assert_frame_equal

import forecaster as fc
from forecaster.config import Config, parse_config
from forecaster.errors import ConfigError
from forecaster.runs.fit import resolve_config


def refused(**model):
    with pytest.raises(ConfigError) as caught:
        parse_config({"model": model}, source="config")
    return str(caught.value)


def test_a_width_that_heads_do_not_divide_is_refused():
    assert "width 30 is not a multiple of heads 4" in refused(width=30, heads=4)


def test_rotary_positions_need_pairs_in_every_head():
    said = refused(width=12, heads=4, positions="rotary")
    assert "width 12 over heads 4 is 3 per head, odd" in said


def test_a_kind_without_a_causal_form_is_refused_in_a_causal_decoder_with_the_reason():
    said = refused(decoder_attention="low_rank", attention_rank=48)
    assert "low_rank has no causal form: each of its 48 mixtures holds tokens of all leads" in said
    parse_config({"model": {"decoder_attention": "low_rank", "decoder_mask": "full"}}, source="config")
    for kind in ("full", "local", "strided", "sparse"):
        parse_config({"model": {"decoder_attention": kind}}, source="config")


def test_a_kind_that_does_not_exist_is_refused_with_those_that_do():
    assert "'full' or 'low_rank'" in refused(cross_attention="local")


def test_a_patch_longer_than_the_context_is_refused_and_never_chosen(make_panel):
    panel = make_panel(2, 200)
    given = Config().replaced(horizon=4, model={"context_length": 10, "patch": 12})
    with pytest.raises(ConfigError, match=r"patch 12 is longer than model.context_length 10"):
        resolve_config(given, panel)
    chosen = resolve_config(Config().replaced(horizon=4, model={"context_length": 10}), panel)
    assert chosen.model.patch == 10


def test_a_horizon_beyond_what_learned_positions_cover_is_refused(make_panel):
    """12 steps in patches of 4 are 3 tokens, 7 leads in patches of 2 are 4."""
    model = {"context_length": 12, "patch": 4, "decoder_patch": 2, "positions": "learned"}
    panel = make_panel(2, 200)
    given = Config().replaced(horizon=7, model=model | {"learned_positions": 6})
    said = (
        r"learned_positions 6 do not cover .* horizon 7 in patches of 2 are 3 \+ 4 tokens.* set it to 7"
    )
    with pytest.raises(ConfigError, match=said):
        resolve_config(given, panel)
    for enough in (7, 9, None):
        resolve_config(Config().replaced(horizon=7, model=model | {"learned_positions": enough}), panel)


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_network_of_many_choices_is_saved_and_forecasts_the_same_again(tmp_path, positions):
    """Channel attention over a wide table with covariates, through the public face."""
    table, future = wide_table()
    config = {
        "model": {
            "width": 8,
            "heads": 2,
            "attention": "strided",
            "attention_window": 2,
            "attention_stride": 2,
            "decoder_attention": "local",
            "channel_attention": True,
            "positions": positions,
            "normalization": "rms",
            "activation": "swiglu",
            "conv_kernel": 2,
            "stochastic_depth": 0.2,
            "context_length": 24,
            "patch": 4,
        },
        "fit": {"steps": 4, "batch_size": 10, "validate_every": 2, "validation_windows": 8},
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
