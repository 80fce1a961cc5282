"""Random panels written in every format and layout come back as the same Panel, bit for bit."""

import gzip
from datetime import datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from panel_tables import same

from forecaster.config import DataConfig
from forecaster.panel.build import open_panel
from forecaster.panel.calendar import Calendar

FREQS = (
    "1s", "10min", "30min", "1h", "6h", "1d", "1b", "1b-mon..sat", "1b-tue-thu-sat", "1w",
     "1mo", "1moe", "1q", "1qe", "1y", "3i",
)  # fmt: skip
ZONES = (None, "UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe")
WORDS = ("rain", "sun, some", 'the "big" one', "Zürich", "two\nlines", "no 1", "a;b\tc|d")


@st.composite
def tables(draw):
    """A long table of ragged series with gaps, holes and words, and what has to be declared of it."""
    freq = draw(st.sampled_from(FREQS))
    integer = freq.endswith("i")
    zone = None if integer else draw(st.sampled_from(ZONES))
    calendar = Calendar(freq, zone, integer)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    start = draw(st.integers(-50, 50)) if integer else _start(freq, zone)
    frames = []
    for number in range(draw(st.integers(1, 4))):
        length = draw(st.integers(3, 25))
        first = int(calendar.shift(start, draw(st.integers(0, 10))))
        time = calendar.shift(first, np.arange(length))
        kept = rng.random(length) < 0.8
        kept[[0, 1, -1]] = True
        cells = rng.normal(size=(length, 3)) * 10.0 ** rng.integers(-3, 10)
        cells[1:][rng.random((length - 1, 3)) < 0.1] = np.nan
        words = rng.choice(WORDS, length).tolist()
        columns = {
            "shop": [f"shop {number}"] * length,
            "floor": [number % 2 + 1] * length,
            "time": time,
            "y": cells[:, 0],
            "x": cells[:, 1],
            "price": cells[:, 2],
            "word": [word if rng.random() < 0.9 else None for word in words],
            "open": rng.choice([True, False], length).tolist(),
        }
        frames.append(pl.DataFrame(columns).fill_nan(None).filter(kept))
    frame = pl.concat(frames)
    if not integer:
        stamps = pl.col("time").cast(pl.Datetime("us", "UTC"))
        local = stamps.dt.convert_time_zone(zone) if zone else stamps.dt.replace_time_zone(None)
        frame = frame.with_columns(time=local)
    data = DataConfig(
        time="time",
        series=("shop", "floor"),
        target=("y",),
        past=("x", "word"),
        known=("price", "open"),
        freq=freq,
    )
    order = np.random.default_rng(draw(st.integers(0, 9))).permutation(frame.height)
    return frame[order] if draw(st.booleans()) else frame, data


def _start(freq: str, zone: str | None) -> int:
    # Three days before the clocks of Berlin change, on a place where every step may begin.
    day = {"b": 27, "w": 25}.get(freq[-1], 29)
    stamp = datetime(2024, 1, 1) if freq[1:] in ("mo", "q", "y") else datetime(2024, 3, day)
    stamp = datetime(2024, 1, 31) if freq.endswith("e") else stamp
    local = pl.Series([stamp]).dt.cast_time_unit("us").dt.replace_time_zone(zone)
    return int(local.to_physical()[0])


def _same_rows(one, other):
    """The same arrays; a CSV file knows no zone but offsets, so the clock may be another."""
    for name in ("values", "codes", "time", "indptr"):
        first, second = getattr(one, name), getattr(other, name)
        assert np.array_equal(first, second, equal_nan=name == "values"), name
    return True


@given(tables())
@settings(max_examples=10)
def test_frames_and_typed_files_of_a_table_are_the_same_panel(tmp_path_factory, drawn):
    frame, data = drawn
    folder = tmp_path_factory.mktemp("typed")
    panel = open_panel(frame, data)
    frame.write_parquet(folder / "table.parquet")
    frame.write_ipc(folder / "table.arrow")
    for other in (frame.lazy(), frame.to_arrow(), _pandas(frame)):
        assert same(panel, open_panel(other, data))
    for name in ("table.parquet", "table.arrow"):
        assert same(panel, open_panel(folder / name, data))
    indexed = _pandas(frame).set_index(["shop", "floor", "time"])
    assert same(panel, open_panel(indexed, data))


def _pandas(frame: pl.DataFrame) -> pd.DataFrame:
    return frame.to_pandas()


@given(tables(), st.sampled_from([",", ";", "\t", "|"]), st.booleans())
@settings(max_examples=6)
def test_text_files_of_a_table_are_the_same_panel(tmp_path_factory, drawn, delimiter, comma):
    frame, data = drawn
    folder = tmp_path_factory.mktemp("text")
    panel = open_panel(frame, data)
    comma = comma and delimiter != ","
    dtype = frame["time"].dtype
    zoned = isinstance(dtype, pl.Datetime) and dtype.time_zone is not None
    # Text holds offsets, not zones: days of 23 hours are no steps of a clock that is UTC.
    assume(not zoned or dtype.time_zone == "UTC" or data.freq in ("1s", "10min", "30min", "1h", "6h"))
    written = frame if dtype.is_integer() else _with_text_times(frame, zoned)
    path = folder / "table.csv"
    written.write_csv(path, separator=delimiter, decimal_comma=comma)
    plain = path.read_bytes()
    (folder / "bom.csv").write_bytes(b"\xef\xbb\xbf" + plain)
    (folder / "windows.csv").write_bytes(_with_windows_line_ends(plain, written))
    (folder / "table.csv.gz").write_bytes(gzip.compress(plain))
    compare = _same_rows if zoned else same
    for name in ("table.csv", "bom.csv", "windows.csv", "table.csv.gz"):
        assert compare(panel, open_panel(folder / name, data))
    parts = folder / "parts"
    parts.mkdir()
    half = written.height // 2
    for number, part in enumerate((written[:half], written[half:])):
        part.write_csv(parts / f"part-{number}.csv", separator=delimiter, decimal_comma=comma)
    assert compare(panel, open_panel(parts, data))


def _with_windows_line_ends(plain: bytes, written: pl.DataFrame) -> bytes:
    # A line end within a quoted word is part of the word.
    broken = written["word"].str.contains("\n").any()
    return plain if broken else plain.replace(b"\n", b"\r\n")


def _with_text_times(frame: pl.DataFrame, zoned: bool) -> pl.DataFrame:
    form = "%Y-%m-%dT%H:%M:%S" + ("%:z" if zoned else "")
    return frame.with_columns(pl.col("time").dt.strftime(form))


@given(tables())
@settings(max_examples=10)
def test_a_wide_table_made_long_is_the_same_panel(drawn):
    frame, data = drawn
    if frame["time"].dtype.is_integer():
        frame = frame.with_columns(pl.col("time").cast(pl.Int64))
    long = frame.with_columns(place=pl.concat_str("shop", "floor", separator="/"))
    long = long.select("time", "place", value="y").drop_nulls("value")
    wide = long.pivot("place", index="time", values="value")
    roles = {"time": "time", "freq": data.freq}
    names = tuple(sorted(long["place"].unique()))
    assume(len(names) > 1)  # one column of values is one series, however it lies
    melted = open_panel(wide, DataConfig(**roles, target=names, layout="long"))
    direct = open_panel(long, DataConfig(**roles, series=("place",), target=("value",)))
    assert melted.series_names == direct.series_names
    for number, name in enumerate(direct.series_names):
        for panel in (melted, direct):
            assert panel.series_names[number] == name
        rows = [_observed(panel, number) for panel in (melted, direct)]
        assert rows[0] == rows[1]


def _observed(panel, number):
    own = slice(panel.indptr[number], panel.indptr[number + 1])
    return {
        int(time): float(value)
        for time, value in zip(panel.time[own], panel.values[own, 0], strict=True)
        if not np.isnan(value)
    }


@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.integers(-999, 999)), min_size=3, max_size=12),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=10)
def test_a_series_per_row_is_the_same_panel_as_a_row_per_step(tmp_path_factory, series):
    series = [[1, *values, 2] for values in series]
    longest = max(map(len, series))
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    lines = ["id," + ",".join(f"V{k}" for k in range(longest))]
    for number, values in enumerate(series):
        cells = ["" if value is None else str(value) for value in values]
        lines.append(",".join([f"H{number}", *cells, *[""] * (longest - len(values))]))
    path.write_text("\n".join(lines) + "\n")
    long = pl.DataFrame(
        [(f"H{number}", value) for number, values in enumerate(series) for value in values],
        schema={"id": pl.String, "value": pl.Float64},
        orient="row",
    )
    direct = open_panel(long, DataConfig(time="row", series=("id",), target=("value",)))
    frame = pl.read_csv(path)
    for source in (path, frame, frame.to_pandas(), frame.to_arrow()):
        rows = open_panel(source, DataConfig(layout="rows"))
        assert _same_rows(direct, rows) and direct.series_names == rows.series_names


@pytest.mark.parametrize("freq", [freq for freq in FREQS if freq != "3i"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_the_step_of_a_table_is_found(freq, zone):
    calendar = Calendar(freq, zone, False)
    time = calendar.shift(_start(freq, zone), np.arange(40))
    stamps = pl.Series(time).cast(pl.Datetime("us", "UTC"))
    local = stamps.dt.convert_time_zone(zone) if zone else stamps.dt.replace_time_zone(None)
    frame = pl.DataFrame({"time": local, "y": np.arange(40.0)})
    gappy = frame.filter(~pl.int_range(40).is_in([7, 8, 20]))
    for rows in (frame, gappy):
        panel = open_panel(rows, DataConfig())
        assert panel.calendar.freq == freq and panel.regular and panel.n_rows == 40
