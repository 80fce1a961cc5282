"""`forecaster tune`: what it says, what it leaves, what it refuses."""

import pytest
import yaml

import forecaster as fc

pytestmark = pytest.mark.usefixtures("undrawn")  # drawing takes most of a small fit

SPACE = {"model.width": {"choice": [16, 24]}}


@pytest.fixture
def search(folder):
    """The words of a small search in the shop's folder."""
    (folder / "space.yaml").write_text(yaml.safe_dump(SPACE))
    return ("tune", "plain.csv", "--horizon", 7, "--config", "tiny.yaml", "--space", "space.yaml")


def test_tune_says_what_it_does_and_leaves_settings_that_fit_takes(folder, shell, search):
    answer = shell(*search, "--trials", 3, "--study", "shop")
    assert answer.code == 0, answer.err
    said = " ".join(answer.out.split())
    assert "store series String with date it names every row" in said
    assert "3 trials in all · sampler tpe · pruner asha · 1 worker" in said
    assert "searches model.width" in said
    assert "each trial is fitted to the rows until 2024-03-25 and scored by WQL at 2 cutoffs" in said
    assert " the preset" in said
    assert "3 trials: " in said and " · WQL " in said
    best = folder / "studies" / "shop.best.yaml"
    assert f"wrote {best}" in said
    assert best.read_text().startswith("# Found by: forecaster tune plain.csv --horizon 7 ")
    fitted = shell("fit", "plain.csv", "--config", best, "--out", "best_model")
    assert fitted.code == 0, fitted.err
    assert fc.load("best_model").config.model.width == fc.load_config(best).model.width


def test_tune_fits_a_model_where_a_folder_is_given(folder, shell, search):
    answer = shell(*search, "--trials", 1, "--out", "tuned")
    assert answer.code == 0, answer.err
    assert answer.out.count("names every row") == 1  # roles are said once
    assert "saved tuned" in answer.out
    assert fc.load("tuned").artifact.data == "plain.csv"


def test_another_search_under_the_same_name_is_refused_and_goes_on_unchanged(folder, shell, search):
    assert shell(*search, "--trials", 1, "--study", "shop").code == 0
    best = (folder / "studies" / "shop.best.yaml").read_bytes()
    answer = shell(*search, "--trials", 1, "--study", "shop", "--metric", "MAE")
    assert answer.code == 2
    assert "another metric (WQL, now MAE)" in answer.err and "--study shop-2" in answer.err
    assert shell(*search, "--trials", 1, "--study", "shop").code == 0
    assert (folder / "studies" / "shop.best.yaml").read_bytes() == best


def test_a_space_that_contradicts_the_schema_is_refused_with_all_its_faults(folder, shell, search):
    (folder / "space.yaml").write_text("model.widht: {int: [4, 8]}\nfit.steps: {int: [0, 5]}\n")
    answer = shell(*search, "--trials", 1)
    assert answer.code == 2
    assert answer.err.splitlines() == [
        "error: space space.yaml: model.widht: unknown setting, did you mean 'model.width'?",
        "error: space space.yaml: fit.steps: Input should be greater than or equal to 1 (got 0)",
    ]
    assert not (folder / "studies").exists()


def test_a_model_folder_that_is_something_else_is_refused_before_the_search(folder, shell, search):
    answer = shell(*search, "--trials", 1, "--out", "plain.csv")
    assert answer.code == 2 and "plain.csv" in answer.err
    assert not (folder / "studies").exists()
