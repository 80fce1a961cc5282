"""Every preset trains on the demo data, names its cost and holds only what it changes."""

import tomllib
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import forecaster as fc
from forecaster.config import (
    PRESETS,
    Config,
    config_from,
    describe,
    load_config,
    load_preset,
    parse_yaml,
    read_yaml,
)

ROOT = Path(__file__).parents[1]
CONFIGS = [*sorted((ROOT / "configs").glob("*.yaml")), *sorted((ROOT / "benchmarks").glob("*.yaml"))]

DEFAULT = ROOT / "configs" / "default.yaml"
PRESET_FILES = [path for path in CONFIGS if path != DEFAULT]

every_config = pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
every_preset = pytest.mark.parametrize("path", PRESET_FILES, ids=lambda path: path.stem)


def _header(path: Path) -> str:
    """The comment a file opens with, shell continuations joined."""
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return "\n".join(lines).replace("\\\n", "")


def test_default_yaml_is_what_forecaster_config_prints():
    text = describe(Config())
    assert DEFAULT.read_text(encoding="utf-8") == text, "forecaster config > configs/default.yaml"
    assert load_config(DEFAULT) == Config()


def test_the_resolved_request_loads_to_the_same_config(tmp_path):
    changed = ["model.width=32", "data.known=[price]", "data.decimal=','", "fit.validation=null"]
    config = load_config(ROOT / "configs" / "long.yaml", changed)
    (tmp_path / "resolved.yaml").write_text(describe(config), encoding="utf-8")
    assert load_config(tmp_path / "resolved.yaml") == config


@every_preset
def test_a_preset_holds_only_what_differs_from_the_defaults(path):
    defaults = Config().model_dump(mode="json")
    same = [
        f"{section}.{name}"
        for section, settings in read_yaml(path).items()
        for name, value in settings.items()
        if value == defaults[section][name]
    ]
    assert not same


@every_preset
def test_a_preset_opens_with_its_command_hardware_minutes_and_score(path):
    header = _header(path)
    if path.parent.name == "benchmarks":
        assert f"python benchmarks/{path.stem}.py " in header
    else:
        assert f"--preset {path.stem} " in header
    for word in ("Hardware:", "Minutes:", "Expected:"):
        assert word in header


def test_the_presets_of_the_package_are_the_files_in_configs():
    """The files are one: a checkout reads configs/, a wheel the copies that the build puts in it."""
    assert {f"configs/{name}.yaml" for name in PRESETS} == {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "configs").glob("*.yaml")
        if path != DEFAULT
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    copied = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {f"configs/{name}.yaml": f"forecaster/presets/{name}.yaml" for name in PRESETS}.items() <= (
        copied.items()
    )
    for name in PRESETS:
        assert load_preset(name) == load_config(ROOT / "configs" / f"{name}.yaml")


def test_what_comes_later_wins_of_defaults_preset_config_and_options(tmp_path):
    smoke = load_config(ROOT / "configs" / "smoke.yaml")
    assert (smoke.model.width, smoke.fit.steps, smoke.fit.batch_size) == (16, 30, 64)
    (tmp_path / "own.yaml").write_text("horizon: 3\nmodel: {width: 24}\nfit: {steps: 40}")
    config = load_config(tmp_path / "own.yaml", ["fit.steps=50"])
    found = config_from(config, 7, {"known": ["price"]}, "smoke")
    assert found == smoke.replaced(
        horizon=7, data={"known": ["price"]}, model={"width": 24}, fit={"steps": 50}
    )
    # A default that is declared is no default that was left out.
    assert config_from({"fit": {"batch_size": None}}, None, {}, "smoke").fit.batch_size is None
    assert config_from(None, None, {}, "smoke") == config_from(Config(), None, {}, "smoke") == smoke


@pytest.mark.parametrize("verb", [fc.fit, fc.backtest, fc.tune, fc.compare])
def test_an_unknown_preset_is_refused_with_the_nearest_name_before_the_table_is_read(verb):
    expected = r"preset 'smok': expected long, smoke or vanilla, did you mean 'smoke'\?$"
    with pytest.raises(fc.ConfigError, match=expected):
        verb("no such table.csv", 7, preset="smok")


@pytest.mark.slow
@pytest.mark.usefixtures("short_fits")
@every_config
def test_a_config_fits_the_demo_data(path):
    few = [
        "fit.steps=2",
        "fit.stride=1",  # one of a day of hours leaves too few windows of days
        "fit.ensemble_size=1",
        "fit.batch_size=8",
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


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("horizon: 010", ("horizon", 10)),
        ("horizon: 0x10", ("horizon", 16)),
        ("fit: {refit: yes}", ("fit.refit", True)),
        ("fit: {refit: off}", ("fit.refit", False)),
        ("data: {holidays: NO}", ("data.holidays", ("NO",))),
        ("data: {target: [on, 1:30, 007]}", ("data.target", ("on", "1:30", "007"))),
        ("fit: {learning_rate: 1e-3}", ("fit.learning_rate", 0.001)),
    ],
)
def test_numbers_and_words_of_settings_are_read_as_they_look(tmp_path, text, read):
    (tmp_path / "c.yaml").write_text(text if "horizon" in text else f"horizon: 7\n{text}")
    found = load_config(tmp_path / "c.yaml")
    for part in read[0].split("."):
        found = getattr(found, part)
    assert found == read[1]


def test_a_number_of_minutes_is_no_number_of_steps(tmp_path):
    with pytest.raises(fc.ConfigError, match=r"horizon: Input should be a valid integer.*got '1:30'"):
        load_config(overrides=["horizon=1:30"])


@settings(max_examples=300)
@given(st.text("0123456789abefnostxyTN:+-._", min_size=1, max_size=6))
def test_text_that_is_written_as_yaml_is_read_back(text):
    assert parse_yaml(yaml.safe_dump([text]), "here") == [text]


def test_quantile_levels_that_would_share_a_column_are_refused():
    with pytest.raises(fc.ConfigError, match=r"0.1 and 0.10000001 would both be the column q0.1"):
        load_config(overrides=["horizon=7", "model.quantile_levels=[0.1, 0.10000001, 0.5]"])


def test_bounds_without_a_whole_number_between_them_do_not_go_with_integer():
    with pytest.raises(fc.ConfigError, match=r"integer: no whole number from 0.4 to 0.6"):
        load_config(overrides=["horizon=7", "target={lower: .4, upper: .6, integer: true}"])
