"""Defects of files, pictures and requests that were met in use."""

import inspect
import io
import json
import re
import shutil
import subprocess
from datetime import date

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.forecast.window import resolve_window

NAME = "bundle_$5_$10"


def test_text_of_a_figure_is_never_mathematics(tmp_path):
    from forecaster.forecast.plain_figure import PlainFigure
    from forecaster.forecast.plots import figure_svg

    figure = PlainFigure()
    axis = figure.subplots()
    figure.suptitle(NAME)
    axis.set_title(rf"{NAME} \$x$^2_$", loc="left")
    axis.set_ylabel(NAME)
    axis.plot([0, 1], [1, 2], label=NAME)
    axis.set_xticks([0, 1], [NAME, "$\\nothing$"])
    axis.legend()
    figure.savefig(tmp_path / "figure.png", bbox_inches="tight")
    assert figure_svg(figure).count(NAME) == 5


@pytest.mark.long
def test_dollars_in_names_cost_no_model(tmp_path, capsys):
    table = tiny.plain().rename({"sales": NAME}).with_columns(store=pl.col("store") + NAME)
    fc.fit(table, horizon=7, target=NAME, config=tiny.NETWORK, out=tmp_path / "model")
    assert "the model itself is complete" not in capsys.readouterr().out
    assert {"loss.png", "forecast.png", "report.html"} <= set(tiny.tree(tmp_path / "model"))


@pytest.fixture
def no_font(monkeypatch):
    """Every drawing fails."""
    from forecaster.forecast.plain_figure import PlainFigure

    def failing(self, renderer):
        raise ValueError("no font")

    monkeypatch.setattr(PlainFigure, "draw", failing)


def test_a_drawing_that_fails_costs_no_model_and_is_a_warning(tmp_path, no_font, capsys):
    model = fc.fit(
        tiny.plain(), horizon=7, config=tiny.NETWORK, out=tmp_path / "model", report=tmp_path / "a.html"
    )
    shown = " ".join(capsys.readouterr().out.split())
    for name in ("loss.png", "forecast.png", "report.html"):
        assert f"no {name}: no font" in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    again = fc.load(tmp_path / "model").predict(tiny.plain())
    np.testing.assert_array_equal(again.quantiles, model.predict(tiny.plain()).quantiles)


@pytest.mark.long
def test_a_drawing_that_fails_costs_no_forecast_and_no_scores(
    tmp_path, monkeypatch, no_font, shell, empty_store
):
    shutil.copy(empty_store, tmp_path / "runs.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/runs.db")
    monkeypatch.chdir(tmp_path)
    tiny.network_model().save("model")
    tiny.plain().write_csv("plain.csv")
    first = shell(*["predict", "model", "plain.csv", "--out", "rows.csv", "--plot", "a.png"])
    words = "backtest model plain.csv --windows 1 --out scores.csv --plot b.png --report c.html"
    second = shell(*words.split())
    assert not first.code and not second.code
    for name in ("a.png", "b.png", "c.html"):
        assert f"no {name}: no font; everything else is complete" in first.err + second.err
    for name in ("backtest.png", "report.html"):
        assert f"no {name}: no font; the scores are complete" in second.out
    assert "tracked, see it with" in second.out and "MLflow store" not in second.out
    made = {path.name for path in tmp_path.iterdir()}
    assert made - {"mlartifacts"} == {"model", "plain.csv", "rows.csv", "scores.csv", "runs.db"}


@pytest.mark.long
def test_what_happens_is_said_with_its_seconds(monkeypatch, capsys):
    import time

    from forecaster.runs import console, pipeline, progress

    def slow(*given):
        time.sleep(0.3)
        return resolve(*given)

    resolve = pipeline.resolve
    monkeypatch.setattr(console, "_SHORT", 0.2)
    monkeypatch.setattr(progress, "_QUIET_SECONDS", -1)
    monkeypatch.setattr(pipeline, "resolve", slow)
    fc.fit(tiny.plain(), horizon=7, config=tiny.TINY)
    shown = capsys.readouterr().out
    assert re.search(r"choosing experts and their settings … \d s\n", shown)
    assert re.search(r"step 2/2, loss … · best validation \d\.\d+, at most 0 s left\n", shown)
    assert re.search(r"experts: (\S+ \d+ %, ){3}\d+ others; network weight \d+ %\n", shown)
    assert "nan" not in shown


def _fit(out, overwrite=True, **options):
    given = {"config": tiny.NETWORK, "quiet": True, "out": out, "overwrite": overwrite}
    return fc.fit(tiny.plain(), horizon=7, **given, **options)


@pytest.mark.usefixtures("undrawn")
def test_a_second_fit_replaces_a_model_and_deletes_no_other_file(tmp_path):
    model = tmp_path / "model"
    _fit(model, overwrite=False)
    with pytest.raises(fc.OutputError, match="model: exists; replace it with `overwrite`"):
        _fit(model, overwrite=False)
    _fit(model)
    names = ["notes.txt", "notebook.ipynb", "photos", "thesis\x1b[31m.tex"]
    for name in names:
        (model / name).mkdir() if name == "photos" else (model / name).write_text("years")
    before = tiny.tree(tmp_path)
    with pytest.raises(fc.OutputError, match="holds what is not part of a saved model") as refused:
        _fit(model)
    assert "'notebook.ipynb', 'notes.txt', 'photos' and 1 more; move it" in str(refused.value)
    with pytest.raises(fc.OutputError, match=r"holds what is not part .*: 'notes.txt'"):
        for name in ("notebook.ipynb", "photos", "thesis\x1b[31m.tex"):
            (model / name).rmdir() if name == "photos" else (model / name).unlink()
        tiny.plain_model().save(model)
    (model / "notes.txt").unlink()
    assert set(tiny.tree(tmp_path)) == set(before) - {f"model/{name}" for name in names} - {
        "model/photos/"
    }
    tiny.plain_model().save(model)


def test_a_second_convert_deletes_no_other_file(tmp_path):
    store = tmp_path / "store"
    fc.convert(tiny.plain(), store, quiet=True)
    with pytest.raises(fc.OutputError, match="store: exists; replace it with `overwrite`"):
        fc.convert(tiny.plain(), store, quiet=True)
    fc.convert(tiny.plain(), store, overwrite=True, quiet=True)
    (store / "sales.csv").write_text("years")
    before = tiny.tree(tmp_path)
    with pytest.raises(fc.OutputError, match=r"not part of a panel store .*: 'sales.csv'; move it"):
        fc.convert(tiny.plain(), store, overwrite=True, quiet=True)
    assert tiny.tree(tmp_path) == before


@pytest.mark.long
@pytest.mark.usefixtures("undrawn")
def test_an_output_that_is_a_link_is_written_through(tmp_path):
    (tmp_path / "disk").mkdir()
    for name in ("model", "store", "rows.csv"):
        (tmp_path / name).symlink_to(tmp_path / "disk" / name)
    for _ in range(2):
        model = _fit(tmp_path / "model")
        fc.convert(tiny.plain(), tmp_path / "store", overwrite=True, quiet=True)
        model.predict(tiny.plain()).write(tmp_path / "rows.csv")
        for shard in (None, (1, 1), None):  # the last one merges the parts
            model.predict_to(tmp_path / "rows.csv", tiny.plain(), shard=shard, overwrite=True)
    for place in (tmp_path, tmp_path / "disk"):
        inside = sorted(path.name for path in place.iterdir())
        assert [name for name in inside if name != "disk"] == ["model", "rows.csv", "store"]
    assert all((tmp_path / name).is_symlink() for name in ("model", "store", "rows.csv"))
    fc.load(tmp_path / "disk" / "model")


FAR = "cutoff 9999-12-31 is 2,913,074 steps of 1d after the end of the table, 2024-04-09; expected at most"


def test_a_cutoff_of_the_far_future_is_refused_before_any_memory_is_taken(tmp_path, monkeypatch):
    from forecaster.panel.panel import Panel

    model, table = tiny.plain_model(), tiny.plain()
    monkeypatch.setattr(Panel, "reaching", None)
    for forecast in (
        lambda: model.predict(table, cutoff="9999-12-31"),
        lambda: model.predict_to(tmp_path / "rows.csv", table, cutoff=date(9999, 12, 31)),
        lambda: model.explain(table, only="a", cutoff="9999-12-31"),
    ):
        with pytest.raises(fc.DataError, match=FAR):
            forecast()
    assert not list(tmp_path.iterdir())


def test_a_cutoff_far_after_an_irregular_table_is_refused(make_panel):
    panel = make_panel(irregular=True)
    with pytest.raises(
        fc.DataError, match=r"cutoff 9999-12-31 .* steps of .* after the end of the table, .*; expected"
    ):
        resolve_window(tiny.plain_model().artifact, panel, "9999-12-31")


def _served(monkeypatch, table, **params):
    """What a server answers, as JSON that any reader takes."""
    from types import SimpleNamespace

    import mlflow.models
    from mlflow.pyfunc.scoring_server import predictions_to_json

    monkeypatch.setattr(mlflow.models, "set_model", lambda model: None)
    from forecaster.runs import served

    monkeypatch.setattr(served, "load_artifact", lambda path: tiny.plain_model().artifact)
    model = served.ServedForecaster()
    model.load_context(SimpleNamespace(artifacts={"model": ""}))
    answer = io.StringIO()
    predictions_to_json(model.predict(None, table, params), answer)

    def refused(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(answer.getvalue(), parse_constant=refused)["predictions"]


@pytest.mark.filterwarnings("ignore")
def test_a_served_forecast_that_is_missing_is_null(monkeypatch):
    late = tiny.plain().with_columns(sales=pl.when(pl.col("store") != "a").then("sales")).to_pandas()
    rows = _served(monkeypatch, late)
    missing = [row for row in rows if row["store"] == "a"]
    assert len(missing) == 7 and all(row["forecast"] is None for row in missing)
    assert all(row["forecast"] > 0 for row in rows if row["store"] != "a")
    with pytest.raises(Exception, match=FAR):
        _served(monkeypatch, tiny.plain().to_pandas(), cutoff="9999-12-31")


ESCAPE = "a\x1b]0;owned\x07\x9b31m\u202e"


@pytest.mark.usefixtures("undrawn")
def test_control_characters_of_a_table_reach_no_terminal(tmp_path, monkeypatch, shell):
    monkeypatch.chdir(tmp_path)
    odd = tiny.plain().with_columns(store=pl.col("store").replace({"a": ESCAPE}))
    odd = odd.rename({"sales": f"sales{ESCAPE}"})
    odd.write_parquet("odd.parquet")
    tiny.write_tiny(tmp_path / "quick.yaml", model=tiny.TINY["model"] | {"experts": []})
    pl.concat([odd, odd.head(3)]).write_parquet("twice.parquet")
    for words in (
        ["check", "odd.parquet"],
        ["check", "odd.parquet", "--target", ESCAPE],
        ["check", "twice.parquet"],
        ["check", f"{ESCAPE}.csv"],
        ["fit", "odd.parquet", "--horizon", "50", "--config", "quick.yaml", "--out", "model"],
        ["predict", ESCAPE, "odd.parquet", "--out", "rows.csv"],
    ):
        _, out, err = shell(*words)
        text = out + err
        assert not set(text) & set("\x1b\x07\x9b\u202e"), words
        assert "\\x1b" in text, words


VERBS = ("predict", "predict_to", "backtest", "detect")
NUMBERS = [
    (function, name, value)
    for function in (fc.fit, fc.tune, fc.check, *(getattr(fc.Forecaster, verb) for verb in VERBS))
    for name, option in inspect.signature(function).parameters.items()
    for value in ("x", ["a"], 2.5, None)
    if name != "only" and re.search(r"\b(int|float)\b", str(option.annotation))  # names may be numbers
    if value is not None or "None" not in str(option.annotation)
    if value != 2.5 or "float" not in str(option.annotation)
]


@pytest.mark.parametrize(
    ("function", "name", "value"), NUMBERS, ids=lambda part: getattr(part, "__qualname__", str(part))
)
def test_a_number_of_another_kind_is_refused_by_name(tmp_path, function, name, value):
    given = {"data": tiny.plain(), name: value}
    if "path" in inspect.signature(function).parameters:
        given["path"] = tmp_path / "rows.csv"
    if function in (fc.fit, fc.tune):
        given = {"horizon": 7, "config": tiny.TINY} | given
    model = () if function in (fc.fit, fc.tune, fc.check) else (tiny.plain_model(),)
    with pytest.raises(fc.ForecasterError, match=name):
        function(*model, **given)
    assert not list(tmp_path.iterdir())


def test_an_option_of_another_kind_is_refused_by_name(tmp_path):
    model, table = tiny.plain_model(), tiny.plain()
    for call, message in (
        (
            lambda: model.predict(None),
            "expected a path or a pandas, polars or pyarrow frame, found None",
        ),
        (lambda: model.predict(table, horizon="3"), "horizon='3': expected a whole number, found str$"),
        (lambda: fc.fit(table, 7, config=tiny.config_with(quantile_levels=["a"])), "quantile_levels"),
        (lambda: model.backtest(table, stride=0), "stride 0: expected 1 or more"),
    ):
        with pytest.raises(fc.ForecasterError, match=message):
            call()
    for bound in ({"upper": 1e39}, {"lower": -1e39}):
        config = tiny.TINY | {"target": bound}
        with pytest.raises(fc.ConfigError, match=rf"target.{next(iter(bound))}: Input should be"):
            fc.fit(table, horizon=7, config=config)


def test_a_slow_git_records_no_commit(monkeypatch):
    from forecaster.fitting.versions import versions

    def slow(*words, **options):
        raise subprocess.TimeoutExpired("git", 5)

    monkeypatch.setattr(subprocess, "run", slow)
    assert "git_commit" not in versions.__wrapped__()  # asked again


def test_a_store_that_fails_is_described_without_the_class_of_the_error():
    from forecaster.errors import first_line

    raised = (
        "(sqlite3.OperationalError) disk I/O error\n[SQL: INSERT]\n(Background on this error at: …)"
    )
    assert first_line(raised) == "disk I/O error"
    assert first_line("(none) left") == "(none) left" and first_line(KeyError("x")) == "'x'"


@pytest.mark.long
def test_nothing_about_tracking_paths_or_output_is_taken_from_an_artifact(
    tmp_path, monkeypatch, empty_store
):
    shutil.copy(empty_store, tmp_path / "own.db")
    from forecaster.runs import pipeline, tracking

    (tmp_path / "work").mkdir()
    (tmp_path / "planted").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/own.db")
    planted = str(tmp_path / "planted")
    store = f"sqlite:///{planted}/mlflow.db"
    extra = {
        "tracking": {"enabled": True, "uri": store, "experiment": "planted"},
        **{name: planted for name in ("uri", "out", "path", "report", "folder", "callback")},
    }
    tiny.network_model().save("model")
    for name in ("contract.json", "metrics.json", "plan.json"):
        path = tmp_path / "work" / "model" / name
        before = path.read_text()
        path.write_text(json.dumps(json.loads(before) | extra))
        if name == "plan.json":
            with pytest.raises(fc.ArtifactError, match=r"plan\.json: "):
                fc.load("model")
            path.write_text(before)
    model = fc.load("model")
    assert planted not in repr(model.config) and model.tracking.uri is None
    used = []

    def opening(config, *words, **options):
        used.append(tracking.tracking_uri(config))
        off = config.model_copy(update={"enabled": False})
        return tracking.open_run(off, *words, **options)

    monkeypatch.setattr(pipeline, "open_run", opening)
    model.backtest(tiny.plain(), windows=1, quiet=True)
    assert used == [f"sqlite:///{tmp_path}/own.db"]
    model.predict_to("rows.csv", tiny.plain())
    model.explain(tiny.plain(), only="a")
    model.save("again")
    kept = [(tmp_path / "work/again" / name).read_text() for name in ("contract.json", "plan.json")]
    assert planted not in "".join(kept)
    assert not list((tmp_path / "planted").iterdir())
    assert sorted(path.name for path in (tmp_path / "work").iterdir()) == ["again", "model", "rows.csv"]
