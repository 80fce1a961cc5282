"""Workbooks: a sheet gives the table of the CSV file of the same rows, and results are written as one."""

import datetime
import io
import zipfile

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.config import DataConfig
from forecaster.errors import DataError, OutputError
from forecaster.forecast import writer
from forecaster.panel.frames import merge_parts, read_table
from forecaster.panel.workbooks import write_sheet

pytest.importorskip("fastexcel", reason="the extra excel reads workbooks")
xlsxwriter = pytest.importorskip("xlsxwriter", reason="the extra excel writes workbooks")

DAY = {"num_format": "dd.mm.yyyy"}
ODD = (
    *("=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-2+3", '=HYPERLINK("http://x";"y")'),
    *("http://x.y", "mailto:a@b", "two\nlines", 'quo"ted"', "com,ma", "semi;colon", "é🎈"),
    *("e\u0301", " space ", "1e5", "001", "'single'", "\\back\\n", "_x000D_", "x" * 10_000),
)


def book(path, *sheets, hidden=()):
    """Writes sheets of a name and rows of cells; dates as days of Excel."""
    with xlsxwriter.Workbook(path, {"strings_to_urls": False}) as file:
        day = file.add_format(DAY)
        for name, rows in sheets:
            sheet = file.add_worksheet(name)
            if name in hidden:
                sheet.hide()
            for number, row in enumerate(rows):
                for at, value in enumerate(row):
                    dated = isinstance(value, datetime.date)
                    sheet.write(number, at, value, day if dated else None)
    return path


def rows_of(frame):
    return [tuple(frame.columns), *frame.rows()]


def refused(path, **data):
    with pytest.raises(DataError) as caught:
        read_table(path, DataConfig(**data))
    return str(caught.value)


def test_a_sheet_gives_the_forecast_of_the_csv_file(tmp_path, shell):
    table = tiny.plain()
    table.write_csv(tmp_path / "shop.csv")
    source = book(tmp_path / "shop.xlsx", ("shop", rows_of(table)))
    found, expected = (fc.predict(tmp_path / f"shop.{end}", 7) for end in ("xlsx", "csv"))
    assert found.frame.equals(expected.frame)
    assert found.frame["date"].dtype == pl.Date
    for end in ("csv", "xlsx"):
        answer = shell("predict", source, "--horizon", 7, "--out", tmp_path / f"out.{end}")
        assert answer.code == 0, answer.err
    text, sheet = pl.read_csv(tmp_path / "out.csv", try_parse_dates=True), tmp_path / "out.xlsx"
    assert pl.read_excel(sheet).equals(text)


def test_the_model_of_a_csv_file_with_decimal_commas_reads_a_sheet(tmp_path):
    table = tiny.plain()
    table.write_csv(tmp_path / "shop.csv", separator=";", decimal_comma=True)
    model = fc.fit(tmp_path / "shop.csv", 7, config=tiny.ONE, quiet=True)
    source = book(tmp_path / "shop.xlsx", ("shop", rows_of(table)))
    assert model.predict(source).frame.equals(model.predict(tmp_path / "shop.csv").frame)


def test_all_digits_of_a_number_are_read(tmp_path):
    values = [0.1 + 0.2, 1e-7, 1e21, 3.0, -1234.5, 1.234, 999.0]
    book(tmp_path / "a.xlsx", ("a", [("y", "n"), *((value, 1) for value in values)]))
    cells = [float(f"{value:.16G}") for value in values]  # as xlsxwriter writes them
    table = read_table(tmp_path / "a.xlsx")
    assert table.frame["y"].to_list() == cells and not table.notes


@pytest.mark.parametrize("clock", [0, 6])
def test_dates_of_cells_are_days_where_none_has_a_clock(tmp_path, clock):
    start = datetime.datetime(2024, 1, 1)
    times = [start + datetime.timedelta(hours=k * (clock or 24)) for k in range(8)]
    book(tmp_path / "a.xlsx", ("a", [("day", "y"), *((time, k) for k, time in enumerate(times))]))
    form = "%Y-%m-%d %H:%M:%S" if clock else "%Y-%m-%d"
    assert read_table(tmp_path / "a.xlsx").frame["day"].to_list() == [f"{t:{form}}" for t in times]


def test_whole_numbers_are_days_where_that_is_declared(tmp_path):
    rows = [("t", "y"), *((45292 + day, float(day % 7)) for day in range(40))]
    book(tmp_path / "a.xlsx", ("a", rows))
    found = fc.predict(tmp_path / "a.xlsx", 3, time="t", time_format="excel").to_polars()
    assert found["t"][0] in (45332, datetime.date(2024, 2, 10))


def test_ids_in_text_keep_their_zeros_and_columns_without_a_name_have_the_usual_one(tmp_path):
    rows = [("", "id", "y", ""), *((datetime.date(2024, 1, 1 + k), "007", k, None) for k in range(5))]
    table = read_table(book(tmp_path / "a.xlsx", ("a", rows)), DataConfig(series=("id",)))
    assert table.frame.columns == ["time", "id", "y"]
    assert table.with_ids(["id"]).frame["id"].unique().to_list() == ["007"]


def test_the_first_visible_sheet_that_is_a_table_is_read_and_others_are_named(tmp_path):
    rows = [("day", "y"), *((datetime.date(2024, 1, 1 + k), k) for k in range(5))]
    words = [("Our sales",), ("of 2024",)]
    sheets = (("About", words), ("Old", rows[:3]), ("Empty", []), ("Data", rows), ("More", rows[:2]))
    table = read_table(book(tmp_path / "a.xlsx", *sheets, hidden=("Old",)))
    assert table.frame.height == 5
    (note,) = table.notes
    assert note.text == "the sheet 'Data' is read; ignored: About, Old, Empty, More"
    table = read_table(book(tmp_path / "b.xlsx", ("About", [("y",), (1,)]), ("Empty", [])))
    assert table.frame["y"].to_list() == [1]


def test_a_workbook_without_a_table_is_refused_by_its_name(tmp_path):
    path = book(tmp_path / "book.xlsx", ("A", []), ("B", [("y",)]))
    text = "book.xlsx: expected a sheet with a header and rows, found none; the sheets are A, B"
    assert refused(path).endswith(text)


def test_a_title_above_the_header_is_refused_with_the_rows_to_skip(tmp_path):
    rows = [("Sales of 2024",), ("day", "y"), *((datetime.date(2024, 1, 1 + k), k) for k in range(5))]
    path = book(tmp_path / "a.xlsx", ("a", rows))
    assert "expected a header of 2 names in the first line, found 1" in refused(path)
    assert read_table(path, DataConfig(skip_rows=1)).frame.columns == ["day", "y"]


def test_a_decimal_comma_in_text_is_refused_and_never_read_as_thousands(tmp_path):
    rows = [("y", "p"), *((k + 0.5, f"{k},500") for k in range(5))]
    text = refused(book(tmp_path / "a.xlsx", ("a", rows)))
    assert "column 'p': expected '.' as decimal mark as in all numbers of a workbook" in text
    assert "make them numbers there, or save it as CSV" in text
    assert "--decimal" not in text


def test_a_broken_workbook_is_one_line(tmp_path):
    path = book(tmp_path / "a.xlsx", ("a", [("y",), (1,)]))
    path.write_bytes(path.read_bytes()[:2000])
    assert "a.xlsx: cannot be read (" in refused(path) and "\n" not in refused(path)


def test_workbooks_in_a_folder_are_one_table_and_locks_of_excel_are_none(tmp_path):
    for number in (1, 2):
        rows = [("day", "y"), *((datetime.date(2024, number, 1 + k), k) for k in range(5))]
        book(tmp_path / f"{number}.xlsx", ("a", rows))
    (tmp_path / "~$1.xlsx").write_bytes(b"lock")
    (tmp_path / "3.csv").write_text("day,y\n2024-03-01,7\n")
    table = read_table(tmp_path)
    assert table.frame.height == 11 and table.frame["y"].to_list()[-1] == 7
    assert table.place(6).endswith("2.xlsx row 1")


def test_a_sheet_of_opendocument_is_read(tmp_path):
    cell = '<table:table-cell office:value-type="{0}" {1}><text:p>{2}</text:p></table:table-cell>'
    rows = [cell.format("string", "", "day") + cell.format("string", "", "y")]
    for day in ("2024-01-01", "2024-01-02"):
        dated = cell.format("date", f'office:date-value="{day}"', day)
        rows.append(dated + cell.format("float", 'office:value="1.5"', "1,50"))
    names = ("office", "table", "text")
    spaces = " ".join(f'xmlns:{n}="urn:oasis:names:tc:opendocument:xmlns:{n}:1.0"' for n in names)
    body = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    body = f'<table:table table:name="a">{body}</table:table>'
    body = f"<office:body><office:spreadsheet>{body}</office:spreadsheet></office:body>"
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as file:
        file.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        file.writestr("META-INF/manifest.xml", "<manifest/>")
        file.writestr(
            "content.xml", f"<office:document-content {spaces}>{body}</office:document-content>"
        )
    frame = read_table(tmp_path / "a.ods").frame
    assert frame["y"].to_list() == [1.5, 1.5]
    assert frame["day"].to_list() == ["2024-01-01", "2024-01-02"]


def as_text(frame):
    return frame.with_columns(pl.selectors.temporal().cast(pl.String))


def written(frame):
    content = io.BytesIO(write_sheet(frame, "a.xlsx", as_text))
    return pl.read_excel(content, infer_schema_length=None)


def test_cells_come_back_as_they_were():
    time = [datetime.datetime(2024, 1, 1, 3, 4, 5, 678_000)] * len(ODD)
    frame = pl.DataFrame({"text": ODD, "TEXT": ODD, "time": time, "whole": range(len(ODD))})
    frame = frame.with_columns(yes=pl.col("whole") > 3, part=pl.col("whole") / 8)
    assert written(frame).equals(frame)


def test_what_no_cell_holds_is_written_as_text():
    frame = pl.DataFrame(
        {
            "zoned": pl.Series([0], dtype=pl.Datetime("us", "Europe/Berlin")),
            "long": [2**53 + 1],
            "early": [datetime.date(1871, 1, 1)],
            "day": [datetime.datetime(2024, 1, 1)],
            "kind": pl.Series(["a"], dtype=pl.Categorical),
            "clock": [datetime.time(3)],
            "none": [None],
        }
    )
    (found,) = written(frame).rows()
    zoned, day = "1970-01-01 01:00:00.000000+01:00", datetime.date(2024, 1, 1)
    assert found == (zoned, str(2**53 + 1), "1871-01-01", day, "a", "03:00:00", None)


def test_numbers_that_are_none_are_no_numbers_in_the_sheet():
    frame = pl.DataFrame({"y": [np.nan, np.inf, None, 1.0], "k": [1, 2, 3, 4]})
    assert written(frame)["y"].to_list() == [None, None, None, 1.0]


def test_a_text_longer_than_a_cell_is_refused():
    frame = pl.DataFrame({"y": ["a", "x" * 40_000]})
    with pytest.raises(OutputError, match=r"a\.xlsx: row 2 of 'y' is more than a sheet holds"):
        write_sheet(frame, "a.xlsx", as_text)


@pytest.mark.long
def test_more_rows_than_a_sheet_are_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr(writer, "SHEET_ROWS", 20)
    with pytest.raises(OutputError, match=r"at most 20 rows of a sheet, found 21; write \.csv"):
        tiny.plain_model().predict_to(tmp_path / "out.xlsx", tiny.plain())
    with pytest.raises(OutputError, match=r"at most 20 rows of a sheet, found 21; write \.csv"):
        tiny.plain_model().predict(tiny.plain()).write(tmp_path / "out.xlsx")
    assert not [*tmp_path.iterdir()]


def test_parts_are_merged_to_the_same_bytes(tmp_path):
    forecast = tiny.plain_model().predict(tiny.plain())
    forecast.write(tmp_path / "whole.xlsx")
    rows, files = forecast.to_polars(), [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for file, part in zip(files, (rows[:9], rows[9:]), strict=True):
        part.write_parquet(file)
    merge_parts(files, tmp_path / "merged.xlsx", ".xlsx", forecast.panel.as_text)
    assert (tmp_path / "merged.xlsx").read_bytes() == (tmp_path / "whole.xlsx").read_bytes()


def test_local_times_of_an_hour_that_comes_twice_are_told_apart(tmp_path):
    times = pl.datetime_range(
        datetime.datetime(2024, 10, 17), datetime.datetime(2024, 10, 26, 21), "1h", eager=True
    )
    zoned = times.dt.replace_time_zone("Europe/Berlin")
    table = pl.DataFrame({"time": zoned, "y": np.arange(len(times)) % 24})
    fc.predict(table, 12).write(tmp_path / "out.xlsx")
    found = pl.read_excel(tmp_path / "out.xlsx")["time"].to_list()
    assert [text[11:13] + text[-6:] for text in found[4:7]] == ["02+02:00", "02+01:00", "03+01:00"]
