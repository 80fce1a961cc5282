"""Every printed command runs as it is printed, beside the files that were there."""

import re
import shlex
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from forecast import tiny

import forecaster as fc
from forecaster.cli import VERBS, load_verb

ROWS = ["no fit", "experts", "ridge", "ETS", "drift", "expert theta", "preset smoke"]
PACKAGE = Path(fc.__file__).parent


def _files() -> None:
    tiny.shop().drop("price").write_csv("shop.csv")
    tiny.shop().select("store", "date", "price").write_csv("prices.csv")


@cache
def _scored(folder: Path) -> fc.Backtest:
    """A backtest of files in the working folder."""
    options = {"known": "price", "covariates": "prices.csv", "past": (), "fit": False, "quiet": True}
    config = {"target": {"lower": 0, "integer": True}}
    return fc.backtest("shop.csv", 7, 2, config=config, **options)


def _words(backtest: fc.Backtest, row: str) -> str:
    """What the verdict would print if a row were the best."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fc.Backtest, "better", {row: SimpleNamespace(low=1.0)})
        return backtest._better_fit().removeprefix(f"; {row} is made by: ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("printed")


@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=[pytest.mark.slow] * (row != "no fit")) for row in ROWS]
)
def test_the_command_of_a_better_model_runs(row, folder, monkeypatch, shell, undrawn):
    monkeypatch.chdir(folder)
    _files()
    command = _words(_scored(folder), row)
    program, *words = shlex.split(command)
    assert program == "forecaster" and {"--known", "--covariates", "--lower", "--integer"} <= {*words}
    words[words.index("--out") + 1] = f"{row}.csv".replace(" ", "-") if words[0] == "predict" else row
    extra = [] if words[0] == "predict" else ["--no-tracking"]
    done = shell(*words, *extra)
    assert done.code == 0, done.err


@pytest.mark.long
def test_the_call_of_a_better_model_of_a_frame_runs():
    table, covariates = tiny.shop().drop("price"), tiny.shop().select("store", "date", "price")
    options = {"known": "price", "covariates": covariates, "past": (), "fit": False, "quiet": True}
    backtest = fc.backtest(table, 7, 2, **options)
    names = {"fc": fc, "data": table, "covariates": covariates}
    forecast = eval(_words(backtest, "no fit"), names)
    assert isinstance(forecast, fc.Forecast) and len(forecast.frame) == 21
    call = _words(backtest, "ETS")
    assert call.startswith("fc.fit(data, 7, experts='ets'") and "known=('price',)" in call


def _printed() -> list[str]:
    """The commands in the text of the package: verb and flags."""
    verbs = "|".join(VERBS)
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = re.sub(r'"\s*\n\s*f?"', "", path.read_text())
        found |= {match[0] for match in re.finditer(rf"forecaster ({verbs})\b[^\"`\n;,.)]*", text)}
    return sorted(found)


@pytest.mark.parametrize("command", _printed())
def test_a_command_in_a_message_has_a_verb_and_flags_that_exist(command):
    _, verb, *words = command.split()
    options = getattr(load_verb(verb), "params", [])
    known = {flag for option in options for flag in (*option.opts, *option.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= known
