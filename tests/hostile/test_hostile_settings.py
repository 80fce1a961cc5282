"""Settings may come from anybody: nothing in them is run, and no small text becomes something large."""

import os

import pytest

import forecaster as fc
from forecaster.config import Config, load_config, parse_config
from forecaster.model.embedding import Shape
from forecaster.model.size import check_memory, count_parameters

GROWING = "[&a0 [x], " + ", ".join(f"&a{n} [{f'*a{n - 1}, ' * 9}]" for n in range(1, 40)) + "]"
HOSTILE = {
    "aliases that grow": ("horizon: " + GROWING, "horizon: Input should be a valid integer (got"),
    "an alias of itself": ("horizon: &a [*a]", "horizon: Input should be a valid integer (got"),
    "mappings that grow": ("model: &a {width: 1}\nfit: {<<: [*a, *a]}", "merge keys (<<) are not"),
    "a tag that runs": ("model: !!python/object/apply:os.system [exit]", "could not determine a cons"),
    "deep nesting": ("[" * 100_000, "nested too deep"),
    "a date that is none": ("horizon: 2024-13-45", "not YAML ('month must be in 1..12')"),
    "thousands of digits": ("horizon: " + "9" * 6000, "not YAML ('Exceeds"),
    "a name given twice": ("horizon: 3\nhorizon: 4", "'horizon' is given twice in line 2"),
    "a NUL": ("model: \0", "special characters are not allowed"),
    "a list": ("[1]", "expected settings by name, found list"),
    "a name of two lines": ('"x\\ny": 1', r"'x\ny': unknown setting"),
    "no finite number": ("fit: {learning_rate: .inf}", "should be a finite number (got inf)"),
    "a megabyte": ("a: " + "x" * (1 << 20), "a file of more than 1 MB"),
    "a billion layers": ("model: {encoder_layers: 1000000000}", "or equal to 1000 (got 1000000000)"),
    "a billion wide": ("model: {width: 1000000000}", "or equal to 65536 (got 1000000000)"),
    "a context without end": ("model: {context_length: 1000000000000}", "or equal to 1000000 (got"),
}


@pytest.mark.parametrize(("text", "said"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_settings_are_refused_in_a_line(tmp_path, text, said):
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(fc.ConfigError) as refused:
        load_config(tmp_path / "c.yaml")
    assert said in str(refused.value) and len(str(refused.value)) < 600
    assert "\n" not in str(refused.value)


@pytest.mark.long
def test_a_flag_is_read_as_carefully_as_a_file():
    for value in ("!!python/object/apply:os.system [exit]", "[" * 100_000, "9" * 6000):
        with pytest.raises(fc.ConfigError, match=r"config=model.width: not "):
            load_config(overrides=[f"model.width={value}"])
    with pytest.raises(fc.ConfigError, match=r"less than or equal to 65536 \(got 1000000000\)"):
        load_config(overrides=["model.width=1000000000"])


def test_what_is_no_file_of_settings_is_not_read_to_its_end(tmp_path):
    for path, said in (("/dev/zero", "more than 1 MB"), (tmp_path, "Is a directory"), ("a\0b", "null")):
        with pytest.raises(fc.ConfigError, match=said):
            load_config(path)
    (tmp_path / "c.yaml").write_bytes(b"a: \xff")
    with pytest.raises(fc.ConfigError, match=r"not UTF-8 \(byte 3\)"):
        load_config(tmp_path / "c.yaml")


def test_many_faults_are_counted_not_listed(tmp_path):
    (tmp_path / "c.yaml").write_text("\n".join(f"k{n}: 1" for n in range(5000)))
    with pytest.raises(fc.ConfigError, match="and 4,970 more faults"):
        load_config(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    "chosen",
    [{}, {"encoder_layers": 7, "decoder_layers": 4}, {"head": "student_t"}, {"positions": "learned"}],
    ids=str,
)
def test_what_is_counted_is_what_is_built(make_plan, chosen):
    from forecaster.model.network import Network

    config = make_plan(4, model=chosen).model
    shape = Shape(4, 1, past=2, known=1, static_categories=(3,), cycles=2)
    built = sum(tensor.numel() for tensor in Network(config, shape).state_dict().values())
    assert count_parameters(config, shape) == built


def test_a_training_that_no_machine_holds_is_refused_with_its_numbers(make_plan):
    wide = make_plan(4, model={"width": 65536, "heads": 1, "encoder_layers": 1000}).model
    with pytest.raises(fc.ConfigError, match=r"model: [\d,]+ weights \(width 65536, 1000 \+ 1 layers"):
        check_memory(wide, Shape(4, 1))


def test_a_file_name_that_is_no_text_is_refused_in_a_line(tmp_path):
    for name in ("a\0b.csv", os.fsdecode(b"b\xff.csv")):
        with pytest.raises(fc.DataError, match="not a name in UTF-8; rename the file"):
            fc.check(str(tmp_path / name))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"horizon": True}, "horizon: expected a number, found true"),
        ({"data": {"periods": [7, False]}}, r"data.periods: expected a number, found \[7, false\]"),
        ({"fit": {"learning_rate": True}}, "fit.learning_rate: expected a number, found true"),
        ({"model": {"linear_units": True}}, "model.linear_units: expected a number, found true"),
        (
            {"model": {"quantile_levels": [0.5, 0.9999999]}},
            "0.9999999 and 1.0 would both be the column q1",
        ),
    ],
    ids=str,
)
def test_a_boolean_is_no_number_and_a_level_is_no_extreme(settings, fault):
    with pytest.raises(fc.ConfigError, match=fault):
        parse_config(settings, "config")


def test_no_number_of_a_config_may_be_a_boolean():
    for section, kind in (
        ("", Config),
        *((name, field.annotation) for name, field in Config.model_fields.items()),
    ):
        for name, field in getattr(kind, "model_fields", {}).items():
            if field.annotation in (int, float, int | None, float | None):
                path = [part for part in (section, name) if part]
                settings = True
                for part in reversed(path):
                    settings = {part: settings}
                with pytest.raises(
                    fc.ConfigError, match=f"{'.'.join(path)}: expected a number, found true"
                ):
                    parse_config(settings, "config")
