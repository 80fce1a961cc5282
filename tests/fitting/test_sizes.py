"""A width and a number of steps that were left to the data."""

import pytest

from forecaster.config import Plan
from forecaster.fitting import fit as runs_fit
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.model.size import Size

OPEN = {"steps": None, "batch_size": None}


@pytest.mark.parametrize(("rows", "sizes"), [(20, (8, 3, 4)), (60, (16, 5, 6))])
def test_more_windows_allow_a_larger_network_and_more_steps(
    make_panel, make_config, monkeypatch, rows, sizes
):
    monkeypatch.setattr(runs_fit, "SIZES", (Size(20, 8, 3, 4), Size(None, 16, 5, 6)))
    plan, _ = resolve(make_panel(1, rows), make_config(4, fit=OPEN, model={"width": None}))
    assert (plan.model.width, plan.fit.steps, plan.fit.batch_size) == sizes


def test_a_chosen_width_is_one_that_heads_divide(make_panel, make_config):
    for heads in range(1, 12):
        model = {"width": None, "heads": heads}
        width = resolve(make_panel(1, 40), make_config(4, model=model))[0].model.width
        assert width % (2 * heads) == 0 and 64 <= width < 64 + 2 * heads


def test_a_fit_with_nulls_is_the_fit_of_the_numbers_in_its_artifact(make_panel, make_config):
    panel = make_panel(2, 60, targets=2)
    plan, split = resolve(panel, make_config(4, fit=OPEN, model={"width": None}))
    assert (plan.model.width, plan.fit.steps, plan.fit.batch_size) == (64, 200, 64)
    assert Plan.model_validate(plan.model_dump(mode="json")) == plan
    few = plan.with_fit(steps=2)
    assert fit_panel(panel, few, split).plan == few
