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


@pytest.mark.slow
def test_tune_says_what_it_does_and_leaves_settings_that_fit_takes_and_a_model(folder, shell, search):
    answer = shell(*search, "--trials", 3, "--study", "shop", "--out", "tuned")
    assert answer.code == 0, answer.err
    said = " ".join(answer.out.split())
    assert said.count("store series String with date it names every row") == 1  # said once
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
    assert "saved tuned" in said and fc.load("tuned").artifact.data == "plain.csv"
