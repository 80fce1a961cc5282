"""Encodings: text that is not UTF-8 is the same table, and names, ids and cells come back as written."""

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import forecaster as fc
from forecaster.config import DataConfig
from forecaster.errors import ConfigError, DataError
from forecaster.panel import csv, encodings
from forecaster.panel.build import open_panel
from forecaster.panel.frames import read_table

FRAME = pl.DataFrame({"tag": ["2024-01-01", "2024-01-02"], "größe": ["Köln", "„Mü…“"], "€": [1.5, 2.0]})


@pytest.fixture
def path(tmp_path):
    """Writes a table in an encoding."""

    def write(encoding, frame=FRAME, name="a.csv"):
        (tmp_path / name).write_bytes(frame.write_csv().encode(encoding))
        return tmp_path / name

    return write


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_a_table_is_the_same_in_every_encoding(path, encoding):
    table = read_table(path(encoding))
    assert table.frame.equals(FRAME)
    notes = [(note.rule, note.where) for note in table.notes]
    assert notes == ([] if "8" in encoding else [("encoding", "'größe' in line 1")])


def test_the_note_names_the_encoding_the_first_cell_and_the_option(path):
    ascii_names = FRAME.rename({"größe": "ort", "€": "y"})
    (note,) = read_table(path("cp1252", ascii_names)).notes
    assert note.line() == (
        "note encoding: read as Windows-1252, not UTF-8 (first: 'Köln' in line 2); pass --encoding, as cp850, "
        "where that is wrong"
    )


def test_letters_of_latin_1_are_those_of_windows(path):
    plain = pl.DataFrame({"t": ["2024-01-01"], "y": ["".join(map(chr, range(0xA0, 0x100)))]})
    assert read_table(path("latin1", plain)).frame.equals(plain)


def test_bytes_far_below_the_first_rows_decide_too_and_text_is_read_again_so(path):
    rows = 40_000
    long = pl.DataFrame({"day": ["2024-01-01"] * rows, "id": [f"00{n % 7}" for n in range(rows)]})
    long = long.with_columns(city=pl.lit("Bonn"), y=pl.int_range(rows))
    last = pl.DataFrame({"day": ["2024-01-01"], "id": ["003"], "city": ["Köln"], "y": [rows]})
    long = pl.concat([long, last])
    table = read_table(path("cp1252", long))
    assert table.frame.equals(long)
    assert table.notes[0].where == f"'Köln' in line {rows + 2}"
    assert table.text(["city", "id"]).equals(long.select("city", "id"))


def test_names_and_ids_of_a_forecast_are_as_read(path):
    days = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 2, 9), eager=True).cast(pl.String)
    parts = [
        pl.DataFrame({"tag": days, "straße": store, "€": [float(n % 7) for n in range(40)]})
        for store in ("Köln–Süd", "Œuvre")
    ]
    file = path("cp1252", pl.concat(parts))
    forecast = fc.predict(file, 3).frame
    assert forecast.columns[:3] == ["straße", "cutoff", "tag"]
    assert set(forecast["straße"]) == {"Köln–Süd", "Œuvre"}


def test_a_declared_encoding_holds_without_a_note(path):
    table = read_table(path("cp850", FRAME.rename({"€": "y"}).head(1)), DataConfig(encoding="cp850"))
    assert table.frame.row(0) == ("2024-01-01", "Köln", 1.5) and not table.notes
    assert read_table(path("utf-32"), DataConfig(encoding="utf-32")).frame.equals(FRAME)
    with pytest.raises(DataError, match=r"expected utf-8, found the byte 0xf6 in line 1;"):
        open_panel(path("cp1252"), DataConfig(encoding="utf-8"))
    with pytest.raises((ConfigError, ValueError), match="found 'rot13'"):
        DataConfig(encoding="rot13")


def test_utf_8_is_read_without_a_test_of_its_bytes(path, monkeypatch):
    monkeypatch.setattr(csv, "as_utf8", None)
    assert read_table(path("utf-8")).frame.equals(FRAME)


@given(st.text(), st.sampled_from(["utf-8", "utf-16", "utf-16-be", "utf-32", "shift_jis", "gb18030"]))
def test_blocks_give_the_bytes_of_the_whole(text, encoding):
    data = text.encode(encoding, errors="ignore")
    whole = data.decode(encoding).encode()
    for block in (1, 2, 3, 7):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(encodings, "_BLOCK", block)
            assert encodings.as_utf8(csv._bytes(data), encoding, "a.csv") == whole


@pytest.mark.parametrize("block", [1, 5, 1000])
@pytest.mark.parametrize("at", [0, 9, 30])
def test_the_line_of_a_byte_without_a_meaning_is_named_in_any_block(monkeypatch, block, at):
    monkeypatch.setattr(encodings, "_BLOCK", block)
    text = b"day,y\n" * 6
    data = text[:at] + b"\x81" + text[at:]
    where = f"a.csv: expected Windows-1252, found the byte 0x81 in line {at // 6 + 1};"
    with pytest.raises(DataError, match=where):
        encodings.as_utf8(csv._bytes(data), encodings.WINDOWS, "a.csv")
