"""Every option changes what it should on a table made for it, or is refused: no option does nothing.

Options of a table are tried with each verb that reads one, those of `fit` and of `backtest` each with its verb. A
new option without a row fails.
"""

from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from inspect import signature
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import holidays
import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc
from forecaster.config import Config, config_from
from forecaster.errors import ForecasterError
from forecaster.options import DataOptions
from forecaster.panel.build import open_panel
from forecaster.panel.panel import Panel

HORIZON = 3
DAYS = 60
CLOSED = holidays.country_holidays("DE", years=2024)


class Row(NamedTuple):
    """An option of a table, and what it changes there."""

    table: object
    value: object
    options: Mapping[str, Any] = {}
    """Others that go with it."""
    changes: str = "values"
    """rows, values of the same rows, or notes alone; else what the refusal of the option says."""
    by_verb: Mapping[str, str] = {}
    """What it changes with some verbs, where that differs."""
    without: str = ""
    """What the refusal says where the option is left out; empty = it is not refused."""


def _table(rows: int = DAYS, ahead: int = 10, **columns: object) -> pl.DataFrame:
    """A weekly season that a promotion known in advance raises, and further columns; none has the last values."""
    rng = np.random.default_rng(3)
    promo = (rng.random(rows) < 0.3).astype(float)
    y = 20 + 3 * np.sin(2 * np.pi * np.arange(rows) / 7) + 9 * promo + rng.normal(size=rows)
    days = [tiny.day(number) for number in range(rows)]
    table = pl.DataFrame({"day": days, "y": y.round(2), "promo": promo} | columns)
    return _open_ended(table, ahead)


def _open_ended(table: pl.DataFrame, ahead: int = 10) -> pl.DataFrame:
    """The table without the last values: they are forecast."""
    return table.with_columns(pl.when(pl.int_range(pl.len()) < len(table) - ahead).then("y").alias("y"))


def _stores(count: int, rows: int = 40) -> pl.DataFrame:
    """Stores of one weekly season at several levels; sizes say which."""
    parts = [
        _table(rows).with_columns(
            pl.col("y") * (number + 1), store=pl.lit(f"s{number}"), size=pl.lit(1.5 + number)
        )
        for number in range(count)
    ]
    return pl.concat(parts)


def _text(table: pl.DataFrame, *, time: str = "%Y-%m-%d", mark: str = ".", between: str = ";") -> str:
    """A table as text, written to a file by the test."""
    cells = [
        [day.strftime(time), "" if y is None else f"{y:.3f}".replace(".", mark), f"{promo:g}"]
        for day, y, promo in table.rows()
    ]
    return "\n".join(between.join(row) for row in [table.columns, *cells])


def _tables() -> dict[str, Row]:
    rng = np.random.default_rng(5)
    long, every = _stores(3), np.arange(DAYS)
    signal = rng.normal(size=250)
    # Two weeks later, so that it drives every lead of a detection, too.
    driven = _table(250, signal=signal).with_columns(y=pl.Series(5 * np.roll(signal, 14)))
    driven = _open_ended(driven)
    kinds, price = rng.choice([10, 20, 30, 40], DAYS), rng.normal(size=DAYS)
    silent = _stores(7).with_columns(pl.when(pl.col("store") != "s6").then("y").alias("y"))
    shut = _table().with_columns(
        pl.col("y") - 9 * pl.Series([tiny.day(int(n)) in CLOSED for n in every]).cast(float)
    )
    months = _table(12, ahead=3).with_columns(
        pl.date_range(tiny.day(0), tiny.day(335), "1mo", eager=True).alias("day")
    )
    twice = pl.concat([_table(), _table().with_columns(pl.col("y") + 1)])
    regions = pl.concat([long.with_columns(region=pl.lit(name)) for name in "ns"])
    days = [f"{day:%Y-%m-%d};{y or ''};{promo:g}" for day, y, promo in _table().rows()]
    stores = "\n".join(
        ["store;day;y;promo", *(f"{name};{line}" for name in ("Café", "Dora") for line in days)]
    )
    # The clocks of the last Sunday in October show two o'clock twice.
    hours = [f"2023-10-{28 + hour // 24} {hour % 24:02}:00" for hour in range(59)]
    hours.insert(27, "2023-10-29 02:00")
    rows = zip(hours, _table().rows(), strict=True)
    clocks = "\n".join(
        ["time;y;promo", *(f"{hour};{y or ''};{promo:g}" for hour, (_, y, promo) in rows)]
    )
    return {
        "time": Row(_table(other=[tiny.day(2 * int(n)) for n in every]), "other", changes="rows"),
        "series": Row(_table(store=["b"] * 40 + ["a"] * 20), (), changes="rows"),
        "target": Row(_table().with_columns(z=-pl.col("y")), "z", changes="rows"),
        "label": Row(long, "store", changes="classes"),
        "known": Row(
            _table(price=price).with_columns(pl.col("y") + 4 * pl.Series(price)), ("promo", "price")
        ),
        "past": Row(driven, ()),
        "static": Row(silent, (), by_verb={"detect": "notes"}),
        "categorical": Row(
            _open_ended(_table(kind=kinds).with_columns(y=pl.Series(20.0 + 9 * (kinds == 20)))),
            "kind",
            {"known": ("promo", "kind"), "categorical": ()},
        ),
        "freq": Row(
            _table().filter(pl.col("day").dt.weekday() < 6),
            "1d",
            by_verb={"detect": "rows", "backtest --no-fit": "rows"},
        ),
        "resample": Row(_table(), "2d", {"agg": "sum"}, without="expected the step to aggregate to"),
        "agg": Row(_table(), "max", {"resample": "2d", "agg": "mean"}),
        "season_length": Row(_table(), 5),
        "periods": Row(_table(), (11,)),
        "layout": Row(long.drop("size"), "wide", changes="rows"),
        "relate": Row(regions.drop("size"), "region", changes="rows"),
        "delimiter": Row(_text(_table(), between="~"), "~", without="no time column found"),
        "decimal": Row(_text(_table(), mark=","), ",", without="may be"),
        "time_format": Row(_text(months), "%Y-%d-%m", changes="rows"),
        "on_duplicates": Row(twice, "mean", without="that disagree"),
        "holidays": Row(shut, "DE"),
        "encoding": Row(stores, "cp1252", changes="rows"),
        "skip_rows": Row("Sales of a shop\n" + _text(_table()), 1, without="pass skip_rows=1"),
        "time_zone": Row(clocks, "Europe/Berlin", without="pass time_zone=Europe/Berlin"),
    }


TABLES = _tables()


class Outcome(NamedTuple):
    """What a verb returns, in comparable parts."""

    refusal: str = ""
    rows: object = None
    """Names of columns, and keys."""
    values: object = None
    """Numbers, reasons, and what is said of them: which rows are anomalies, and of which event."""
    notes: object = None


def _outcome(frame: pl.DataFrame, *notes: object, also: object = None) -> Outcome:
    found = pl.selectors.float() | pl.selectors.by_name("status", "anomaly", "event", require_all=False)
    rows, values = (frame.select(part).write_csv() for part in (~found, found))
    return Outcome(
        "", (frame.columns, rows), (values, also), [one.text for note in notes for one in note]
    )


def _predict(table: object, **options: Any) -> Outcome:
    forecast = fc.predict(table, HORIZON, fill_known="last", **options)
    return _outcome(forecast.frame, forecast.findings)


def _what_if(table: object, **options: Any) -> Outcome:
    answer = fc.what_if(table, HORIZON, None, "promo=1", samples=20, fill_known="last", **options)
    return _outcome(answer.frame, answer.findings)


def _detect(table: object, **options: Any) -> Outcome:
    anomalies = fc.detect(table, **options)
    return _outcome(anomalies.frame, anomalies.panel.notes)


def _first_series(table: object, options: Mapping[str, Any]) -> str:
    """The first series of a table, "" where it is refused: the call says why."""
    data = config_from(None, None, options).data
    try:
        return "s0" if data.label else open_panel(table, data).series_names[0]
    except ForecasterError:
        return ""


def _explain(table: object, **options: Any) -> Outcome:
    series = _first_series(table, options)
    explanation = fc.explain(table, HORIZON, only=series, **options)
    forecast = explanation.forecast
    return _outcome(forecast.frame, forecast.findings, also=repr(explanation.importance))


def _scored(table: object, **options: Any) -> Outcome:
    said = StringIO()
    with redirect_stdout(said):
        scores = fc.backtest(table, HORIZON, 1, fit=False, **options)
    lines = [line for line in said.getvalue().splitlines() if line.startswith("no fit: ")]
    return _outcome(scores.frame)._replace(notes=lines)


VERBS = {
    "predict": _predict,
    "what_if": _what_if,
    "detect": _detect,
    "explain": _explain,
    "backtest --no-fit": _scored,
}
QUICK = "predict"


def _tried(verb: str, table: object, options: Mapping[str, Any]) -> Outcome:
    try:
        return VERBS[verb](table, **options)
    except ForecasterError as error:
        return Outcome(refusal=str(error))


def test_every_option_of_a_table_has_a_row():
    assert {*TABLES} == {*DataOptions.__annotations__}


def _given(name: str, folder: Path) -> tuple[Row, object, dict[str, Any]]:
    """The row of an option, its table, which may be a file, and the options beside it."""
    row = TABLES[name]
    if not isinstance(row.table, str):
        return row, row.table, {"known": "promo"} | row.options
    (folder / "table.csv").write_text(row.table)
    return row, folder / "table.csv", {"known": "promo"} | row.options


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=[pytest.mark.slow] * (verb != QUICK)) for verb in VERBS]
)
def test_an_option_of_a_table_changes_what_it_should(verb, name, tmp_path):
    row, table, options = _given(name, tmp_path)
    without = _tried(verb, table, options)
    given = _tried(verb, table, options | {name: row.value})
    changes = row.by_verb.get(verb, row.changes)
    assert row.without in without.refusal and bool(row.without) == bool(without.refusal)
    if changes not in Outcome._fields:
        assert changes in given.refusal
        return
    assert not given.refusal
    if not row.without:
        assert changes == next(
            (part for part in Outcome._fields if getattr(without, part) != getattr(given, part)),
            "nothing",
        )


class _Reached(BaseException):
    """Stands for the work that follows; holds its arguments."""


@pytest.fixture
def reached(monkeypatch):
    """Calls a function up to another one, and returns what that is called with."""

    def call(name: str, function: Callable[[], object]) -> tuple[object, ...]:
        def stop(*args: object, **named: object) -> None:
            raise _Reached(*args, *named.values())

        with monkeypatch.context() as patch, pytest.raises(_Reached) as found:
            patch.setattr(name, stop)
            function()
        return found.value.args

    return call


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("verb", ["run_fit", "run_backtest_pipeline"])
def test_an_option_of_a_table_reaches_a_fit_and_a_backtest(verb, name, tmp_path, reached):
    row, table, options = _given(name, tmp_path)
    function = fc.fit if verb == "run_fit" else fc.backtest

    def read(**more: object) -> str:
        try:
            found = reached(
                f"forecaster.runs.pipeline.{verb}", lambda: function(table, HORIZON, **options | more)
            )
        except ForecasterError as error:
            return str(error)
        panel = next(one for one in found if isinstance(one, Panel))
        config = next(one for one in found if isinstance(one, Config))
        rows = (panel.series_names, panel.time.tolist(), panel.values.tolist(), panel.codes.tolist())
        return repr((rows, panel.schema, config.data))

    without, given = read(), read(**{name: row.value})
    assert without != given and row.without in without


# The other options of fit


PLAIN = _table().drop("promo")
PROMO = _table().select("day", "promo")
AHEAD = PROMO.with_columns(pl.col("day").dt.offset_by("60d")).head(20)  # the days after them


def _fit(table: object = PLAIN, horizon: int = HORIZON, **options: Any) -> fc.Forecaster:
    usual = {"experts": "naive", "config": tiny.TINY, "tracking": False, "quiet": True}
    return fc.fit(table, horizon, **usual | options)


class _Started(NamedTuple):
    """What a fit begins with."""

    panel: Panel
    config: Config
    start: object


def _started(reached: Callable[..., tuple], **options: Any) -> _Started:
    panel, config, _, _, start, *_ = reached(
        "forecaster.runs.pipeline.run_fit", lambda: _fit(**options)
    )
    return _Started(panel, config, start)


def _refused(function: Callable[..., object], text: str, **options: Any) -> bool:
    with pytest.raises(ForecasterError, match=text):
        function(**options)
    return True


def _overwritten() -> bool:
    _fit(out="model")
    return _refused(_fit, "exists", out="model") and bool(_fit(out="model", overwrite=True))


def _interrupted(monkeypatch: pytest.MonkeyPatch, **options: Any) -> dict[str, Any]:
    """Ends a fit of a network before its fourth step; returns the options of the same fit."""

    def stop(self: object, trainer: Any, *rest: object) -> None:
        if trainer.global_step == 3:
            raise _Reached

    config = tiny.TINY | {"fit": {"steps": 5, "batch_size": 32}}
    options |= {"experts": "none", "out": "model", "config": config}
    with monkeypatch.context() as patch, pytest.raises(_Reached):
        patch.setattr("forecaster.runs.progress.TrainingBar.on_train_batch_start", stop)
        _fit(**options)
    return options


def _restarted(monkeypatch: pytest.MonkeyPatch) -> bool:
    options = _interrupted(monkeypatch, checkpoint_every=1) | {"lower": 0.0}
    return _refused(_fit, "interrupted", **options) and bool(_fit(**options, restart=True))


def _prints(function: Callable[..., object], capsys: pytest.CaptureFixture[str]) -> bool:
    function(quiet=True)
    silent = "".join(capsys.readouterr())
    function(quiet=False)
    return not silent and bool("".join(capsys.readouterr()))


FIT: dict[str, Callable[..., bool]] = {
    "horizon": lambda reached: _started(reached, horizon=4).config.horizon == 4,
    "config": lambda reached: _started(reached, config={"fit": {"seed": 5}}).config.fit.seed == 5,
    "preset": lambda reached: (
        _started(reached, experts=None, preset="vanilla").config.model.style == "vaswani2017"
    ),
    "future": lambda reached: _started(reached, table=_table(), future=AHEAD).panel.schema.known != (),
    "covariates": lambda reached: _started(reached, covariates=PROMO).panel.schema.past == ("promo",),
    "until": lambda reached: len(_started(reached, until="2024-02-01").panel.time) == 32,
    "out": lambda: bool(_fit(out="model")) and Path("model/contract.json").exists(),
    "overwrite": _overwritten,
    "warm_start": lambda reached: _started(reached, warm_start=_fit()).start is not None,
    "restart": lambda monkeypatch: _restarted(monkeypatch),
    "checkpoint_every": lambda monkeypatch, capsys: (
        bool(_interrupted(monkeypatch, checkpoint_every=1, quiet=False))
        and "stopped at step 3" in capsys.readouterr().out
    ),
    "devices": lambda reached: reached(DISTRIBUTED, lambda: _fit(devices=2)) == (2, None),
    "nodes": lambda: _refused(_fit, "nodes=2: this command runs on one machine", nodes=2),
    "precision": lambda: _network(precision="bf16") != _network(),
    "compile": lambda reached: bool(reached("torch.compile", lambda: _network(compile=True))),
    "budget": lambda: (
        _fit(experts="none", budget=0.001).artifact.plan.fit.steps < tiny.TINY["fit"]["steps"]
    ),
    "experts": lambda reached: _started(reached, experts="drift").config.model.experts == ("drift",),
    "select": lambda reached: bool(reached(SELECT, lambda: _fit(experts=None, select=True))),
    "lower": lambda reached: _started(reached, lower=1.0).config.target.lower == 1.0,
    "upper": lambda reached: _started(reached, upper=99.0).config.target.upper == 99.0,
    "integer": lambda reached: _started(reached, integer=True).config.target.integer,
    "report": lambda: bool(_fit(report="page.html")) and Path("page.html").exists(),
    "tracking": lambda reached: not reached(RUN, _fit)[0].enabled and reached(RUN, _tracked)[0].enabled,
    "name": lambda reached: reached(RUN, lambda: _fit(name="first"))[1] == "first",
    "quiet": lambda capsys: _prints(_fit, capsys),
    "device": lambda reached: reached(DEVICE, lambda: _fit(device="cpu")) == ("cpu",),
}
DISTRIBUTED = "forecaster.fitting.distributed.find_distributed_context"
SELECT = "forecaster.runs.selection.select"
DEVICE = "forecaster.model.hardware.on_device"
RUN = "forecaster.runs.pipeline.open_run"


def _network(**options: Any) -> bytes:
    forecast = _fit(experts="none", **options).predict(PLAIN)
    return tiny.bits(forecast.quantiles)


def _tracked() -> fc.Forecaster:
    return _fit(tracking=True, config={"fit": tiny.TINY["fit"]})


def _own(function: Callable[..., object]) -> set[str]:
    """The options of a function that are none of a table."""
    return {*signature(function).parameters} - {*DataOptions.__annotations__, "data"}


def _acts(row: Callable[..., bool], request: pytest.FixtureRequest) -> bool:
    """Whether an option acts; a row names the fixtures that it takes."""
    return row(**{name: request.getfixturevalue(name) for name in signature(row).parameters})


def test_every_option_of_fit_has_a_row():
    assert {*FIT} == _own(fc.fit)


@pytest.mark.slow
@pytest.mark.parametrize("name", FIT)
def test_an_option_of_fit_acts(name, request, tmp_path, monkeypatch, undrawn):
    monkeypatch.chdir(tmp_path)
    assert _acts(FIT[name], request)


# The other options of a backtest


def _score(
    table: object = PLAIN, horizon: int = HORIZON, windows: int = 2, **options: Any
) -> fc.Backtest:
    return fc.backtest(table, horizon, windows, **{"fit": False, "quiet": True} | options)


def _refit(**options: Any) -> list[int]:
    """The last time that each of two fits has seen."""
    scores = _score(fit=True, experts="naive", tracking=False, **options)
    return [one.artifact.trained_until for one in scores.forecasts]


def _updated(**options: Any) -> list[int]:
    """The last time that the models of four cutoffs have seen."""
    tiny_fit = {"config": tiny.TINY, "fit": True, "tracking": False}
    scores = _score(windows=4, **tiny_fit, **options)
    return [one.artifact.trained_until for one in scores.forecasts]


def _columns(**options: Any) -> list[str]:
    return _score(**options).frame.columns


def _pipeline(reached: Callable[..., tuple], **options: Any) -> tuple:
    """What a backtest is made of."""
    return reached(PIPELINE, lambda: _score(**{"fit": True} | options))


def _levels(how: str | None = None) -> str:
    return repr(_score(STORES, hierarchy="store", reconcile=how).level_columns)


PIPELINE = "forecaster.runs.pipeline.run_backtest_pipeline"
STORES = _stores(2).drop("promo", "size")
OTHER = {"mine": PLAIN.select("day", lead=1, forecast=pl.lit(1.0))}
BACKTEST: dict[str, Callable[..., bool]] = {
    "horizon": lambda: _score(horizon=4).frame["lead"].max() == 4,
    "windows": lambda: len(_score(windows=3).forecasts) == 3,
    "refit": lambda: len({*_refit(refit="each")}) == 2 > len({*_refit()}),
    "config": lambda: "q0.25" in _columns(config={"model": {"quantile_levels": [0.25, 0.5, 0.75]}}),
    "preset": lambda reached: _pipeline(reached, preset="vanilla")[0].model.style == "vaswani2017",
    "experts": lambda reached: _pipeline(reached, experts="naive")[0].model.experts == ("naive",),
    "presets": lambda reached: [*_pipeline(reached, presets="vanilla")[8]] == ["preset vanilla"],
    "stride": lambda: _score(stride=5).frame["cutoff"].unique().sort().diff()[1].days == 5,
    "gap": lambda: _refit(gap=2)[0] == _refit()[0] - 2 * 86_400_000_000,
    "others": lambda: "mine" in _score(others=OTHER).scores,
    "hierarchy": lambda: _score(STORES).level_columns is None and _levels() != "None",
    "reconcile": lambda: _levels("bottom-up") != _levels("wls"),
    "covariates": lambda capsys: (
        bool(_score(covariates=PROMO, quiet=False)) and "not read: promo" in capsys.readouterr().out
    ),
    "only": lambda: {*_score(STORES, only="s1").frame["store"]} == {"s1"},
    "fit": lambda: _refit() != [one.artifact.trained_until for one in _score().forecasts],
    "levels": lambda: {"lo-60", "hi-60"} <= {*_columns(levels=60)},
    "quantiles": lambda: "q0.05" in _columns(quantiles=0.05),
    "update_every": lambda: _updated(update_every=3) != _updated(),
    "keep": lambda reached, tmp_path: _pipeline(reached, keep=tmp_path)[11] == tmp_path,
    "quiet": lambda capsys: _prints(_score, capsys),
    "tracking": lambda reached: (
        not _pipeline(reached, tracking=False)[0].tracking.enabled
        and _pipeline(reached)[0].tracking.enabled
    ),
    "name": lambda reached: "first" in _pipeline(reached, name="first"),
    "device": lambda reached: reached(DEVICE, lambda: _score(device="cpu")) == ("cpu",),
}


def test_every_option_of_a_backtest_has_a_row():
    assert {*BACKTEST} == _own(fc.backtest)


@pytest.mark.slow
@pytest.mark.parametrize("name", BACKTEST)
def test_an_option_of_a_backtest_acts(name, request):
    assert _acts(BACKTEST[name], request)
