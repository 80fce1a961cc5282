"""A saved model of this format loads and forecasts the same; any other is refused with advice."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import forecaster as fc

FORMATS = sorted(Path(__file__).parent.glob("format-*"))


@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: folder.name)
def test_a_golden_artifact_loads_and_forecasts_as_on_its_first_day(folder: Path) -> None:
    model = fc.load(folder / "model")
    forecast = model.predict(folder / "table.csv", future=folder / "future.csv")
    expected = pl.read_csv(folder / "forecasts.csv", try_parse_dates=True)
    found = forecast.rows.cast({name: pl.Float64 for name in expected.columns if name[0] in "qfm"})
    # Kernels of other machines round otherwise; a changed model would be off by far more.
    assert_frame_equal(found, expected, check_dtypes=False, rel_tol=1e-4, abs_tol=1e-3)


def test_every_format_that_is_read_has_its_golden_artifact() -> None:
    from forecaster.forecast.saved_model import FORMAT

    assert [folder.name for folder in FORMATS] == [f"format-{FORMAT}"]


def test_another_format_is_refused_with_what_was_expected_and_what_to_do(tmp_path: Path) -> None:
    # Its other files and keys are not reached.
    (tmp_path / "contract.json").write_text(json.dumps({"format": 2, "shape": {"horizon": 28}}))
    with pytest.raises(fc.ArtifactError) as refused:
        fc.load(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}: artifact format 2, expected format 1: upgrade attention-forecaster, or fit the model "
        f"again: forecaster fit TABLE --out {tmp_path}"
    )
