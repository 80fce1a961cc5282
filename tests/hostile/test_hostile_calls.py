"""Odd arguments and odd tables: a result or one clear error, as `benchmarks/hostile.py` tries them."""

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.cli import main

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import hostile


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_random_calls_give_a_result_or_a_clear_error():
    counts, faults = hostile.run(hostile.try_call, seed=0, numbers=range(100))
    assert not faults, faults
    assert counts["refused"] > 50 and counts["same as the plain call"] > 2


@pytest.mark.slow
@pytest.mark.parametrize("attempt", [hostile.try_table, hostile.try_call])
def test_a_hundred_random_tables_and_calls_give_a_result_or_a_clear_error(attempt):
    counts, faults = hostile.run(attempt, seed=1, numbers=range(100))
    assert not faults, faults
    assert len(counts) > 1  # one answer alone would test nothing


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": "3"}, "horizon='3': expected a whole number, found str"),
        ({"horizon": True}, "horizon=True: expected a whole number, found bool"),
        (
            {"horizon": 10**30},
            "horizon=1000000000000000000000000000000: expected a number of at most 18",
        ),
        ({"season_length": "7"}, "season_length='7': expected a whole number, found str"),
        ({"on_duplicates": 1}, "on_duplicates=1: expected 'error', 'mean', 'last' or 'sum', found int"),
        ({"out": ""}, "out='': expected a path, found an empty text"),
        ({"encoding": "\ud800"}, r"encoding='\\ud800': expected whole characters"),
        ({"until": "x\ud800"}, r"until='x\\ud800': expected whole characters"),
        ({"out": "x" * 300}, r"out='x+\.\.\.x+': expected a path: File name too long"),
        ({"report": Path("a\0b")}, r"report=.*: expected a path: embedded null byte"),
        ({"quiet": "no"}, "quiet='no': expected True or False, found str"),
        ({"lower": "1"}, "lower='1': expected a number, found str"),
        ({"config": 5}, "config=5: expected text or a path or a mapping or .*, found int"),
        ({"experts": 1j}, "experts=1j: expected text or a sequence, found complex"),
    ],
    ids=str,
)
def test_an_argument_of_a_wrong_type_is_named_with_what_was_expected(options, message, tmp_path):
    away = tmp_path / "no table is opened"
    with pytest.raises(fc.ConfigError, match=f"^{message}") as refused:
        fc.fit(away, **{"horizon": 7} | options)
    assert "\n" not in str(refused.value)


def test_all_arguments_of_wrong_types_are_named_at_once():
    with pytest.raises(fc.ConfigError) as refused:
        fc.fit(tiny.plain(), "7", known=3, quiet=None)
    starts = [line.split("=")[0] for line in str(refused.value).splitlines()]
    assert starts == ["horizon", "known", "quiet"]


@pytest.mark.parametrize(
    ("option", "odd", "plain"),
    [
        *(("horizon", odd, 3) for odd in (np.int64(3), np.uint8(3), np.array(3))),
        *(
            ("only", odd, ["a", "b"])
            for odd in (pd.Index(["a", "b"]), ("a", "b"), {"a", "b"}, iter("ab"))
        ),
        *(("season_length", odd, 7) for odd in (np.int32(7),)),
        *(
            ("cutoff", odd, "2024-03-01")
            for odd in (np.datetime64("2024-03-01"), pd.Timestamp("2024-03-01"))
        ),
    ],
    # Not their text: sets and generators have another in each process.
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_other_spellings_of_a_right_argument_are_what_they_mean(option, odd, plain):
    model, table = tiny.plain_model(), tiny.plain()
    usual = model.predict(table, **{option: plain})
    assert model.predict(table, **{option: odd}).frame.equals(usual.frame)


def test_a_path_of_another_library_and_a_decimal_are_taken(tmp_path):
    class Somewhere:
        def __fspath__(self):
            return str(tmp_path / "model")

    tiny.plain_model().save(Somewhere())
    assert repr(fc.load(Somewhere())) == repr(tiny.plain_model())
    anomalies = tiny.plain_model().detect(tiny.plain(), level=Decimal("98.5"))
    assert anomalies.frame.equals(tiny.plain_model().detect(tiny.plain(), level=98.5).frame)


def test_an_option_is_spelled_as_the_caller_spells_it(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny.plain().write_csv("shop.csv")
    with pytest.raises(fc.ConfigError, match=r"how many steps to forecast \(horizon=28\)"):
        fc.fit("shop.csv")
    monkeypatch.setattr(sys, "argv", ["forecaster", "fit", "shop.csv", "--out", "model"])
    with pytest.raises(SystemExit):
        main()
    assert "how many steps to forecast (--horizon 28)" in capsys.readouterr().err
    with pytest.raises(fc.ConfigError, match="budget=soon: expected a duration"):
        fc.fit("shop.csv", 7, budget="soon")


def test_a_command_in_a_message_stays_a_command():
    from forecaster.errors import python_spelling

    text = "begin with forecaster fit --out model, or leave out --on-duplicates"
    assert python_spelling(text) == (
        "begin with forecaster fit --out model, or leave out `on_duplicates`"
    )


@pytest.mark.long
def test_a_model_that_was_not_scored_has_no_skill():
    scores = tiny.plain_model().backtest(tiny.plain(), windows=1, quiet=True)
    with pytest.raises(fc.ConfigError, match=r"skill 'seasonal': no such model .* mean seasonal naive"):
        scores.skill("seasonal")


@pytest.mark.long
def test_a_backend_that_is_not_installed_stops_no_drawing(tmp_path):
    program = (
        "from forecaster.forecast.plots import panel_grid\n"
        "from forecaster.forecast.writer import write_figure\nfrom pathlib import Path\n"
        "write_figure(panel_grid(1)[0], Path('drawn.png'))\n"
        "import os; assert os.environ['MPLBACKEND'] == 'zzz'"
    )
    environment = {**os.environ, "MPLBACKEND": "zzz"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    assert (tmp_path / "drawn.png").is_file()


def test_a_table_of_no_possible_name_is_refused_before_the_output_is_looked_at(tmp_path):
    for call in (
        lambda: tiny.plain_model().predict_to(tmp_path / "out.csv", tiny.plain(), future="\ud800"),
        lambda: fc.fit("\ud800", 7, report=tmp_path / "page.html"),
        lambda: fc.convert("\ud800", tmp_path / "store"),
    ):
        with pytest.raises(fc.ForecasterError, match="not a name in UTF-8"):
            call()
