"""Files, folders and globs: one table out of several, in a known order, each row with its place."""

import gzip

import polars as pl
import pyarrow as pa
import pytest

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.frames import read_table

FRAME = pl.DataFrame(
    {"day": ["2024-01-01", "2024-01-02"], "shop": ["a", "b"], "y": [1.5, 2.0], "k": [7, 8]}
)
CSV = FRAME.write_csv().encode()


def refused(source, *parts, **data):
    with pytest.raises(DataError) as caught:
        read_table(source, DataConfig(**data))
    for part in parts:
        assert part in str(caught.value), str(caught.value)
    return str(caught.value)


def write(folder, **files):
    """Writes files by name, a double underscore for the point."""
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


def packed(codec):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(CSV)
    return sink.getvalue().to_pybytes()


def test_every_format_gives_the_same_table_whatever_its_name(tmp_path):
    (tmp_path / "a.csv").write_bytes(CSV)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(CSV))
    (tmp_path / "a.csv.zst").write_bytes(packed("zstd"))
    (tmp_path / "gz without a name").write_bytes(gzip.compress(CSV))
    (tmp_path / "[odd] name*.csv").write_bytes(CSV)
    FRAME.write_csv(tmp_path / "a.tsv", separator="\t")
    FRAME.write_parquet(tmp_path / "a.parquet")
    FRAME.write_parquet(tmp_path / "parquet.csv")
    FRAME.write_ipc(tmp_path / "a.arrow")
    FRAME.write_ipc(tmp_path / "a.feather", compression="zstd")
    files = sorted(tmp_path.iterdir())
    assert len(files) == 10
    for file in files:
        table = read_table(file)
        assert table.frame.equals(FRAME) and table.notes == () and table.kind == "file", file


def test_several_files_are_one_table_in_natural_order_and_rows_have_a_place(tmp_path):
    write(
        tmp_path, part_10__csv="a,b\n5,6\n", part_2__csv="b,a\n2,1\n4,3\n", part_1__csv="a;b\n0;0,5\n"
    )
    table = read_table(str(tmp_path / "part_*.csv"))
    assert table.frame.rows() == [(0, 0.5), (1, 2.0), (3, 4.0), (5, 6.0)]
    places = [
        f"{tmp_path}/part_{part}.csv row {row}" for part, row in ((1, 1), (2, 1), (2, 2), (10, 1))
    ]
    assert [table.place(row + 1) for row in range(4)] == places
    assert read_table(str(tmp_path / "part_1*.csv")).frame.height == 2
    assert read_table(tmp_path / "part_1.csv").place(1) == "row 1"


def test_a_folder_is_read_whole_but_for_hidden_and_foreign_files(tmp_path):
    for name in ("a", "deep", ".hidden", "_log"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.csv").write_bytes(CSV)
    FRAME.write_parquet(tmp_path / "b.parquet")
    for name in (".x.csv", "_x.csv", "_SUCCESS"):
        (tmp_path / name).write_text("what?")
    (tmp_path / "README.md").write_text("# what")
    table = read_table(tmp_path)
    assert table.frame.equals(pl.concat([FRAME] * 3))
    (note,) = table.notes
    assert note.text == "3 files are read as one table; ignored: README.md"
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "expected CSV, Excel, Parquet or Arrow files in the folder, found none")


def test_folders_called_key_value_add_columns(tmp_path):
    for region in ("north", "a%20b"):
        for year in (2023, 2024):
            folder = tmp_path / f"region={region}" / f"year={year}"
            folder.mkdir(parents=True)
            (folder / "x.csv").write_text(f"y\n{year}\n")
    expected = [(2023, "a b", 2023), (2024, "a b", 2024), (2023, "north", 2023), (2024, "north", 2024)]
    for source in (tmp_path, tmp_path / "*" / "*" / "*.csv", tmp_path / "**" / "*.csv"):
        frame = read_table(str(source)).frame
        assert frame.columns == ["y", "region", "year"] and frame.rows() == expected
    (tmp_path / "region=a%20b" / "z.csv").write_text("y\n1\n")
    refused(tmp_path, "expected the columns of", "found a difference in year")


def test_files_with_other_columns_are_refused_and_all_unreadable_ones_are_named(tmp_path):
    write(tmp_path, a__csv="a,b\n1,2\n", b__csv="a,c\n1,2\n")
    refused(
        str(tmp_path / "*.csv"), "b.csv: expected the columns of", "a.csv, found a difference in b, c"
    )
    write(tmp_path, b__csv="a,b\n1\n", c__csv='a,b\n"1\n')
    message = refused(str(tmp_path / "*.csv"), "b.csv: expected 2 fields", "c.csv: a quote sign opens")
    assert len(message.splitlines()) == 2


@pytest.mark.parametrize(
    ("first", "second", "kind", "values"),
    [
        ("1", "2.5", pl.Float64, [1.0, 2.5]),
        ("007", "12", pl.String, ["007", "12"]),
        ("A7", "012", pl.String, ["A7", "012"]),
        ("A7", "12", pl.String, ["A7", "12"]),
        ("1.50", "x", pl.String, ["1.50", "x"]),
        ("NA", "2.5", pl.Float64, [None, 2.5]),
        ("NA", "2", pl.Int64, [None, 2]),
        ("", "2", pl.Int64, [None, 2]),
        ("true", "x", pl.String, ["true", "x"]),
    ],
)
def test_the_kind_of_a_column_is_decided_over_all_files(tmp_path, first, second, kind, values):
    write(tmp_path, a__csv=f"k,v\nx,{first}\n", b__csv=f"k,v\ny,{second}\n")
    for order in (values, values[::-1]):
        column = read_table(str(tmp_path / "*.csv")).frame["v"]
        assert column.dtype == kind and column.to_list() == order
        write(tmp_path, a__csv=f"k,v\nx,{second}\n", b__csv=f"k,v\ny,{first}\n")


def test_text_beside_numbers_changes_no_other_column_and_needs_no_name(tmp_path):
    write(tmp_path, a__csv="k;v;\nx;;y\n", b__csv="k;v;\n1;2,50;1,50\n2;1234,5;0,70\n")
    frame = read_table(tmp_path).frame
    assert frame["k"].to_list() == ["x", "1", "2"]
    assert frame["v"].to_list() == [None, 2.5, 1234.5]
    assert frame["column_3"].to_list() == ["y", "1,50", "0,70"]


def test_a_byte_order_mark_and_the_dialect_are_each_files_own(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + CSV)
    (tmp_path / "b.csv").write_bytes(FRAME.write_csv(separator=";", decimal_comma=True).encode())
    (tmp_path / "c.csv").write_bytes(
        FRAME.write_csv(separator=";", decimal_comma=True).encode("utf-16")
    )
    table = read_table(str(tmp_path / "*.csv"))
    assert table.frame.equals(pl.concat([FRAME] * 3))
    assert [(note.rule, note.count) for note in table.notes] == [
        ("delimiter", 2),
        ("decimal", 2),
        ("encoding", 1),
    ]


def test_the_decimal_mark_is_decided_over_all_files(tmp_path):
    write(
        tmp_path,
        a__csv="k;v;n\nx;2.964;1.000\nx;3.120;2.000\n",
        b__csv="k;v;n\ny;2.964,5;1.000\ny;NA;2\n",
    )
    for old, new in (("a.csv", "c.csv"), ("c.csv", "a.csv")):
        (tmp_path / old).rename(tmp_path / new)
        frame = read_table(tmp_path).frame.sort("k")
        assert frame["v"].to_list() == [2964.0, 3120.0, 2964.5, None]
    assert frame["n"].to_list() == [1000.0, 2000.0, 1000.0, 2.0]


@pytest.mark.parametrize(
    ("a", "b", "numbers"),
    [
        ("1,234;7", "0,125;8", [1.234, 0.125]),
        ("1,234;7", "1,234,567;8", [1234, 1234567]),
        ("1,234;7", "5,678;2,5", [1.234, 5.678]),
        ("1,234;7", "5,678;2.5", [1234, 5678]),
        ("1,234;2.5", "5;x", [1234, 5]),
        ("1,234;7", "678;7", None),
        ("1,234;7", "5,678;8", None),
    ],
)
def test_numbers_of_two_readings_are_decided_over_all_files(tmp_path, a, b, numbers):
    for first, second in ((a, b), (b, a)):
        write(tmp_path, a__csv=f"v;w\n{first}\n", b__csv=f"v;w\n{second}\n")
        if numbers is None:
            value = first.partition(";")[0] if "," in first else "1,234"
            either = f"may be {value.replace(',', '.')} or {value.replace(',', '')}"
            place = f"{tmp_path}/{'a' if ',' in first else 'b'}.csv row 1"
            refused(
                tmp_path, f"column 'v': '{value}' in {place} {either}; pass --decimal , or --decimal ."
            )
            assert read_table(tmp_path, DataConfig(decimal=",")).frame["v"].max() > 1.2
        else:
            read = read_table(tmp_path).frame["v"].to_list()
            assert read == (numbers if first is a else numbers[::-1])


def test_a_file_of_its_own_decimal_mark_is_read_by_it_and_refused_where_that_leaves_two_readings(
    tmp_path,
):
    write(tmp_path, a__csv="v,w\n1.5,7\n", b__csv="v;w\n2,5;8\n")
    assert read_table(tmp_path).frame.rows() == [(1.5, 7), (2.5, 8)]
    write(tmp_path, a__csv="v,w\n1.5,1.234\n")
    refused(tmp_path, "a.csv: column 'w': '1.234' in row 1 may be 1.234 or 1234", "pass --decimal")
    write(tmp_path, a__csv="v,w\n1.5,NA\n", b__csv="v;w\n2,5;1,234\n")
    assert read_table(tmp_path).frame["w"].to_list() == [None, 1.234]
