"""What a type checker, and so an editor, knows of the Python interface."""

import inspect
import re
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import forecaster as fc

ROOT = Path(__file__).parents[1]
SCRIPT = """
import forecaster as fc

model = fc.fit("sales.csv", 28, known=["price"], out="model", until="2024-05-01")
forecast = model.predict("sales.csv", future="promos.csv", samples=9, device="cpu", time=["year", "month"])
scores = model.backtest("sales.csv", windows=2, refit="never", on_duplicates="sum")
reveal_type(model)  # forecaster.api.models.Forecaster
reveal_type(fc.fit("gestures.csv", label="gesture"))  # forecaster.api.models.Classifier
reveal_type(forecast)  # forecaster.forecast.forecast.Forecast
now = fc.predict("sales.csv", 28, known=["price"], future="promos.csv", lower=0, integer=True, series="store")
reveal_type(now)  # forecaster.forecast.forecast.Forecast
reveal_type(fc.detect("sales.csv", freq="1d"))  # forecaster.forecast.detect.Anomalies
reveal_type(fc.explain("sales.csv", 28, only="a"))  # forecaster.forecast.explain.Explanation
reveal_type(fc.backtest("sales.csv", 28, fit=False))  # forecaster.evaluation.backtest.Backtest
fc.predict("sales.csv", 28, knwon=["price"])  # wrong
for result in (forecast, scores, model.detect("sales.csv")):
    reveal_type(result.frame)  # polars.dataframe.frame.DataFrame | pandas.DataFrame | pyarrow.Table
    reveal_type(result.to_polars())  # polars.dataframe.frame.DataFrame
    reveal_type(result.to_pandas())  # pandas.DataFrame
reveal_type(scores.summary)  # polars.dataframe.frame.DataFrame | pandas.DataFrame | pyarrow.Table
board = fc.compare("sales.csv", 28, presets=["vanilla"], windows=3)
reveal_type(board)  # forecaster.evaluation.leaderboard.Leaderboard
reveal_type(fc.tune("sales.csv", 28, trials=9, series="store").best)  # forecaster.config.Config

fc.fit("sales.csv", 28, knwon=["price"])  # wrong
fc.fit("sales.csv", "28")  # wrong
fc.fit("sales.csv", 28, layout="broad")  # wrong
fc.fit("sales.csv", 28, command="fit")  # wrong
model.predict("sales.csv", futur="promos.csv")  # wrong
model.predict("sales.csv", season_length="7")  # wrong
model.backtest("sales.csv", refit="always")  # wrong
fc.compare("sales.csv", 28, widows=3)  # wrong
fc.tune("sales.csv", 28, sampler="grid")  # wrong
fc.check("sales.csv", decimal=";")  # wrong
fc.convert("sales.csv")  # wrong
"""


@pytest.mark.slow
def test_a_type_checker_knows_options_and_results(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    for module, frame in (("pandas", "DataFrame"), ("pyarrow", "Table")):  # neither comes with types
        (tmp_path / f"{module}.pyi").write_text(f"class {frame}: ...\n")
    heavy = ("torch", "pytorch_lightning", "mlflow", "optuna", "matplotlib", "scipy", "jaxtyping")
    skipped = "".join(f"[mypy-{name},{name}.*]\nfollow_imports = skip\n" for name in heavy)
    settings = f"[mypy]\nstrict = true\nfollow_imports = silent\nmypy_path = {ROOT}\n{skipped}"
    (tmp_path / "mypy.ini").write_text(settings)
    words = [sys.executable, "-m", "mypy", "--no-pretty", "--hide-error-context", "script.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    found = {}
    for line, kind, text in re.findall(
        r"^script.py:(\d+): (error|note): (.+)$", done.stdout, re.MULTILINE
    ):
        revealed = re.fullmatch('Revealed type is "(.+)"', text)
        if kind == "error" or revealed:
            found[int(line)] = revealed[1] if revealed else "wrong"
    expected = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(SCRIPT.splitlines(), start=1)
        if "  # " in line
    }
    assert found == expected, done.stdout + done.stderr


def _public() -> dict[str, object]:
    """Public functions and classes, and the methods and properties of these."""
    found: dict[str, object] = {}
    for name in fc.__all__:
        one = getattr(fc, name)
        found[name] = one
        for part, value in inspect.getmembers(one) if inspect.isclass(one) else ():
            value = value.fget if isinstance(value, property) else value
            own = str(getattr(value, "__module__", "")).startswith("forecaster")
            if (
                own
                and not part.startswith("_")
                and (inspect.isfunction(value) or inspect.ismethod(value))
            ):
                found[f"{name}.{part}"] = value
    return found


@pytest.mark.parametrize("name", _public())
def test_the_types_of_everything_public_can_be_looked_up(name):
    hints = typing.get_type_hints(_public()[name])
    assert not [one for one in hints.values() if isinstance(one, str | typing.ForwardRef)]


def test_types_that_are_looked_up_are_the_classes_themselves():
    results = {name: typing.get_type_hints(one).get("return") for name, one in _public().items()}
    assert results["predict"] is results["Forecaster.predict"] is fc.Forecast
    assert results["what_if"] == fc.WhatIf[fc.Forecast]
    assert results["fit"] == fc.Forecaster | fc.Classifier
    assert results["Forecast.plot"].__name__ == "Figure"
