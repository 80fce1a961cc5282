"""Groups of series that are related: each group is the panel of its own rows pivoted by themselves."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from panel.panel_tables import refused, same
from panel.test_pivoted import FRAME, WIDE, long_table

from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel.audit import check_panel
from forecaster.panel.build import open_panel
from forecaster.panel.schema import Schema
from forecaster.panel.store import open_store, write_store

KEYS = {"series": ("city", "shop"), "relate": ("city",)}
RELATED = DataConfig(target=("y",), known=("price", "temp"), **KEYS)


def cities():
    """Shops 10, 2 and 1 of a city x, 10 and 1 of y, other days and values; area is the city's."""
    first, second = long_table(), long_table(25, seed=1)
    second = second[second["shop"] != 2].assign(temp=second["temp"] + 9)
    parts = [
        one.assign(city=name, area=n) for n, (name, one) in enumerate({"x": first, "y": second}.items())
    ]
    return pd.concat(parts, ignore_index=True)


def test_each_group_is_its_own_table_pivoted():
    table = cities()
    panel = open_panel(table, RELATED)
    assert panel.schema.target == ("1", "2", "10") and panel.series_names == ["x", "y"]
    assert panel.present.tolist() == [[True, True, True], [True, False, True]]
    for number, city in enumerate(panel.series_names):
        own = open_panel(table[table["city"] == city], WIDE)
        part = panel.between(number, number + 1)
        here = [panel.schema.columns.index(name) for name in own.schema.columns]
        assert np.array_equal(part.values[:, here], own.values, equal_nan=True)
        assert np.array_equal(part.time, own.time)
        lacking = np.delete(part.values, here, axis=1)
        assert np.isnan(lacking).all() and lacking.shape[1] == (0 if city == "x" else 2)
    assert panel.static[:, 0].tolist() == [0, 1] and panel.schema.static == ("area",)
    reasons = {row[0]: row[1:] for row in panel.schema.rows()}
    assert reasons["city"][2] == "declared; names a group (relate city)"
    assert reasons["shop"][2] == "declared; its series are channels of one series (relate city)"
    assert reasons["temp"][2] == "declared; one for all series of a group"
    assert reasons["size"] == ("ignored", "", "ignored: constant within a channel")


def test_one_group_is_the_whole_table_in_layout_wide():
    table = long_table()
    wide, one = open_panel(table, WIDE), open_panel(table.assign(city="x"), RELATED)
    for name in ("values", "codes", "time", "indptr"):
        assert np.array_equal(getattr(wide, name), getattr(one, name), equal_nan=True)
    assert one.schema.columns == wide.schema.columns and one.series_names == ["x"]


@pytest.mark.parametrize("order", [KEYS["series"], ("shop", "city")])
def test_the_order_of_rows_changes_nothing(order):
    data = RELATED.model_copy(update={"series": order})
    panel = open_panel(cities(), data)
    assert same(panel, open_panel(cities().sample(frac=1, random_state=0), data))
    assert same(panel, open_panel(cities()[::-1], data))
    keys = panel.ids(np.array([1, 0]), np.array([0, 2]))
    assert {key.name: key.to_list() for key in keys} == {"city": ["y", "x"], "shop": [1, 10]}
    assert tuple(key.name for key in keys) == order


def test_keys_of_groups_are_inferred_and_may_be_a_column_of_each_series():
    table = cities()
    data = DataConfig(target=("y",), known=("price", "temp"), relate=("city",))
    assert same(
        open_panel(table, data.model_copy(update={"series": ("city", "shop")})),
        open_panel(table, RELATED),
    )
    alone = table.assign(shop=table["shop"] + 100 * table["area"])
    panel = open_panel(alone, data.model_copy(update={"series": ("shop",)}))
    assert panel.schema.key_columns == ("city", "shop") and panel.series_names == ["x", "y"]
    assert panel.schema.target == ("1", "2", "10", "101", "110")
    assert panel.present.sum(axis=1).tolist() == [3, 2]
    text = "--relate city: expected keys, or one value in each series; name all keys, as --series city,shop"
    refused(FRAME + text, table, data.model_copy(update={"series": ("shop",)}))


def test_later_tables_are_read_by_a_stored_schema():
    table = cities()
    schema = open_panel(table, RELATED).schema
    assert Schema.from_dict(schema.to_dict()) == schema
    assert same(open_panel(table, DataConfig(), schema=schema), open_panel(table, RELATED))
    other = table[table["city"] == "y"].assign(city="z")
    panel = open_panel(other, DataConfig(), schema=schema)
    assert panel.series_names == ["z"] and panel.present.tolist() == [[True, False, True]]
    names = {"city": "town", "shop": "store", "y": "sales", "area": "region"}
    renamed = schema.renamed(
        DataConfig(series=("town", "store"), target=("sales",), static=("region",))
    )
    again = open_panel(table.rename(columns=names), DataConfig(), schema=renamed)
    assert renamed.relate == ("town",) and again.keys.columns == ["town"]
    assert np.array_equal(again.values, open_panel(table, RELATED).values, equal_nan=True)
    unknown = table.assign(shop=table["shop"].replace({2: 3}))
    refused(
        FRAME + "expected the series of the model, 1, 2, 10, found also 3; leave",
        unknown,
        schema=schema,
    )
    varying = table.assign(temp=table["temp"] + table["shop"])
    refused(FRAME + "expected one value of 'temp' at each time", varying, schema=schema)
    with pytest.raises(ConfigError, match="--relate a,b: expected 1 columns instead of city"):
        schema.renamed(DataConfig(relate=("a", "b")))
    with pytest.raises(ConfigError, match="--relate a: expected 0 columns instead of none"):
        open_panel(table, RELATED.model_copy(update={"relate": ()})).schema.renamed(
            DataConfig(relate=("a",))
        )


def test_a_panel_in_parts_or_in_a_store_knows_the_members_of_its_groups(tmp_path):
    panel = open_panel(cities(), RELATED)
    stored = write_store(panel, tmp_path / "store", RELATED)
    assert same(stored, panel) and np.array_equal(stored.present, panel.present)
    assert panel.only("y").present.tolist() == panel.some(np.array([1])).present.tolist()
    np.save(tmp_path / "store/members.npy", panel.present[:1])
    with pytest.raises(DataError, match=r"damaged panel store \(members.npy is bool"):
        open_store(tmp_path / "store")


def test_the_audit_misses_nothing_of_a_series_that_a_group_lacks():
    panel = open_panel(cities(), RELATED)
    found = check_panel(panel, horizon=3)
    assert not [one for one in (*found, *check_panel(panel.only("y"))) if one.rule == "empty"]
    assert [one.text for one in found if one.rule == "horizon"] == [
        "known in advance, but not after the last target: price/1, price/2, price/10, temp"
    ]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            {"relate": ("city", "shop")},
            "relate city,shop expects 2 to 50 series, found 0, named by no further key; drop --relate to "
            "forecast each series by itself",
        ),
        ({"relate": ("town",)}, "no column 'town'.*"),
    ],
    ids=["no further key", "no such column"],
)
def test_what_cannot_be_related_is_refused(data, message):
    refused(FRAME + message + "$", cities(), RELATED.model_copy(update=data))


def test_another_layout_is_refused():
    for layout in ("long", "rows"):
        with pytest.raises(ValueError, match=f"relate contradicts layout {layout}; leave "):
            DataConfig(relate=("city",), layout=layout)


@pytest.mark.parametrize(
    "wrong",
    [
        {"covariates": {"price": ()}},
        {"covariates": {"price": ("price/1",) * 2}},
        {"keys": ()},
        {"keys": (("1", "2"),) * 3},
        {"series": ("shop", "city", "shop")},
        {"relate": ()},
        {"relate": ("town",)},
        {"relate": ("city", "city")},
        {"relate": ("city", "shop")},
    ],
)
@pytest.mark.parametrize("data", [WIDE, RELATED])
def test_a_stored_pivot_that_contradicts_its_columns_is_refused(data, wrong):
    schema = open_panel(cities() if data.relate else long_table(), data).schema
    pivot = replace(schema.pivot, **{name: value for name, value in wrong.items() if name != "relate"})
    odd = replace(schema, pivot=pivot, relate=wrong.get("relate", schema.relate))
    if odd == schema:
        return
    with pytest.raises(ValueError, match=r"pivot|relate|named twice"):
        Schema.from_dict(odd.to_dict())
