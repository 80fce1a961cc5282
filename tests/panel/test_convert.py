"""A table converted in pieces is the panel of the whole table, or the flag that is missing is named."""

from pathlib import Path

import polars as pl
import pytest
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

AS_IS = DataConfig()
BAD = Path(__file__).parent.parent / "bad_inputs"


@pytest.fixture
def pieces(monkeypatch):
    """Sets the number of cells above which a table is converted in pieces, and of a piece."""

    def set_to(cells, sample=None):
        monkeypatch.setattr(convert, "WHOLE", 0)
        monkeypatch.setattr(convert, "BLOCK", cells)
        if sample is not None:
            own = convert.sample_of
            monkeypatch.setattr(convert, "sample_of", lambda scan, _: own(scan, sample))

    return set_to


def converted(source, folder, data=AS_IS, **others):
    """The store is what `open_panel` makes of the same table, notes included."""
    panel = open_panel(source, data, **others)
    mapped = convert_table(source, folder, data, **others)
    assert same(panel, mapped) and panel.keys.equals(mapped.keys) and panel.regular == mapped.regular
    assert panel.schema == mapped.schema and panel.calendar == mapped.calendar
    return panel, mapped


@settings(max_examples=25)
@given(tables(), st.sampled_from([40, 200, 10**6]), st.sampled_from(["parquet", "csv", "arrow"]))
def test_random_tables_in_pieces_are_the_panel_of_the_whole(tmp_path_factory, drawn, cells, kind):
    frame, data = drawn
    folder = tmp_path_factory.mktemp("pieces")
    file = folder / f"table.{kind}"
    if kind == "csv":
        frame.with_columns(pl.col(pl.Datetime).dt.to_string("iso:strict")).write_csv(file)
        data = (
            data.model_copy(update={"freq": None}) if "Datetime(" in str(frame["time"].dtype) else data
        )
    else:
        {"parquet": frame.write_parquet, "arrow": frame.write_ipc}[kind](file)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convert, "WHOLE", 0)
        patch.setattr(convert, "BLOCK", cells)
        own = convert.sample_of
        patch.setattr(convert, "sample_of", lambda scan, _: own(scan, 10**6))
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


@pytest.mark.parametrize("data", [AS_IS, DataConfig(known=("price",)), DataConfig(time="row", past=())])
@pytest.mark.parametrize("cells", [100, 700])
def test_roles_and_step_are_found_as_in_the_whole_table(tmp_path, pieces, data, cells):
    pieces(cells, sample=10**6)
    frame = tiny.shop(60)
    frame = frame.drop("date") if data.time == "row" else frame
    frame.sample(fraction=0.9, shuffle=True, seed=1).write_csv(tmp_path / "shop.csv")
    panel, mapped = converted(tmp_path / "shop.csv", tmp_path / "store", data)
    assert sorted(note.line() for note in mapped.notes) == sorted(note.line() for note in panel.notes)


@pytest.mark.parametrize("data", [AS_IS, DataConfig(layout="long"), DataConfig(layout="wide")])
def test_channels_and_melted_channels_are_converted_too(tmp_path, pieces, data):
    pieces(400, sample=10**6)
    wide = tiny.plain(50).pivot(on="store", index="date", values="sales")
    wide.write_csv(tmp_path / "wide.csv")
    converted(tmp_path / "wide.csv", tmp_path / "store", data)


def test_second_tables_are_joined_part_by_part(tmp_path, pieces):
    pieces(100, sample=10**6)
    shop, prices = tiny.shop(60), tiny.prices(60)
    shop.drop("price", "city").write_csv(tmp_path / "shop.csv")
    extra = shop.select("store", "date", "price").filter(pl.col("store") != "b")
    city = pl.concat([extra, prices.filter(pl.col("store") != "b")], how="vertical_relaxed")
    converted(tmp_path / "shop.csv", tmp_path / "one", DataConfig(known=("price",)), covariates=city)
    shop.write_csv(tmp_path / "whole.csv")
    converted(tmp_path / "whole.csv", tmp_path / "two", future=prices)


@pytest.mark.parametrize(
    "written",
    [
        "id;day;y\na;1.2.2024;1,5\na;2.2.2024;NA\na;13.2.2024;2\nb;1.3.2024;1\nb;2.3.2024;3,25\n",
        "id,day,y\n007,2024-01-01,1\n007,2024-01-02,\n008,2024-01-01,4\n008,2024-01-02,5.5\n\n\n",
        "id,day,y,f\na,2024-01-01,1,true\na,2024-01-02,2,false\nb,2024-01-01,4,\nb,2024-01-02,5,true\n",
        "\ufeffid\tday\ty\na\t2024-01-01\t 1\na\t2024-01-02\t 2\nb\t2024-01-01\t-\nb\t2024-01-02\t3\n",
        "id,day,y,p\na,2024-01-01,1,007\na,2024-01-02,2,1\nb,2024-01-01,4,12\nb,2024-01-02,5,1.5\n",
        "id;day;y;p\na;2024-01-01;1.234,5;x\na;2024-01-02;2;y\nb;2024-01-01;1;y\nb;2024-01-02;5;x\n",
        "id;day;y\na;2024-01-01;1,111\na;2024-01-02;1,111\nb;2024-01-01;1,111\nb;2024-01-02;5\n",
        "id;day;y\na;2024-01-01;1 111\na;2024-01-02;2 222,5\nb;2024-01-01;1\nb;2024-01-02;5\n",
        ",id,day,y\n0,a,2024-01-01,1\n1,a,2024-01-02,2\n2,b,2024-01-01,4\n3,b,2024-01-02,5\n",
        "id,day,y,f\na,2024-01-01,1,7\na,2024-01-02,2,8\nb,2024-01-01,4,A\nb,2024-01-02,5,9\n",
        'id,day,y\n"a, b",2024-01-01,1\n"a, b",2024-01-02,2e3\nc,2024-01-01,4\nc,2024-01-02,1e40\n',
    ],
)
def test_text_is_read_as_by_the_ordinary_reader(tmp_path, pieces, written):
    pieces(4, sample=10**6)
    (tmp_path / "table.csv").write_text(written, encoding="utf-8")
    try:
        open_panel(tmp_path / "table.csv", DataConfig(freq="1d"))
    except DataError as error:
        with pytest.raises(DataError) as caught:
            convert_table(tmp_path / "table.csv", tmp_path / "store", DataConfig(freq="1d"))
        assert str(caught.value).replace("in some row", "in row 1") == str(error)
    else:
        converted(tmp_path / "table.csv", tmp_path / "store", DataConfig(freq="1d"))


@pytest.mark.parametrize(
    "path", sorted(set(BAD.iterdir()) - {BAD / "catalogue.yaml"}), ids=lambda path: path.name
)
def test_broken_files_are_refused_in_pieces_as_whole_and_others_are_the_same(tmp_path, pieces, path):
    pieces(200, sample=10**6)
    try:
        open_panel(path, AS_IS)
    except DataError as error:
        with pytest.raises(DataError) as caught:
            convert_table(path, tmp_path / "store", AS_IS)
        said = str(caught.value).replace("in some row", "in row 1").splitlines()[0]
        assert said.partition(" (")[0] == str(error).splitlines()[0].partition(" (")[0]
        assert not list(tmp_path.iterdir())
    else:
        converted(path, tmp_path / "store")


def test_several_files_gzip_and_frames_are_converted(tmp_path, pieces):
    pieces(100, sample=10**6)
    shop = tiny.shop(40)
    (tmp_path / "parts").mkdir()
    for number in range(3):
        shop[number::3].write_parquet(tmp_path / "parts" / f"{number}.parquet")
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
def test_what_all_rows_say_other_than_the_sample_is_refused_with_the_flag(
    tmp_path, pieces, extra, message
):
    # 1000 rows in 64 places of 16 rows, of which the sample sees 3.
    pieces(2000, sample=64 * 4 * 3)
    frame = tiny.shop(250, ("a", "b", "c", "d")).select("store", "date", "sales")
    frame = frame.with_columns(x=pl.Series([extra(row) for row in range(1000)]))
    frame.write_csv(tmp_path / "shop.csv")
    with pytest.raises(DataError, match=message):
        convert_table(tmp_path / "shop.csv", tmp_path / "store", AS_IS)
    assert not (tmp_path / "store").exists()


def test_rows_that_fail_are_named_by_their_place_in_the_whole_table(tmp_path, pieces):
    pieces(100, sample=10**6)
    shop = tiny.plain(60).sample(fraction=1, shuffle=True, seed=0)
    broken = shop.with_columns(
        pl.when(pl.int_range(pl.len()) == 77).then(None).otherwise("date").alias("date")
    )
    broken = shop.with_columns(
        date=pl.when(pl.int_range(pl.len()) == 77).then(pl.lit(None)).otherwise(pl.col("date"))
    )
    broken.write_parquet(tmp_path / "shop.parquet")
    with pytest.raises(DataError, match="expected a time in every row, found none in row 78"):
        convert_table(tmp_path / "shop.parquet", tmp_path / "store", AS_IS)
    assert [path.name for path in tmp_path.iterdir()] == ["shop.parquet"]


def test_a_full_disk_or_a_fault_leaves_nothing(tmp_path, pieces, monkeypatch):
    pieces(100, sample=10**6)
    tiny.plain(60).write_csv(tmp_path / "shop.csv")

    def full(self, frame):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("forecaster.panel.dealt._Pile.add", full)
        with pytest.raises(OutputError, match=r"store: cannot be written: No space left on device"):
            convert_table(tmp_path / "shop.csv", tmp_path / "store", AS_IS)
    with pytest.raises(KeyboardInterrupt):

        def stop(done, total):
            raise KeyboardInterrupt

        convert_table(tmp_path / "shop.csv", tmp_path / "store", AS_IS, progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["shop.csv"]


def test_folders_that_are_something_else_and_stores_are_refused(tmp_path):
    tiny.plain(60).write_csv(tmp_path / "shop.csv")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years")
    with pytest.raises(OutputError, match="thesis: exists and is not a panel store"):
        convert_table(tmp_path / "shop.csv", tmp_path / "thesis", AS_IS)
    with pytest.raises(OutputError, match=r"shop\.csv: is an input of this command"):
        convert_table(tmp_path / "shop.csv", tmp_path / "shop.csv", AS_IS)
    convert_table(tmp_path / "shop.csv", tmp_path / "store", AS_IS)
    with pytest.raises(DataError, match="store: is a panel store already"):
        convert_table(tmp_path / "store", tmp_path / "other", AS_IS)


def test_notes_of_parts_are_added_up():
    def note(text, count, rule="order"):
        return Finding("note", rule, text, "fine", count=count)

    one, other = note("1,000 of 2,000 rows of 'x2' moved", 1000), note("1 of 30 rows of 'x2' moved", 1)
    same_text = note("times have 2 offsets", 7, "zones")
    found = summed([one, other, same_text, same_text])
    assert found[0] == note("1,001 of 2,030 rows of 'x2' moved", 1001) and found[1:] == (same_text,)


def test_progress_rises_to_the_end(tmp_path, pieces):
    pieces(100, sample=10**6)
    tiny.plain(60).write_csv(tmp_path / "shop.csv")
    told: list[tuple[int, int]] = []
    convert_table(
        tmp_path / "shop.csv",
        tmp_path / "store",
        AS_IS,
        progress=lambda done, total: told.append((done, total)),
    )
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (540, 540) and len({total for _, total in told}) == 1


def test_unsorted_rows_keep_their_order_where_it_counts(tmp_path, pieces):
    pieces(6, sample=10**6)
    frame = pl.concat([TWO, TWO.with_columns(y=pl.col("y") + 1)])
    frame.write_csv(tmp_path / "twice.csv")
    _, mapped = converted(
        tmp_path / "twice.csv", tmp_path / "store", DataConfig(series=("id",), on_duplicates="last")
    )
    assert mapped.values[0, 0] == 8
