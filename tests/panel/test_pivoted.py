"""Layout wide of a long table: the panel is that of the table pivoted by pandas beforehand."""

from datetime import date, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest
from panel.panel_tables import refused, same

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.build import open_panel
from forecaster.panel.convert import convert_table
from forecaster.panel.schema import Schema

SHOPS = (10, 2, 1)  # as text they would be 1, 10, 2
WIDE = DataConfig(layout="wide", series=("shop",), target=("y",), known=("price", "temp"))
COLUMNS = DataConfig(
    target=("1", "2", "10"),
    known=("price/1", "price/2", "price/10", "temp"),
    past=("word/1", "word/2", "word/10"),
)


def long_table(rows=30, seed=0):
    """Days of shops that begin and end on different days, with a gap; temp is the same for all."""
    rng, parts = np.random.default_rng(seed), []
    for number, shop in enumerate(SHOPS):
        days = np.delete(np.arange(2 * number, rows - number), 7 + number)
        part = {"shop": shop, "day": [date(2024, 1, 1) + timedelta(int(n)) for n in days]}
        part |= {"y": rng.normal(size=len(days)), "price": rng.normal(size=len(days))}
        part |= {"temp": 0.5 * days, "word": rng.choice(["a", "b"], len(days)), "size": 1.5 * shop}
        parts.append(pd.DataFrame(part))
    table = pd.concat(parts, ignore_index=True)
    table["day"] = pd.to_datetime(table["day"])
    return table


def by_pandas(table, shared="temp", rest=("y", "price", "word")):
    """The table with a column per shop and one of what all have, in an order of its own."""
    rest = [name for name in rest if name in table]
    wide = table.pivot(index="day", columns="shop", values=rest)
    wide.columns = [str(shop) if name == "y" else f"{name}/{shop}" for name, shop in wide.columns]
    return wide.join(table.groupby("day")[shared].first()).reset_index()


def test_the_panel_is_that_of_the_pivoted_table():
    table = long_table()
    panel = open_panel(table, WIDE)
    assert same(panel, open_panel(by_pandas(table), COLUMNS))
    assert panel.schema.target == ("1", "2", "10") and panel.n_series == 1
    reasons = {row[0]: row[1:] for row in panel.schema.rows()}
    assert reasons["shop"] == (
        "series",
        "Int64",
        "declared; its series are channels of one series (layout wide)",
    )
    assert reasons["price"] == ("known", "number", "declared; a column per series")
    assert reasons["temp"] == ("known", "number", "declared; one for all series")
    assert reasons["word"][:2] == ("past", "category")
    assert reasons["size"] == ("ignored", "", "ignored: constant within a channel")


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_rows_and_series_changes_nothing(seed):
    table = long_table()
    mixed = table.sample(frac=1, random_state=seed)
    assert same(open_panel(table, WIDE), open_panel(mixed, WIDE))
    assert same(open_panel(table, WIDE), open_panel(pl.from_pandas(mixed), WIDE))


def test_further_tables_are_pivoted_by_their_key_and_shared_without_one():
    table = long_table()
    rows = [(shop, date(2024, 1, 30) + timedelta(n), shop + n) for shop in SHOPS for n in range(4)]
    future = pd.DataFrame(rows, columns=["shop", "day", "price"])
    future["day"] = pd.to_datetime(future["day"])
    temp = pd.concat([table, future]).groupby("day")["temp"].first().fillna(7.0).reset_index()
    both = pd.concat([table.drop(columns="temp"), future[future["day"] > table["day"].max()]])
    expected = open_panel(by_pandas(both.merge(temp, on="day")), COLUMNS)
    words = table[["shop", "day", "word"]]
    given = {"covariates": temp, "future": future[future["day"] > table["day"].max()]}
    assert same(open_panel(table.drop(columns="temp"), WIDE, **given), expected)
    keyed = open_panel(table.drop(columns="word"), WIDE, covariates=words)
    assert same(keyed, open_panel(table, WIDE))


def test_the_steps_of_a_longer_period_are_those_of_the_pivoted_table():
    weekly = {"resample": "W-SUN", "agg": "sum"}
    table = long_table(60)
    panel = open_panel(table, WIDE.model_copy(update=weekly))
    assert same(panel, open_panel(by_pandas(table), COLUMNS.model_copy(update=weekly)))


def test_a_stored_schema_reads_later_tables_the_same_way():
    table = long_table()
    schema = open_panel(table, WIDE).schema
    assert Schema.from_dict(schema.to_dict()) == schema
    assert same(open_panel(table, DataConfig(), schema=schema), open_panel(table, WIDE))
    # All prices alike, and one shop missing: columns stay those of the model.
    later = table[table["shop"] != 2].assign(price=1.0)
    panel = open_panel(later, DataConfig(), schema=schema)
    assert panel.schema.columns == schema.columns
    assert np.isnan(panel.values[:, 1]).all() and not np.isnan(panel.values[:, 0]).all()
    names = {"shop": "store", "y": "sales", "price": "cost", "temp": "heat", "word": "text"}
    declared = DataConfig(series=("store",), target=("sales",), known=("cost", "heat"), past=("text",))
    renamed = open_panel(table.rename(columns=names), declared, schema=schema.renamed(declared))
    assert same(renamed, open_panel(table, WIDE)) and renamed.schema.channel_keys.columns == ["store"]


def test_repeated_rows_are_reported_and_settled_as_those_of_a_long_table():
    table = long_table()
    twice = pd.concat([table, table.iloc[[3]].assign(y=9.0)], ignore_index=True)
    found = []
    for layout in (None, "wide"):
        with pytest.raises(DataError) as caught:
            open_panel(twice, WIDE.model_copy(update={"layout": layout}))
        found.append(str(caught.value))
    assert found[0] == found[1] and "expected one row per series and time" in found[0]
    last = open_panel(twice, WIDE.model_copy(update={"on_duplicates": "last"}))
    assert same(last, open_panel(twice.drop(index=3), WIDE))


def test_several_key_columns_and_their_types_come_back():
    table = pl.from_pandas(long_table()).rename({"shop": "item"})
    kinds = {"shop": pl.Enum(["x", "y", "z"]), "item": pl.Int16}
    table = pl.concat([table.with_columns(shop=pl.lit(name)) for name in "zx"]).cast(kinds)
    data = WIDE.model_copy(update={"series": ("shop", "item")})
    schema = open_panel(table, data).schema
    assert schema.target == ("x/1", "x/2", "x/10", "z/1", "z/2", "z/10")
    keys = table.select("shop", "item").unique().sort("shop", "item")
    assert schema.channel_keys.equals(keys) and schema.channel_keys.schema == keys.schema


def test_a_table_of_columns_stays_as_it_is():
    wide = by_pandas(long_table())
    assert same(
        open_panel(wide, COLUMNS),
        open_panel(wide, COLUMNS.model_copy(update={"layout": "wide"})),
    )


FRAME = "^the pandas frame: "


@pytest.mark.parametrize(
    ("change", "data", "message"),
    [
        (
            lambda table: pd.concat([table.assign(shop=table["shop"] + 20 * n) for n in range(17)]),
            {},
            "layout wide expects 2 to 50 series, found 51, named by shop; drop --layout to forecast each "
            "series by itself",
        ),
        (
            lambda table: table,
            {"target": ("y", "price"), "known": ("temp",)},
            "layout wide of several series expects one target, found y, price; name one of them with "
            "--target, or drop --layout to forecast each series by itself",
        ),
        (
            lambda table: table.drop(columns="day"),
            {"time": "row"},
            "layout wide of several series expects a column of times, but rows are numbered; drop "
            "--layout to forecast each series by itself",
        ),
        (
            lambda table: table,
            {"label": "word"},
            "layout wide of several series has no classes, but 'word' is a class column "
            r"\(--label\); drop --layout",
        ),
        (
            lambda table: table.assign(shop=table["shop"].map({1: "a", 2: "temp", 10: "c"})),
            {},
            "layout wide names columns by series, and 'temp' would be two of them; rename the series or "
            "the column",
        ),
        (
            lambda table: table.assign(shop=table["shop"] > 1).drop_duplicates(["shop", "day"]),
            {},
            "layout wide expects text or whole numbers as ids, found Boolean in column 'shop'; write "
            "them as text",
        ),
    ],
    ids=["many series", "two targets", "no times", "labels", "a name twice", "booleans"],
)
def test_what_cannot_be_pivoted_is_refused(change, data, message):
    refused(FRAME + message + "$", change(long_table()), WIDE.model_copy(update=data))


def test_a_table_that_does_not_fit_the_model_is_refused(tmp_path):
    table = long_table()
    schema = open_panel(table, WIDE).schema
    unknown = table.assign(shop=table["shop"].replace({2: 3}))
    message = (
        "expected the series of the model, 1, 2, 10, found also 3; leave these out of the table, or "
    )
    refused(FRAME + message + "fit again$", unknown, schema=schema)
    message = "expected one value of 'temp' at each time, as the model was fitted to, found several; "
    message += "correct the column, or fit again$"
    refused(FRAME + message, table.assign(temp=table["temp"] + table["shop"]), schema=schema)


def test_a_store_is_refused(tmp_path):
    message = (
        "layout wide of several series is read whole, and has no panel store; pass the table itself"
    )
    with pytest.raises(DataError, match=FRAME + message):
        convert_table(long_table(), tmp_path / "store", WIDE)
    assert not (tmp_path / "store").exists()
    stored = convert_table(long_table(), tmp_path / "long", WIDE.model_copy(update={"layout": None}))
    assert stored.n_series == 3
    with pytest.raises(DataError, match=message):
        schema = open_panel(long_table(), WIDE).schema
        open_panel(tmp_path / "long", DataConfig(), schema=schema)
