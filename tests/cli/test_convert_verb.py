"""`forecaster convert`, and the verbs that take a store in the place of a table."""

import polars as pl
import pytest
from forecast import tiny
from polars.testing import assert_frame_equal

pytestmark = pytest.mark.usefixtures("undrawn")  # drawing takes most of a small fit

FIT = ("--config", "tiny.yaml", "--horizon", 7)


@pytest.fixture
def store(folder, shell):
    """The shop as a store."""
    answer = shell("convert", "shop.csv", "store", "--known", "price")
    assert answer.code == 0 and not answer.err
    return answer.out


def test_convert_says_what_it_made_and_where(folder, store):
    words = " ".join(store.split())
    assert "price known number declared" in words and "3 series · 1 channel · 300 rows" in words
    assert "wrote store (0.0 MB)" in words
    assert sorted(path.name for path in (folder / "store").iterdir()) == [
        "codes.npy", "indptr.npy", "keys.arrow", "observed_ends.npy", "panel.json", "static.npy",
        "static_codes.npy", "time.npy", "values.npy",
    ]  # fmt: skip


def test_check_says_of_a_store_what_it_says_of_the_table(folder, shell, store):
    assert shell("check", "store").out == shell("check", "shop.csv", "--known", "price").out


@pytest.mark.long
def test_a_model_fitted_to_a_store_is_the_one_fitted_to_the_table(folder, shell, store):
    one = shell("fit", "shop.csv", "--known", "price", *FIT, "--out", "one")
    other = shell("fit", "store", *FIT, "--out", "other")
    assert (one.code, other.code) == (0, 0) and one.out.replace("saved one", "saved other") == other.out
    for name in ("member-00.safetensors", "metrics.json", "plan.json"):
        assert (folder / "one" / name).read_bytes() == (folder / "other" / name).read_bytes()


def test_a_forecast_from_a_store_is_that_from_the_table(folder, shell, store):
    assert shell("convert", "shop.csv", "ahead", "--future", "prices.csv").code == 0
    assert shell("predict", "model", "ahead", "--out", "store.parquet").code == 0
    given = ("shop.csv", "--future", "prices.csv", "--out", "table.parquet")
    assert shell("predict", "model", *given).code == 0
    assert_frame_equal(pl.read_parquet("store.parquet"), pl.read_parquet("table.parquet"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("fit", "store", *FIT, "--out", "m", "--target", "visitors"),
            "--target visitors: the store was",
        ),
        (("fit", "store", *FIT, "--out", "m", "--on-duplicates", "mean"), "--on-duplicates mean"),
        (("predict", "model", "store", "--future", "prices.csv", "--out", "f.csv"), "no further table"),
        (
            ("predict", "plain_model", "store", "--out", "f.csv"),
            "the model has known none: the store was converted with price",
        ),
        (("convert", "store", "again"), "store: is a panel store already"),
        (("convert", "shop.csv", "model"), "model: exists and is not a panel store"),
        (("convert", "none.csv", "again"), "none.csv: no such file"),
        (("convert", "shop.csv", "shop.csv"), "shop.csv: is an input"),
        (("convert", "shop.csv", "again", "--target", "sale"), "did you mean 'sales'?"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_is_written(folder, shell, store, words, said):
    before = tiny.tree(folder)
    answer = shell(*words)
    assert answer.code == 2 and said in answer.err and answer.err.startswith("error: ")
    assert tiny.tree(folder) == before
