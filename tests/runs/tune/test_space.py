"""The search space: what is refused before the first trial, what is proposed, what the preset is."""

from pathlib import Path

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forecaster.config import Config
from forecaster.errors import ConfigError
from forecaster.runs.tune.space import Space, apply, load_space

ROOT = Path(__file__).parents[3]
SWEEPS = sorted((ROOT / "configs" / "sweeps").glob("*.yaml"))


def _faults(**told: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        Space({path.replace("__", "."): form for path, form in told.items()})
    return [line.removeprefix("space: ") for line in str(caught.value).splitlines()]


def _proposed(space: Space, seed: int, count: int = 1) -> list[dict]:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    return [space.suggest(study.ask()) for _ in range(count)]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("fit.learning_rat", "unknown setting, did you mean 'fit.learning_rate'?"),
        ("model.widht", "unknown setting, did you mean 'model.width'?"),
        ("width", "unknown setting, did you mean 'model.width'?"),
        ("fit.dropout", "unknown setting, did you mean 'model.dropout'?"),
        ("xyz", "unknown setting"),
        ("horizon", "cannot be searched: only settings of model and fit are"),
        ("data.freq", "cannot be searched: only settings of model and fit are"),
        ("model.quantile_levels", "cannot be searched: scores over other levels cannot be compared"),
    ],
)
def test_a_path_that_cannot_be_searched_is_named_with_the_nearest(path, said):
    assert _faults(**{path.replace(".", "__"): {"int": [1, 2]}}) == [f"{path}: {said}"]


@pytest.mark.parametrize(
    ("path", "form", "said"),
    [
        ("fit.steps", {"int": [5, 5]}, "low 5 is not below high 5"),
        ("fit.steps", {"int": [0, 5]}, "Input should be greater than or equal to 1 (got 0)"),
        ("model.dropout", {"float": [0.1, 1.5]}, "Input should be less than 1 (got 1.5)"),
        (
            "model.head",
            {"choice": ["quantil"]},
            "Input should be 'quantile', 'student_t' or 'binned' (got 'quantil')",
        ),
        ("model.width", {"float": [8.5, 16.0]}, "Input should be a valid integer"),
        ("model.width", {"choice": []}, "expected one of {float: [low, high]}, {int: [low, high]}"),
        ("model.width", {"choice": [[8]]}, "choice: Input should be a valid"),
        ("model.width", {"int": [8, 16.5]}, "int: Input should be a valid integer"),
        ("model.heads", {"choice": [None]}, "Input should be a valid integer (got None)"),
        ("fit.weight_decay", {"float": [0, 1], "log": True}, "log: there is no logarithm of 0"),
        ("fit.batch_size", {"int": [8, 64], "step": 8, "log": True}, "step 8: only whole numbers without log"),
        ("fit.batch_size", {"int": [8, 64], "step": 0}, "step: Input should be greater than or equal to 1"),
        ("fit.weight_decay", {"float": [0.1, 1], "step": 2}, "step 2: only whole numbers without log"),
        ("fit.weight_decay", {"float": [0.1, 1], "stepp": 2}, "stepp: Extra inputs are not permitted"),
        ("fit.weight_decay", [0.1, 0.2], "expected one of {float: [low, high]}, {int: [low, high]}"),
        ("fit.weight_decay", {"float": [0, 1], "choice": [1]}, "expected one of {float: [low, high]}"),
        ("fit.weight_decay", {"float": [0, 1], "when": 3}, "when: Input should be a valid dictionary"),
    ],
)  # fmt: skip
def test_an_entry_that_the_schema_or_the_form_refuses_says_why(path, form, said):
    faults = _faults(**{path.replace(".", "__"): form})
    assert faults[0].startswith(f"{path}: ") and said in faults[0]


def test_a_condition_on_what_is_not_there_or_never_so_is_refused():
    path, size = "model.attention_size", {"choice": [64]}
    kind = {"choice": ["full", "sparse"]}
    wrong, never = (
        {**size, "when": {name: "local"}} for name in ("model.attentions", "model.attention")
    )
    assert _faults(model__attention_size=never) == [
        f"{path}: when: 'model.attention' is no entry above this one"
    ]
    assert _faults(model__attention=kind, model__attention_size=wrong) == [
        f"{path}: when: 'model.attentions' is no entry above this one, did you mean 'model.attention'?"
    ]
    assert _faults(model__attention=kind, model__attention_size=never) == [
        f"{path}: when: 'model.attention' is never 'local'"
    ]


def test_all_faults_are_told_at_once():
    faults = _faults(
        model__widht={"int": [1, 2]}, fit__steps={"int": [0, -5]}, model__dropout={"float": [-1, 2]}
    )
    assert len(faults) == 4  # the two ends of dropout are two


def test_a_file_that_is_none_or_empty_is_refused_in_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"space nowhere.yaml: cannot be read"):
        load_space("nowhere.yaml")
    (tmp_path / "s.yaml").write_text("- 1\n")
    with pytest.raises(ConfigError, match="expected settings by name, found list"):
        load_space(tmp_path / "s.yaml")
    (tmp_path / "s.yaml").write_text("# nothing\n")
    with pytest.raises(ConfigError, match="no entry: name at least one path"):
        load_space(tmp_path / "s.yaml")


def test_without_a_file_the_default_sweep_is_searched():
    assert load_space().yaml == load_space(ROOT / "configs" / "sweeps" / "default.yaml").yaml


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
@given(seed=st.integers(0, 1000))
def test_whatever_a_sweep_proposes_the_schema_takes(path, seed):
    space = load_space(path)
    (values,) = _proposed(space, seed)
    config = apply(Config(), values)
    assert all(
        getattr(getattr(config, p.split(".")[0]), p.split(".")[1]) == v for p, v in values.items()
    )
    assert all(entry.holds(values[entry.path]) for entry in space.entries if entry.path in values)


def test_a_conditional_entry_is_proposed_where_it_applies_and_nowhere_else():
    space = Space(
        {
            "model.attention": {"choice": ["full", "local"]},
            "model.attention_size": {"choice": [64, 128], "when": {"model.attention": "local"}},
            "fit.weight_decay": {"float": [0.1, 0.2], "when": {"model.attention_size": [64]}},
        }
    )
    many = _proposed(space, seed=0, count=60)
    for values in many:
        assert ("model.attention_size" in values) == (values["model.attention"] == "local")
        assert ("fit.weight_decay" in values) == (values.get("model.attention_size") == 64)
    assert {len(values) for values in many} == {1, 2, 3}


def test_numbers_end_where_they_are_said_to_and_steps_are_kept():
    space = Space(
        {"fit.batch_size": {"int": [8, 31], "step": 8}, "fit.weight_decay": {"float": [0.1, 0.2]}}
    )
    many = _proposed(space, seed=1, count=80)
    assert {values["fit.batch_size"] for values in many} == {8, 16, 24}
    assert all(0.1 <= values["fit.weight_decay"] <= 0.2 for values in many)


def test_the_preset_is_the_config_where_the_space_holds_it():
    space = Space(
        {
            "model.width": {"choice": [32, 64]},
            "model.patch": {"choice": [None, 8]},
            "fit.learning_rate": {"float": [0.01, 0.02]},
            "fit.ensemble_size": {"int": [1, 64], "when": {"model.width": 32}},
        }
    )
    assert space.preset(Config()) == {"model.width": 64, "model.patch": None}
    narrow = Config().replaced(model={"width": 32})
    assert space.preset(narrow) == {"model.width": 32, "model.patch": None, "fit.ensemble_size": 1}


def test_true_stays_true_and_a_number_that_yaml_takes_for_text_is_one():
    space = Space(
        {
            "model.channel_attention": {"choice": [True, False]},
            "fit.weight_decay": {"float": ["5e-4", 1]},
        }
    )
    assert space.preset(Config()) == {"model.channel_attention": False, "fit.weight_decay": 0.05}
    assert space.entries[0].choices[0] is True and space.entries[1].floats == (0.0005, 1.0)


def test_values_that_contradict_each_other_are_refused_when_applied():
    with pytest.raises(ConfigError, match="width 30 is not a multiple of heads 4"):
        apply(Config(), {"model.width": 30})
