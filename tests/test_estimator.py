"""`fc.Estimator`: what scikit-learn expects of an estimator, and the forecasts of `fc.fit`."""

import inspect
import pickle
import subprocess
import sys

import pytest
from forecast import tiny

import forecaster as fc

OPTIONS = {"known": ["price"], "config": tiny.ONE, "quiet": True}


@pytest.fixture(scope="module")
def fitted() -> fc.Estimator:
    return fc.Estimator(7, **OPTIONS).fit(tiny.shop(), tiny.prices())


@pytest.mark.long
def test_forecasts_are_those_of_fit_to_the_last_digit(fitted):
    model = fc.fit(tiny.shop(), 7, future=tiny.prices(), **OPTIONS)
    expected = model.predict(tiny.shop(), tiny.prices(), levels=[80])
    assert isinstance(fitted.model_, fc.Forecaster)
    for tables in ((), (tiny.shop(),)):
        future = {"future": tiny.prices()} if tables else {}
        found = fitted.predict(*tables, levels=[80], **future)
        assert isinstance(found, fc.Forecast) and found.frame.equals(expected.frame)


def test_parameters_are_stored_as_given_and_checked_by_the_fit():
    known = ["price"]
    estimator = fc.Estimator("7", known=known, lower={})
    assert estimator.known is known and estimator.horizon == "7"
    with pytest.raises(fc.ConfigError, match=r"horizon='7': expected a whole number"):
        estimator.fit(tiny.shop())


def test_parameters_are_options_of_fit_with_its_defaults():
    options = inspect.signature(fc.fit).parameters
    for name, part in inspect.signature(fc.Estimator).parameters.items():
        assert (part.default, part.annotation) == (options[name].default, options[name].annotation)
    assert fc.Estimator().get_params() == {
        name: options[name].default for name in inspect.signature(fc.Estimator).parameters
    }
    for name in inspect.signature(fc.Estimator).parameters:
        assert f"\n    {name}: " in fc.Estimator.__init__.__doc__


def test_parameters_are_set_by_their_names_and_others_are_refused(fitted):
    estimator = fc.Estimator(7)
    assert estimator.set_params(horizon=14, freq="1d") is estimator
    assert estimator.get_params(deep=False)["horizon"] == 14 and estimator.freq == "1d"
    with pytest.raises(fc.ConfigError, match="no parameter 'horizn'; did you mean 'horizon'"):
        estimator.set_params(horizn=3)
    with pytest.raises(fc.ConfigError, match="no parameter 'knwon'; did you mean 'known'"):
        fc.Estimator(7, knwon="price")


def test_clone_of_scikit_learn_has_the_parameters_and_no_model(fitted):
    base = pytest.importorskip("sklearn.base", reason="scikit-learn is no dependency")
    made = base.clone(fitted)
    assert made.get_params() == fitted.get_params() and not hasattr(made, "model_")
    assert repr(made) == repr(fitted)


def test_repr_names_what_differs_from_the_defaults():
    assert repr(fc.Estimator(7, known="price", integer=True)) == (
        "Estimator(horizon=7, integer=True, known='price')"
    )


def test_a_pickle_keeps_parameters_and_model(fitted):
    bare = pickle.loads(pickle.dumps(fc.Estimator(7, known=["price"])))
    assert repr(bare) == "Estimator(horizon=7, known=['price'])"
    again = pickle.loads(pickle.dumps(fitted))
    assert again.predict().frame.equals(fitted.predict().frame)


def test_a_forecast_before_the_fit_is_refused():
    with pytest.raises(fc.ConfigError, match=r"expected a fitted one; call fit\(table\) first"):
        fc.Estimator(7).predict(tiny.shop())
    with pytest.raises(fc.ConfigError, match="`label`: an Estimator has no such option"):
        fc.Estimator(label="kind").fit(tiny.shop())


def test_predict_shows_the_options_of_a_forecaster():
    shown = inspect.signature(fc.Estimator.predict).parameters
    assert [*shown] == [*inspect.signature(fc.Forecaster.predict).parameters]
    assert shown["data"].default is None


def test_scikit_learn_is_not_imported():
    program = (
        "import sys, forecaster as fc; fc.Estimator(7).get_params(); print('sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
