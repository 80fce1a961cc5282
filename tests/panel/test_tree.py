"""Hierarchies of series: which nodes there are, what they add up, and what is no hierarchy."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

import forecaster as fc
from forecaster.config import config_from
from forecaster.panel.build import open_panel
from forecaster.panel.tree import HierarchyRequest, Tree, parse_nests, summed, tree_of

PLACES = {"a": ("north", "n1"), "b": ("north", "n2"), "c": ("south", "s1"), "d": ("south", "s1")}


def sales(days: int = 6) -> pl.DataFrame:
    """A row per store and day; store k sells 10 ᵏ."""
    rows = [
        (store, region, city, date(2024, 1, 1) + timedelta(days=day), 10.0**number, float(number), kind)
        for number, (store, (region, city)) in enumerate(PLACES.items())
        for day, kind in zip(range(days), "xxyyxx" * days, strict=False)
    ]
    names = ["store", "region", "city", "date", "sales", "price", "kind"]
    return pl.DataFrame(rows, schema=names, orient="row")


def panel(frame: pl.DataFrame, **roles: object):
    roles = {"series": "store", "target": "sales", "time": "date"} | roles
    return open_panel(frame, config_from(None, None, roles).data)


def tree(spec: object, frame: pl.DataFrame | None = None, **roles: object) -> Tree:
    request = HierarchyRequest.of(spec, None)
    return request.tree(panel(sales() if frame is None else frame, **roles))


def rows(found: Tree) -> list[tuple]:
    return [(level, *row) for level, row in zip(found.levels, found.keys.rows(), strict=True)]


def test_slashes_nest_and_bind_tighter_than_stars():
    assert parse_nests("State / Region*Purpose") == (("State", "Region"), ("Purpose",))


def test_a_nested_hierarchy_fills_down_ancestors_and_has_each_series_once():
    found = tree("region/city/store")
    assert rows(found) == [
        ("total", None, None, None),
        ("region", None, "north", None),
        ("region", None, "south", None),
        ("city", None, "north", "n1"),
        ("city", None, "north", "n2"),
        ("city", None, "south", "s1"),
        *(("store", store, *place) for store, place in PLACES.items()),
    ]
    expected = [[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]]
    np.testing.assert_array_equal(found.sums.toarray(), expected)


def test_a_crossed_hierarchy_has_all_products_of_its_levels():
    frame = sales().with_columns(
        size=pl.col("store").replace_strict({"a": "big", "b": "big", "c": "big", "d": "small"})
    )
    found = tree("region/city*size", frame)
    levels = list(dict.fromkeys(found.levels))
    assert levels == ["total", "size", "region", "region × size", "city", "city × size"]
    crossed = [row[2:] for row in rows(found) if row[0] == "region × size"]
    assert crossed == [("north", None, "big"), ("south", None, "big"), ("south", None, "small")]
    # Each city and size has one store here, so these are the leaves.
    assert [row[1] for row in rows(found) if row[0] == "city × size"] == list(PLACES)


def test_a_table_of_children_makes_levels_of_its_own_some_branches_shorter():
    parents = {"n": "world", "s": "world", "n1": "n", "a": "n1", "b": "n1", "c": "s", "d": "s"}
    frame = pl.DataFrame({"child": list(parents), "parent": list(parents.values())})
    found = tree(frame)
    assert rows(found) == [
        ("total", None, None, None),
        ("level_1", None, "n", None),
        ("level_1", None, "s", None),
        ("level_2", None, "n", "n1"),
        ("store", "a", "n", "n1"),
        ("store", "b", "n", "n1"),
        ("store", "c", "s", None),
        ("store", "d", "s", None),
    ]
    np.testing.assert_array_equal(found.sums.toarray()[3], [1, 1, 0, 0])


def test_a_table_of_one_parent_has_a_total_and_its_series():
    found = tree(pl.DataFrame({"child": list("abcd"), "parent": ["all"] * 4}))
    assert rows(found) == [("total", None), *(("store", store) for store in PLACES)]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("region//store", "expected columns, each once, as State/Region"),
        ("region*region", "expected columns, each once"),
        ("", "expected columns, each once"),
        ("regoin/store", r"static covariates \(.*\), found regoin; did you mean 'region'"),
        ("kind/store", "found kind"),
    ],
)
def test_what_names_no_columns_is_refused(spec, said):
    with pytest.raises(fc.ConfigError, match=said):
        tree(spec)


def test_a_node_with_two_parents_in_a_nested_hierarchy_is_refused_with_what_crosses_them():
    frame = sales().with_columns(city=pl.lit("x"))
    with pytest.raises(fc.DataError, match=r"city 'x' lies in region north, south; .*region\*city"):
        tree("region/city", frame, static=["region", "city"])


@pytest.mark.parametrize(
    ("parents", "said"),
    [
        ({"n": "m", "m": "n", "a": "n", "b": "n", "c": "n", "d": "n"}, "a cycle, n in m in n"),
        ({"a": "n", "b": "n", "c": "n", "e": "n"}, "'e' has no series in .* and no children"),
        ({"a": "n", "b": "n", "c": "n"}, "series d of .*: no row"),
        ({"a": "n", "b": "a", "c": "n", "d": "n"}, "'a' is a series of .* and has children"),
    ],
)
def test_tables_that_are_no_hierarchy_of_the_series_are_refused(parents, said):
    with pytest.raises(fc.DataError, match=said):
        tree(pl.DataFrame({"child": list(parents), "parent": list(parents.values())}))


def test_a_child_with_two_parents_and_a_table_without_its_columns_are_refused(tmp_path):
    with pytest.raises(fc.DataError, match="'a' has the parents n, m; expected one"):
        tree(pl.DataFrame({"child": ["a", "a"], "parent": ["n", "m"]}))
    with pytest.raises(fc.DataError, match="no column 'parent'"):
        tree(pl.DataFrame({"child": ["a"], "father": ["n"]}))
    with pytest.raises(fc.DataError, match="no such file"):
        HierarchyRequest.of(str(tmp_path / "tree.csv"), None)
    with pytest.raises(fc.ConfigError, match="--reconcile ols: expected mint, wls, bottom-up"):
        HierarchyRequest.of("region", "ols")


def test_series_on_different_grids_and_statics_that_are_empty_are_refused():
    weekly = pl.concat(
        [
            pl.DataFrame(
                {
                    "store": store,
                    "date": [date(2024, 1, day) + timedelta(days=7 * n) for n in range(5)],
                    "sales": 1.0,
                }
            )
            for store, day in (("a", 1), ("b", 3))
        ]
    )
    found = panel(weekly)
    with pytest.raises(fc.DataError, match="2024-01-03 of series b is off the steps of the others"):
        summed(found, tree_of(found, (("store",),)))
    hidden = sales().with_columns(region=pl.when(pl.col("store") != "c").then("region"))
    with pytest.raises(fc.DataError, match="'region' is empty for series c"):
        tree("region", hidden, static=["region"])


def test_a_column_named_like_one_of_the_result_is_refused_by_its_name():
    with pytest.raises(fc.DataError, match="column 'node_level' is also a result's of"):
        tree("region", sales().rename({"store": "node_level"}), series="node_level")


# Sums


def slow(frame: pl.DataFrame, group: list[str], days: list[date]) -> list[float | None]:
    """Sums day by day: each store from its first value on, gaps as the value before where 90 % are there."""
    totals = []
    for day in days:
        total, seen, begun = 0.0, 0, 0
        for store in group:
            own = frame.filter((pl.col("store") == store) & pl.col("sales").is_not_null())
            before = own.filter(pl.col("date") <= day).sort("date")
            if before.height:
                begun += 1
                total += before["sales"][-1]
                seen += before["date"][-1] == day
        totals.append(total if begun and seen >= 0.9 * begun - 1e-9 else None)
    return totals


def test_sums_hold_gaps_of_a_few_series_and_are_missing_where_many_are():
    rng = np.random.default_rng(0)
    stores = [f"s{number:02d}" for number in range(12)]
    days = [date(2024, 1, 1) + timedelta(days=day) for day in range(30)]
    frame = pl.DataFrame(
        [(store, day, float(rng.integers(1, 9))) for store in stores for day in days],
        schema=["store", "date", "sales"],
        orient="row",
    ).with_columns(region=pl.when(pl.col("store") < "s11").then(pl.lit("big")).otherwise(pl.lit("one")))
    late = (pl.col("store") == "s03") & (pl.col("date") < days[10])
    gaps = pl.Series(rng.random(frame.height) < 0.04)
    frame = frame.filter(~late).with_columns(
        sales=pl.when(gaps.gather(np.arange(frame.height - 10))).then(None).otherwise("sales")
    )
    found = panel(frame, static=["region"])
    nodes = tree_of(found, (("region",),))
    sums = summed(found, nodes)
    groups = (stores, stores[:11], stores[11:])
    for node, group in enumerate(groups):
        expected = slow(frame, group, days)
        own = slice(*sums.indptr[node : node + 2])
        shown = [None if np.isnan(value) else value for value in sums.values[own, 0]]
        times = expected[next(n for n, value in enumerate(expected) if value is not None) :]
        assert shown == times, node
    assert any(value is None for value in shown)


def test_covariates_of_a_sum_are_means_and_the_most_frequent_category():
    frame = sales().with_columns(
        kind=pl.when(pl.col("store") == "a").then(pl.lit("z")).otherwise("kind"),
        city=pl.col("city"),
    )
    found = panel(frame, known=["price"], past=["kind"], static=["region", "city"])
    sums = summed(found, tree_of(found, (("region", "store"),)))
    np.testing.assert_array_equal(sums.values[:, 0], np.repeat([1111.0, 11.0, 1100.0], 6))
    np.testing.assert_array_equal(sums.values[:, 1], np.repeat([1.5, 0.5, 2.5], 6))
    words = found.schema.categories["kind"]
    assert [words[code - 1] for code in sums.codes[:6, 0]] == list("xxyyxx")
    cities = found.schema.categories["city"]
    assert cities[sums.static_codes[2, found.schema.static_category.index("city")] - 1] == "s1"
