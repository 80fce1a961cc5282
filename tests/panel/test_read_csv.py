"""Delimited text: every dialect of a table gives the same table, and no number is guessed."""

import itertools

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.csv import field_counts
from forecaster.panel.frames import read_table

ROWS = [
    ("2024-01-01", "a, b; c", 1.5, 3),
    ("2024-01-02", 'say "x"\ny', -20.25, None),
    ("2024-01-03", "é", 7.0, 5),
]
FRAME = pl.DataFrame(ROWS, ["day", "note", "load", "count"], orient="row")


@pytest.fixture
def written(tmp_path):
    """Writes a file and reads it."""

    def read(content, name="a.csv", **data):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_table(path, DataConfig(**data))

    def refused(content, *parts, **data):
        with pytest.raises(DataError) as caught:
            read(content, **data)
        message = str(caught.value)
        assert "\n" not in message
        for part in parts:
            assert part in message, message

    read.refused = refused
    return read


def rules(table):
    return sorted(note.rule for note in table.notes)


@pytest.mark.parametrize(
    ("mark", "point", "eol", "encoding"),
    list(itertools.product(",;\t|", ".,", ("\n", "\r\n"), ("utf-8", "utf-8-sig", "utf-16"))),
)
def test_a_table_is_the_same_in_every_dialect(written, mark, point, eol, encoding):
    text = FRAME.write_csv(separator=mark, decimal_comma=point == ",", line_terminator=eol)
    table = written(text.encode(encoding))
    assert table.frame.equals(FRAME)
    said = [("encoding", encoding == "utf-16"), ("delimiter", mark != ","), ("decimal", point == ",")]
    assert rules(table) == sorted(rule for rule, shown in said if shown)
    assert written(text.encode(encoding), delimiter="tab" if mark == "\t" else mark).frame.equals(FRAME)


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("time;Price, EUR\n2024-01-01;1,5\n2024-01-02;2,5\n", ["time", "Price, EUR"]),
        ('day,"a;b"\n2024-01-01,"1;2"\n', ["day", "a;b"]),
        ("sep=|\na|b;c\n1|2;3\n", ["a", "b;c"]),
        ("a,b\r1,2\r3,4\r", ["a", "b"]),
        ("\n\na,b\n1,2\n", ["a", "b"]),
        ("only\n1\n2\n", ["only"]),
    ],
)
def test_the_delimiter_is_the_one_that_separates_rows_evenly(written, text, columns):
    assert written(text).frame.columns == columns


TABLE = "Day,Shop,Sales\n2024-01-01,a,3\n2024-01-02,a,4\n"


@pytest.mark.parametrize(
    ("lines", "table"),
    [
        ("Sales\n", TABLE),
        ("Source: a\n\nSeen,yesterday\n\n", TABLE),
        ("Sales,,\n,,\n", TABLE),
        ("Sales of 2024\n", TABLE.replace(",", ";")),
        ('"a "" quote",1\n', TABLE),
        (
            '"World",Data,\n\n',
            "Name,Code," + ",".join(map(str, range(1990, 2000))) + ",\nA,AB," + "7," * 9 + ",\n",
        ),
    ],
)
def test_lines_before_the_header_are_named_with_the_option_that_skips_them(written, lines, table):
    count = lines.count("\n")
    written.refused(lines + table, f"pass --skip-rows {count} if it is line {count + 1}")
    whole = written(table).frame
    for text in (
        lines + table,
        (lines + table).replace("\n", "\r\n"),
        (lines + table).replace("\n", "\r"),
    ):
        assert written(text, skip_rows=count).frame.equals(whole)
    skipped = written(lines + table, skip_rows=count)
    names = whole.columns[:1]
    assert skipped.text(names).equals(whole.select(names))
    written.refused(lines + table + "1,2,3,4,5,6,7;8;9;10,11,12,13,14\n", "in row ", skip_rows=count)


@pytest.mark.parametrize(
    "lines", ["# Sales\n", "# one, two, three\n#\n", "## a, b, c, d, e\n\n", '"# a","b"\n']
)
def test_lines_that_begin_with_a_hash_are_comments_up_to_the_header(written, lines):
    whole = written(TABLE).frame
    for text in (lines + TABLE, (lines + TABLE).replace("\n", "\r\n")):
        table = written(text)
        assert table.frame.equals(whole) and table.text(["Shop"]).equals(whole.select("Shop"))
        assert rules(table) == ["rows"] and f"({lines.count(chr(10))})" in table.notes[0].text
    header = written("# Sales\n#" + TABLE)
    assert header.frame.columns == ["#Day", "Shop", "Sales"] and len(header.frame) == 2
    assert written("#y\n3\n4\n").frame.columns == ["#y"]
    assert written("# Sales\n" + TABLE, skip_rows=1).frame.equals(whole)


@pytest.mark.parametrize(
    "text",
    [
        "day,y,\n2024-01-01,3,\n2024-01-02,4,late\n",
        ",y\n2024-01-01,3\n2024-01-02,4\n",
        "y\n3\n4\n",
        "\n\nday,y\n2024-01-01,3\n2024-01-02,4\n",
    ],
)
def test_a_header_that_lacks_names_is_not_taken_for_a_title(written, text):
    assert written(text).frame.equals(written(text, skip_rows=0).frame)


def column(values, *others):
    """A file of one column, each value in quotes, beside whole numbers and further columns."""
    lines = zip(*([f'"{value}"' for value in part] for part in (values, *others)), strict=True)
    names = ",".join("yzw"[: 1 + len(others)])
    return f"{names},k\n" + "".join(f"{','.join(line)},{k}\n" for k, line in enumerate(lines))


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (["1,5", "2", "NA"], [1.5, 2.0, None]),
        (["1,5", "n/a", "#N/A", "<NA>"], [1.5, None, None, None]),
        (["0,125", "3,5"], [0.125, 3.5]),
        (["1234,567", "8"], [1234.567, 8.0]),
        (["1.234,5", "12"], [1234.5, 12.0]),
        (["1,234.5", "12"], [1234.5, 12.0]),
        (["1.234.567", "12"], [1234567.0, 12.0]),
        (["1,234,567", "12"], [1234567.0, 12.0]),
        (["1 234,5", "7"], [1234.5, 7.0]),
        (["1'234.5", "7"], [1234.5, 7.0]),
        (["12\u202f345", "7"], [12345.0, 7.0]),
        (["+1.5", " 2 ", "-", "."], [1.5, 2.0, None, None]),
        (["1,5e3", "2"], [1500.0, 2.0]),
    ],
)
def test_numbers_that_can_be_read_in_one_way_are(written, values, numbers):
    assert written(column(values)).frame["y"].to_list() == numbers


@pytest.mark.parametrize("values", [["1,234", "12"], ["1,234", "56,789"], ["1,234", "NA"]])
def test_a_number_that_can_be_read_in_two_ways_is_refused_until_the_mark_is_declared(written, values):
    written.refused(
        column(values),
        "column 'y': '1,234' in row 1 may be 1.234 or 1234; pass --decimal , or --decimal .",
    )
    assert written(column(values), decimal=",").frame["y"][0] == 1.234
    assert written(column(values), decimal=".").frame["y"][0] == 1234
    # The rest of the file may tell.
    assert written(column(values, ["1,5", "2"])).frame["y"][0] == 1.234
    assert written(column(values, ["1.5", "2"])).frame["y"][0] == 1234
    written.refused(column(values, ["1.5", "2"], ["1,5", "2"]), "may be 1.234 or 1234")


def test_a_mark_other_than_the_declared_one_is_refused_with_its_row(written):
    written.refused(
        "d;y\na;2\nb;1.5\n",
        "column 'y': expected ',' as decimal mark, found '1.5' in row 2",
        decimal=",",
    )
    written.refused(
        column(["2", "1,5"]), "expected '.' as decimal mark, found '1,5' in row 2", decimal="."
    )
    assert written("d;y\na;1.234\nb;12\n", decimal=",").frame["y"].to_list() == [1234, 12]


def test_points_that_may_group_thousands_give_a_warning(written):
    (warning,) = written("k,y\na,1.234\nb,999\n").notes
    assert (
        warning.severity == "warning"
        and "column 'y'" in warning.text
        and "--decimal ," in warning.advice
    )
    assert written("k,y\na,1.234\nb,0.999\n").notes == ()
    assert written("k,y\na,1.23\nb,999\n").notes == ()


def test_what_is_no_number_stays_text(written):
    frame = written("a;b;c;d\n01.02.2024;1.2.3;1,2,3;x1\n15.02.2024;10.0.0.1;4;2\n").frame
    assert set(frame.dtypes) == {pl.String}


LATE = 3000


@pytest.mark.parametrize(
    ("early", "late", "kind", "last"),
    [
        ("1", "2.5", pl.Float64, 2.5),
        ("1", "NA", pl.Int64, None),
        ("1", "x", pl.String, "x"),
        ("1", '"2,5"', pl.Float64, 2.5),
        ("true", "maybe", pl.String, "maybe"),
        ("10", "99999999999999999999", pl.String, "99999999999999999999"),
        ("123", "007", pl.String, "007"),
        ("", "5", pl.Int64, 5),
        ("NA", "5.5", pl.Float64, 5.5),
        ("007", "12", pl.String, "12"),
    ],
)
def test_the_kind_of_a_column_is_decided_over_all_its_rows(written, early, late, kind, last):
    column = written("y,k\n" + f"{early},1\n" * LATE + f"{late},2\n").frame["y"]
    assert column.dtype == kind and column[-1] == last
    assert column.null_count() == (0 if early not in ("", "NA") else LATE) + (late == "NA")


def test_a_comma_far_below_decides_what_points_mean(written):
    frame = written("y;z\n" + "1;1.234\n" * LATE + "2,5;7\n").frame
    assert frame.rows()[-2:] == [(1.0, 1234.0), (2.5, 7.0)]
    frame = written("y;z\n" + "1;1.25\n" * LATE + "2,5;7\n").frame
    assert frame.rows()[-2:] == [(1.0, 1.25), (2.5, 7.0)]
    text = "y;z;w\n" + "1;1.234;1.5\n" * LATE + "2,5;7;2\n"
    written.refused(text, "column 'z': '1.234' in row 1 may be 1.234 or 1234")


def test_fields_too_many_or_too_few_are_refused_with_the_row(written):
    rows = '1,"x\n,y",3\n' * 5
    for odd, found in (("1,2\n", 2), ("1,2,3,4\n", 4), ("1\n", 1)):
        written.refused(
            f"a,b,c\n{rows}{odd}4,5,6\n",
            f"expected 3 fields as in the header, found {found} in row 6 (1 such rows)",
        )
    written.refused(
        'a,b\n1,2\n"x,3\n4,5\n', "a quote sign opens in row 2 or before and is never closed"
    )
    assert written("a,b,c\n1,2,\n\n3,4,5\n").frame.height == 3
    long = "x" * 200_000
    written.refused(f'a,b,c\n"{long}",2,3\n1\n', "found 1 in row 2")
    assert written('a,b,c\n2 "x, y",\n"3",4,\n').frame.rows() == [
        ('2 "x', ' y"', None),
        ("3", "4", None),
    ]


@given(
    st.lists(
        st.lists(st.text(alphabet='ab,"\n\r;', max_size=4), min_size=1, max_size=4),
        min_size=1,
        max_size=8,
    )
)
def test_fields_between_quotes_are_counted_whatever_they_hold(rows):
    lines = [",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows]
    counts = field_counts("\n".join(lines).encode(), ",")
    assert counts.tolist() == [len(row) for row in rows]


def test_a_first_row_of_values_is_no_header(written):
    for text in ("2024-01-01,5\n2024-01-02,6\n", "a,2024-01-01,5\nb,2024-01-02,6\n", "1,2\n3,4\n"):
        written.refused(text, "expected a header, found values in the first row", "add a first line")
    assert written("id,2010,2011\na,5,6\n").frame.columns == ["id", "2010", "2011"]
    assert written("id,2010-01-01,2010-01-02\na,5,6\n").frame.width == 3


@pytest.mark.parametrize(
    ("text", "columns", "said"),
    [
        ("a,b,\n1,2,\n3,4,\n", ["a", "b"], "column 3 has no name and is empty"),
        (",y\n0,5\n1,6\n", ["y"], "column 1 has no name and numbers the rows"),
        (
            ",y\n2024-01-01,5\n2024-01-02,6\n",
            ["time", "y"],
            "column 1 has no name and is called 'time'",
        ),
        (",y\nx,5\nz,6\n", ["column_1", "y"], "column 1 has no name and is called 'column_1'"),
    ],
)
def test_a_column_without_a_name_gets_one_or_is_dropped(written, text, columns, said):
    table = written(text)
    assert table.frame.columns == columns
    (note,) = table.notes
    assert note.rule == "columns" and said in note.text


def test_whole_numbers_without_a_name_can_be_ids(written):
    for ids, kind in ((["3", "3", "7", "7"], pl.Int64), (["3", "03", "7", "07"], pl.String)):
        rows = "".join(f"{one},2024-01-0{day},{day}\n" for day, one in enumerate(ids, 1))
        for data in ({}, {"series": ("column_1",)}):
            named = written(",day,y\n" + rows, **data).with_ids(["column_1"]).frame["column_1"]
            assert named.dtype == kind and named.cast(pl.String).to_list() == ids


def test_empty_rows_at_the_end_are_passed_over_and_others_kept(written):
    for end in ("\n\n", ",\n,\n", "\n,\n"):
        table = written("a,b\n1,2\n\n3,4\n" + end)
        assert table.frame.rows() == [(1, 2), (None, None), (3, 4)]
        assert [note.text for note in table.notes] == ["empty rows at the end are ignored (2)"]


def test_blanks_after_delimiters_are_no_part_of_the_values(written):
    frame = written("day, shop , y\n2024-01-01, a, 1\n2024-01-02, b, 2\n").frame
    assert frame.rows() == [("2024-01-01", "a", 1), ("2024-01-02", "b", 2)]
    assert frame.columns == ["day", "shop", "y"]
