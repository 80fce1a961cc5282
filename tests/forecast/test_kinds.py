"""Kind in, kind out: results have the names, ids, times and dtypes of the caller's pandas frame."""

import numpy as np
import pandas as pd
import pytest
from forecast.tiny import HORIZON, plain, plain_model

import forecaster as fc

STEP = pd.Timedelta(days=1)


def _numbered(frame, dtype):
    return frame.assign(store=frame["store"].map(ord).astype(dtype))


KINDS = {
    "plain": lambda frame: frame,
    "ids Int64": lambda frame: _numbered(frame, "Int64"),
    "ids int16": lambda frame: _numbered(frame, "int16"),
    "ids float": lambda frame: _numbered(frame, "float64"),
    "ids string": lambda frame: frame.astype({"store": "string"}),
    "ids object": lambda frame: frame.astype({"store": object}),
    "ids category": lambda frame: frame.astype({"store": "category"}),
    "date objects": lambda frame: frame.assign(date=frame["date"].dt.date.astype(object)),
    "datetime64[s]": lambda frame: frame.astype({"date": "datetime64[s]"}),
    "datetime64[ns]": lambda frame: frame.astype({"date": "datetime64[ns]"}),
    "period": lambda frame: frame.assign(date=frame["date"].dt.to_period("D")),
    "nullable": lambda frame: frame.convert_dtypes(),
    "pyarrow": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "index": lambda frame: frame.astype({"date": "datetime64[s]"}).set_index(["store", "date"]),
    "integer names": lambda frame: frame.set_axis([0, 1, 2], axis=1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_results_have_the_names_and_dtypes_of_the_callers_frame(kind):
    frame = KINDS[kind](plain().to_pandas())
    flat = frame.reset_index() if kind == "index" else frame
    store, day, sales = flat.columns
    roles = {} if isinstance(store, str) else {"series": "0", "time": "1", "target": "2"}
    forecast = plain_model().predict(frame, **roles)
    rows = forecast.frame
    assert {store, day, "cutoff"} <= {*rows.columns}
    assert rows[store].dtype == flat[store].dtype and rows[day].dtype == flat[day].dtype
    assert rows["cutoff"].dtype == flat[day].dtype
    assert {*rows[store]} == {*flat[store]} and type(rows[day][0]) is type(flat[day][0])
    expected = plain_model().predict(plain())
    assert np.array_equal(rows["forecast"].to_numpy(float), expected.median.ravel()) or kind.startswith(
        "ids"
    )
    backed = (
        type(flat[sales].array) if kind in ("nullable", "pyarrow") else type(rows["forecast"].array)
    )
    assert type(rows["forecast"].array) is backed and len(rows) == 3 * HORIZON
    assert forecast.wide()[day].dtype == flat[day].dtype


def test_channels_with_integer_names_come_back_as_integers():
    days = pd.date_range("2024-01-01", periods=60)
    wide = pd.DataFrame(np.arange(120.0).reshape(60, 2) % 7, index=days)
    model = fc.fit(wide, horizon=3, experts="naive", tracking=False, quiet=True)
    forecast = model.predict(wide)
    assert [*dict.fromkeys(forecast.frame["channel"])] == [0, 1]
    assert [*forecast.wide().columns] == ["time", 0, 1]


def test_several_levels_of_column_names_are_refused_with_the_line_that_joins_them():
    frame = plain().to_pandas()
    frame.columns = pd.MultiIndex.from_tuples([("a", name) for name in frame.columns])
    with pytest.raises(
        fc.DataError, match=r"expected one level of column names, found 2; .*frame\.columns = "
    ):
        fc.check(frame)


def test_ids_that_are_lists_or_tuples_are_refused():
    frame = plain().to_pandas()
    frame["store"] = [("shop", name) for name in frame["store"]]
    with pytest.raises(
        fc.DataError, match="column 'store': expected text or numbers as ids, found List"
    ):
        plain_model().predict(frame)
    with pytest.raises(
        fc.DataError, match="column 'store': expected text or numbers as ids, found List"
    ):
        fc.check(frame, series="store")


CLASSES = {"model": {"width": 8, "heads": 2, "encoder_layers": 1}, "fit": {"steps": 2}}


def test_classes_that_are_floats_come_back_as_floats():
    table = pd.DataFrame({"id": np.repeat(np.arange(12), 8), "t": np.tile(np.arange(8), 12)})
    table["x"] = np.where(table["id"] % 2, np.sin(table["t"]), table["t"] / 4)
    labelled = table.assign(kind=np.where(table["id"] % 2, 1.0, 2.5))
    roles = {"label": "kind", "series": "id", "time": "t"}
    model = fc.fit(labelled, config=CLASSES, tracking=False, quiet=True, **roles)
    found = model.predict(table).frame["label"]
    assert found.dtype == np.float64 and {*found} == {1.0, 2.5}


def _fitted(frame, **options):
    return fc.fit(frame, horizon=4, experts="naive", tracking=False, quiet=True, **options)


def test_times_that_the_callers_dtype_cannot_hold_are_wider_and_right():
    frame = pd.DataFrame({"t": np.arange(65, 125, dtype="int8"), "y": np.arange(60.0) % 7})
    rows = _fitted(frame, time="t").predict(frame).frame
    assert rows["t"].tolist() == [125, 126, 127, 128] and rows["cutoff"].dtype == np.int8


def test_whole_numbers_of_the_table_do_not_cut_forecasts():
    days = pd.date_range("2024-01-01", periods=60)
    whole = pd.DataFrame({"day": days, "a": np.arange(60) % 7, "b": np.arange(60) % 5})
    forecast = _fitted(whole, target=["a", "b"], layout="wide").predict(whole)
    assert forecast.wide()["a"].dtype == np.float64
    table = whole.assign(forecast=np.arange(60) % 2)
    rows = _fitted(table, target="a").predict(table).frame
    assert rows["forecast"].dtype == np.float64


def test_a_new_series_is_named_though_the_category_of_ids_lacks_it():
    days = pd.date_range("2024-01-01", periods=60)
    parts = [pd.DataFrame({"id": name, "day": days, "y": np.arange(60.0) % 7}) for name in "abcdef"]
    table = pd.concat(parts).assign(price=1.0).astype({"id": "category"})
    ahead = pd.date_range(days[-1] + STEP, periods=4)
    future = pd.concat([pd.DataFrame({"id": name, "day": ahead, "price": 1.0}) for name in "abcdefz"])
    model = _fitted(table, target="y", series="id", known="price")
    assert [*dict.fromkeys(model.predict(table, future).frame["id"])] == [*"abcdefz"]


def test_a_series_called_like_the_column_of_ids_has_numbers_in_the_wide_form():
    frame = plain().to_pandas()
    frame["store"] = frame["store"].replace(frame["store"].iloc[0], "store")
    assert plain_model().predict(frame).wide()["store"].dtype == np.float64
