"""The Python face: fit · load · check, and `Forecaster` with predict, backtest, explain, save.

What comes in: a path, a glob, or a pandas, polars or Arrow frame. What goes out: forecasts and scores
as the same kind of frame. Everything heavy loads when it is needed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from rich.console import Console

from forecaster.arguments import SETTINGS, FitOptions, Names, Reading, Roles, config_of
from forecaster.config import Config
from forecaster.errors import ConfigError, DataError

if TYPE_CHECKING:
    from forecaster.evaluation.backtest import Backtest
    from forecaster.forecast.artifact import Artifact
    from forecaster.forecast.explain import Explanation
    from forecaster.forecast.forecast import Forecast
    from forecaster.forecast.predictor import Progress
    from forecaster.panel.finding import Finding
    from forecaster.panel.panel import Panel


def fit(data: object, horizon: int | None = None, **options: Unpack[FitOptions]) -> Forecaster:
    """Returns a model fitted to a table.

    Args:
        data: path of a CSV or Parquet file, a glob, or a pandas, polars or Arrow frame.
        horizon: steps to forecast; may come from the config instead.
        options: fields of `DataConfig` (`time`, `series`, `target`, `known`, `freq`, ...), `config`
            (a file, a mapping or a Config), `future` (a table whose covariates are known in advance),
            `covariates` (a second table, joined on series and time), `until` (a date; later rows are
            a holdout), `out` (a folder to save to), `warm_start` (a model, or the folder of one,
            whose weights the training starts from), `quiet` (say nothing).

    Raises:
        DataError: the table cannot be understood.
        ConfigError: a setting is wrong.
        FitError: the loss is not finite.

    Example:
        >>> model = fit("sales.csv", horizon=28, known=["price"])   # doctest: +SKIP
    """
    from forecaster.forecast.artifact import check_target
    from forecaster.panel.build import open_panel
    from forecaster.panel.stores.stored import as_converted
    from forecaster.runs.job import run_fit

    roles = {name: value for name, value in options.items() if name not in SETTINGS}
    config = config_of(options.get("config"), horizon, roles)
    out = options.get("out")
    if out is not None:
        check_target(Path(out))
    start = _started_from(options.get("warm_start"))
    config = config.replaced(data=as_converted(data, config.data).model_dump())
    panel = open_panel(
        data, config.data, covariates=options.get("covariates"), future=options.get("future")
    )
    until = options.get("until")
    if until is not None:
        time, text = panel.calendar.parse(until), panel.calendar.text
        begin = int(panel.time.min())
        if time < begin:
            raise DataError(f"{panel.name}: --until {until}: the table begins at {text(begin)}")
        panel = panel.until(time)
    console = Console(quiet=options.get("quiet", False))
    folder = Path(out) if out is not None else None
    return Forecaster(run_fit(panel, config, folder, console, start))


def convert(
    data: object,
    store: str | Path,
    covariates: object | None = None,
    future: object | None = None,
    quiet: bool = False,
    **roles: Unpack[Roles],
) -> Panel:
    """Writes a table of any size to a folder that `fit`, `predict`, `backtest` and `check` take.

    Args:
        data: path of files larger than memory, or any other table.
        store: the folder; it appears whole or not at all.
        covariates: a second table, joined on series and time; it has to fit in memory.
        future: a table of the covariates known in advance; it has to fit in memory.
        quiet: say nothing.
        roles: of columns, as in `fit`.

    Raises:
        DataError: the table cannot be understood.
        OutputError: the folder is something else, or the disk is full.

    Example:
        >>> convert("sales/*.parquet", "sales.store", known=["price"])   # doctest: +SKIP
    """
    from forecaster.runs.convert import run_convert

    config, console = config_of(None, None, roles), Console(quiet=quiet)
    return run_convert(data, Path(store), config.data, covariates, future, console)


def load(path: str | Path) -> Forecaster:
    """Returns the model saved in a folder; runs no code from it.

    Raises:
        ArtifactError: there is none, it is damaged, or a newer version wrote it.
    """
    from forecaster.forecast.artifact import load_artifact

    return Forecaster(load_artifact(path))


def check(
    data: object,
    horizon: int | None = None,
    future: object | None = None,
    covariates: object | None = None,
    **roles: Unpack[Roles],
) -> list[Finding]:
    """Returns what is remarkable about a table, worst first; empty when nothing is.

    Args:
        data: path, glob or frame.
        horizon: steps that will be forecast, to find series too short for it.
        future: a table of the covariates known in advance.
        covariates: a second table, joined on series and time.
        roles: of columns, as in `fit`.

    Raises:
        DataError: the table cannot be understood at all.
    """
    from forecaster.panel.audit import check_panel
    from forecaster.panel.build import open_panel

    config = config_of(None, horizon, roles)
    return check_panel(open_panel(data, config.data, covariates=covariates, future=future), horizon)


class Forecaster:
    """A fitted model."""

    def __init__(self, artifact: Artifact):
        self.artifact = artifact

    def __repr__(self) -> str:
        schema = self.artifact.schema
        return f"Forecaster({', '.join(schema.target)}: {self.artifact.horizon} steps of {schema.freq})"

    @property
    def config(self) -> Config:
        """The resolved config it was fitted with."""
        return self.artifact.config

    @property
    def metrics(self) -> dict[str, Any]:
        """Validation scores beside seasonal naive's, and the loss curves."""
        return self.artifact.metrics

    def open(
        self,
        data: object,
        future: object | None = None,
        covariates: object | None = None,
        **roles: Unpack[Roles],
    ) -> Panel:
        """Returns a table opened with this model's roles, categories and frequency.

        Args:
            data: path, glob or frame.
            future: covariates known in advance.
            covariates: a second table, joined on series and time.
            roles: columns that are called otherwise in this table, in the model's order.
        """
        from forecaster.panel.build import open_panel

        told = config_of(None, None, roles).data
        schema = self.artifact.schema.renamed(told)
        # What the fit was told holds, unless this table is said to be written otherwise.
        reading = self.config.replaced(data=told.model_dump(include=set(roles))).data
        return open_panel(data, reading, schema=schema, covariates=covariates, future=future)

    def predict(
        self,
        data: object,
        future: object | None = None,
        covariates: object | None = None,
        cutoff: str = "own",
        horizon: int | None = None,
        progress: Progress | None = None,
        samples: int | None = None,
        seed: int = 0,
        **roles: Unpack[Roles],
    ) -> Forecast:
        """Returns the forecast of every series in a table.

        Args:
            data: history, with the columns the model was fitted to.
            future: covariates known in advance, for the steps to forecast.
            covariates: a second table, joined on series and time.
            cutoff: "own" = each series' last observation; "last" = the latest of all; or a date.
            horizon: None = as fitted; more steps need an autoregressive decoder.
            progress: called with (series done, series wanted).
            samples: paths to keep (`Forecast.samples`); they need an autoregressive decoder.
            seed: of the paths, which are the same for the same seed, series and cutoff.
            roles: columns that are called otherwise in this table, in the model's order.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.
            ConfigError: the model cannot reach that far, or has no paths.
        """
        from forecaster.forecast.paths import Draws
        from forecaster.forecast.predictor import Predictor

        panel = self.open(data, future, covariates, **roles)
        return Predictor(self.artifact).predict(panel, cutoff, horizon, progress, Draws(samples, seed))

    def backtest(
        self,
        data: object,
        windows: int = 8,
        refit: str = "once",
        stride: int | None = None,
        covariates: object | None = None,
        quiet: bool = False,
        **roles: Unpack[Roles],
    ) -> Backtest:
        """Returns forecasts at past cutoffs with the truth beside them, and scores.

        Args:
            data: history, with the columns the model was fitted to.
            windows: how many cutoffs.
            refit: "once" = fit the same config before the first cutoff; "each" = before every one;
                "never" = use these weights, refused if they have seen a scored row.
            stride: steps between cutoffs; None = the horizon.
            covariates: a second table, joined on series and time.
            quiet: say nothing.
            roles: columns that are called otherwise in this table, in the model's order.

        Raises:
            ConfigError: `refit` is unknown, or "never" would be dishonest.
        """
        from forecaster.runs.job import BacktestPlan, run_backtest_job

        if refit not in ("once", "each", "never"):
            raise ConfigError(f"refit {refit!r}: expected once, each or never")
        if windows < 1 or (stride is not None and stride < 1):
            raise ConfigError(f"windows {windows}, stride {stride}: expected 1 or more")
        plan = BacktestPlan(windows, refit, stride)  # type: ignore[arg-type]
        panel = self.open(data, covariates=covariates, **roles)
        return run_backtest_job(self.artifact, panel, plan, self.config, Console(quiet=quiet))

    def explain(
        self,
        data: object,
        series: str | None = None,
        channel: str | None = None,
        cutoff: str = "own",
        future: object | None = None,
        covariates: object | None = None,
        keys: Names | None = None,
        **roles: Unpack[Reading],
    ) -> Explanation:
        """Returns what the forecast of one series looked at, and what moves it.

        Args:
            data: history, with the columns the model was fitted to.
            series: its key (several key columns joined with "/"); None where there is but one.
            channel: the column to forecast; None = the first.
            cutoff: "own" = the series' last observation; or a date, with the truth that followed.
            future: covariates known in advance, for the steps to forecast.
            covariates: a second table, joined on series and time.
            keys: columns that together name a series, where they are called otherwise in this table.
            roles: other columns that are called otherwise in this table, in the model's order.

        Raises:
            DataError: the table does not fit the model, or has no such series or channel.

        Example:
            >>> model.explain("sales.csv", series="store_1").write("attention.html")  # doctest: +SKIP
        """
        from forecaster.forecast.explain import explain

        named: dict[str, Any] = {**roles} if keys is None else {**roles, "series": keys}
        panel = self.open(data, future, covariates, **named)
        return explain(self.artifact, panel, series, channel, cutoff)

    def save(self, path: str | Path) -> None:
        """Writes the model to a folder, whole or not at all.

        Raises:
            OutputError: the folder cannot be written, or holds something else.
        """
        self.artifact.save(path)


def _started_from(model: object | None) -> Artifact | None:
    """Returns the artifact of a model, or of the folder of one."""
    if isinstance(model, str | Path):
        model = load(model)
    if model is not None and not isinstance(model, Forecaster):
        raise ConfigError(
            f"warm_start: expected a model or the folder of one, found {type(model).__name__}"
        )
    return None if model is None else model.artifact
