"""What travels with a model: an example that it answers, whatever its table looks like."""

from datetime import datetime, timedelta
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from forecast import tiny
from pandas.testing import assert_frame_equal

from forecaster.config import DataConfig
from forecaster.forecast.artifact import Artifact, shape_of
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.saved_model import save_artifact
from forecaster.forecast.window import resolve_window
from forecaster.model.ensemble import Ensemble
from forecaster.model.network import Network
from forecaster.panel.build import open_panel
from forecaster.runs.registry import example_of, signature_of

ROWS = 60
DAYS = [datetime(2024, 1, 1) + timedelta(days=n) for n in range(ROWS)]
VALUE = np.sin(np.arange(ROWS)).tolist()
MONTHS = [datetime(2019 + n // 12, n % 12 + 1, 1) for n in range(ROWS)]
WEEKDAYS = [day for n in range(ROWS * 2) if (day := DAYS[0] + timedelta(days=n)).weekday() < 5][:ROWS]
OPEN_DAYS = [
    day for n in range(ROWS * 3) if (day := DAYS[0] + timedelta(days=n)).weekday() in (1, 3, 5)
][:ROWS]

TABLES = {
    "one series": ({"day": DAYS, "y": VALUE}, {}),
    "channels": ({"day": DAYS, "y": VALUE, "z": VALUE}, {"target": ("y", "z"), "layout": "wide"}),
    "channels as series": ({"day": DAYS, "y": VALUE, "z": VALUE}, {"layout": "long"}),
    "series as channels": (
        {"shop": [1] * ROWS + [2] * ROWS, "day": DAYS * 2, "y": VALUE * 2},
        {"series": ("shop",), "layout": "wide"},
    ),
    "groups of series": (
        {"town": ["a"] * 2 * ROWS, "shop": [1] * ROWS + [2] * ROWS, "day": DAYS * 2, "y": VALUE * 2},
        {"series": ("shop", "town"), "relate": ("town",)},
    ),
    "numbered series": ({"shop": [7] * ROWS, "day": DAYS, "y": VALUE}, {"series": ("shop",)}),
    "whole numbers": ({"step": list(range(ROWS)), "y": VALUE}, {"time": "step", "freq": "1i"}),
    "no time": ({"y": VALUE}, {"time": "row"}),
    "text": ({"day": [day.strftime("%d.%m.%Y") for day in DAYS], "y": VALUE}, {}),
    "digits": ({"date": [int(day.strftime("%Y%m%d")) for day in DAYS], "y": VALUE}, {}),
    "offset": ({"day": [f"{day:%Y-%m-%dT%H:%M}:00+01:00" for day in DAYS], "y": VALUE}, {}),
    "months": ({"month": MONTHS, "y": VALUE}, {}),
    "business days": ({"day": WEEKDAYS, "y": VALUE}, {"freq": "1b"}),
    "open days": ({"day": OPEN_DAYS, "y": VALUE}, {"freq": "1b-tue-thu-sat"}),
    "known words": (
        {"day": DAYS, "y": VALUE, "kind": ["a", "b"] * (ROWS // 2), "price": VALUE},
        {"target": ("y",), "known": ("kind", "price")},
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_a_model_answers_its_own_example_and_is_described_in_the_tables_own_names(kind, make_plan):
    columns, roles = TABLES[kind]
    panel = open_panel(pl.DataFrame(columns), DataConfig(**roles))
    plan = make_plan(4)
    network = Network(plan.model, shape_of(panel, 4))
    artifact = Artifact(
        panel.schema, plan, network.shape, Ensemble([network], [1.0]).eval(), 0, "table", "print"
    )
    example = example_of(artifact)
    assert len(example) == (8 + 4) * (2 if kind in ("series as channels", "groups of series") else 1)
    again = open_panel(example, plan.data, schema=panel.schema)
    forecast = Predictor(artifact).predict(again, resolve_window(artifact, again))
    assert set(forecast.status) == {"ok"}
    signature = signature_of(artifact)
    assert signature.inputs.input_names() == list(example.columns)
    assert set(example.columns) <= set(columns)
    assert signature.outputs.input_names() == forecast.rows.columns


@pytest.mark.filterwarnings("ignore:.*AnyType")
def test_a_parameter_of_a_request_that_is_null_is_left_at_its_default(tmp_path, poor):
    from forecaster.runs.served import ServedForecaster

    save_artifact(poor, tmp_path / "model")
    served, table = ServedForecaster(), tiny.plain(40).to_pandas()
    served.load_context(SimpleNamespace(artifacts={"model": str(tmp_path / "model")}))
    null = dict.fromkeys(("horizon", "cutoff", "seed"))
    assert_frame_equal(served.predict(None, table, null), served.predict(None, table))
