"""Every file in configs/ says what it costs, and trains on the demo data."""

from pathlib import Path

import pytest

import forecaster as fc
from forecaster.config import Config, load_config

ROOT = Path(__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").glob("*.yaml"))

every_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)


def _header(path: Path) -> str:
    """The comment a file opens with, shell continuations joined."""
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return "\n".join(lines).replace("\\\n", "")


def test_default_yaml_is_the_defaults_written_out():
    assert load_config(ROOT / "configs" / "default.yaml") == Config()


@every_config
def test_a_config_opens_with_its_command_hardware_minutes_and_score(path):
    header = _header(path)
    command = next(line for line in header.splitlines() if line.startswith("forecaster fit "))
    assert f"--config configs/{path.name} " in command
    for word in ("Hardware:", "Minutes:", "Expected:"):
        assert word in header


@every_config
def test_a_config_fits_the_demo_data(path):
    few = [
        "fit.steps=2",
        "fit.members=1",
        "fit.batch_size=8",
        "fit.validation_windows=16",
        "tracking.enabled=false",
    ]
    model = fc.fit(
        ROOT / "data" / "demo.csv",
        horizon=28,
        future=ROOT / "data" / "demo_future.csv",
        config=load_config(path, few),
        quiet=True,
    )
    assert model.metrics["steps"] == 2
    assert model.metrics["validation"]["scores"]["forecaster"]["WQL"] > 0
