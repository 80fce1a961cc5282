"""A model under a name: versions, the champion, what travels with them."""

import importlib.metadata
import json
import re
import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest
import yaml
from forecast import tiny
from mlflow.tracking import MlflowClient
from runs.registry.conftest import fitted

import forecaster as fc
from forecaster.config import TrackingConfig
from forecaster.forecast.card import model_card
from forecaster.forecast.saved_model import save_artifact
from forecaster.forecast.source import Source
from forecaster.runs.registry import _said, compare, publish

pytestmark = pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning")

LOCAL = TrackingConfig()


def _client(place):
    return MlflowClient(tracking_uri=f"sqlite:///{place}/mlflow.db")


def _wql(model):
    return model.metrics["validation"]["scores"]["forecaster"]["WQL"]


def test_the_first_version_of_a_name_is_its_champion(place, poor):
    made = publish(poor, "shop", LOCAL)
    assert (made.name, made.version, made.is_champion) == ("shop", 1, True)
    assert made.sentence == "shop version 1 is the champion: there was none"
    assert made.address == "models:/shop@champion"
    assert int(_client(place).get_model_version_by_alias("shop", "champion").version) == 1


@pytest.mark.long
def test_a_better_model_of_the_same_windows_becomes_the_champion_and_a_worse_one_does_not(
    place, poor, good
):
    better, worse = _wql(fitted(60)), _wql(fitted(5))
    assert better < worse
    publish(poor, "shop", LOCAL)
    won = publish(good, "shop", LOCAL)
    assert won.is_champion and won.version == 2
    windows = fitted(5).metrics["validation"]["windows"]
    assert won.sentence == (
        f"shop version 2 is the champion: its WQL {better:.4g} is lower than the champion's "
        f"{worse:.4g} ({100 * (1 - better / worse):.1f} %) on the same {windows} validation windows"
    )
    _client(place).delete_registered_model("shop")
    publish(good, "shop", LOCAL)
    lost = publish(poor, "shop", LOCAL)
    assert not lost.is_champion and lost.address == "models:/shop/2"
    assert lost.sentence == (
        f"shop version 2 is registered, version 1 stays the champion: its WQL {worse:.4g} is higher "
        f"than the champion's {better:.4g} ({100 * (worse / better - 1):.1f} %) on the same {windows} "
        "validation windows; --champion (champion=True) moves it"
    )
    assert int(_client(place).get_model_version_by_alias("shop", "champion").version) == 1


@pytest.mark.long
def test_a_model_that_is_there_is_not_registered_twice(place, poor, good):
    publish(good, "shop", LOCAL)
    again = publish(good, "shop", LOCAL)
    assert again.version == 1 and again.is_champion
    assert again.sentence == "shop version 1 is the champion already"
    assert publish(poor, "shop", LOCAL).version == publish(poor, "shop", LOCAL).version == 2


@pytest.mark.long
def test_scores_of_other_data_windows_levels_or_nan_are_not_compared():
    new, old = fitted(60).artifact, fitted(5).artifact
    moved, undefined = (json.loads(json.dumps(old.metrics)) for _ in range(2))
    moved["validation"]["cutoffs"] = "elsewhere"
    undefined["validation"]["scores"]["forecaster"]["WQL"] = float("nan")
    other = fitted(5, levels=(0.2, 0.5, 0.8)).artifact
    for one, champion, reason in (
        (new, fitted(5, days=99).artifact, "the two were fitted to different data, so their scores"),
        (new, replace(old, metrics=moved), "the two were validated on different windows, so their"),
        (new, replace(old, metrics={}), "one of the two has no validation scores, so their scores"),
        (new, other, "it has the quantile levels 0.1, 0.5, 0.9, the champion 0.2, 0.5, 0.8, so"),
        (replace(new, metrics=undefined), old, "WQL is not defined on the same"),
        (new, new, "both have WQL"),
    ):
        wins, why = compare(one, champion)
        assert not wins and why.startswith(reason)


def test_a_model_of_other_data_becomes_the_champion_only_as_asked(place, capsys):
    """Each month has more rows, and no table is given."""
    fitted(5).export("shop", LOCAL)
    march = fitted(5, days=99)
    kept = march.export("shop", LOCAL)
    reason = (
        "the two were fitted to different data, so their scores cannot be compared; --data TABLE (data=) with "
        "rows that neither has seen compares them"
    )
    assert not kept.is_champion
    assert kept.sentence == (
        f"shop version 2 is registered, version 1 stays the champion: {reason}; --champion "
        "(champion=True) moves it"
    )
    assert capsys.readouterr() == ("", "")
    moved = march.export("shop", LOCAL, champion=True)
    assert (moved.version, moved.is_champion) == (2, True)
    assert moved.sentence == "shop version 2 is the champion: as asked"
    assert capsys.readouterr() == ("", f"by its scores version 1 would stay: {reason}\n")
    assert int(_client(place).get_model_version_by_alias("shop", "champion").version) == 2


def test_the_run_of_a_fit_shows_the_version_that_was_registered_of_it(place):
    config = tiny.NETWORK | {"tracking": {"enabled": True, "experiment": "shops"}}
    model = fc.fit(tiny.plain(), horizon=tiny.HORIZON, config=config, out="model", quiet=True)
    fc.load("model").export("shop", LOCAL)  # another experiment than that of the fit
    client = _client(place)
    experiment = client.get_experiment_by_name("shops").experiment_id
    (run,) = client.search_runs([experiment])
    assert client.get_model_version("shop", "1").run_id == run.info.run_id
    (output,) = run.outputs.model_outputs
    logged = client.get_logged_model(output.model_id)
    assert (logged.source_run_id, logged.experiment_id) == (run.info.run_id, experiment)
    assert run.data.tags["mlflow.note.content"].startswith("forecaster ")
    assert "seasonal naive" in run.data.tags["mlflow.note.content"]
    scores = model.metrics["validation"]["scores"]["forecaster"]
    first = sorted(run.data.metrics)[:3]
    assert first == ["1. WQL", "1. coverage_80", "1. skill"]
    assert sorted(run.data.metrics, key=str.lower)[:3] == ["1. coverage_80", "1. skill", "1. WQL"]
    for name in first:
        assert run.data.metrics[name] == pytest.approx(scores[name.removeprefix("1. ")])
        assert f"`{name}`" in client.get_experiment(experiment).tags["mlflow.note.content"]


def test_a_champion_that_is_no_model_of_ours_stays_until_a_person_decides(place, poor):
    client = _client(place)
    client.create_registered_model("shop")
    (place / "else").mkdir()
    client.create_model_version("shop", str(place / "else"))
    client.set_registered_model_alias("shop", "champion", "1")
    made = publish(poor, "shop", LOCAL)
    assert made.version == 2 and not made.is_champion
    assert made.sentence.startswith(
        "shop version 2 is registered, version 1 stays the champion: this version cannot read "
        "it (models:/shop/1: cannot be fetched"
    )


def test_a_version_has_tags_and_the_card(place, poor):
    publish(poor, "shop", LOCAL)
    version = _client(place).get_model_version("shop", "1")
    artifact = fitted(5).artifact
    assert version.description == model_card(poor)
    tags = version.tags
    assert tags["fingerprint"] == artifact.fingerprint and tags["trained_until"] == "2024-04-09"
    assert tags["horizon"] == "7" and tags["freq"] == "1d" and tags["target"] == "sales"
    assert float(tags["validation.forecaster.WQL"]) == pytest.approx(_wql(fitted(5)), rel=1e-4)
    assert "validation.seasonal_naive.WQL" in tags


def test_what_is_registered_holds_no_pickle_pins_what_it_needs_and_never_names_us(place, poor):
    publish(poor, "shop", LOCAL)
    source = _client(place).get_model_version_download_uri("shop", "1")
    (package,) = (place / "mlartifacts" / "models").glob("*/artifacts")
    assert source.endswith(package.relative_to(place).as_posix())
    names = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    assert not [name for name in names if name.endswith((".pkl", ".pickle", ".pyc"))]
    inside = {name for name in names if name.startswith("artifacts/")}
    save_artifact(poor, place / "poor")
    assert inside == {f"artifacts/model/{path.name}" for path in (place / "poor").iterdir()}
    needs = (package / "requirements.txt").read_text().split()
    for need in needs:
        name, version = need.split("==")
        assert importlib.metadata.version(name).partition("+")[0] == version
        assert name not in ("forecaster", "attention-forecaster", "optuna", "pytorch-lightning")
    assert {"mlflow", "torch", "polars", "numpy", "pandas"} <= {need.split("==")[0] for need in needs}
    told = yaml.safe_load((package / "MLmodel").read_text())
    inputs = json.loads(told["signature"]["inputs"])
    assert [(column["name"], column["type"]) for column in inputs] == [
        ("store", "string"),
        ("date", "any"),
        ("sales", "double"),
    ]
    params = json.loads(told["signature"]["params"])
    assert [(part["name"], part["default"]) for part in params] == [("horizon", 7), ("cutoff", "own")]
    example = json.loads((package / "serving_input_example.json").read_text())["dataframe_split"]
    assert example["columns"] == ["store", "date", "sales"]
    assert [row[2] is None for row in example["data"]] == [False] * 14 + [True] * 7


@pytest.mark.slow
def test_what_is_served_loads_neither_lightning_nor_optuna_and_nothing_that_is_not_pinned(place, poor):
    publish(poor, "shop", LOCAL)
    (package,) = (place / "mlartifacts" / "models").glob("*/artifacts")
    program = (
        "import json, sys\n"
        "import mlflow.pyfunc\n"
        "before = set(sys.modules)\n"
        f"model = mlflow.pyfunc.load_model({str(package)!r})\n"
        f"rows = model.predict(model.input_example)\n"
        "assert len(rows) == 7 and set(rows['status']) == {'ok'}, rows\n"
        "import forecaster\n"
        f"assert forecaster.__file__.startswith({str(package / 'code')!r}), forecaster.__file__\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in set(sys.modules) - before})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    loaded = set(json.loads(done.stdout.splitlines()[-1]))
    assert not loaded & {"pytorch_lightning", "lightning_fabric", "optuna", "matplotlib"}
    needs = {need.split("==")[0] for need in (package / "requirements.txt").read_text().split()}
    homes = importlib.metadata.packages_distributions()
    ours = {"forecaster"}
    for module in loaded - ours & set(homes):
        names = {name.lower() for name in homes.get(module, ())}
        assert not names or names & _with_dependencies(needs), (module, names)


def _with_dependencies(needs):
    """Packages and, by their own metadata, all that they require."""
    found, waiting = set(), set(needs)
    while waiting:
        name = waiting.pop()
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found.add(name.lower())
        further = {re.split(r"[^\w.-]", line)[0].lower() for line in lines if "extra ==" not in line}
        waiting |= further - found
    return found


@pytest.mark.parametrize("name", ["a/b", "a:b", "a@b", " "])
def test_a_name_that_no_address_can_hold_is_refused(poor, name):
    with pytest.raises(fc.ConfigError, match="expected a name without / : and @, as sales"):
        publish(poor, name, LOCAL)


def test_a_store_that_is_away_is_named_in_one_line(poor):
    with pytest.raises(fc.ConfigError, match=r"MLflow store http://127.0.0.1:9: .*Connection refused"):
        publish(poor, "shop", TrackingConfig(uri="http://127.0.0.1:9"))


def test_a_fitted_model_exports_itself(place):
    published = fitted(5).export("shop", tracking=LOCAL)
    assert published.address == "models:/shop@champion"
    again = fc.load(published.address)
    assert again.predict(tiny.plain()).frame.equals(fitted(5).predict(tiny.plain()).frame)


@pytest.mark.long
def test_an_update_becomes_the_champion_where_it_is_not_worse_and_knows_a_horizon_more(place):
    shop = tiny.plain(128)
    first = fc.fit(shop.filter(pl.col("date") < tiny.day(100)), horizon=7, config=tiny.TINY, quiet=True)
    first.export("shop", LOCAL)
    new = first.update(shop, quiet=True)
    won = new.export("shop", LOCAL)
    assert won.is_champion and "windows that neither has seen" in won.sentence
    loss, before = (new.metrics["update"][name] for name in ("loss", "loss_before"))
    assert f"its loss {loss:.4g} is" in won.sentence and f"champion's {before:.4g}" in won.sentence
    update = new.metrics["update"] | {"loss": 1.03 * before}
    worse = replace(new.artifact, metrics=new.metrics | {"update": update})
    assert compare(worse, first.artifact)[0] is False
    assert compare(
        replace(worse, metrics=new.metrics | {"update": update | {"loss": 1.01 * before}}),
        first.artifact,
    )[0]
    few = first.update(shop.filter(pl.col("date") < tiny.day(103)), quiet=True)
    assert compare(few.artifact, first.artifact) == (
        False,
        "the two were fitted to different data, so their scores cannot be compared; "
        "--data TABLE (data=) with rows that neither has seen compares them",
    )


@pytest.mark.long
def test_fits_to_different_rows_are_scored_anew_on_rows_that_neither_has_seen(place):
    shop = tiny.plain(128)
    old, new = (
        fc.fit(shop.filter(pl.col("date") < tiny.day(days)), horizon=7, config=config, quiet=True)
        for days, config in ((90, tiny.NETWORK), (100, tiny.TINY))
    )
    old.export("shop", LOCAL)
    assert not new.export("shop", LOCAL).is_champion
    won = new.export("shop", LOCAL, data=shop)
    # 28 later days have 22 cutoffs of a week, of which the newest 21 count, in three stores.
    assert won.is_champion and "on 63 windows that neither has seen" in won.sentence
    late = shop.filter(pl.col("date") < tiny.day(105))
    assert "has no 7 steps after 2024-04-09" in compare(new.artifact, old.artifact, Source(late))[1]


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        (0.11279, 0.11281, "0.11279 is lower than the champion's 0.11281 (less than 0.1 %) on"),
        (0.12, 0.1, "0.12 is higher than the champion's 0.1 (20.0 %) on"),
        (0.1, 0.1, "0.1 is as high as the champion's 0.1 on"),
        (1.0, 0.0, "1 is higher than the champion's 0 on"),
    ],
)
def test_a_verdict_shows_how_two_scores_differ(ours, theirs, expected):
    assert _said("WQL", ours, theirs, "40 windows") == f"its WQL {expected} 40 windows"
