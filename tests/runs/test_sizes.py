"""A width and a number of steps that were left to the data."""

import pytest

from forecaster.config import Plan
from forecaster.runs.fit import SIZES, _size, fit_panel, resolve


@pytest.mark.parametrize(
    ("windows", "width", "steps"),
    [(1, 64, 400), (1_999, 64, 400), (2_000, 64, 800), (200_000, 128, 1600)],
)
def test_more_windows_allow_a_larger_network_and_more_steps(windows, width, steps):
    assert _size(windows, heads=4) == (width, steps)


def test_a_chosen_width_is_one_that_heads_divide():
    for heads in range(1, 12):
        for below, width, _ in SIZES:
            found, _ = _size((below or 10**9) - 1, heads)
            assert found % (2 * heads) == 0 and width <= found < width + 2 * heads


def test_a_fit_with_nulls_is_the_fit_of_the_numbers_in_its_artifact(make_panel, make_config):
    panel = make_panel(2, 60, targets=2)
    fit = {"steps": None, "ensemble_size": 1}
    plan, split = resolve(panel, make_config(4, fit=fit, model={"width": None}))
    assert (plan.model.width, plan.fit.steps) == (64, 400)
    assert Plan.model_validate(plan.model_dump(mode="json")) == plan
    few = plan.with_fit(steps=2)
    assert fit_panel(panel, few, split).plan == few
