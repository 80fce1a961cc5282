"""Broken bytes: a mutated CSV file gives a panel or one clear line, never a traceback, never a hang."""

import gzip
import random
import shutil
import sys
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from panel.panel_tables import same

from forecaster.config import DataConfig
from forecaster.errors import ForecasterError
from forecaster.panel.audit import check_panel
from forecaster.panel.build import open_panel

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from hostile import limited

SECONDS = 20
"""How long one small file may take before it counts as a hang."""


def _long() -> bytes:
    rows = ["shop,date,sales,price,weather"]
    for shop in ("north", "south", "007"):
        for k in range(30):
            day = date(2024, 1, 1) + timedelta(days=k)
            rows.append(
                f"{shop},{day},{k * 1.5},{'' if k % 7 == 3 else k % 3},{'wet' if k % 4 else 'dry'}"
            )
    return ("\n".join(rows) + "\n").encode()


def _wide() -> bytes:
    rows = ['Zeit;"Last, MW";Temperatur']
    rows += [
        f"{1 + k // 24:02d}.01.2024 {k % 24:02d}:00;{k % 24},5;-{k % 5},25" for k in range(24 * 14)
    ]
    return ("\ufeff" + "\r\n".join(rows) + "\r\n").encode()


def _zoned() -> bytes:
    rows = ["time\ty\tholiday"]
    rows += [f"2024-03-31T{k // 2:02d}:{k % 2 * 30:02d}:00+02:00\t{k}\t{k % 9 == 0}" for k in range(48)]
    return "\n".join(rows).encode()


def _rows() -> bytes:
    return ("id,V1,V2,V3,V4\n" + "".join(f"H{k},{k},{k + 1},{k + 2},\n" for k in range(12))).encode()


TABLES = {"long": _long(), "wide": _wide(), "zoned": _zoned(), "rows": _rows()}
TOKENS = [
    b",", b";", b"\t", b"|", b'"', b'""', b"'", b"\n", b"\r", b"\r\n", b"\n\n\n", b" ", b"\x00", b"\xff",
    b"\xef\xbb\xbf", b"\xff\xfe", b"\xe9", "é".encode(), "\u2028".encode(), b"NaN", b"inf", b"-inf",
    b"1e400", b"1e39", b"-0", b"0x1F", b"1_000", b"1,234.5", b"1.234,5", b"99999999999999999999",
    b"-9223372036854775808", b"2024-02-30", b"0000-00-00", b"9999-12-31", b"-2024-01-01", b"1/2/2024",
    b"2024-01-01T00:00:00Z", b"24:00", b"Q1", b"True", b"null", b"=1+1", b"#REF!", b"%", b"lead", b"q0.5",
]  # fmt: skip


def mutated(table: bytes, rng: random.Random) -> bytes:
    """Returns the table with one to six random wounds."""
    data = bytearray(table)
    for _ in range(rng.randint(1, 6)):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.choice((1, 1, 2, 8, 40, 400)))
        lines = bytes(data).splitlines(keepends=True)
        wound = rng.randrange(9)
        if wound == 0:
            data[at:at] = rng.choice(TOKENS)
        elif wound == 1:
            data[at:to] = rng.choice(TOKENS)
        elif wound == 2:
            del data[at:to]
        elif wound == 3:
            data[at:at] = data[at:to]
        elif wound == 4 and at < len(data):
            data[at] = rng.randrange(256)
        elif wound == 5:
            del data[at:]
        elif wound == 6 and len(lines) > 1:
            rng.shuffle(lines)
            data = bytearray(b"".join(lines))
        elif wound == 7 and lines:
            lines[rng.randrange(len(lines))] = rng.choice(TOKENS) * rng.randint(1, 50) + b"\n"
            data = bytearray(b"".join(lines))
        else:
            old, new = rng.choice((b",", b".", b"-", b"0", b"2024", b"\n", b";")), rng.choice(TOKENS)
            data = bytearray(bytes(data).replace(old, new, rng.choice((1, 3, -1))))
    return bytes(data[:200_000])


OPTIONS = [
    {}, {}, {"target": ("sales",)}, {"time": "row"}, {"layout": "long"}, {"layout": "wide"},
    {"layout": "rows"}, {"freq": "1d"}, {"on_duplicates": "mean"}, {"on_duplicates": "last"},
    {"on_duplicates": "sum"}, {"decimal": ","}, {"delimiter": ";"},
]  # fmt: skip


def _tried(path, data: bytes, declared: dict) -> bool:
    """Whether a panel came out; a refusal must be lines that a person can read."""
    path.write_bytes(data)
    try:
        with limited(SECONDS):
            panel = open_panel(path, DataConfig(**declared))
            findings = check_panel(panel, 7)
    except ForecasterError as error:
        text = str(error)
        lines = text.splitlines()
        assert lines and len(lines) <= 50 and all(line.strip() for line in lines), text
        assert len(text) < 20_000 and "Traceback" not in text and "panicked" not in text, text
        return False
    assert all("\n" not in finding.line() for finding in findings)
    return True


def _fuzz(tmp_path, seeds: range) -> None:
    panels = 0
    for seed in seeds:
        rng = random.Random(seed)
        name = rng.choice(list(TABLES))
        data, declared = mutated(TABLES[name], rng), rng.choice(OPTIONS)
        path = tmp_path / "mutated.csv"
        if rng.random() < 0.05:
            path, data = tmp_path / "mutated.csv.gz", gzip.compress(data)
            data = data[: rng.randint(1, len(data))]
        try:
            panels += _tried(path, data, declared)
        except BaseException as fault:
            fault.add_note(f"seed {seed}: {name}, {declared}\n{data[:2000]!r}")
            raise
    # Both answers must be common, or the mutations test nothing.
    assert 0.03 * len(seeds) < panels < 0.97 * len(seeds)


def test_whole_tables_are_understood(tmp_path):
    for name, data in TABLES.items():
        declared = {"layout": "rows"} if name == "rows" else {}
        assert _tried(tmp_path / f"{name}.csv", data, declared), name


@pytest.mark.long
def test_broken_bytes_give_a_panel_or_a_clear_line(tmp_path):
    _fuzz(tmp_path, range(120))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(120, 1620, 750))
def test_fifteen_hundred_broken_files_give_a_panel_or_a_clear_line(tmp_path, first):
    _fuzz(tmp_path, range(first, first + 750))


ODD_IDS = (
    ("1", "2"), ("1", "01"), ("1.1", "1.10"), ("1E3", "1000"), ("+1", "1"), ("TRUE", "true"), ("NA", "na"),
    ("a", "7"), ("2024-01-01", "x"), ("9007199254740993", "9007199254740992"), ("1,5", "1.5"), ("0", "-0"),
)  # fmt: skip
STYLES = (".", ",", "1.234,5", "1,234.5")


def _written(value: float, style: str) -> str:
    text = (
        f"{value:,.3f}".rstrip("0").rstrip(".")
        if len(style) > 1
        else f"{value:.3f}".rstrip("0").rstrip(".")
    )
    return text.translate(str.maketrans(",.", ".,")) if style in (",", "1.234,5") else text


def _split(tmp_path, rng: random.Random) -> bool:
    """Whether a table, its rows shuffled into a folder of files and a frame were read: to one panel."""
    ids, style = rng.choice(ODD_IDS), rng.choice(STYLES)
    size, whole = rng.choice((1, 1, 1000, 1e6, 2**23)), rng.random() < 0.4
    rows, typed = [], []
    for each in ids:
        for k in range(24):
            value = size + rng.randrange(5000) / (1 if whole and rng.random() < 0.8 else 1000)
            cells = (
                each,
                str(date(2024, 1, 1) + timedelta(days=k)),
                _written(value, style),
                str(k % 3),
            )
            rows.append(";".join(f'"{cell}"' if rng.random() < 0.02 else cell for cell in cells))
            typed.append((each, date.fromisoformat(cells[1]), float(f"{value:.3f}"), k % 3))
    header, last, end = "id;day;y;flag", rng.choice(("", ";NA")), rng.choice(("\n", "\r\n"))
    header, rows = header + (";empty" if last else ""), [row + last for row in rows]
    (tmp_path / "one.csv").write_text(end.join([header, *rows]))
    rng.shuffle(rows)
    folder = tmp_path / "many"
    for number in range(parts := rng.choice((2, 3, 12))):
        (folder / f"{number}.csv").write_text(end.join([header, *rows[number::parts]]))
    rng.shuffle(typed)
    frame = pl.DataFrame(typed, schema=["id", "day", "y", "flag"], orient="row")
    frame = frame.to_pandas() if rng.random() < 0.5 else frame
    data = DataConfig(series=("id",), target=("y",), past=("flag",), categorical=())
    typed_panel = open_panel(frame, data)
    assert set(typed_panel.series_names) == set(ids)
    try:
        one, many = (open_panel(path, data) for path in (tmp_path / "one.csv", folder))
    except ForecasterError:
        return False
    assert same(one, many) and np.array_equal(one.values, typed_panel.values)
    return True


def _split_often(tmp_path, seeds: range) -> None:
    panels = 0
    for seed in seeds:
        shutil.rmtree(tmp_path / "many", ignore_errors=True)
        (tmp_path / "many").mkdir()
        try:
            panels += _split(tmp_path, random.Random(seed))
        except BaseException as fault:
            fault.add_note(f"seed {seed}: {(tmp_path / 'one.csv').read_text()[:1000]}")
            raise
    assert panels > 0.5 * len(seeds)


@pytest.mark.long
def test_a_table_in_one_file_in_many_or_in_a_frame_is_one_panel(tmp_path):
    _split_often(tmp_path, range(16))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(16, 116, 50))
def test_a_hundred_folders_and_frames_are_read_as_one_file(tmp_path, first):
    _split_often(tmp_path, range(first, first + 50))
