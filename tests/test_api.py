"""The Python face: what a README shows, with tables, roles and configs as people have them."""

import inspect
import os
import re
from collections.abc import Sequence
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import polars as pl
import pytest
import yaml
from forecast import tiny
from polars.testing import assert_frame_equal

import forecaster as fc
from forecaster.arguments import kinds_in
from forecaster.config import Config, DataConfig, config_from
from forecaster.options import DataOptions

pytestmark = pytest.mark.usefixtures("undrawn")  # drawing takes most of a small fit


def _weights(model):
    return {name: tiny.bits(w.numpy()) for name, w in model.artifact.ensemble.state_dict().items()}


def _fit(data, **options):
    return fc.fit(data, horizon=7, known="price", config=tiny.NETWORK, quiet=True, **options)


def test_every_public_name_is_there():
    assert sorted(dir(fc)) == sorted(fc.__all__)
    for name in fc.__all__:
        assert getattr(fc, name).__doc__
    with pytest.raises(AttributeError, match="has no attribute 'forecats'"):
        fc.forecats  # noqa: B018


def _public_functions():
    classes = (fc.Forecaster, fc.Classifier, fc.Study, fc.Forecast, fc.Backtest, fc.Explanation)
    owners = [fc, *classes]
    for owner in owners:
        for name in fc.__all__ if owner is fc else dir(owner):
            if inspect.isfunction(value := getattr(owner, name)) and not name.startswith("_"):
                yield value


@pytest.mark.parametrize("function", [*_public_functions()], ids=lambda function: function.__qualname__)
def test_help_shows_every_option_with_its_type_and_its_default(function):
    shown = inspect.signature(function).parameters.values()
    assert all(option.kind not in (option.VAR_KEYWORD, option.VAR_POSITIONAL) for option in shown)
    assert not any("Annotated" in str(option) or "command" in option.name for option in shown)


READING = [
    function for function in _public_functions() if "series" in inspect.signature(function).parameters
]
"""Functions that read a table."""


@pytest.mark.parametrize("function", READING, ids=lambda function: function.__qualname__)
def test_help_describes_every_option(function):
    shown = inspect.signature(function).parameters
    described = re.findall(r"^ +(\w+): ", function.__doc__.partition("Args:")[2], flags=re.MULTILINE)
    errors = {name for name in described if name.endswith("Error")}
    assert set(described) - errors == set(shown) - {"self"}


def test_every_function_that_reads_a_table_takes_the_same_options_of_it():
    assert len(READING) == 27
    kinds = get_type_hints(DataOptions)
    for function in READING:
        parameters = inspect.signature(function).parameters
        for name, field in DataConfig.model_fields.items():
            option = parameters[name]
            assert option.annotation == kinds[name] and option.default == field.default
            text = " ".join(field.description.split()).replace("Null = ", "None = ")
            assert f"\n    {name}: {text}\n" in f"{function.__doc__}\n"


def test_the_options_of_a_table_are_the_fields_of_the_config():
    kinds = get_type_hints(DataOptions)
    assert list(kinds) == list(DataConfig.model_fields)
    for name, field in DataConfig.model_fields.items():
        option, setting = (set(kinds_in(kind)) for kind in (kinds[name], field.annotation))
        assert (type(None) in option) == (type(None) in setting)
        assert (str in option, int in option) == (str in setting, int in setting)
        # Where a setting is several names, one alone or any sequence of them is taken.
        several = {get_origin(kind) for kind in setting} & {tuple}
        assert any(get_origin(kind) is Sequence for kind in option) >= bool(several)
        words = [
            [get_args(kind) for kind in each if get_origin(kind) is Literal]
            for each in (option, setting)
        ]
        assert words[0] == words[1]


@pytest.mark.long
def test_the_main_job_in_six_lines(tmp_path):
    tiny.shop().write_csv(tmp_path / "sales.csv")
    tiny.prices().write_csv(tmp_path / "promos.csv")
    data, future = str(tmp_path / "sales.csv"), str(tmp_path / "promos.csv")
    model = fc.fit(data, horizon=7, known=["price"], config=tiny.ONE, quiet=True)
    forecast = model.predict(data, future=future)
    forecast.write(tmp_path / "forecasts.parquet")
    scores = model.backtest(data, windows=1, quiet=True)
    model.save(tmp_path / "models" / "sales")
    again = fc.load(tmp_path / "models" / "sales")
    assert_frame_equal(
        pl.read_parquet(tmp_path / "forecasts.parquet"), forecast.frame, check_exact=True
    )
    rivals = ["seasonal naive", "naive", "drift", "ETS", "ridge"]
    assert scores.summary["model"].to_list() == ["forecaster", *rivals]
    repeated = again.predict(data, future=future)
    assert tiny.bits(repeated.quantiles) == tiny.bits(forecast.quantiles)
    assert_frame_equal(repeated.frame, forecast.frame, check_exact=True)


def test_results_are_pandas_or_polars_frames_whatever_the_table_was():
    ahead = tiny.ahead()
    assert ahead.to_polars().equals(ahead.frame)
    table, future = tiny.shop().to_pandas(), tiny.prices().to_pandas()
    again = tiny.model().predict(table, future=future)
    assert again.to_pandas().equals(again.frame) and again.to_pandas().dtypes.equals(again.frame.dtypes)
    assert again.to_polars().equals(ahead.to_polars())
    assert ahead.to_pandas().columns.tolist() == ahead.frame.columns
    assert ahead.to_pandas()["q0.9"].equals(again.frame["q0.9"])


@pytest.mark.long
def test_the_same_rows_give_the_same_model_whatever_they_come_in(tmp_path):
    table = tiny.shop()
    table.write_csv(tmp_path / "shop.csv")
    table.write_parquet(tmp_path / "shop.parquet")
    for (store,), rows in table.group_by("store"):
        rows.write_csv(tmp_path / f"part_{store}.csv")
    expected = tiny.known_network_model()
    sources = [
        table.to_pandas(),
        table.to_arrow(),
        tmp_path / "shop.parquet",
        str(tmp_path / "part_*.csv"),
    ]
    for source in sources:
        model = _fit(source)
        assert model.artifact.fingerprint == expected.artifact.fingerprint
        assert _weights(model) == _weights(expected)


@pytest.mark.long
def test_the_same_seed_gives_the_same_model_and_another_one_another():
    again = fc.fit(tiny.shop(), horizon=7, known="price", config=tiny.TINY, quiet=True)
    assert _weights(again) == _weights(tiny.model())
    other = tiny.NETWORK | {"fit": tiny.TINY["fit"] | {"seed": 1}}
    model = fc.fit(tiny.shop(), horizon=7, known="price", config=other, quiet=True)
    assert _weights(model) != _weights(tiny.known_network_model())


@pytest.mark.long
def test_roles_are_given_as_a_string_or_a_sequence():
    model = _fit(tiny.shop(), series="store", target=["sales"], past=("visitors",))
    assert model.config.data == tiny.model().config.data
    assert _weights(model) == _weights(tiny.known_network_model())


def test_an_empty_list_of_targets_is_refused():
    for function in (fc.check, fc.fit, fc.predict):
        with pytest.raises(fc.ConfigError, match=r"data\.target: expected columns, found none"):
            function(tiny.plain(), 7, target=[])


def test_a_config_is_a_mapping_a_config_or_a_file(tmp_path):
    path = tiny.write_tiny(tmp_path / "tiny.yaml", model=tiny.NETWORK["model"])
    whole = Config(**tiny.NETWORK).replaced(horizon=7, data={"known": ["price"]})
    for config in (tiny.NETWORK, Config(**tiny.NETWORK), path, str(path)):
        assert config_from(config, 7, {"known": "price"}) == whole
    assert _weights(fc.fit(tiny.shop(), config=whole, quiet=True)) == _weights(
        tiny.known_network_model()
    )


def test_the_resolved_config_gives_the_same_model_again(tmp_path):
    resolved = tiny.known_network_model().config
    (tmp_path / "resolved.yaml").write_text(yaml.safe_dump(resolved.model_dump(mode="json")))
    again = fc.fit(tiny.shop(), config=tmp_path / "resolved.yaml", quiet=True)
    assert again.config == resolved
    assert _weights(again) == _weights(tiny.known_network_model())


def test_an_argument_nobody_knows_is_refused_with_the_nearest_name(tmp_path):
    with pytest.raises(fc.ConfigError) as error:
        fc.fit(tiny.shop(), horizn=7, quite=True, knwon="price", out=5)
    assert str(error.value).splitlines() == [
        "fc.fit: unknown argument 'horizn'; did you mean 'horizon'?",
        "fc.fit: unknown argument 'quite'; did you mean 'quiet'?",
        "fc.fit: unknown argument 'knwon'; did you mean 'known'?",
        "out=5: expected text or a path, found int",
    ]
    model = tiny.plain_model()
    for options in ({"until": "2024-02-01"}, {"config": tiny.TINY}, {"quiet": True}, {"widows": 3}):
        (name,) = options
        with pytest.raises(fc.ConfigError, match=f"^Forecaster.predict: unknown argument '{name}'; "):
            model.predict(tiny.plain(), **options)
    for call in (fc.check, model.backtest):
        with pytest.raises(fc.ConfigError, match="unknown argument 'until'; "):
            call(tiny.plain(), until="2024-02-01")
    with pytest.raises(fc.ConfigError, match=r"^Model\.save: unknown argument 'xyz'; expected path$"):
        model.save(xyz=tmp_path)
    assert not list(tmp_path.iterdir())


CHECKED = [function for function in _public_functions() if hasattr(function, "__wrapped__")]
"""Functions that check their arguments; of the others most have none."""


@pytest.mark.parametrize("function", CHECKED, ids=lambda function: function.__qualname__)
def test_every_function_names_an_unknown_argument_and_the_nearest(function):
    names = [name for name in inspect.signature(function).parameters if name != "self"]
    with pytest.raises(fc.ConfigError) as error:
        function(**{f"{name}_": 1 for name in names})
    where = function.__qualname__ if "." in function.__qualname__ else f"fc.{function.__name__}"
    assert str(error.value).splitlines() == [
        f"{where}: unknown argument '{name}_'; did you mean '{name}'?" for name in names
    ]


@pytest.mark.long
def test_quiet_says_nothing_and_nothing_is_written_where_nothing_was_asked(
    capfd, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    model = fc.fit(tiny.plain(), horizon=7, config=tiny.NETWORK, quiet=True)
    model.backtest(tiny.plain(), windows=1, quiet=True)
    model.predict(tiny.plain())
    assert capfd.readouterr() == ("", "") and os.listdir(tmp_path) == []
    fc.fit(tiny.plain(), horizon=7, config=tiny.ONE, out="model", quiet=True)
    assert capfd.readouterr() == ("", "")


def test_without_quiet_the_roles_are_said_before_work_starts(capsys):
    with pytest.raises(fc.DataError):
        fc.fit(tiny.plain(10), horizon=70, config=tiny.TINY)
    fc.fit(tiny.plain(), horizon=7, config=tiny.NETWORK)
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"sales target number by its name .* trains on .* 2 steps, best at \d", said)


@pytest.mark.long
def test_until_a_date_is_as_if_later_rows_did_not_exist():
    config = tiny.config_with(experts=["linear"])  # whose maps are solved from the rows
    model = fc.fit(tiny.plain(), horizon=7, until="2024-03-10", config=config, quiet=True)
    cut = tiny.plain().filter(pl.col("date") <= tiny.day(69))
    expected = fc.fit(cut, horizon=7, config=config, quiet=True)
    assert _weights(model) == _weights(expected)
    assert model.artifact.trained_until == expected.artifact.trained_until
    assert np.int64(model.artifact.trained_until).view("M8[us]") == np.datetime64("2024-03-10")
    with pytest.raises(fc.DataError, match="until=2023-12-31: the table begins at 2024-01-01"):
        fc.fit(tiny.plain(), horizon=7, until="2023-12-31", config=tiny.TINY, quiet=True)


def test_check_returns_findings_worst_first():
    assert fc.check(tiny.shop(), horizon=7) == []
    silent = (
        tiny.plain()
        .filter(pl.col("store") == "a")
        .with_columns(store=pl.lit("z"), sales=pl.lit(None, pl.Float64))
    )
    found = fc.check(
        pl.concat([tiny.plain(), silent, tiny.plain(3)[:3].with_columns(store=pl.lit("y"))]), 7
    )
    assert [finding.rule for finding in found][:2] == ["unobserved", "short"]
    assert (found[0].series, found[0].count, found[0].severity) == ("z", 1, "warning")
    with pytest.raises(fc.DataError, match="no column 'z'"):
        fc.check(tiny.shop(), target="z")


def test_metrics_hold_the_scores_of_the_model_and_of_baselines_and_the_curves():
    metrics = tiny.model().metrics
    baselines = ["seasonal naive", "naive", "drift", "ETS", "ridge"]
    assert list(metrics["validation"]["scores"]) == ["forecaster", *baselines]
    steps = metrics["steps"]
    assert 1 <= metrics["best_step"] <= steps <= 2
    assert [step for step, _ in metrics["curves"]["validation_loss"]] == [*range(1, steps + 1)]


def test_columns_called_otherwise_are_named_by_role():
    names = {"store": "branch", "sales": "sold", "price": "cost", "visitors": "guests", "city": "town"}
    model = tiny.model()
    other, future = (
        tiny.shop().rename(names),
        tiny.prices().rename({"store": "branch", "price": "cost"}),
    )
    roles = {"series": "branch", "target": "sold", "known": "cost", "past": "guests", "static": "town"}
    forecast = model.predict(other, future=future, **roles)
    assert tiny.bits(forecast.quantiles) == tiny.bits(tiny.ahead().quantiles)
    assert forecast.frame.columns[:2] == ["branch", "cutoff"]
    with pytest.raises(fc.ConfigError, match=r"known=cost,sold: expected 1 columns .* found 2"):
        model.predict(other, known=["cost", "sold"])
