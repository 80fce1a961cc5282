"""The forecaster of sktime, where sktime is installed: its own checks, and the forecasts of `fc`."""

import warnings

import pytest

import forecaster as fc

pytest.importorskip("sktime", reason="sktime 1.2 needs pandas below 3.1, so it is no dependency of dev")
pytestmark = pytest.mark.filterwarnings("ignore")  # of sktime, about its own next releases

from forecaster.sktime import AttentionForecaster  # noqa: E402


@pytest.mark.slow
def test_the_checks_of_sktime_pass():
    from sktime.utils.estimator_checks import check_estimator

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = check_estimator(AttentionForecaster, verbose=False)
    assert len(found) > 400
    assert {name: answer for name, answer in found.items() if answer != "PASSED"} == {}


def test_forecasts_are_those_without_a_fit():
    from sktime.datasets import load_airline

    y = load_airline()
    forecaster = AttentionForecaster().fit(y, fh=[1, 2, 5])
    table = y.rename("y").rename_axis("time").reset_index()
    expected = fc.predict(table, 5, levels=[90]).frame.iloc[[0, 1, 4]]
    found = forecaster.predict()
    assert found.tolist() == expected["forecast"].tolist()
    assert found.index.astype(str).tolist() == ["1961-01", "1961-02", "1961-05"]
    bands = forecaster.predict_interval(coverage=0.9)
    assert bands.to_numpy().tolist() == expected[["lo-90", "hi-90"]].to_numpy().tolist()
    more = forecaster.update(y[-1:].set_axis(y.index[-1:] + 1), update_params=False)
    assert more.predict().index.astype(str).tolist() == ["1961-02", "1961-03", "1961-06"]


def test_columns_of_x_are_known_in_advance():
    from sktime.datasets import load_longley

    y, X = load_longley()
    forecaster = AttentionForecaster().fit(y[:-3], X=X[:-3], fh=[1, 3])
    found = forecaster.predict(X=X[-3:])
    assert found.index.astype(str).tolist() == ["1960", "1962"]
    assert forecaster.predict(X=X[-3:] * 1.1).tolist() != found.tolist()


def test_days_without_values_are_steps_of_the_horizon():
    import numpy as np
    import pandas as pd

    days = pd.date_range("2024-01-01", periods=63, freq="D")
    y = pd.Series(np.where(days.dayofweek > 4, np.nan, days.dayofweek + 10.0), days)
    found = AttentionForecaster().fit(y, fh=[1, 8]).predict()
    assert found.index.strftime("%a").tolist() == ["Mon", "Mon"]
    assert found.to_numpy() == pytest.approx([10, 10], abs=0.5)


def test_a_fit_is_of_all_series_at_once():
    from sktime.utils._testing.hierarchical import _make_hierarchical

    y = _make_hierarchical(min_timepoints=40, max_timepoints=40, random_state=0)
    options = {"experts": "naive"}
    forecaster = AttentionForecaster(train=True, options=options).fit(y, fh=[1, 2])
    assert repr(forecaster.model_) == "Forecaster(y0: 2 steps of 1d)"
    found = forecaster.predict()
    assert found.index.names == y.index.names and len(found) == 2 * len(y) // 40
