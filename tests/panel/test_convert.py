"""A table converted in parts is the panel of the whole table, or the flag that is missing is named."""

import shutil
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from cli.conftest import files_of_at_most
from forecast import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from panel_tables import TWO, same
from test_round_trip import tables

from forecaster.config import DataConfig
from forecaster.errors import DataError, OutputError
from forecaster.panel import convert
from forecaster.panel.build import open_panel
from forecaster.panel.convert import convert_table
from forecaster.panel.findings import Finding, summed
from forecaster.panel.frames import read_table

AS_IS = DataConfig()
BAD = Path(__file__).parent.parent / "bad_inputs"


def in_parts(patch, cells, sample=10**6):
    """Sets the cells of a part, and of the sample; tables of any size are then converted in parts."""
    patch.setattr(convert, "WHOLE", 0)
    patch.setattr(convert, "PART", cells)
    own = convert.sample_of
    patch.setattr(convert, "sample_of", lambda scan, _: own(scan, sample))


@pytest.fixture
def parts(monkeypatch):
    """Sets both for one test."""
    return partial(in_parts, monkeypatch)


def converted(source, folder, data=AS_IS, **others):
    """The store is what `open_panel` makes of the same table, notes included."""
    panel = open_panel(source, data, **others)
    mapped = convert_table(source, folder, data, **others)
    assert same(panel, mapped) and panel.keys.equals(mapped.keys) and panel.regular == mapped.regular
    assert panel.schema == mapped.schema and panel.calendar == mapped.calendar
    return panel, mapped


@pytest.mark.long
@settings(max_examples=12)
@given(tables(), st.sampled_from([40, 200, 10**6]), st.sampled_from(["parquet", "arrow"]))
def test_random_tables_in_parts_are_the_panel_of_the_whole(tmp_path_factory, drawn, cells, kind):
    frame, data = drawn
    folder = tmp_path_factory.mktemp("parts")
    file = folder / f"table.{kind}"
    {"parquet": frame.write_parquet, "arrow": frame.write_ipc}[kind](file)
    with pytest.MonkeyPatch.context() as patch:
        in_parts(patch, cells)
        try:
            panel = open_panel(file, data)
        except DataError as error:
            with pytest.raises(DataError) as caught:
                convert_table(file, folder / "store", data)
            assert str(caught.value).partition("(")[0] == str(error).partition("(")[0]
            assert not (folder / "store").exists()
            return
        mapped = convert_table(file, folder / "store", data)
    assert same(panel, mapped) and panel.keys.equals(mapped.keys)
    assert panel.schema == mapped.schema and panel.calendar == mapped.calendar
    assert sorted(path.name for path in folder.iterdir()) == ["store", file.name]


WEEKLY = DataConfig(known=("price",), resample="W-SUN", agg="max", holidays=("DE", "FR"))


@pytest.mark.parametrize(
    "data", [AS_IS, DataConfig(known=("price",)), DataConfig(time="row", past=()), WEEKLY]
)
@pytest.mark.parametrize("cells", [100, 700])
def test_roles_and_step_are_found_as_in_the_whole_table(tmp_path, parts, data, cells):
    parts(cells)
    frame = tiny.shop(60)
    frame = frame.drop("date") if data.time == "row" else frame
    frame.sample(fraction=0.9, shuffle=True, seed=1).write_parquet(tmp_path / "shop.parquet")
    panel, mapped = converted(tmp_path / "shop.parquet", tmp_path / "store", data)
    assert sorted(note.line() for note in mapped.notes) == sorted(note.line() for note in panel.notes)


def test_second_tables_are_joined_part_by_part(tmp_path, parts):
    parts(100)
    shop, prices = tiny.shop(60), tiny.prices(60)
    shop.drop("price", "city").write_parquet(tmp_path / "shop.parquet")
    extra = shop.select("store", "date", "price").filter(pl.col("store") != "b")
    city = pl.concat([extra, prices.filter(pl.col("store") != "b")], how="vertical_relaxed")
    converted(
        tmp_path / "shop.parquet", tmp_path / "one", DataConfig(known=("price",)), covariates=city
    )
    shop.write_parquet(tmp_path / "whole.parquet")
    converted(tmp_path / "whole.parquet", tmp_path / "two", future=prices)


def test_text_times_that_only_all_rows_explain_are_read_alike(tmp_path, parts):
    parts(8)
    days = [f"{day}.{month}.2024" for month in (1, 2) for day in range(1, 20)]
    frame = pl.DataFrame({"id": ["a"] * 12 + ["b"] * 26, "day": days, "y": [1.0] * 38})
    frame.write_parquet(tmp_path / "days.parquet")
    converted(tmp_path / "days.parquet", tmp_path / "store")
    frame[:12].write_parquet(tmp_path / "open.parquet")
    with pytest.raises(DataError, match="day and month are ambiguous"):
        convert_table(tmp_path / "open.parquet", tmp_path / "other", AS_IS)


def test_text_larger_than_can_be_read_whole_is_refused_with_the_line_that_helps(tmp_path, monkeypatch):
    monkeypatch.setattr(convert, "MOST_TEXT", 100)
    tiny.plain(60).write_csv(tmp_path / "shop.csv")
    with pytest.raises(
        DataError, match=r"write Parquet first.*scan_csv\(.*sink_parquet\('shop.parquet"
    ):
        convert_table(tmp_path / "shop.csv", tmp_path / "store", AS_IS)
    assert [path.name for path in tmp_path.iterdir()] == ["shop.csv"]


@pytest.mark.long
def test_bad_tables_in_parts_are_refused_as_whole_and_others_are_the_same(tmp_path, parts):
    parts(200)
    file, compared = tmp_path / "table.parquet", 0
    for path in sorted(set(BAD.iterdir()) - {BAD / "catalogue.yaml"}):
        try:
            read_table(path).frame.write_parquet(file)
        except DataError:
            continue
        compared += 1
        try:
            open_panel(file, AS_IS)
        except DataError as error:
            with pytest.raises(DataError) as caught:
                convert_table(file, tmp_path / "store", AS_IS)
            line, expected = (str(e).splitlines()[0].partition(" (")[0] for e in (caught.value, error))
            assert line == expected, path
            assert [path.name for path in tmp_path.iterdir()] == ["table.parquet"]
        else:
            converted(file, tmp_path / "store")
            shutil.rmtree(tmp_path / "store")
    assert compared > 30


def test_several_files_gzip_and_frames_are_converted(tmp_path, parts):
    parts(100)
    shop = tiny.shop(40)
    (tmp_path / "parts").mkdir()
    for number in range(3):
        columns = shop.columns[number:] + shop.columns[:number]
        shop[number::3].select(columns).write_parquet(tmp_path / "parts" / f"{number}.parquet")
    converted(tmp_path / "parts", tmp_path / "one")
    converted(shop, tmp_path / "two")
    converted(shop.to_pandas(), tmp_path / "three")


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (lambda row: int(row == 5), "'x' varies within a series, but not in the rows .*--past x"),
        (lambda row: f"w{row}" if row % 13 in (8, 9) else "w", "'x' holds 1.. categories, more than"),
        (lambda row: [0, 2, 2][row % 3] if row % 16 < 4 else row % 3, "'x' holds 3 codes, but not in"),
    ],
)
def test_rows_that_contradict_the_sample_are_refused_with_the_flag(tmp_path, parts, extra, message):
    # 1000 rows in 64 places of 16 rows, of which the sample sees 3.
    parts(2000, sample=64 * 4 * 3)
    frame = tiny.shop(250, ("a", "b", "c", "d")).select("store", "date", "sales")
    frame = frame.with_columns(x=pl.Series([extra(row) for row in range(1000)]))
    frame.write_parquet(tmp_path / "shop.parquet")
    with pytest.raises(DataError, match=message):
        convert_table(tmp_path / "shop.parquet", tmp_path / "store", AS_IS)
    assert not (tmp_path / "store").exists()


def test_rows_that_fail_are_named_by_their_place_in_the_whole_table(tmp_path, parts):
    parts(100)
    shop = tiny.plain(60).sample(fraction=1, shuffle=True, seed=0)
    broken = shop.with_columns(
        date=pl.when(pl.int_range(pl.len()) == 77).then(pl.lit(None)).otherwise(pl.col("date"))
    )
    broken.write_parquet(tmp_path / "shop.parquet")
    with pytest.raises(DataError, match="expected a time in every row, found none in row 78"):
        convert_table(tmp_path / "shop.parquet", tmp_path / "store", AS_IS)
    assert [path.name for path in tmp_path.iterdir()] == ["shop.parquet"]


def test_a_full_disk_or_an_interrupt_leaves_nothing(tmp_path, parts):
    parts(100)
    tiny.plain(60).write_parquet(tmp_path / "shop.parquet")

    with files_of_at_most(100), pytest.raises(OutputError, match=r"store: cannot be written: File too"):
        convert_table(tmp_path / "shop.parquet", tmp_path / "store", AS_IS)
    with pytest.raises(KeyboardInterrupt):

        def stop(done, total):
            raise KeyboardInterrupt

        convert_table(tmp_path / "shop.parquet", tmp_path / "store", AS_IS, progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["shop.parquet"]


def test_notes_of_parts_are_added_up():
    def note(text, count, rule="order"):
        return Finding("note", rule, text, "fine", count=count)

    one, other = note("1,000 of 2,000 rows of 'x2' moved", 1000), note("1 of 30 rows of 'x2' moved", 1)
    same_text = note("times have 2 offsets", 7, "zones")
    found = summed([one, other, same_text, same_text])
    assert found == (
        note("1,001 of 2,030 rows of 'x2' moved", 1001),
        note("times have 2 offsets", 14, "zones"),
    )


def test_progress_rises_to_the_end(tmp_path, parts):
    parts(100)
    tiny.plain(60).write_parquet(tmp_path / "shop.parquet")
    seen: list[tuple[int, int]] = []
    convert_table(
        tmp_path / "shop.parquet",
        tmp_path / "store",
        AS_IS,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen[-1] == (540, 540) and len({total for _, total in seen}) == 1


def test_unsorted_rows_keep_their_order_where_it_counts(tmp_path, parts):
    parts(6)
    frame = pl.concat([TWO, TWO.with_columns(y=pl.col("y") + 1)])
    frame.write_parquet(tmp_path / "twice.parquet")
    _, mapped = converted(
        tmp_path / "twice.parquet", tmp_path / "store", DataConfig(series=("id",), on_duplicates="last")
    )
    assert mapped.values[0, 0] == 8
