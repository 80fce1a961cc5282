"""Every file in configs/sweeps/ is a space that the schema takes, says what it costs, is searched."""

from pathlib import Path

import pytest
import yaml

import forecaster as fc
from forecaster.config import Config, load_config
from forecaster.runs.tune.space import load_space

ROOT = Path(__file__).parents[1]
SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))

every_sweep = pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)


@every_sweep
def test_a_sweep_is_a_space_and_most_of_the_defaults_lie_in_it(path):
    space = load_space(path)
    assert set(space.yaml) == set(yaml.safe_load(path.read_text(encoding="utf-8")))
    preset = "smoke" if path.stem == "smoke" else "default"
    config = load_config(ROOT / "configs" / f"{preset}.yaml")
    chosen = space.preset(config)
    assert {entry.path for entry in space.entries if not entry.when} == set(chosen)


@every_sweep
def test_a_sweep_opens_with_its_command_hardware_minutes_and_score(path):
    text = path.read_text(encoding="utf-8")
    header = text[: text.index("\n\n")].replace("\\\n#", "")
    assert "forecaster tune " in header and f"--space configs/sweeps/{path.name}" in header
    for word in ("Hardware:", "Minutes:", "Expected:"):
        assert word in header
    assert "?" not in header


@pytest.mark.slow
@pytest.mark.usefixtures("short_fits")
@every_sweep
def test_a_sweep_is_searched_on_the_demo_data(path, tmp_path):
    study = fc.tune(
        ROOT / "data" / "demo.csv",
        horizon=28,
        trials=2,
        space=path,
        storage=tmp_path / "study.journal",
        config={
            "fit": {"steps": 2, "batch_size": 64},
            "tracking": {"enabled": False},
        },
        refit=False,
        quiet=True,
    )
    states = study.trials["state"].to_list()
    assert states[0] == "finished" and states[1] in ("finished", "pruned")
    assert study.best_value <= study.preset_value
    assert isinstance(study.best, Config)
