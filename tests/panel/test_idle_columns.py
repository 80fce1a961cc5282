"""Columns that measure nothing have no role unless declared, and a target by its name is one of any table."""

from datetime import date, timedelta

import numpy as np
import polars as pl
import pytest

from forecaster.config import DataConfig
from forecaster.panel.build import open_panel

ROWS = 60
NOISE = np.random.default_rng(0)
DATES = [date(2024, 1, 1) + timedelta(days=n) for n in range(ROWS)]
PLAIN = pl.DataFrame({"date": DATES, "sold": NOISE.normal(20, 3, ROWS).round(2)})


def roles(frame, **declared):
    """The roles of columns by name, and the findings of the table."""
    panel = open_panel(frame, DataConfig(**declared))
    return {name: role for name, role, *_ in panel.schema.rows()}, panel.notes


def interleaved(column):
    """Two series that take turns, with a column that numbers the rows of each."""
    both = pl.concat(
        [PLAIN.with_columns(shop=pl.lit(name), **{column: pl.int_range(5, 65)}) for name in "ab"]
    )
    return both.sort("date", "shop")


@pytest.mark.parametrize("name", ["rownames", "Id", "index", "column_1", "X", "store"])
@pytest.mark.parametrize("start", [0, 1, 17])
def test_a_row_number_has_no_role_and_is_noted(name, start):
    numbers = pl.int_range(start, start + pl.len()).alias(name)
    for frame in (PLAIN.select(numbers, pl.all()), PLAIN.with_columns(numbers)):
        found, notes = roles(frame)
        assert found == {"date": "time", "sold": "target", name: "ignored"}
        assert [(note.severity, note.text) for note in notes] == [
            ("note", f"'{name}' is ignored: numbers the rows")
        ]


def test_a_row_number_of_each_series_has_no_role():
    for frame in (interleaved("n"), interleaved("n").sort("shop", "date")):
        assert roles(frame)[0] == {"date": "time", "shop": "series", "sold": "target", "n": "ignored"}


@pytest.mark.parametrize("role", ["target", "past", "known"])
def test_a_declared_row_number_has_its_role(role):
    frame = PLAIN.with_columns(n=pl.int_range(pl.len()))
    found, notes = roles(frame, **{role: ("n",)})
    assert found["n"] == role and not notes


def test_the_only_numbers_are_the_target_with_a_warning_and_the_only_time_stays():
    found, notes = roles(pl.DataFrame({"date": DATES, "n": range(ROWS)}))
    assert found == {"date": "time", "n": "target"}
    assert [note.severity for note in notes] == ["warning"] and "only column of numbers" in notes[
        0
    ].text
    assert roles(PLAIN.select("sold", step=pl.int_range(pl.len())))[0] == {
        "step": "time",
        "sold": "target",
    }


@pytest.mark.parametrize("name", ["rec", "lfd"])
def test_a_row_number_with_holes_or_in_another_order_has_no_role(name):
    kept = NOISE.choice(85, ROWS, replace=False)
    for numbers in (np.sort(kept), kept, -np.sort(-kept)):
        assert roles(PLAIN.with_columns(pl.Series(name, numbers)))[0][name] == "ignored"
    counts = np.cumsum(NOISE.poisson(1.5, ROWS))
    sparse = np.sort(NOISE.choice(130, ROWS, replace=False))
    for values in (counts, sparse):
        assert roles(PLAIN.with_columns(pl.Series(name, values)))[0][name] == "target"
    few = PLAIN.head(12).with_columns(pl.Series(name, [1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13]))
    assert roles(few)[0][name] == "target"


def test_ids_that_are_padded_with_zeros_are_no_target_under_any_name():
    numbers = np.random.default_rng(3).integers(1, 9_000, ROWS)
    ids = PLAIN.with_columns(nummer=pl.Series([f"{number:05d}" for number in numbers]))
    assert roles(ids)[0] == {"date": "time", "sold": "target", "nummer": "ignored"}
    assert roles(ids, target=("nummer",))[0]["nummer"] == "target"
    # A table may pad all of its numbers.
    assert roles(ids.select("date", "nummer"))[0]["nummer"] == "target"
    months = PLAIN.with_columns(code=pl.Series([f"{number % 12:03d}" for number in numbers]))
    assert roles(months)[0]["code"] == "target"


def test_numbers_with_a_jump_or_few_rows_are_values():
    for values in ([None, *range(59)], [*range(30), *range(30)]):
        assert roles(PLAIN.with_columns(n=pl.Series(values)))[0]["n"] == "target"
    assert roles(PLAIN.head(4).with_columns(n=pl.int_range(pl.len())))[0]["n"] == "target"
    assert roles(PLAIN.select("date", sales=pl.int_range(pl.len())))[0]["sales"] == "target"


@pytest.mark.parametrize("name", ["customer_id", "zip", "accountNumber", "Phone_No"])
def test_an_id_is_no_target_or_covariate(name):
    ids = NOISE.integers(10_000, 99_999, ROWS)
    assert roles(PLAIN.with_columns(pl.Series(name, ids)))[0][name] == "ignored"
    long = (
        interleaved("n")
        .drop("n")
        .with_columns(pl.Series(name, NOISE.integers(10_000, 99_999, 2 * ROWS)))
    )
    assert roles(long.select(name, pl.all().exclude(name)))[0][name] == "ignored"


@pytest.mark.parametrize("word", ["%Y", "%m", "%u", "%w", "%d", "%A", "%B"])
@pytest.mark.parametrize("name", ["month", "day_of_week", "Year"])
def test_a_part_of_the_date_beside_it_is_ignored(word, name):
    long = PLAIN.select("sold", date=pl.date_range(date(2023, 1, 1), date(2023, 3, 1)).head(ROWS))
    part = long["date"].dt.strftime(word)
    if word not in ("%A", "%B"):
        part = part.cast(pl.Int64)
    assert roles(long.with_columns(part.alias(name)))[0][name] == "ignored"
    other = part.gather(NOISE.permutation(ROWS)) if word in ("%d", "%u") else None
    if other is not None:
        assert roles(long.with_columns(other.alias(name)))[0][name] != "ignored"


def test_a_place_is_a_static_and_a_copy_is_ignored():
    found, _ = roles(
        PLAIN.select("date", "sold", lat=pl.lit(52.5), longitude=pl.lit(13.4), euro=pl.col("sold"))
    )
    assert found == {
        "date": "time",
        "sold": "target",
        "lat": "static",
        "longitude": "static",
        "euro": "ignored",
    }
    # The one whose name says that it is the target stays.
    found, _ = roles(PLAIN.with_columns(sales=pl.col("sold")))
    assert found == {"date": "time", "sales": "target", "sold": "ignored"}


def test_a_target_by_its_name_is_the_only_one_of_a_single_series_too():
    frame = PLAIN.with_columns(Sales=pl.col("sold") ** 2, promo=pl.int_range(pl.len()) % 5 == 0)
    found, notes = roles(frame)
    assert found == {"date": "time", "sold": "past", "Sales": "target", "promo": "past"}
    assert (
        "other numbers are past covariates: sold" in notes[0].text and "--known sold" in notes[0].advice
    )
    assert roles(frame, target=("Sales", "sold"))[0]["sold"] == "target"


def test_columns_of_other_kinds_and_unsigned_numbers_are_read_as_before():
    odd = PLAIN.with_columns(
        lists=pl.concat_list("sold", "sold"),
        structs=pl.struct("sold"),
        falling=pl.int_range(3 * pl.len(), 0, -3, dtype=pl.UInt64),
        month=pl.concat_list(pl.lit(1), pl.lit(2)),
        hour=pl.lit(None, pl.Int64),
    )
    found, _ = roles(odd)
    assert found["lists"] == found["structs"] == "ignored" and found["falling"] == "target"


def test_numbers_that_are_those_of_the_date_have_no_role_under_any_name():
    days = pl.Series(DATES)
    parts = {"jour": days.dt.day(), "Wochentag": days.dt.weekday(), "wday0": days.dt.weekday() - 1}
    parts |= {"Wochenende": (days.dt.weekday() > 5).cast(pl.Int64), "jahr": days.dt.year()}
    parts |= {"mnth": days.dt.month(), "yr": days.dt.year() - 2024}
    found, _ = roles(PLAIN.with_columns(**parts))
    assert {found[name] for name in parts} == {"ignored"}
    few = PLAIN.head(6).with_columns(
        sold=pl.Series([3, 4, 1, 2, 5, 7]), jour=pl.Series([3, 4, 1, 2, 5, 6])
    )
    assert roles(few)[0]["jour"] == "target"


@pytest.mark.parametrize("name", ["customer", "plz", "phone"])
def test_numbers_of_customers_and_places_are_no_target(name):
    numbers = pl.Series(name, np.random.default_rng(2).permutation(90_000)[:ROWS])
    assert roles(PLAIN.with_columns(numbers))[0][name] == "ignored"


def test_numbers_of_months_beside_numbered_rows_repeat_no_date():
    steps = PLAIN.select(
        "sold", step=pl.int_range(pl.len()), month=pl.Series(NOISE.integers(1, 13, ROWS))
    )
    assert roles(steps)[0]["month"] != "ignored"
