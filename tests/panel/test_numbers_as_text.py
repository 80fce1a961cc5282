"""Numbers that are written as text are numbers, in files and frames alike, and one bad cell is no category."""

import numpy as np
import polars as pl
import pytest
from panel.panel_tables import same

from forecaster.config import DataConfig
from forecaster.errors import DataError
from forecaster.panel.build import open_panel
from forecaster.panel.roles import look_like_codes

DAYS = pl.date_range(pl.date(2024, 1, 1), pl.date(2024, 2, 9), eager=True).dt.strftime("%Y-%m-%d")
"""Forty days."""


def _rows(shops=("north", "south")) -> pl.DataFrame:
    """Two shops: prices of two decimals, stock in whole numbers, words for the weather, a code per month."""
    random_numbers = np.random.default_rng(1)
    size = len(DAYS) * len(shops)
    return pl.DataFrame(
        {
            "day": DAYS.to_list() * len(shops),
            "shop": np.repeat(shops, len(DAYS)),
            "sales": random_numbers.integers(1, 900, size),
            "price": (random_numbers.integers(300, 1400, size) / 100).round(2),
            "stock": random_numbers.integers(10, 99, size),
            "weather": random_numbers.choice(["wet", "dry"], size),
            "month": random_numbers.integers(1, 4, size),
        }
    )


def _bad(frame: pl.DataFrame, column: str, row: int, cell: str) -> pl.DataFrame:
    """Returns the frame with a column as text and one cell (row counted from 1) replaced."""
    cells = frame[column].cast(pl.String).to_list()
    cells[row - 1] = cell
    return frame.with_columns(pl.Series(column, cells))


@pytest.fixture
def csv(tmp_path):
    def write(frame: pl.DataFrame, name: str = "sales.csv") -> str:
        frame.write_csv(tmp_path / name)
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("role", ["known", "past", "static"])
@pytest.mark.parametrize("kind", ["file", "frame", "second"])
def test_a_declared_covariate_with_one_bad_cell_is_refused_with_the_cell_and_its_row(csv, role, kind):
    frame = _bad(_rows(), "price", 17, "n.a.")
    source, more = (csv(frame) if kind == "file" else frame), {}
    if kind == "second":
        source, more = _rows().drop("price"), {"covariates": frame.select("day", "shop", "price")}
    expected = (
        r"column 'price': expected numbers, found 'n.a.' in row 17 \(1 such rows\).*--categorical"
    )
    with pytest.raises(DataError, match=expected) as caught:
        open_panel(source, DataConfig(**{role: ("price",)}), **more)
    assert "\n" not in str(caught.value)


def test_a_column_of_numbers_and_words_is_a_category_where_that_is_declared(csv):
    frame = _rows().with_columns(pl.Series("line", (["1", "2", "3", "4", "X10"] * 16)))
    panel = open_panel(csv(frame), DataConfig(known=("line",), categorical=("line",)))
    assert panel.schema.categories["line"] == ("1", "2", "3", "4", "X10")
    few = frame.with_columns(pl.Series("line", (["1", "M1", "X10", "N1"] * 20)))
    panel = open_panel(csv(few), DataConfig(known=("line",)))
    assert panel.schema.known_category == ("line",) and not panel.notes


@pytest.mark.parametrize("kind", ["file", "frame"])
def test_an_inferred_covariate_with_one_bad_cell_is_a_warning_with_counts(csv, kind):
    frame = _bad(_rows(), "price", 17, "n.a.")
    panel = open_panel(csv(frame) if kind == "file" else frame, DataConfig(target=("sales",)))
    (note,) = [note for note in panel.notes if note.rule == "text"]
    assert note.severity == "warning" and note.where == "row 17" and note.count == 1
    assert note.text == "'price' is read as text: 1 of 80 cells are no numbers, as 'n.a.'"
    assert "--categorical price" in note.advice


def test_a_target_with_one_bad_cell_is_never_passed_over_for_another_column(csv):
    frame = _bad(_rows(), "sales", 3, "sold out")
    for declared in ({}, {"target": ("sales",)}):
        for source in (frame, csv(frame)):
            with pytest.raises(
                DataError, match="column 'sales': expected numbers, found 'sold out' in row 3"
            ):
                open_panel(source, DataConfig(**declared))
    alone = _bad(_rows(), "sales", 3, "sold out").rename({"sales": "units"})[["day", "shop", "units"]]
    with pytest.raises(DataError, match="column 'units': expected numbers, found 'sold out' in row 3"):
        open_panel(csv(alone), DataConfig())


def test_the_bad_cell_is_named_in_whatever_mark_the_others_are_written(csv):
    cells = [f"{value},5" for value in range(80)]
    cells[40] = "4.5.6"
    frame = _rows().with_columns(pl.Series("price", cells))
    for role in ("target", "known"):
        with pytest.raises(
            DataError, match=r"column 'price': expected numbers, found '4.5.6' in row 41 \(1"
        ):
            open_panel(frame, DataConfig(**{role: ("price",)}))


def _as_text(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.Int64, pl.Float64).cast(pl.String))


def _padded(frame: pl.DataFrame) -> pl.DataFrame:
    text = _as_text(frame)
    return text.with_columns(pl.col("sales", "price", "stock", "month").str.zfill(6))


def _trailing(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.format("{}0", "price").alias("price"))


def _spaced(frame: pl.DataFrame) -> pl.DataFrame:
    numbers = [pl.format(" {}  ", name).alias(name) for name in ("sales", "price", "stock", "month")]
    return frame.with_columns(numbers)


def _comma(frame: pl.DataFrame) -> pl.DataFrame:
    return _as_text(frame).with_columns(pl.col("price").str.replace(".", ",", literal=True))


WRITTEN = {
    "text": _as_text,
    "padded": _padded,
    "trailing": _trailing,
    "spaced": _spaced,
    "comma": _comma,
}


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("kind", ["file", "polars", "pandas"])
@pytest.mark.parametrize(
    "declared", [{}, {"target": ("sales",), "past": ("price", "stock")}, {"known": ("stock",)}]
)
def test_the_way_in_which_numbers_are_written_changes_no_value(csv, written, kind, declared):
    data = DataConfig(**declared)
    plain = _rows()
    other = WRITTEN[written](plain)
    expected = open_panel(plain, data)
    found = open_panel(
        {"file": csv, "polars": lambda f: f, "pandas": lambda f: f.to_pandas()}[kind](other), data
    )
    assert (
        found.schema.past == expected.schema.past
        and found.schema.categories == expected.schema.categories
    )
    assert same(found, expected)


def test_ids_and_declared_categories_with_leading_zeros_stay_text(csv):
    zips = ["01067", "10115"]
    frame = _rows(zips).with_columns(pl.Series("area", ["007", "013"] * 40))
    for source in (frame, csv(frame), frame.to_pandas()):
        panel = open_panel(source, DataConfig(target=("sales",), categorical=("area",)))
        assert panel.keys["shop"].to_list() == zips
        assert panel.schema.categories["area"] == ("007", "013")


def test_a_model_reads_the_words_of_its_categories_however_a_table_writes_them(csv):
    """Categories of numbers: declared, in a table where one of them is a word, and where none is."""
    plain = _rows().with_columns(pl.Series("grade", ["4.40", "4.50", "best", "007"] * 20))
    data = DataConfig(target=("sales",), past=("grade",), categorical=("grade",))
    model = open_panel(csv(plain), data)
    later = plain.with_columns(pl.Series("grade", ["4.40", "4.50", "4.5", "4.4"] * 20))
    for source in (later, csv(later), later.with_columns(pl.col("grade").cast(pl.Float64))):
        panel = open_panel(source, DataConfig(), schema=model.schema)
        codes = [panel.schema.categories["grade"][code - 1] for code in panel.codes[:4, 0]]
        assert codes == ["4.40", "4.50", "4.50", "4.40"]
    ids = plain.with_columns(pl.Series("grade", [7, 7] * 40))
    panel = open_panel(ids, DataConfig(), schema=model.schema)
    assert panel.schema.categories["grade"][panel.codes[0, 0] - 1] == "007"


def test_a_row_of_a_table_of_one_series_per_row_is_named_by_its_number_there(csv):
    values = {f"v{k}": [k + 1.5] * 8 for k in range(6)}
    size = ["1", "2", "3", "4", "5", "6", "7", "big"]
    frame = pl.DataFrame({"id": list("abcdefgh"), "size": size} | values)
    with pytest.raises(DataError, match="column 'size': expected numbers, found 'big' in row 8"):
        open_panel(csv(frame), DataConfig(layout="rows", series=("id",), static=("size",)))


def test_where_the_only_number_is_a_declared_covariate_the_message_names_it():
    hours = pl.DataFrame({"day": DAYS, "users": range(40)})
    said = "no column of numbers left to forecast among day, users; leave one out of the covariates users, or"
    for role in ("known", "past", "static"):
        with pytest.raises(DataError, match=said):
            open_panel(hours, DataConfig(**{role: ("users",)}))


def test_digits_of_another_script_are_words_and_never_a_missing_number():
    table = pl.DataFrame(
        {"t": DAYS, "y": [*map(str, range(39)), "٣"], "x": [f"{k}.5" for k in range(40)]}
    )
    with pytest.raises(DataError, match=r"column 'y': expected numbers, found '٣' in row 40"):
        open_panel(table, DataConfig(target=("y",)))


def test_whole_numbers_of_128_bits_may_look_like_codes():
    codes = pl.Series("x", [k % 2 for k in range(40)], dtype=pl.Int128)
    assert look_like_codes(codes, 40)
