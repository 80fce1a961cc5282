"""A saved model of this format loads and forecasts the same; older ones are refused with advice."""

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


@pytest.mark.parametrize(
    ("older", "commit"),
    [
        (1, "e917b4f"),
        (2, "1e68356"),
        (3, "e815cb9"),
        (4, "4feacf0"),
        (5, "78539bd"),
        (6, "bd4a81e"),
        (8, "0a4f5aa"),
    ],
)
def test_an_older_format_is_refused_with_the_last_commit_that_reads_it(
    tmp_path: Path, older: int, commit: str
) -> None:
    # Its other files and keys are not reached.
    (tmp_path / "contract.json").write_text(json.dumps({"format": older, "shape": {"horizon": 28}}))
    with pytest.raises(fc.ArtifactError) as refused:
        fc.load(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}: artifact format {older}, expected format 9: the last commit that reads it is "
        f"{commit}; fit the model again: forecaster fit TABLE --out {tmp_path}"
    )
