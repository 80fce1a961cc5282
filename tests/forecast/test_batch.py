"""Forecasts of many series in parts: bit-equal however they are shared out, nothing mixed or lost."""

import json
import os
from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.errors import ConfigError, DataError, OutputError
from forecaster.files import only_writer
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.window import resolve_window
from forecaster.runs import batch_predict

N_SERIES, N_ROWS = 2100, 16
"""Three blocks, the last of 52 series."""


@cache
def many() -> pl.DataFrame:
    """Stores of a few days each; the ends differ, one store has no sales at all."""
    rng = np.random.default_rng(0)
    number = np.repeat(np.arange(N_SERIES), N_ROWS)
    frame = pl.DataFrame(
        {
            "store": [f"s{k:05}" for k in number],
            "date": pl.Series([tiny.day(k) for k in range(N_ROWS)] * N_SERIES),
            "sales": (10 + number % 7 + rng.normal(size=len(number))).round(3),
        }
    )
    last = (pl.col("date") == tiny.day(N_ROWS - 1)) & pl.col("store").is_in(["s00003", "s01500"])
    silent = pl.col("store") == "s01024"
    return frame.filter(~last).with_columns(pl.when(~silent).then("sales").alias("sales"))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """The same as a file."""
    path = tmp_path_factory.mktemp("many") / "many.parquet"
    many().write_parquet(path)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory, table):
    """The bytes of an uninterrupted forecast."""
    path = tmp_path_factory.mktemp("whole") / "out.parquet"
    tiny.network_model().predict_to(path, table)
    assert [file.name for file in path.parent.iterdir()] == ["out.parquet"]
    return path.read_bytes()


def predict_to(path, data, **options):
    return tiny.network_model().predict_to(path, data, **options)


def stopped_after(path, table, parts):
    """A forecast that is interrupted when so many parts are there."""
    made = []

    def stop(done, total):
        made.append(done)
        if len(made) == parts:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_to(path, table, progress=stop)
    assert not path.exists()


def test_the_file_holds_what_predict_returns_row_for_row(tmp_path, table, whole):
    forecast = tiny.network_model().predict(many())
    (tmp_path / "out.parquet").write_bytes(whole)
    assert pl.read_parquet(tmp_path / "out.parquet").equals(forecast.frame)
    done = predict_to(tmp_path / "out.csv", table)
    forecast.write(tmp_path / "twin.csv")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "twin.csv").read_bytes()
    assert done.report == forecast.report
    assert "2,100 series, 14,700 rows" in done.report
    assert "1 without a forecast: no target observed" in done.report


def test_a_small_table_is_one_file_at_once(tmp_path):
    predict_to(tmp_path / "out.parquet", tiny.plain())
    tiny.network_model().predict(tiny.plain()).write(tmp_path / "twin.parquet")
    assert (tmp_path / "out.parquet").read_bytes() == (tmp_path / "twin.parquet").read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.long
def test_shards_in_any_order_give_the_bytes_of_one_process(tmp_path, table):
    model, out = tiny.plain_model(), tmp_path / "out.parquet"  # with experts
    for k in (3, 1, 2):
        done = model.predict_to(out, table, shard=(k, 3))
        assert (done.whole, done.there, out.exists()) == (False, 0, False)
    done = model.predict_to(out, table)
    assert (done.whole, done.made, done.there) == (True, 0, 3)
    assert list(tmp_path.iterdir()) == [out]
    assert pl.read_parquet(out).equals(model.predict(many()).frame)


def test_one_cutoff_for_all_is_that_of_all_series_in_every_shard(tmp_path, table):
    out = tmp_path / "out.parquet"
    for k in (1, 2, 3):
        predict_to(out, table, shard=(k, 3), cutoff="last")
    predict_to(out, table, cutoff="last")
    assert set(pl.read_parquet(out)["cutoff"]) == {tiny.day(N_ROWS - 1)}


def test_a_stopped_forecast_goes_on_and_ends_as_an_uninterrupted_one(tmp_path, table, whole):
    out = tmp_path / "out.parquet"
    stopped_after(out, table, 1)
    done = predict_to(out, table, shard=(1, 2))  # the rest may be divided otherwise
    assert (done.there, done.made) == (1, 1)
    done = predict_to(out, table)
    assert (done.there, done.made) == (2, 1)
    assert out.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [out]


def test_a_failure_before_the_first_part_leaves_nothing(tmp_path, table, monkeypatch):
    def fail(*args):
        raise OutputError("no room")

    monkeypatch.setattr("forecaster.runs.batch_predict.write_part", fail)
    with pytest.raises(OutputError, match="no room"):
        predict_to(tmp_path / "out.parquet", table)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("fault", ["another byte", "half a record"])
def test_a_damaged_part_is_made_again(tmp_path, table, whole, fault):
    out = tmp_path / "out.parquet"
    stopped_after(out, table, 2)
    part = tmp_path / "out.parquet.parts" / "part-000001.parquet"
    content, record = part.read_bytes(), part.with_suffix(".json")
    if fault == "another byte":
        part.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    else:
        record.write_text(record.read_text()[:20])
    assert predict_to(out, table).there == 1
    assert out.read_bytes() == whole


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ({"horizon": 3}, "horizon 7 there, 3 now"),
        ({"data": "other"}, r"data \w{12}… there, \w{12}… now"),
        ({"model": "other"}, r"model \w{12}… there, \w{12}… now"),
    ],
)
def test_parts_of_another_forecast_are_refused_with_what_differs(tmp_path, table, whole, what, said):
    out = tmp_path / "out.parquet"
    stopped_after(out, table, 1)
    before = tiny.tree(tmp_path)
    model, data = tiny.network_model(), table
    if what.pop("data", None):
        data = many().with_columns(pl.col("sales") + 1)
    if what.pop("model", None):
        model = tiny.signed_model()
    with pytest.raises(OutputError, match=said) as caught:
        model.predict_to(out, data, **what)
    assert "or start over with `restart`" in str(caught.value)
    assert str(caught.value).count(" now") == 1
    assert tiny.tree(tmp_path) == before
    if what:
        assert model.predict_to(out, data, **what, restart=True).there == 0
        assert out.read_bytes() != whole
        assert list(tmp_path.iterdir()) == [out]


def test_a_folder_that_is_something_else_is_refused(tmp_path, table):
    foreign = tmp_path / "out.parquet.parts"
    foreign.mkdir()
    (foreign / "thesis.txt").write_text("years of work")
    for restart in (False, True):
        with pytest.raises(OutputError, match="exists and is not a folder of parts"):
            predict_to(tmp_path / "out.parquet", table, restart=restart)
    assert (foreign / "thesis.txt").read_text() == "years of work"


def test_parts_are_left_with_a_manifest_of_exact_counts(tmp_path, table, whole):
    out = tmp_path / "out.parquet"
    done = predict_to(out, table, parts=True)
    assert done.path == tmp_path / "out.parquet.parts"
    assert not out.exists()
    manifest = json.loads((done.path / "manifest.json").read_text())
    assert (manifest["series"], manifest["rows"], manifest["without_forecast"]) == (2100, 14700, 1)
    frames = []
    for number, entry in enumerate(manifest["parts"]):
        assert entry["part"] == f"part-{number:06}.parquet"
        frames.append(pl.read_parquet(done.path / entry["part"]))
        assert (frames[-1].height, frames[-1]["store"].n_unique()) == (entry["rows"], entry["series"])
    assert [entry["series"] for entry in manifest["parts"]] == [1024, 1024, 52]
    (tmp_path / "whole.parquet").write_bytes(whole)
    assert pl.concat(frames).equals(pl.read_parquet(tmp_path / "whole.parquet"))
    assert predict_to(out, table).there == 3  # and without the flag they are put together
    assert out.read_bytes() == whole


def test_a_store_and_a_table_too_large_for_the_memory_give_the_same_bytes(
    tmp_path, table, whole, monkeypatch
):
    fc.convert(table, tmp_path / "store", quiet=True)
    predict_to(tmp_path / "stored.parquet", tmp_path / "store")
    assert (tmp_path / "stored.parquet").read_bytes() == whole
    monkeypatch.setattr(batch_predict, "free_memory", lambda: 1000.0)
    converted, convert_table = [], batch_predict.convert_table

    def counted(*args, **options):
        converted.append(args)
        return convert_table(*args, **options)

    monkeypatch.setattr(batch_predict, "convert_table", counted)
    out = tmp_path / "out.parquet"
    with pytest.raises(ConfigError, match="convert it once with forecaster convert"):
        predict_to(out, table, shard=(1, 2))
    stopped_after(out, table, 1)
    assert predict_to(out, table).there == 1
    assert len(converted) == 1
    assert out.read_bytes() == whole
    assert not (tmp_path / "out.parquet.parts").exists()


def test_the_memory_of_a_table_is_told_by_its_cells_and_by_all_that_is_joined(tmp_path):
    rows = 300_000
    constant = pl.DataFrame({"id": ["a"], "day": [0], "y": [1.5]})[np.zeros(rows, int)]
    tight, text = tmp_path / "tight.parquet", tmp_path / "text.csv"
    constant.write_parquet(tight)
    text.write_text("day,price\n1,2\n")
    schema = tiny.network_model().artifact.schema
    assert tight.stat().st_size < rows / 50
    alone = batch_predict.needed_memory(batch_predict.Source(tight), schema)
    assert alone == 40 * 3 * rows
    assert (
        batch_predict.needed_memory(batch_predict.Source(tight), replace(schema, layout="rows"))
        == 4 * alone
    )
    joined = batch_predict.Source(tight, future=tight, covariates=text)
    assert batch_predict.needed_memory(joined, schema) == 2 * alone + 4 * text.stat().st_size
    assert batch_predict.needed_memory(batch_predict.Source(constant), schema) == 0


def test_known_covariates_are_asked_of_all_series_before_the_first_part(tmp_path):
    stores = tuple(f"s{k:05}" for k in range(1030))
    days = 3
    prices = tiny.prices(days, stores=stores).filter(pl.col("store") != "s01029")
    with pytest.raises(fc.errors.DataError, match=r"no value for series s01029 .*; 1 of 1030 series"):
        tiny.model().predict_to(tmp_path / "out.csv", tiny.shop(days, stores), future=prices)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shard", [(0, 2), (3, 2), (1, 0), "3/2", "1", "a/b", 3])
def test_a_shard_that_is_none_is_refused(tmp_path, table, shard):
    with pytest.raises(
        ConfigError, match=r"expected (K/N or .K, N. with K from 1 to N|text or a tuple)"
    ):
        predict_to(tmp_path / "out.csv", table, shard=shard)


def test_lanes_change_no_bit():
    model = tiny.network_model()
    panel = model.open(many().head(600 * N_ROWS))
    window = resolve_window(model.artifact, panel)
    one, four = (Predictor(model.artifact, lanes=lanes).predict(panel, window) for lanes in (1, 4))
    assert tiny.bits(one.quantiles) == tiny.bits(four.quantiles)


@pytest.mark.slow
def test_devices_change_no_byte(tmp_path, table, whole):
    out = tmp_path / "out.parquet"
    stopped_after(out, table, 1)
    assert predict_to(out, table, devices=2).there == 1
    assert out.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [out]


@pytest.mark.slow
def test_a_device_whose_process_dies_is_told_in_one_line(tmp_path, table, monkeypatch):
    monkeypatch.setattr("forecaster.runs.batch_predict._MAKE_PARTS", "forecaster.no_such_module:main")
    with pytest.raises(OutputError, match=r"the process of device [01] ended with .*no_such_module"):
        predict_to(tmp_path / "out.parquet", table, devices=2)
    assert not list(tmp_path.iterdir())


def test_a_second_predict_to_the_same_file_is_refused_with_the_process_of_the_first(tmp_path, table):
    out = tmp_path / "new" / "out.csv"
    with only_writer(out, tmp_path / "new" / "out.csv.parts" / ".1-of-1.lock", "predict"):
        with pytest.raises(
            OutputError, match=rf"out.csv: another predict is writing it \(process {os.getpid()} "
        ):
            predict_to(out, table)
        predict_to(out, table, shard=(1, 2))
    with pytest.raises(DataError):
        predict_to(tmp_path / "other" / "out.csv", tmp_path / "missing.csv")
    assert {path.name for path in tmp_path.iterdir()} == {"new"}
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.csv.parts"]
