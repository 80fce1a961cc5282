"""Rows are sorted and merged, never silently: order, repeats, gaps, overlaps, all faults at once."""

import math
from datetime import datetime, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from panel.panel_tables import TWO, days, same, table

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.build import open_panel
from forecaster.panel.frames import read_table
from forecaster.panel.timestamps import write_times


def notes(panel, rule):
    return [finding for finding in panel.notes if finding.rule == rule]


def faults(source, data=None, **tables):
    """The lines of the error, and its findings."""
    with pytest.raises(DataError) as caught:
        open_panel(source, data or DataConfig(), **tables)
    return str(caught.value).splitlines(), caught.value.findings


@pytest.mark.parametrize(
    "time_format", ["%d.%m.%Y", "%-d/%-m/%Y", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M+02:00", "%b %d, %Y"]
)
def test_times_of_a_file_are_quoted_as_written(tmp_path, time_format):
    stamps = [datetime(2024, 1, 1) + timedelta(days=day) for day in (0, 1, 20, 40, 20, 41)]
    text = pl.Series("when", stamps).dt.strftime(time_format)
    path = tmp_path / "table.csv"
    pl.DataFrame([text, pl.Series("y", [1.0, 2, 3, 4, 5, 6])]).write_csv(path)
    read = read_table(path, DataConfig()).with_times("when", None, strict=False)
    stamps = read.frame["when"]
    assert stamps.dtype.is_temporal() and not read.times.digits
    assert write_times(stamps, read.times.time_format).to_list() == text.to_list()
    lines, _ = faults(path, DataConfig(series=()))
    assert f"found 2 that disagree at {text[2]} in all rows (row 3, row 5;" in lines[0]


def test_rows_out_of_order_are_sorted_and_reported():
    mixed = TWO[[1, 0, 2, 3, 4, 6, 5]]
    panel = open_panel(mixed, DataConfig())
    assert same(panel, open_panel(TWO, DataConfig()))
    (note,) = notes(panel, "order")
    assert (note.severity, note.series, note.where, note.count) == ("note", "a", "row 7", 2)
    # Blocks of series in any order, and rows of a day together, are orders too.
    assert notes(open_panel(TWO.sort("day"), DataConfig()), "order") == []
    assert notes(open_panel(TWO, DataConfig()), "order") == []


def test_a_row_of_a_second_table_is_named_by_its_number_there():
    first = pl.DataFrame({"day": [1, 2, 3] * 2, "shop": list("aaabbb"), "y": [1.0, 2, 3, 4, 5, 6]})
    second = pl.DataFrame({"day": [9, 3, 1, 2, 1, 2, 3], "shop": list("zbbbaaa"), "x": np.arange(7.0)})
    data = DataConfig(time="day", series=("shop",), known=("x",))
    (note,) = notes(open_panel(first, data, covariates=second), "order")
    assert (note.series, note.where) == ("b", "row 4")


def test_identical_rows_are_kept_once_and_reported():
    double = pl.concat([TWO, TWO[1:2], TWO[1:2]])
    for mode in ("error", "mean", "last"):
        panel = open_panel(double, DataConfig(on_duplicates=mode))
        assert same(panel, open_panel(TWO, DataConfig()))
        (finding,) = notes(panel, "duplicates")
        assert (finding.severity, finding.series, finding.count) == ("warning", "b", 2)
        assert finding.where == "row 2, row 8" and "2 of 9 rows are copies" in finding.text
    # Missing numbers are equal, however they are written.
    nan = TWO.with_columns(pl.col("y").fill_null(math.nan))
    assert notes(open_panel(pl.concat([TWO, nan]), DataConfig()), "duplicates")[0].count == 7


def test_rows_that_disagree_are_refused_with_their_numbers_unless_set_otherwise():
    other = TWO[1:2].with_columns(y=pl.lit(4.0), w=pl.lit("even"))
    double = pl.concat([TWO, other])
    keys = {"series": ("id",)}
    lines, (finding, order) = faults(double, DataConfig(**keys))
    assert order.rule == "order"
    assert len(lines) == 1 and "found 2 that disagree at 2024-01-02 in series 'b'" in lines[0]
    assert "(row 2, row 8; 2 such rows in all)" in lines[0] and "--on-duplicates mean" in lines[0]
    assert (finding.rule, finding.series, finding.count) == ("duplicates", "b", 2)
    for mode, value, word in (("mean", 3.0, "even"), ("last", 4.0, "even")):
        panel = open_panel(double, DataConfig(on_duplicates=mode, **keys))
        row = panel.indptr[1] + 1
        assert panel.values[row, 0] == value
        assert panel.schema.categories["w"][panel.codes[row, 0] - 1] == word
        (note,) = notes(panel, "duplicates")
        assert (note.severity, note.count) == ("note", 2) and f"--on-duplicates {mode}" in note.advice


def test_rows_of_one_day_are_added_up_copies_too():
    sales = pl.DataFrame({
        "shop": ["b", "a", "b", "b", "a", "b", "b"],
        "day": days(0, 0, 0, 0, 1, 1, 2),
        "y": [1.0, 2.0, 1.0, 3.0, None, 5.0, 7.0],
        "price": [4.0, 1.0, 4.0, 7.0, 1.0, 2.0, 2.0],
        "how": ["card", "cash", "card", "cash", "cash", "card", "card"],
    })  # fmt: skip
    sales = pl.concat([sales, sales[4:5]])  # two rows without a target: their sum is missing, not 0
    sales = pl.concat([sales, sales[1:2].with_columns(day=pl.lit(days(2)[0]))])
    data = DataConfig(series=("shop",), target=("y",), known=("price",), on_duplicates="sum")
    panel = open_panel(sales, data)
    np.testing.assert_equal(panel.values[:, 0], [2, np.nan, 2, 5, 5, 7])
    assert panel.values[:, 1].tolist() == [1, 1, 1, 5, 2, 2]
    assert [panel.schema.categories["how"][code - 1] for code in panel.codes[3:, 0]] == [
        "cash",
        "card",
        "card",
    ]
    (note,) = notes(panel, "duplicates")
    assert note.text == "5 of 9 rows shared 2 places in time; the sum of each place was kept"
    assert (note.severity, note.advice) == ("note", "as --on-duplicates sum sets")
    weeks = pl.DataFrame({"day": [day for day in days(*range(14)) for _ in range(2)], "y": [1.0] * 28})
    weekly = DataConfig(resample="W-SUN", agg="sum", on_duplicates="sum")
    assert 14.0 in open_panel(weeks, weekly).values
    heat = pl.DataFrame({"day": days(*range(14), 3), "heat": [*range(14), 5]})
    two = open_panel(weeks, DataConfig(known=("heat",), on_duplicates="sum"), covariates=heat)
    assert two.values[3].tolist() == [2, 4]  # covariates become their mean
    (warning,) = notes(open_panel(weeks, DataConfig()), "duplicates")
    assert warning.advice.endswith("or add them up with --on-duplicates sum")


CELLS = st.sampled_from([None, math.nan, -1.0, 0.5, 2.0, 1e6])
ROW = st.tuples(
    st.sampled_from("ab"), st.integers(0, 3), CELLS, CELLS, st.sampled_from(["u", "v", None])
)


def _slow_merge(rows, mode):
    """Rows by (series, day), one loop at a time."""
    places = {}
    for row in rows:
        values = [None if v is None or v != v else v for v in row[2:4]]
        places.setdefault(row[:2], []).append((*values, row[4]))
    settled = {}
    for key, group in places.items():
        copies = all(other == group[0] for other in group)
        if mode == "last" or (copies and mode != "sum"):
            settled[key] = group[-1]
            continue
        means = []
        for column in zip(*(row[:2] for row in group), strict=True):
            real = [value for value in column if value is not None]
            adds = mode == "sum" and not means
            means.append(sum(real) / (1 if adds else len(real)) if real else None)
        words = [row[2] for row in group if row[2] is not None]
        settled[key] = (*means, words[-1] if words else None)
    return settled


@settings(max_examples=30, deadline=None)
@given(rows=st.lists(ROW, min_size=1, max_size=14), mode=st.sampled_from(["mean", "last", "sum"]))
def test_repeated_rows_are_merged_as_by_a_plain_loop(rows, mode):
    anchors = [(name, day, 1.0, 1.0, "u") for name in "ab" for day in (-2, -1)]
    rows = anchors + rows
    frame = pl.DataFrame(
        {
            "id": [row[0] for row in rows],
            "day": days(*(row[1] + 2 for row in rows)),
            "y": [row[2] for row in rows],
            "x": [row[3] for row in rows],
            "w": [row[4] for row in rows],
        },
        schema_overrides={"y": pl.Float64, "x": pl.Float64, "w": pl.String},
    )
    data = DataConfig(series=("id",), target=("y",), past=("x", "w"), on_duplicates=mode, freq="1d")
    panel = open_panel(frame, data)
    expected = _slow_merge(rows, mode)
    assert panel.schema.categories["w"][0] == "u"
    seen = 0
    for series, name in enumerate("ab"):
        for row in range(panel.indptr[series], panel.indptr[series + 1]):
            day = row - panel.indptr[series] - 2
            y, x, word = expected.get((name, int(day)), (None, None, None))
            seen += (name, int(day)) in expected
            numbers = [np.nan if value is None else value for value in (y, x)]
            np.testing.assert_allclose(panel.values[row], numbers, rtol=1e-6)
            code = panel.codes[row, 0]
            assert (None if code < 0 else panel.schema.categories["w"][code - 1]) == word
    assert seen == len(expected)
    pairs = [row[:2] for row in rows]
    repeats = {pair for pair in pairs if pairs.count(pair) > 1}
    assert bool(repeats) == bool(notes(panel, "duplicates"))


def test_repeats_in_second_tables_follow_the_same_rule():
    shared = pl.DataFrame({"day": days(*range(8)), "heat": [float(k) for k in range(8)]})
    double = pl.concat([shared, shared[2:3].with_columns(heat=pl.lit(4.0))])
    data = {"known": ("heat",)}
    lines, _ = faults(TWO, DataConfig(**data), covariates=double)
    assert "found 2 that disagree at 2024-01-03" in lines[0] and "row 3, row 9" in lines[0]
    panel = open_panel(TWO, DataConfig(on_duplicates="mean", **data), covariates=double)
    heat = panel.schema.columns.index("heat")
    assert panel.values[panel.indptr[0], heat] == 3.0
    sites = pl.DataFrame({"id": ["a", "b", "b"], "size": [10, 20, 30]})
    assert "expected one row per series, found 2 that disagree" in faults(TWO, covariates=sites)[0][0]
    panel = open_panel(TWO, DataConfig(on_duplicates="last"), covariates=sites)
    assert panel.static[:, 0].tolist() == [10, 30]
    copies = open_panel(TWO, DataConfig(), covariates=sites[[0, 1, 1]])
    assert notes(copies, "duplicates")[0].severity == "warning"


def test_repeats_of_channels_made_series_are_named_by_the_row_of_the_table():
    wide = pl.DataFrame({"day": days(0, 1, 2, 1), "u": [1.0, 2, 3, 5], "v": [4.0, 5, 6, 5]})
    lines, _ = faults(wide, DataConfig(layout="long"))
    assert "in series 'u' (row 2, row 4; 2 such rows in all)" in lines[0]


FUTURE = pl.DataFrame({"id": ["a", "a", "b"], "day": days(4, 5, 6), "x": [4.0, 5.0, 6.0]})


def test_a_future_that_contradicts_the_past_is_an_error_and_one_that_agrees_a_note():
    panel = open_panel(TWO, DataConfig(), future=FUTURE)
    (note,) = notes(panel, "future")
    assert (note.severity, note.series, note.where, note.count) == ("note", "a", "2024-01-05", 1)
    wrong = FUTURE.with_columns(x=pl.Series([-1.0, 5, 6]))
    lines, (finding,) = faults(TWO, future=wrong)
    assert "found 'x' = -1 instead of 4 at 2024-01-05 in series 'a' (row 1; 1 such cells)" in lines[0]
    assert finding.rule == "future"
    rounded = FUTURE.with_columns(x=pl.col("x") + 1e-6)
    assert notes(open_panel(TWO, DataConfig(), future=rounded), "future")
    assert notes(open_panel(TWO, DataConfig(), future=FUTURE[1:]), "future") == []
    words = FUTURE.with_columns(w=pl.Series(["odd", "odd", "odd"]))
    assert "found 'w' = odd instead of even" in faults(TWO, future=words)[0][0]


def test_targets_in_a_future_table_are_not_read_and_reported():
    future = FUTURE.with_columns(y=pl.lit(1.0))
    found = notes(open_panel(TWO, DataConfig(target=("y",)), future=future), "future")
    assert any("3 values of the target 'y', which are not read" in note.text for note in found)


def test_text_times_with_several_offsets_are_one_clock_and_reported():
    hours = ["00:00:00+01:00", "01:00:00+01:00", "03:00:00+02:00"]
    stamps = [f"2024-03-31T{hour}" for hour in hours]
    frame = pl.DataFrame({"time": stamps, "y": [1.0, 2, 3]})
    (note,) = notes(open_panel(frame, DataConfig(freq="1h")), "zones")
    assert "2 offsets from UTC: +01:00, +02:00" in note.text and note.where == "row 3"
    assert notes(open_panel(frame[:2], DataConfig()), "zones") == []


def test_all_faults_of_the_columns_are_reported_at_once():
    broken = TWO.with_columns(
        y=pl.Series(["1", "soon"] + ["2"] * 5),
        x=pl.Series(["1", "2", "much"] + ["2"] * 4),
        id=pl.Series(["b", "b", "b", None, "a", "a", "a"]),
        day=pl.Series([*TWO["day"][:6], "never"]),
    )
    data = DataConfig(time="day", series=("id",), target=("y", "x"))
    lines, found = faults(broken, data)
    assert len(lines) == 4
    for words in ("'soon' in row 2", "'much' in row 3", "found none in row 4", "column 'day'"):
        assert any(words in line for line in lines), words
    assert {f.rule for f in found} >= {"text", "keys"} and all(f.severity == "error" for f in found)
    lines, _ = faults(TWO.drop("x", "w"), schema=open_panel(TWO, DataConfig()).schema)
    assert len(lines) == 2 and "no column 'x'" in lines[0] and "no column 'w'" in lines[1]


def test_all_faults_of_the_rows_are_reported_at_once_with_earlier_notes():
    double = pl.concat([TWO, TWO[1:2].with_columns(y=pl.lit(4.0)), TWO[:1]])
    wrong = FUTURE.with_columns(x=pl.Series([-1.0, 5, 6]))
    lines, found = faults(double, future=wrong)
    assert len(lines) == 2 and "disagree" in lines[0] and "overlap" in lines[1]
    assert [f.rule for f in found] == ["duplicates", "future", "order", "duplicates"]
    assert [f.severity for f in found] == ["error", "error", "note", "warning"]


def test_all_faults_of_the_panel_are_reported_at_once():
    broken = TWO.with_columns(y=pl.Series([1.0, 2, np.inf, 3, 4, 5, 6]), x=pl.lit(-np.inf))
    lines, found = faults(broken, DataConfig(freq="2d", target=("y",), past=("x",)))
    assert len(lines) == 3 and {f.rule for f in found} == {"infinite", "grid"}
    assert "column 'y'" in lines[0] and "(1 such cells" in lines[0]
    assert "column 'x'" in lines[1] and "(7 such cells" in lines[1]
    assert "expected steps of 2d" in lines[2]


@pytest.mark.parametrize(
    ("ids", "declared"),
    [
        (("1000", "1E3"), True),
        (("1.1", "1.10"), True),
        (("1", "+1"), False),
        (("TRUE", "true"), True),
        (("7", "007"), False),
        (("-0", "0"), False),
        (("9007199254740993.0", "9007199254740992.0"), True),
        (("100000000000000000000", "1e20"), True),
    ],
)
def test_ids_of_text_files_are_kept_as_written(tmp_path, ids, declared):
    rows = [f"2024-01-{day:02d},{each},{day},1.5" for each in ids for day in (1, 2, 3, 4)]
    (tmp_path / "a.csv").write_text("\n".join(["day,id,y,price", *rows]))
    (tmp_path / "future.csv").write_text(f"day,id,price\n2024-01-05,{ids[1]},7.5\n")
    (tmp_path / "parts").mkdir()
    for part in (0, 1):
        text = "\n".join(["day,id,y,price", *rows[4 * part : 4 * part + 4]])
        (tmp_path / "parts" / f"{part}.csv").write_text(text)
    data = DataConfig(series=("id",) if declared else None, target=("y",))
    panel = open_panel(tmp_path / "a.csv", data)
    assert set(panel.series_names) == set(ids)
    assert same(panel, open_panel(tmp_path / "parts", data))
    panel = open_panel(tmp_path / "a.csv", data, future=tmp_path / "future.csv")
    price = [panel.values[panel.indptr[k + 1] - 1, 1] for k in range(2)]
    assert [name for name, value in zip(panel.series_names, price, strict=True) if value == 7.5] == [
        ids[1]
    ]


def test_plain_whole_numbers_stay_ids_of_the_same_kind_from_a_file_and_a_frame(tmp_path):
    frame = TWO.with_columns(pl.col("id").replace_strict({"a": 1, "b": 2}))
    frame.write_csv(tmp_path / "a.csv")
    assert same(open_panel(tmp_path / "a.csv", DataConfig()), open_panel(frame, DataConfig()))


def test_float_ids_of_a_second_table_never_join_by_rounding():
    past = table(a={0: 1, 1: 2}, b={0: 3, 1: 4}).with_columns(
        pl.col("id").replace_strict({"a": 1, "b": 2**53 + 1})
    )
    data = DataConfig(series=("id",), target=("y",), known=("x",))
    for odd, shown in ((1.4, "1.4"), (float(2**53), "9007199254740992.0")):
        future = pl.DataFrame({"id": [1.0, odd], "day": days(2, 2), "x": [5.0, 6.0]})
        lines, _ = faults(past, data, future=future)
        assert f"column 'id': expected ids as in the table, found {shown} in row 2" in lines[0]
    panel = open_panel(past, data, future=future[:1])
    assert panel.values[panel.indptr[1] - 1, 1] == 5.0
    text = pl.DataFrame({"id": ["1", "01"], "day": days(2, 2), "x": [5.0, 6.0]})
    assert panel.values[:, 1].tolist() == open_panel(past, data, future=text).values[:, 1].tolist()


ODD = (
    "^.*",
    ".*$",
    "$5_$10",
    "^",
    "y*",
    "**",
    "{x}",
    "\\d+",
    "[0]",
    "'",
    '"',
    "%Y",
    "y\n",
    "a^b$",
    "(?i)y",
)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.sampled_from(ODD), min_size=6, max_size=6, unique_by=str.strip))
def test_names_of_columns_are_taken_literally(names):
    plain = TWO.with_columns(s=pl.lit(2.5), k=pl.col("x") * 3)
    future = pl.DataFrame({"id": ["a", "b"], "day": days(6, 6), "k": [1.0, 2.0]})
    new = dict(zip(("id", "y", "x", "w", "k", "s"), names, strict=True))
    roles = {"series": ["id"], "target": ["y"], "past": ["x", "w"], "known": ["k"], "static": ["s"]}
    first, second = (
        open_panel(
            plain.rename(to),
            DataConfig(**{role: [to[name].strip() for name in own] for role, own in roles.items()}),
            future=future.rename({"id": to["id"], "k": to["k"]}),
        )
        for to in ({name: name for name in new}, new)
    )
    assert np.array_equal(first.values, second.values, equal_nan=True)
    assert np.array_equal(first.codes, second.codes) and np.array_equal(first.static, second.static)
    assert first.series_names == second.series_names


@pytest.mark.parametrize("name", ["*", " *", "^y$", "^.*$", "^y\n$"])
def test_names_that_stand_for_several_columns_are_refused(tmp_path, name):
    frame = TWO.rename({"x": name})
    frame.write_csv(tmp_path / "a.csv")
    frame.write_parquet(tmp_path / "a.parquet")
    for source in (frame, frame.to_pandas(), tmp_path / "a.csv", tmp_path / "a.parquet"):
        lines, _ = faults(source, DataConfig())
        assert f"expected names of columns, found '{name.strip()}'; rename: *" in "\n".join(lines)


def test_rows_of_series_that_the_table_lacks_are_left_out_with_a_warning():
    first = pl.DataFrame({"day": [1, 2, 3] * 2, "shop": list("aaabbb"), "y": [1.0, 2, 3, 4, 5, 6]})
    others = [*"aabb", *"cdefghg"]
    second = pl.DataFrame({"day": [1, 2] * 2 + [1] * 6 + [2], "shop": others, "x": np.arange(11.0)})
    data = DataConfig(time="day")
    panel = open_panel(first, data, covariates=second)
    (warning,) = notes(panel, "keys")
    assert (warning.severity, warning.series, warning.where, warning.count) == (
        "warning", "c", "row 5", 7,
    )  # fmt: skip
    assert warning.text == (
        "7 of 11 rows of the polars frame are of 6 series that the table lacks, and left out: c, d, e, f, "
        "g, ... (6 in all)"
    )
    assert panel.series_names == ["a", "b"] and np.nansum(panel.values[:, 1]) == 0 + 1 + 2 + 3
    assert notes(open_panel(first, data, covariates=second[:4]), "keys") == []


@pytest.mark.parametrize("kind", ["number", "text"])
def test_a_future_table_begins_series_for_a_model_alone(kind):
    """With statics and covariates of a second table, as if each had a row without a target."""
    dtype = pl.Int32 if kind == "number" else pl.String
    first = pl.DataFrame({"day": [1, 2, 3] * 2, "shop": [7] * 3 + [8] * 3, "y": [1.0, 2, 3, 4, 5, 6]})
    first = first.with_columns(pl.col("shop").cast(dtype), size=pl.lit(1.0), p=pl.lit(0.0))
    future = pl.DataFrame({"day": [4, 5] * 3, "shop": [8, 8, 9, 9, 7, 7], "p": np.arange(6.0)})
    future = future.with_columns(pl.col("shop").cast(dtype), size=pl.Series([3.0] * 6))
    data = DataConfig(known=("p",), static=("size",), time="day", series=("shop",), target=("y",))
    fitted = open_panel(first, data, future=future)
    (warning,) = notes(fitted, "keys")
    assert fitted.series_names == ["7", "8"] and "left out: 9" in warning.text and fitted.n_new == 0
    found = open_panel(first, data, schema=fitted.schema, future=future)
    (warning,) = notes(found, "keys")
    assert "2 rows of the polars frame begin 1 series that the table lacks: 9" in warning.text
    assert found.series_names == ["7", "8", "9"] and found.n_new == 1
    row = pl.DataFrame({"day": [4], "shop": [9], "y": [None], "size": [3.0], "p": [2.0]})
    row = row.with_columns(pl.col("shop").cast(dtype), pl.col("y").cast(pl.Float64))
    dummy = open_panel(pl.concat([first, row]), data, schema=fitted.schema, future=future)
    assert same(found, dummy) and found.static.ravel().tolist() == [1.0, 1.0, 3.0]
    # Of the series of the table statics in the future table are not read.
    assert notes(found, "static") == [] and notes(found, "future") == []
