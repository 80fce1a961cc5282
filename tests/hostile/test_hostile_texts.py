"""Text of a table is text: what a spreadsheet would run, or a file trips over, comes back as it was."""

import csv
import json

import polars as pl
import pytest
from forecast import tiny

import forecaster as fc

FORMULAS = ("=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", "=HYPERLINK(\"http://x\";'y')")
ODD = (
    *FORMULAS,
    *("two\nlines", "cr\r\nlf", "lone\rcr", "ends\n", 'quo"ted"', "com,ma", "semi;colon", "\ttab"),
    *("é🎈", "e\u0301", " space ", "1e5", "001", "'single'", "\\back\\n", "\u202eltr", "\ufeffbom"),
    "x" * 10_000,
)
DAYS = 40


@pytest.fixture(scope="module")
def table() -> pl.DataFrame:
    """One series per text, and the texts again as a category and beside the target."""
    rows = [
        (text, tiny.day(day), float(day % 7 + number), ODD[(day + number) % len(ODD)])
        for number, text in enumerate(ODD)
        for day in range(DAYS)
    ]
    return pl.DataFrame(rows, schema=["store", "date", "sales", "kind"], orient="row")


@pytest.fixture(scope="module")
def model(table) -> fc.Forecaster:
    """A model of the table."""
    words = {"series": "store", "past": "kind", "categorical": "kind"}
    return fc.fit(table, horizon=3, config=tiny.ONE, quiet=True, **words)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_keys_come_back_as_the_same_text(table, model, tmp_path, ending):
    source = tmp_path / f"table.{ending}"
    table.write_csv(source) if ending == "csv" else table.write_parquet(source)
    model.predict(source).write(tmp_path / "all.csv")
    model.predict_to(tmp_path / "all.parquet", source)
    model.predict_to(tmp_path / "again.csv", source)
    csv.field_size_limit(1 << 20)
    with (tmp_path / "all.csv").open(encoding="utf-8", newline="") as file:
        found = [row["store"] for row in csv.DictReader(file)]
    expected = sorted(text for text in ODD for _ in range(3))
    assert sorted(found) == expected
    assert sorted(pl.read_parquet(tmp_path / "all.parquet")["store"]) == expected
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "all.csv").read_bytes()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_categories_come_back_as_the_same_text(table, model, tmp_path, ending):
    source = tmp_path / f"table.{ending}"
    table.write_csv(source) if ending == "csv" else table.write_parquet(source)
    fc.convert(source, tmp_path / "store", past="kind", categorical="kind", quiet=True)
    keys = pl.read_ipc((tmp_path / "store" / "keys.arrow").read_bytes())
    assert sorted(keys["store"]) == sorted(ODD)
    schema = json.loads((tmp_path / "store" / "panel.json").read_text(encoding="utf-8"))["schema"]
    assert sorted(schema["categories"]["kind"]) == sorted(ODD)
    model.save(tmp_path / "model")
    assert sorted(fc.load(tmp_path / "model").artifact.schema.categories["kind"]) == sorted(ODD)


def test_columns_that_are_formulas_are_columns(tmp_path):
    wide = tiny.plain().filter(pl.col("store") == "a").select("date", *map(_named, FORMULAS[:3]))
    wide.write_csv(tmp_path / "wide.csv")
    words = {"target": list(FORMULAS[:3]), "config": tiny.ONE}
    model = fc.fit(tmp_path / "wide.csv", horizon=3, quiet=True, **words)
    model.predict(tmp_path / "wide.csv").write(tmp_path / "new.csv")
    with (tmp_path / "new.csv").open(encoding="utf-8", newline="") as file:
        assert {row["channel"] for row in csv.DictReader(file)} == set(FORMULAS[:3])


def _named(name: str) -> pl.Expr:
    return pl.col("sales").alias(name)


def test_a_zero_byte_is_text_where_the_format_can_hold_it_and_one_line_where_not(model, tmp_path):
    table = tiny.plain(DAYS).with_columns(store=pl.col("store") + "\0x", kind=pl.lit("=1+1"))
    table.write_parquet(tmp_path / "table.parquet")
    model.predict_to(tmp_path / "new.parquet", tmp_path / "table.parquet")
    assert set(pl.read_parquet(tmp_path / "new.parquet")["store"]) == {"a\0x", "b\0x", "c\0x"}
    table.write_csv(tmp_path / "table.csv")
    with pytest.raises(fc.DataError, match=r"cannot be read \(found zero bytes: not text") as refused:
        model.predict_to(tmp_path / "new.csv", tmp_path / "table.csv")
    assert "\n" not in str(refused.value) and not (tmp_path / "new.csv").exists()


def test_names_of_many_lines_do_not_break_the_lines_of_an_error(model, tmp_path):
    """A key with line ends in it is shown so that nobody takes its second line for the program's."""
    table = tiny.plain(DAYS).with_columns(store=pl.lit("a\nerror: all is lost"), kind=pl.lit("x"))
    with pytest.raises(fc.DataError) as refused:
        model.predict(table)
    assert "\nerror: all is lost" not in str(refused.value)
