"""Random tables and random calls: each gives its result or one clear error, and nothing else.

    python benchmarks/hostile.py --seed 1 --count 2000

Tables: `count` small tables are changed at random. A change of no value (delimiter, quotes, decimal
mark, padding, order of rows and columns, byte order mark, line ends, suffix, Parquet or a frame) gives
the same panel bit for bit, or a ForecasterError; any other change gives a panel or a ForecasterError.

Calls: `count` calls of public functions, one or two of their arguments replaced by something odd. Each
gives a result or a ForecasterError. Odd spellings of a right value, as np.int64(3), give the result of the
plain call.

Prints the counts, and each fault with a command that repeats it; exits with 1 where there are any.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import io
import os
import random
import signal
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

import forecaster as fc
from forecaster.config import DataConfig
from forecaster.panel.audit import check_panel
from forecaster.panel.build import open_panel
from forecaster.panel.panel import Panel

ROOT = Path(__file__).parents[1]
SECONDS = 60
"""More is a hang: the tables are small."""
TINY = {
    "fit": {"steps": 2, "batch_size": 16},
    "model": {"width": 8, "heads": 2, "encoder_layers": 1},
    "tracking": {"enabled": False},
}


@dataclass(frozen=True)
class Fault:
    """What went wrong, and the command that repeats it."""

    text: str
    command: str


@contextmanager
def limited(seconds: int = SECONDS) -> Iterator[None]:
    """Raises AssertionError where its block takes longer; an OSError might be caught within."""

    def stop(signum: int, frame: object) -> None:
        raise AssertionError(f"no answer within {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


# Tables ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Base:
    """A table in text, without quotes, and how it is read."""

    rows: tuple[tuple[str, ...], ...]
    """The header first."""
    decimals: tuple[int, ...] = ()
    """Columns of numbers that may have another decimal mark."""
    padded: tuple[int, ...] = ()
    """Those that may begin with zeros; of whole numbers without a declared role, 007 is a code."""
    data: DataConfig = field(default_factory=DataConfig)


@cache
def bases() -> dict[str, Base]:
    """The tables that are changed."""
    demo = [tuple(row) for row in csv.reader((ROOT / "data/demo.csv").read_text().splitlines())]
    sales = [row for row in demo[1:] if row[1] in ("store_1", "store_2")]
    cut = [row for row in sales if row[0] < "2024-03-01"]
    start = datetime(2024, 3, 1)
    wide = [("time", "load", "wind")]
    wide += [(f"{start + timedelta(hours=k)}", f"{100 + k % 24}.5", f"{k % 7}.25") for k in range(96)]
    ids = [("id", "day", "y", "price", "weather")]
    for name in ("007", "7", "north east"):
        ids += [
            (
                name,
                f"{date(2024, 1, 1) + timedelta(days=k)}",
                f"{k * 1.5}",
                f"{k % 3}.40",
                "wet" if k % 4 else "dry",
            )
            for k in range(0, 40, 1 + (name == "7"))
        ]
    return {
        "demo": Base((demo[0], *cut), (3,), (3,)),
        "declared": Base(
            (demo[0], *cut), (3,), (2, 3), DataConfig(known=("price", "promo"), target=("sales",))
        ),
        "wide": Base(tuple(wide), (1, 2), (1, 2)),
        "ids": Base(tuple(ids), (2, 3), (2, 3), DataConfig(series=("id",), target=("y",))),
    }


def harmless(base: Base, rng: random.Random, folder: Path) -> tuple[object, str]:
    """Returns the same table in another form, and the form in words."""
    header, *rows = base.rows
    words = []
    if rng.random() < 0.5:
        rng.shuffle(rows)
        words.append("rows shuffled")
    if rng.random() < 0.4:
        order = rng.sample(range(len(header)), len(header))
        words.append(f"columns {order}")
    else:
        order = [*range(len(header))]
    kind = rng.choice(("csv", "csv", "csv", "txt", "csv.gz", "parquet", "pandas", "polars", "arrow"))
    words.append(kind)
    if kind in ("parquet", "pandas", "polars", "arrow"):
        frame = typed_frame(header, rows).select([header[place] for place in order])
        if kind == "parquet":
            frame.write_parquet(folder / "table.parquet")
            return folder / "table.parquet", ", ".join(words)
        kinds = {"pandas": frame.to_pandas, "polars": lambda: frame, "arrow": frame.to_arrow}
        return kinds[kind](), ", ".join(words)
    decimal = rng.choice((".", ".", ","))
    mark = rng.choice(";\t|" if decimal == "," else ",;\t|")
    space, zeros = rng.choice(("", "", " ", "  ")), rng.choice(("", "", "0", "00"))
    quoted = rng.choice((0.0, 0.0, 0.1, 1.0))
    words.append(
        f"delimiter {mark!r}, decimal {decimal!r}, padding {space!r} and {zeros!r}, quotes {quoted}"
    )

    def cell(text: str, place: int, head: bool) -> str:
        if place in base.padded and not head:
            text = zeros + text
        if place in base.decimals and not head:
            text = text.replace(".", decimal)
        if rng.random() < quoted or mark in text:
            return f'"{text}"'
        return f"{space}{text}{space}" if not head else text

    end = rng.choice(("\n", "\n", "\r\n"))
    lines = [
        mark.join(cell(row[place], place, number == 0) for place in order)
        for number, row in enumerate([header, *rows])
    ]
    text = end.join(lines) + rng.choice(("", end, end * 2))
    content = text.encode(rng.choice(("utf-8", "utf-8-sig")))
    path = folder / f"table.{kind}"
    path.write_bytes(gzip.compress(content) if kind.endswith("gz") else content)
    return path, ", ".join(words)


def typed_frame(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> pl.DataFrame:
    """Returns the table as a frame of numbers, dates and texts."""
    text = pl.DataFrame(rows, schema=[*header], orient="row")
    moments = {"date": pl.Date, "day": pl.Date, "time": pl.Datetime("us")}
    whole, decimal = {"sales", "promo", "size"}, {"price", "load", "wind", "y"}
    return text.with_columns(
        *(pl.col(name).str.to_date() for name in header if moments.get(name) == pl.Date),
        *(pl.col(name).str.to_datetime() for name in header if name == "time"),
        *(pl.col(name).cast(pl.Int64) for name in header if name in whole),
        *(pl.col(name).cast(pl.Float64) for name in header if name in decimal),
    )


TOKENS = (
    *(
        "",
        " ",
        "NA",
        "n.a.",
        "-",
        "x",
        "\0",
        "\ufeff",
        "NaN",
        "inf",
        "-inf",
        "1e400",
        "1e39",
        "-0",
        "0x1F",
    ),
    *("1_000", "1,234.5", "1.234,5", "9" * 30, "2024-02-30", "0000-00-00", "1/2/2024", "24:00", "True"),
    *(
        "null",
        "=1+1",
        "#REF!",
        "%",
        '"',
        "'",
        ";",
        ",",
        "\n",
        "\t",
        "é",
        "\u2028",
        "٣",
        "lead",
        "forecast",
    ),
)


def harmful(base: Base, rng: random.Random, folder: Path) -> tuple[object, str]:
    """Returns a table with one to three faults, and these in words."""
    rows = [[*row] for row in base.rows]
    words = []
    for _ in range(rng.randint(1, 3)):
        wound = rng.choice(
            ("cell", "cell", "cells", "drop", "repeat", "column", "header", "swap", "short")
        )
        words.append(wound)
        row = rng.randrange(1, max(2, len(rows)))
        if len(rows) < 2 or not rows[0] or len(rows[row]) < len(rows[0]):
            break
        place = rng.randrange(len(rows[0]))
        if wound == "cell":
            rows[row][place] = rng.choice(TOKENS)
        elif wound == "cells":
            token = rng.choice(TOKENS)
            for number in rng.sample(range(1, len(rows)), len(rows) // 3):
                if place < len(rows[number]):
                    rows[number][place] = token
        elif wound == "drop":
            gone = {*rng.sample(range(1, len(rows)), rng.randrange(1, len(rows)))}
            rows = [one for number, one in enumerate(rows) if number not in gone]
        elif wound == "repeat":
            rows += [[*one] for one in rows[row : row + rng.randint(1, 20)]]
        elif wound == "column":
            rows = [[*one, one[place]] for one in rows if place < len(one)]
        elif wound == "header":
            rows[0][place] = rng.choice((*TOKENS, *rows[0]))
        elif wound == "swap":
            other = rng.randrange(1, len(rows))
            rows[row], rows[other] = rows[other], rows[row]
        else:
            del rows[row][place:]
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    content = file.getvalue().encode()
    if rng.random() < 0.3:
        content = content[: rng.randrange(len(content) + 1)]
        words.append("cut")
    if rng.random() < 0.2:
        at = rng.randrange(len(content) + 1)
        content = content[:at] + rng.choice((b"\0", b"\xff", b"\xff\xfe", b"\xe9", b'"')) + content[at:]
        words.append("bytes")
    path = folder / "table.csv"
    path.write_bytes(content)
    return path, ", ".join(words)


def content_of(panel: Panel) -> dict[str, object]:
    """Returns all that a panel holds, whatever the order of its columns, bit for bit."""
    schema = panel.schema
    content: dict[str, object] = {name: getattr(panel, name).tobytes() for name in ("time", "indptr")}
    content |= {"keys": panel.keys.rows(), "freq": schema.freq, "regular": panel.regular}
    content |= {"target": sorted(schema.target), "time column": schema.time}
    for place, name in enumerate(schema.columns):
        content[f"values {name}"] = panel.values[:, place].tobytes()
    for place, name in enumerate(schema.code_columns):
        content[f"codes {name}"] = (panel.codes[:, place].tobytes(), schema.categories[name])
    content["static"] = Counter(
        panel.static[:, place].tobytes() for place in range(panel.static.shape[1])
    )
    content["static codes"] = Counter(
        panel.static_codes[:, place].tobytes() for place in range(panel.static_codes.shape[1])
    )
    return content


@cache
def plain_content(name: str) -> dict[str, object]:
    """Returns what the panel of a table as it is holds."""
    base = bases()[name]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(base.rows)
        return content_of(open_panel(path, base.data))


def try_table(seed: int, number: int) -> tuple[str, Fault | None]:
    """Returns what became of a changed table, and the fault if there is one."""
    rng = random.Random(f"table {seed} {number}")
    name = rng.choice([*bases()])
    change = rng.choice((harmless, harmful))
    command = f"python benchmarks/hostile.py --seed {seed} --first {number} --count 1 --only tables"
    with tempfile.TemporaryDirectory() as folder:
        source, words = change(bases()[name], rng, Path(folder))
        try:
            with limited():
                panel = open_panel(source, bases()[name].data)
                check_panel(panel, 7)
        except fc.ForecasterError:
            return f"{change.__name__}: refused", None
        except BaseException as error:
            return "fault", Fault(f"{name}, {words}: {type(error).__name__}: {error}"[:500], command)
        if change is harmless:
            expected, found = plain_content(name), content_of(panel)
            if differing := [key for key in expected | found if expected.get(key) != found.get(key)]:
                return "fault", Fault(f"{name}, {words}: another panel: {differing}", command)
    return f"{change.__name__}: a panel", None


# Calls ----------------------------------------------------------------------------------------------


class OddPath:
    """A path of another library."""

    def __fspath__(self) -> str:
        return "path_of_another_library.csv"


_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 10**30, -(10**30), 0.5, float("nan"), float("inf"), 1j),
    *("", " ", "x", "3", "own", "last", "2024-02-01", "2024-02-30", "\0", "\ud800", "x" * 300, "a/b"),
    *("../" * 2000, "-1", "1/2", "0/0", "http://", "models:/", "models:/x@champion", "*", "**"),
    *(b"x", [], [1], ["x"], [None], ["\0"], [[]], {}, {"x": 1}, {1: 2}, (), ("a", "b"), set(), {"x"}),
    *(object(), Exception("x"), type, print, timedelta(days=1), date(2024, 2, 1), date.max, datetime.min),
    *(pd.NaT, pd.NA, np.datetime64("NaT"), np.datetime64("2024-02-01"), np.timedelta64(1, "D")),
    *(np.datetime64(10**9, "Y"), np.int64(3), np.uint8(1), np.float32(0.5), np.bool_(True), np.str_("x")),
    *(np.array(3), np.array([1, 2]), np.array([[1.0]]), pd.Series(["x"]), pd.Index([1]), pd.DataFrame()),
    *(pd.DataFrame({"x": [1]}), pl.DataFrame(), pl.DataFrame({"x": [1]}), pl.Series(["x"]), pl.LazyFrame()),
    *(Path("x"), Path("\0"), Path("x" * 300), Path(), OddPath(), Decimal("0.5"), Decimal("NaN"), range(3)),
    *(pd.Timestamp("2024-02-01"), pd.Timestamp("2024-02-01", tz="Asia/Tokyo"), pd.Period("2024-02")),
    *(fc.Config(), Ellipsis, NotImplemented, memoryview(b"x"), bytearray(b"x"), slice(1), open),
)  # fmt: skip
ODD: tuple[Callable[[], Any], ...] = (
    *((lambda value=value: value) for value in _VALUES),
    lambda: iter(["x"]),
    lambda: (name for name in ("a", "b")),
)
"""Makers of odd arguments."""

EQUAL: tuple[tuple[str, Callable[[], Any], Any], ...] = (
    ("horizon", lambda: np.int64(3), 3),
    ("horizon", lambda: np.array(3), 3),
    ("only", lambda: pd.Index(["a", "b"]), ["a", "b"]),
    ("only", lambda: (name for name in ("b", "a")), ["b", "a"]),
    ("only", lambda: np.str_("a"), "a"),
    ("only", lambda: {"a"}, ["a"]),
    ("cutoff", lambda: np.datetime64("2024-02-20"), "2024-02-20"),
    ("cutoff", lambda: pd.Timestamp("2024-02-20"), "2024-02-20"),
    ("cutoff", lambda: date(2024, 2, 20), "2024-02-20"),
    ("season_length", lambda: np.uint8(7), 7),
    ("series", lambda: pd.Index(["store"]), ["store"]),
)
"""Odd spellings of right values, of `Forecaster.predict`."""

COSTLY = {"trials", "workers", "devices", "nodes", "windows", "samples"}
"""Options of which more than one takes long."""


@cache
def shop() -> pl.DataFrame:
    """A small table of three series."""
    days = [date(2024, 1, 1) + timedelta(days=k) for k in range(70)]
    return pl.concat(
        pl.DataFrame({"store": name, "date": days, "sales": [k % 7 + k / 10 + at for k in range(70)]})
        for at, name in enumerate("abc")
    )


@cache
def model() -> Any:
    """A model of the table."""
    return fc.fit(shop(), 7, config=TINY, quiet=True)


@cache
def functions() -> dict[str, tuple[Callable[..., Any], dict[str, Any], int]]:
    """Public functions by name, arguments that are right, and how often each is called."""
    forecast, backtest = model().predict(shop()), model().backtest(shop(), windows=1, quiet=True)
    anomalies, explanation = model().detect(shop()), model().explain(shop(), only="a")
    data = {"data": shop()}
    work = {"quiet": True, "config": TINY}
    return {
        "fit": (fc.fit, data | {"horizon": 7} | work, 4),
        "tune": (fc.tune, data | {"horizon": 7, "trials": 1, "refit": False} | work, 1),
        "convert": (fc.convert, data | {"store": "store", "quiet": True, "overwrite": True}, 4),
        "backtest": (fc.backtest, data | {"horizon": 7, "windows": 1} | work, 2),
        "compare": (fc.compare, data | {"horizon": 7, "windows": 1} | work, 1),
        "check": (fc.check, data, 6),
        "load": (fc.load, {"path": "model"}, 6),
        "load_config": (fc.load_config, {}, 4),
        "Forecaster.open": (model().open, data, 6),
        "Forecaster.predict": (model().predict, data, 10),
        "Forecaster.predict_to": (
            model().predict_to,
            data | {"path": "rows.csv", "overwrite": True},
            6,
        ),
        "Forecaster.backtest": (model().backtest, data | {"windows": 1, "quiet": True}, 2),
        "Forecaster.detect": (model().detect, data, 4),
        "Forecaster.explain": (model().explain, data | {"only": "a"}, 3),
        "Forecaster.onnx_inputs": (model().onnx_inputs, data, 4),
        "Forecaster.save": (model().save, {"path": "saved"}, 6),
        "Forecast.write": (forecast.write, {"path": "rows.csv"}, 6),
        "Forecast.plot": (forecast.plot, {}, 3),
        "Backtest.by": (backtest.by, {"axis": "lead"}, 4),
        "Backtest.skill": (backtest.skill, {}, 4),
        "Backtest.report": (backtest.report, {"path": "page.html"}, 2),
        "Anomalies.plot": (anomalies.plot, {}, 2),
        "Explanation.write": (explanation.write, {"path": "page.html"}, 3),
    }


def options_of(function: Callable[..., Any]) -> list[str]:
    """Returns the names of the options of a function."""
    parameters = signature(function).parameters.values()
    return [part.name for part in parameters if part.kind is not Parameter.VAR_KEYWORD]


def odd_argument(name: str, rng: random.Random) -> Any:
    """Returns something odd for an option."""
    while True:
        value = rng.choice(ODD)()
        if name == "progress" and callable(value):  # what a caller's function raises is the caller's
            continue
        many = isinstance(value, int | float | np.number | np.ndarray) and not isinstance(value, bool)
        if not (many and name in COSTLY and np.ndim(value) == 0 and 1 < abs(value) < 10**20):
            return value


def outcome(function: Callable[..., Any], given: dict[str, Any]) -> tuple[str, Any]:
    """Returns "refused" with the message, or "result" with what a call gave."""
    try:
        with limited(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return "result", function(**given)
    except fc.ForecasterError as error:
        message = str(error)
        if not message.strip() or len(message) > 20_000:
            raise AssertionError(f"a message of {len(message)} characters") from error
        return "refused", message


def try_call(seed: int, number: int) -> tuple[str, Fault | None]:
    """Returns what became of an odd call, and the fault if there is one."""
    rng = random.Random(f"call {seed} {number}")
    command = f"python benchmarks/hostile.py --seed {seed} --first {number} --count 1 --only calls"
    if rng.random() < 0.1:
        return _try_equal(rng, command)
    names = [name for name, (_, _, often) in functions().items() for _ in range(often)]
    name = rng.choice(names)
    function, right, _ = functions()[name]
    options = options_of(function)
    odd = {
        option: odd_argument(option, rng)
        for option in rng.sample(options, min(len(options), rng.choice((1, 1, 2))))
    }
    words = ", ".join(f"{option}={' '.join(repr(value).split())[:60]}" for option, value in odd.items())
    try:
        kind, _ = outcome(function, right | odd)
    except BaseException as error:
        return "fault", Fault(f"{name}({words}): {type(error).__name__}: {error}"[:500], command)
    return kind, None


def _try_equal(rng: random.Random, command: str) -> tuple[str, Fault | None]:
    """Compares a call with an odd spelling of a right value with the plain call."""
    option, maker, plain = rng.choice(EQUAL)
    predict = model().predict
    try:
        odd, usual = (outcome(predict, {"data": shop(), option: value}) for value in (maker(), plain))
        alike = odd[0] == usual[0] == "result" and odd[1].frame.equals(usual[1].frame)
    except BaseException as error:
        return "fault", Fault(
            f"predict({option}={maker()!r}): {type(error).__name__}: {error}"[:500], command
        )
    if not alike:
        return "fault", Fault(f"predict({option}={maker()!r}) is not that of {plain!r}", command)
    return "same as the plain call", None


def run(
    attempt: Callable[[int, int], tuple[str, Fault | None]], seed: int, numbers: range
) -> tuple[Counter[str], list[Fault]]:
    """Returns how often each outcome came, and the faults; everything is written to a folder that is removed."""
    counts, faults = Counter[str](), []
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            if attempt is try_call:
                model().save("model")
            for number in numbers:
                kind, fault = attempt(seed, number)
                counts[kind] += 1
                faults += [] if fault is None else [fault]
        finally:
            os.chdir(before)
    return counts, faults


def main() -> int:
    """Tries tables and calls, and prints what became of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=2000, help="of tables, and of calls")
    parser.add_argument("--first", type=int, default=0, help="number of the first one")
    parser.add_argument("--only", choices=("tables", "calls"))
    options = parser.parse_args()
    numbers, failed = range(options.first, options.first + options.count), False
    for name, attempt in (("tables", try_table), ("calls", try_call)):
        if options.only in (None, name):
            counts, faults = run(attempt, options.seed, numbers)
            told = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
            print(f"{options.count:,} {name}: {told}")
            for fault in faults:
                print(f"  {fault.text}\n    {fault.command}")
            failed |= bool(faults)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
