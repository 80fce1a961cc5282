"""`check` says all it can; the same audit opens fit, predict and backtest, whose errors stop them."""

import json

import polars as pl
import pytest
from forecast import tiny

import forecaster as fc

pytestmark = pytest.mark.usefixtures("undrawn")  # drawing takes most of a small fit

FIT = ("--horizon", 7, "--config", "tiny.yaml", "--out", "new")


def _contradicting():
    """A table with copies, rows out of order and rows that disagree."""
    shop = pl.read_csv("plain.csv")
    other = shop[5:6].with_columns(sales=pl.col("sales") + 1)
    pl.concat([shop, shop[:2], other]).write_csv("odd.csv")


def test_what_was_noticed_is_printed_beside_the_errors_that_stopped_the_work(folder, shell):
    _contradicting()
    answer = shell("check", "odd.csv")
    assert answer.code == 2
    (line,) = answer.err.splitlines()
    assert line.startswith(
        "error: odd.csv: expected one row per series and time, found 2 that disagree"
    )
    said = " ".join(answer.out.split())
    assert "warning duplicates 2 of 303 rows are copies of another row" in said
    assert "note order 3 of 303 rows come after the row that follows them in time" in said
    assert said.endswith("1 error, 1 warning, 1 note")


def test_json_has_the_findings_whatever_happens(folder, shell):
    _contradicting()
    answer = shell("check", "odd.csv", "--json")
    found = json.loads(answer.out)["findings"]
    assert answer.code == 2
    assert [finding["severity"] for finding in found] == ["error", "warning", "note"]
    assert set(found[0]) == {"severity", "rule", "text", "advice", "series", "where", "count"}
    for name in ("away.csv", "empty.csv"):
        (folder / "empty.csv").touch()
        answer = shell("check", name, "--json")
        (finding,) = json.loads(answer.out)["findings"]
        assert answer.code == 2 and finding["severity"] == "error"
    answer = shell("check", "shop.csv", "--target", "away", "--json")
    assert answer.code == 2 and "no column 'away'" in json.loads(answer.out)["error"]["message"]
    answer = shell("check", "plain.csv", "--json")
    assert answer.code == 0 and json.loads(answer.out)["findings"] == []


def test_both_tables_that_cannot_be_read_are_named_at_once(folder, shell):
    answer = shell("check", "away.csv", "--future", "gone.csv")
    lines = answer.err.splitlines()
    assert len(lines) == 2 and "away.csv" in lines[0] and "gone.csv" in lines[1]


def test_long_texts_are_wrapped_beside_their_rule(folder, shell, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    pl.concat([tiny.plain(), tiny.plain().head(5).with_columns(store=pl.lit("new"))]).write_csv("s.csv")
    lines = shell("check", "s.csv", "--horizon", 7).out.splitlines()
    begin = next(k for k, line in enumerate(lines) if line.startswith("warning  short"))
    column = lines[begin].index("1 of 4")
    assert all(line[:column].isspace() for line in lines[begin + 1 : begin + 4])
    assert all(len(line) <= 60 for line in lines[begin:])


def test_fit_says_what_it_found_before_what_it_will_do(folder, shell):
    shop = tiny.plain().with_columns(sales=pl.when(pl.col("store") == "a").then(5.0).otherwise("sales"))
    shop.write_csv("still.csv")
    answer = shell("fit", "still.csv", *FIT)
    assert answer.code == 0
    said = " ".join(answer.out.split())
    assert said.index("long layout") < said.index("warning constant 1 of 3") < said.index("trains on")


@pytest.mark.parametrize("verb", ["fit", "predict", "backtest"])
def test_errors_of_the_audit_stop_the_work(folder, shell, verb):
    tiny.plain().with_columns(sales=pl.lit(None, pl.Float64)).write_csv("void.csv")
    before = tiny.tree(folder)
    words = {
        "fit": ["void.csv", "--target", "sales", *FIT],
        "predict": ["plain_model", "void.csv", "--out", "new.csv"],
        "backtest": ["plain_model", "void.csv", "--windows", 1],
    }[verb]
    answer = shell(verb, *words)
    assert answer.code == 2
    assert answer.err.startswith(
        "error: void.csv: expected values of sales, found none in any of 3 series"
    )
    assert len(answer.err.splitlines()) == 1 and tiny.tree(folder) == before


def test_predict_counts_categories_the_model_has_not_learned(folder, shell):
    shop = tiny.shop().with_columns(
        city=pl.when(pl.col("store") == "b").then(pl.lit("Atlantis")).otherwise("city")
    )
    shop.write_csv("moved.csv")
    answer = shell("predict", "model", "moved.csv", "--future", "prices.csv", "--out", "new.csv")
    assert answer.code == 0
    said = " ".join(answer.err.split())
    assert "warning unknown-category 1 of 3 series hold values of 'city' that the model has not" in said
    assert "(first: series b, city)" in said
    assert "1 of 3 series hold values of 'city' that the model has not learned: Atlantis" in answer.out
    forecast = fc.load("model").predict(shop, future=tiny.prices())
    assert [finding.rule for finding in forecast.findings] == ["unknown-category"]
    assert set(forecast.status) == {"ok"}
    assert fc.load("model").predict(tiny.shop(), future=tiny.prices()).findings == ()


def test_a_check_in_python_has_the_roles_and_prints_what_the_shell_prints(folder, shell, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    found = fc.check("shop.csv", known="price")
    roles = {"date": "time", "store": "series", "sales": "target"}
    assert found.roles == roles | {"price": "known", "visitors": "past", "city": "static"}
    answer = shell("check", "shop.csv", "--known", "price")
    assert [line.rstrip() for line in repr(found).splitlines()] == [
        line.rstrip() for line in answer.out.splitlines()
    ]
