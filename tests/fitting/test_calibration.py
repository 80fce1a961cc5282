"""What calibration does to a fit: widths and nothing else, from rows that nothing else has used."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from forecast import tiny

import forecaster as fc
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.saved_model import load_artifact, save_artifact
from forecaster.windows.split import split_panel

FIT = {"validation": 0.5, "steps": 20}


@pytest.fixture(scope="module")
def fitted(make_panel, make_config):
    panel = make_panel(2, 240, targets=2)
    # After the training rows noise grows, so that bands are too narrow.
    growth = np.exp(np.maximum(0, np.tile(np.arange(240), 2) - 120) / 30)[:, None]
    noise = np.random.default_rng(0).normal(size=panel.values.shape)
    panel = replace(panel, values=growth * noise)
    config, split = resolve(panel, make_config(5, fit=FIT))
    return panel, split, fit_panel(panel, config, split)


def _weights(artifact):
    return [tiny.bits(w.numpy()) for w in artifact.ensemble.members.state_dict().values()]


def _with_noise(panel, rows):
    values = panel.values.copy()
    values[rows, : panel.n_channels] += 100 * np.random.default_rng(1).normal(size=(rows.sum(), 1))
    return replace(panel, values=values)


@pytest.mark.long
def test_a_fit_has_conformal_factors_and_their_effect_among_its_metrics(fitted, tmp_path):
    _, split, artifact = fitted
    assert len(split.calibration_windows) and artifact.ensemble.conformal_factors.shape == (9,)
    told = artifact.metrics["calibration"]
    assert told["applied"] is True and told["after"]["pinball"] <= told["before"]["pinball"]
    save_artifact(artifact, tmp_path / "model")
    loaded = load_artifact(tmp_path / "model").ensemble.conformal_factors
    assert torch.equal(loaded, artifact.ensemble.conformal_factors)
    card = (tmp_path / "model" / "card.md").read_text()
    assert f"the 80 % band covered {100 * told['before']['coverage']:.1f} % of the truth" in card
    assert json.loads((tmp_path / "model" / "metrics.json").read_text())["calibration"] == told


@pytest.mark.long
def test_rows_of_the_calibration_replaced_by_noise_change_conformal_factors_only(fitted):
    panel, split, artifact = fitted
    _, _, held = split.validation.locate(split.validation_windows)
    _, _, cutoff = split.validation.locate(split.calibration_windows)
    seen = panel.time[held].max() + 5 * panel.calendar.step
    assert seen <= panel.time[cutoff].min()  # no target is in both
    noisy = _with_noise(panel, panel.time > panel.time[cutoff].min())
    again = fit_panel(noisy, artifact.plan, split_panel(noisy, artifact.plan))
    assert _weights(again) == _weights(artifact)
    assert not torch.equal(again.ensemble.conformal_factors, artifact.ensemble.conformal_factors)
    assert again.metrics["validation"]["cells"] == artifact.metrics["validation"]["cells"]


@pytest.mark.long
def test_rows_after_the_last_that_was_trained_on_change_nothing(fitted):
    panel, _, artifact = fitted
    begun = panel.reaching(np.full(2, panel.time.max()), 40)
    values = begun.values.copy()
    values[begun.time > artifact.trained_until, :2] = 1e3
    cut = replace(begun, values=values).until(artifact.trained_until)
    again = fit_panel(cut, artifact.plan, split_panel(cut, artifact.plan))
    assert torch.equal(again.ensemble.conformal_factors, artifact.ensemble.conformal_factors)
    assert _weights(again) == _weights(artifact)


def test_a_forecast_moves_with_its_scale_and_place_calibration_included(fitted):
    panel, _, artifact = fitted
    moved = panel.values.copy()
    moved[:, :2] = 37.5 * moved[:, :2] + 1e4
    series, cutoff = np.array([0, 1]), panel.indptr[1:] - 20
    own = Predictor(artifact).quantiles(panel, series, cutoff)
    theirs = Predictor(artifact).quantiles(replace(panel, values=moved), series, cutoff)
    assert np.abs(theirs - (37.5 * own + 1e4)).max() < 1e-4 * 37.5 * own.std() + 0.01
    assert (np.diff(own, axis=-1) >= 0).all()


@pytest.mark.long
def test_calibration_can_be_switched_off_and_all_windows_are_watched_then(make_panel, make_config):
    panel = make_panel(2, 240)
    config, split = resolve(panel, make_config(5, fit={**FIT, "calibration": None}))
    artifact = fit_panel(panel, config, split)
    assert artifact.ensemble.conformal_factors is None and "calibration" not in artifact.metrics


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (tiny.shop(60, ("a",)), "quantiles are not calibrated: too few cutoffs after 2024-02-"),
        (tiny.plain(), "calibrates on 18 later ones until"),
    ],
)
def test_what_calibrates_or_why_nothing_does_is_said_once(table, said, capsys):
    fc.fit(table, horizon=3, config=tiny.ONE)
    spoken = " ".join(capsys.readouterr().out.split())
    assert spoken.count(said) == 1
    assert ("cross-fitted" in spoken) == ("calibrates on" in said)
