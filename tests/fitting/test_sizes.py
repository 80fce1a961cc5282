"""A width and a number of steps that were left to the data."""

import pytest

from forecaster.config import Plan
from forecaster.fitting import fit as runs_fit
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.model.size import Size

OPEN = {"steps": None, "batch_size": None}


@pytest.mark.parametrize(("rows", "sizes"), [(20, (8, 4)), (60, (16, 6))])
def test_more_windows_allow_a_larger_network(make_panel, make_config, monkeypatch, rows, sizes):
    monkeypatch.setattr(runs_fit, "SIZES", (Size(20, 8, 4), Size(None, 16, 6)))
    plan, _ = resolve(make_panel(1, rows), make_config(4, fit=OPEN, model={"width": None}))
    assert (plan.model.width, plan.fit.batch_size) == sizes and plan.fit.by_evidence


def test_a_chosen_width_is_one_that_heads_divide(make_panel, make_config):
    for heads in range(1, 12):
        model = {"width": None, "heads": heads}
        width = resolve(make_panel(1, 40), make_config(4, model=model))[0].model.width
        assert width % (2 * heads) == 0 and 64 <= width < 64 + 2 * heads


def test_a_fit_with_nulls_is_the_fit_of_the_numbers_in_its_artifact(make_panel, make_config):
    panel = make_panel(2, 60, targets=2)
    plan, split = resolve(panel, make_config(4, fit=OPEN, model={"width": None}))
    assert (plan.model.width, plan.fit.batch_size) == (64, 64)
    # 120 s / (64 windows · (1.4e-7 s · 64 · (6 + 2) tokens + 6e-7 s · (12 + 4) steps of time))
    assert plan.fit.steps == int(120 / (64 * (1.4e-7 * 64 * (6 + 2) + 6e-7 * 16)))
    assert Plan.model_validate(plan.model_dump(mode="json")) == plan
    few = plan.with_fit(steps=2, by_evidence=False)
    assert fit_panel(panel, few, split).plan == few
