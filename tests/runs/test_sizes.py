"""A width and a number of steps that were left to the data."""

import pytest

from forecaster.config import Config
from forecaster.runs.fit import SIZES, fit_panel, prepare, sized

NULL = Config().replaced(horizon=4, model={"width": None}, fit={"steps": None})


@pytest.mark.parametrize(
    ("windows", "width", "steps"),
    [(1, 64, 400), (1_999, 64, 400), (2_000, 64, 800), (200_000, 128, 1600)],
)
def test_more_windows_allow_a_larger_network_and_more_steps(windows, width, steps):
    found = sized(NULL, windows)
    assert (found.model.width, found.fit.steps) == (width, steps)
    told = sized(NULL.replaced(model={"width": 12}), windows)
    assert (told.model.width, told.fit.steps) == (12, steps)
    assert sized(Config(), windows) == Config()


def test_a_chosen_width_is_one_that_heads_divide():
    for heads in range(1, 12):
        config = NULL.replaced(model={"heads": heads})
        for below, width, _ in SIZES:
            found = sized(config, (below or 10**9) - 1).model.width
            assert found % (2 * heads) == 0 and width <= found < width + 2 * heads


def test_a_fit_with_nulls_is_the_fit_of_the_numbers_in_its_artifact(make_panel, make_config):
    panel = make_panel(2, 60, targets=2)
    fit = {"steps": None, "members": 1}
    config, split = prepare(panel, make_config(4, fit=fit, model={"width": None}))
    assert (config.model.width, config.fit.steps) == (64, 400)
    assert Config.model_validate(config.model_dump(mode="json")) == config
    few = config.replaced(fit={"steps": 2})
    assert fit_panel(panel, few, split).config == few
