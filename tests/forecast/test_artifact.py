"""Promise 8: an artifact is data; what is saved is what is loaded, and loading runs no code."""

import hashlib
import json
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from forecast import tiny
from safetensors.numpy import load_file
from safetensors.torch import save

import forecaster as fc
from forecaster.config import Config
from forecaster.forecast.card import model_card
from forecaster.forecast.saved_model import FORMAT, load_artifact


class Bomb:
    """A pickle that fails the test when it is opened."""

    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


@pytest.fixture
def saved(tmp_path):
    """The folder of the shop's model."""
    tiny.model().save(tmp_path / "model")
    return tmp_path / "model"


def _contract(saved):
    return json.loads((saved / "contract.json").read_text())


def _write(saved, contract):
    (saved / "contract.json").write_text(json.dumps(contract))


def test_a_saved_model_holds_contract_plan_weights_metrics_and_card(saved):
    names = {"contract.json", "plan.json", "member-00.safetensors", "metrics.json", "card.md"}
    names |= {"errors.safetensors", "effects.safetensors"}
    assert set(tiny.tree(saved)) == names
    contract = _contract(saved)
    assert contract["format"] == FORMAT == 9
    assert contract["columns"]["known"] == ["price"]
    assert contract["columns"]["categories"] == {"city": ["north", "south"]}
    assert contract["columns"]["freq"] == "1d"
    assert contract["trained_until"] == int(np.datetime64(tiny.day(99), "us").astype(int))
    assert set(contract["request"]) == set(Config.model_fields) - {"tracking"}
    assert contract["request"]["model"]["context_length"] is None  # as requested
    assert contract["calibration"] is None and contract["weights"] == [1.0]  # few windows
    assert {"torch", "attention-forecaster"} <= set(contract["versions"])
    plan = json.loads((saved / "plan.json").read_text())
    assert set(plan) == {"horizon", "data", "target", "model", "fit"}, "nothing of tracking or paths"
    assert plan["horizon"] == 7 and plan["model"]["attention_length"] == 28
    assert plan["data"]["target"] == ["sales"] and plan["data"]["freq"] == "1d"
    weights = load_file(saved / "member-00.safetensors")
    assert all(np.isfinite(weight).all() for weight in weights.values())


def test_a_loaded_model_is_the_saved_one_bit_for_bit(saved):
    loaded, own = load_artifact(saved), tiny.model().artifact
    assert (loaded.schema, loaded.plan, loaded.shape) == (own.schema, own.plan, own.shape)
    assert loaded.request == own.request
    assert (loaded.trained_until, loaded.fingerprint) == (own.trained_until, own.fingerprint)
    assert loaded.versions == own.versions and loaded.metrics == own.metrics
    weights = own.ensemble.state_dict()
    for name, weight in loaded.ensemble.state_dict().items():
        assert torch.equal(weight, weights[name]), name
    forecast = fc.Forecaster(loaded).predict(tiny.shop(), future=tiny.prices())
    assert tiny.bits(forecast.quantiles) == tiny.bits(tiny.ahead().quantiles)


def test_saving_what_was_loaded_gives_the_same_files(saved, tmp_path):
    fc.load(saved).save(tmp_path / "again")
    assert tiny.tree(tmp_path / "again") == tiny.tree(saved)


def test_the_card_names_columns_settings_and_scores(saved):
    card = (saved / "card.md").read_text()
    for line in (
        "Forecasts sales for 7 steps of 1d from the last 128 steps at most.",
        "- series: store · layout long",
        "- known covariates: price",
        "- past covariates: visitors",
        "- static covariates: city",
        "- decoder: direct, mask causal\n",
        "| | forecaster | seasonal naive |",
    ):
        assert line in card
    scores = tiny.model().metrics["validation"]["scores"]
    wql = [f"{scores[name]['WQL']:.4g}" for name in ("forecaster", "seasonal naive")]
    assert f"| WQL | {wql[0]} | {wql[1]} |" in card


def test_the_card_says_what_is_unusual(tmp_path):
    config = tiny.config_with(decoder_mask="full") | {"fit": tiny.TINY["fit"] | {"validation": None}}
    fc.fit(tiny.plain(), horizon=3, config=config, quiet=True).save(tmp_path / "model")
    card = (tmp_path / "model" / "card.md").read_text()
    assert "mask full (a forecast sees the covariates of later leads)" in card
    assert "No rows were set aside for validation" in card


def test_names_of_columns_and_files_are_text_in_the_card(tmp_path):
    """A viewer of Markdown renders HTML, links, cells and code; MLflow shows the card as a description."""
    names = {
        "sales": "<img src=x onerror=alert(1)>",
        "price": "a|b & `c`\n# d",
        "city": "[x](javascript:y)",
    }
    model = fc.fit(
        tiny.shop().rename(names),
        horizon=7,
        target=names["sales"],
        known=[names["price"]],
        experts="naive",
        tracking=False,
        quiet=True,
    )
    card = model_card(replace(model.artifact, data="<b>shop</b>.csv"))
    assert "Forecasts &lt;img src=x onerror=alert(1)&gt; for 7 steps" in card
    assert "\n- known covariates: a\\|b &amp; \\`c\\` # d\n" in card
    assert "- static covariates: \\[x\\](javascript:y)\n" in card
    assert "- data: &lt;b&gt;shop&lt;/b&gt;.csv, fingerprint" in card
    assert "<" not in card


def test_unknown_keys_of_the_contract_are_passed_over(saved):
    contract = _contract(saved)
    contract |= {"hindsight": {"on": True}}
    contract["columns"]["emotion"] = ["price"]
    contract["shape"]["moons"] = 3
    contract["members"][0]["author"] = "someone"
    _write(saved, contract)
    assert load_artifact(saved).schema == tiny.model().artifact.schema


def test_keys_that_may_be_absent_have_defaults(saved):
    contract = _contract(saved)
    for key in ("calibration", "versions", "weights", "data", "fingerprint"):
        del contract[key]
    for key in ("reasons", "melted", "regular", "static", "layout", "time_unit", "dtypes"):
        contract["columns"].pop(key)
    _write(saved, contract | {"columns": contract["columns"] | {"static": ["city"], "layout": "long"}})
    plan = json.loads((saved / "plan.json").read_text())
    del plan["fit"]["ensemble_size"], plan["model"]["decoder_mask"]
    (saved / "plan.json").write_text(json.dumps(plan))
    forecast = fc.load(saved).predict(tiny.shop(), future=tiny.prices())
    assert tiny.bits(forecast.quantiles) == tiny.bits(tiny.ahead().quantiles)


@pytest.mark.parametrize("found", [10, "4", None, True])
def test_a_format_this_version_cannot_read_is_refused(saved, found):
    _write(saved, _contract(saved) | {"format": found})
    expected = f"artifact format {found!r}, expected format 9: upgrade attention-forecaster, or fit"
    with pytest.raises(fc.ArtifactError, match=re.escape(expected)):
        load_artifact(saved)


def test_loading_runs_no_code(saved, monkeypatch):
    for name in ("model.pkl", "member-00.pt", "data.pkl", "python_model.pkl"):
        (saved / name).write_bytes(pickle.dumps(Bomb()))
    (saved / "forecaster.py").write_text("raise SystemExit('code was run')")

    def refuse(*args, **kwargs):
        pytest.fail("a pickle was opened")

    for module, name in ((pickle, "load"), (pickle, "loads"), (pickle, "Unpickler"), (torch, "load")):
        monkeypatch.setattr(module, name, refuse)
    forecast = fc.load(saved).predict(tiny.shop(), future=tiny.prices())
    assert tiny.bits(forecast.quantiles) == tiny.bits(tiny.ahead().quantiles)


def test_a_pickle_in_the_place_of_weights_is_refused_unopened(saved):
    # As long as what it replaces, so that its size does not give it away.
    bomb = pickle.dumps((Bomb(), b"0" * (saved / "member-00.safetensors").stat().st_size))
    (saved / "member-00.safetensors").write_bytes(bomb)
    with pytest.raises(fc.ArtifactError, match="damaged: expected sha256"):
        load_artifact(saved)
    contract = _contract(saved)
    contract["members"][0]["sha256"] = hashlib.sha256(bomb).hexdigest()
    _write(saved, contract)
    with pytest.raises(fc.ArtifactError, match="does not fit its contract"):
        load_artifact(saved)


def _calibrate(folder, **tensors):
    """Puts a calibration into a saved model; its checksum is right."""
    content = save({name: torch.as_tensor(cells) for name, cells in tensors.items()})
    (folder / "calibration.safetensors").write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    stored = {"file": "calibration.safetensors", "sha256": sha256}
    _write(folder, _contract(folder) | {"calibration": stored})
    return stored


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        (
            {"factors": torch.ones(8, 1, 9)},
            r"expected float32 factors of 7 leads, 1 channels and 9 levels",
        ),
        ({"factors": torch.ones(7, 1, 9, dtype=torch.float64)}, "expected float32 factors"),
        ({"heights": torch.ones(7, 1, 9)}, "expected float32 factors"),
        ({"factors": torch.full((7, 1, 9), torch.nan)}, r"damaged \(factors that are not positive"),
        ({"factors": torch.full((7, 1, 9), -1.0)}, r"damaged \(factors that are not positive"),
        (
            {"factors": torch.ones(1)},
            r"\d+ bytes; a calibration of this plan has 252 bytes of factors",
        ),
    ],
)
def test_factors_that_do_not_fit_their_model_are_refused(saved, tensors, reason):
    _calibrate(saved, **tensors)
    with pytest.raises(fc.ArtifactError, match=reason):
        load_artifact(saved)
