"""Fitted models: `Forecaster` and `Classifier`, read from a folder or a registry; `Study`, a search."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar, Unpack

from forecaster import options
from forecaster.api.requests import (
    call_of,
    date_text,
    hierarchy_request,
    is_registered,
    other_forecasts,
    refuse,
    runs_on_device,
    total_request,
)
from forecaster.arguments import typed
from forecaster.config import Config, TrackingConfig
from forecaster.errors import ConfigError
from forecaster.forecast.bands import check_levels
from forecaster.forecast.model_folder import check_target
from forecaster.options import DataOptions, Option, public
from forecaster.panel.findings import check_paths

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from forecaster.evaluation.backtest import Backtest
    from forecaster.evaluation.class_backtest import ClassBacktest
    from forecaster.evaluation.monitor import Monitor
    from forecaster.forecast.artifact import Artifact
    from forecaster.forecast.classification import ClassExplanation, Classification
    from forecaster.forecast.detect import Anomalies
    from forecaster.forecast.explain import Explanation
    from forecaster.forecast.forecast import Forecast
    from forecaster.forecast.what_if import WhatIf
    from forecaster.model.class_network import ClassEnsemble
    from forecaster.model.ensemble import Ensemble
    from forecaster.panel.frames import AnyFrame
    from forecaster.panel.panel import Panel
    from forecaster.runs.batch_predict import BatchResult
    from forecaster.runs.registry import Published
    from forecaster.runs.tune.outcome import Outcome
else:
    from forecaster.lazy import (
        Anomalies,
        AnyFrame,
        Backtest,
        BatchResult,
        ClassBacktest,
        ClassExplanation,
        Classification,
        Explanation,
        Forecast,
        Monitor,
        NDArray,
        Panel,
        Published,
        WhatIf,
    )


Kind = TypeVar("Kind", "Ensemble", "ClassEnsemble")


@typed
def load(path: str | Path) -> "Forecaster | Classifier":
    """Returns the model saved in a folder, or registered in MLflow; runs no code from there.

    A model fitted with `label` is a `Classifier`.

    Args:
        path: a folder, or models:/NAME@champion, models:/NAME/VERSION or models:/NAME/latest in the
            store that MLFLOW_TRACKING_URI names, or your own.

    Raises:
        ArtifactError: there is none, it is damaged, or a newer version wrote it.
        ConfigError: the MLflow store cannot be reached, or has no such model.
    """
    if is_registered(path):
        from forecaster.runs.registry import load_registered

        return model_of(load_registered(str(path), TrackingConfig()))
    from forecaster.forecast.saved_model import load_artifact

    return model_of(load_artifact(path))


def model_of(
    artifact: "Artifact[Any]", tracking: TrackingConfig | None = None
) -> "Forecaster | Classifier":
    from forecaster.forecast.artifact import is_forecaster

    return Forecaster(artifact, tracking) if is_forecaster(artifact) else Classifier(artifact, tracking)


def start_of(model: object) -> "Artifact | None":
    """Returns the artifact of a model, or of the folder of one."""
    if isinstance(model, str | Path):
        model = load(model)
    if model is not None and not isinstance(model, Forecaster):
        raise ConfigError(
            f"warm_start: expected a model or the folder of one, found {type(model).__name__}"
        )
    return None if model is None else model.artifact


class Model(Generic[Kind]):
    """What all fitted models have.

    Tables have the columns that the model was fitted to; `data_options` name columns that are called
    otherwise, or another format.
    """

    def __init__(self, artifact: "Artifact[Kind]", tracking: TrackingConfig | None = None):
        self.artifact: Artifact[Kind] = artifact
        self.tracking = tracking or TrackingConfig()
        """Where its runs are recorded."""

    @property
    def config(self) -> Config:
        """The settings it was fitted with, all chosen."""
        return self.artifact.plan.as_config(self.tracking)

    @property
    def metrics(self) -> dict[str, Any]:
        """Validation scores of the model and the baselines, and the loss curves."""
        return self.artifact.metrics

    def _store(self, tracking: bool) -> TrackingConfig:
        return self.tracking.model_copy(update={"enabled": self.tracking.enabled and tracking})

    @typed
    def save(self, path: str | Path) -> None:
        """Writes the model to a folder, whole or not at all.

        Raises:
            OutputError: the folder cannot be written, or holds something else.
        """
        from forecaster.forecast.saved_model import save_artifact

        save_artifact(self.artifact, path)

    @typed
    def export(
        self,
        name: str,
        tracking: TrackingConfig | None = None,
        champion: bool = False,
        data: object = None,
    ) -> "Published":
        """Registers the model in MLflow, for `mlflow models serve` and `load` by its name.

        Args:
            name: Name of the registered model. A version with a lower loss than its champion becomes the champion;
                so does one that knows a horizon more of the table at a loss at most 2 % higher.
            tracking: MLflow store. None = the one of the fit.
            champion: Make it the champion in any case. Why its scores would not is printed first.
            data: Table with rows that neither this model nor the champion has seen, which both are scored on.
                None = the validation windows of two fits to the same rows, or those that an update kept.

        Raises:
            ConfigError: the store cannot be reached, or refuses the name.

        Example:
            >>> model.export("sales").address  # doctest: +SKIP
            'models:/sales@champion'
        """
        from forecaster.forecast.artifact import is_forecaster
        from forecaster.forecast.source import Source
        from forecaster.runs.registry import publish

        if data is not None and not is_forecaster(self.artifact):
            raise ConfigError("data: a classifier has no such option; leave it out")
        source = None if data is None else Source(data)
        return publish(self.artifact, name, tracking or self.tracking, champion, source)

    @typed
    def export_onnx(self, path: str | Path) -> str:
        """Writes the model as an ONNX file, for other languages; returns a summary of its content.

        Raises:
            ConfigError: this kind of model has no such form, or the extra `onnx` is not installed.
            OutputError: the file cannot be written.

        Example:
            >>> model.export_onnx("sales.onnx")  # doctest: +SKIP
        """
        from forecaster.forecast.onnx_export import write_onnx

        return write_onnx(self.artifact, Path(path))


class Forecaster(Model["Ensemble"]):
    """A fitted model: predict, backtest, detect, explain, save, export.

    Tables have the columns that the model was fitted to; `data_options` name columns that are called
    otherwise, or another format.
    """

    def __repr__(self) -> str:
        schema = self.artifact.schema
        return f"Forecaster({', '.join(schema.target)}: {self.artifact.horizon} steps of {schema.freq})"

    @public
    def open(
        self,
        data: options.Table,
        future: options.Future = None,
        covariates: options.Covariates = None,
        **data_options: Unpack[DataOptions],
    ) -> "Panel":
        """Returns a table opened with this model's roles, categories and frequency."""
        from forecaster.forecast.source import Source

        return Source(data, future, covariates, data_options).panel(self.artifact)

    @public
    @runs_on_device
    def predict(
        self,
        data: options.Table,
        future: options.Future = None,
        covariates: options.Covariates = None,
        cutoff: options.Cutoff = "own",
        horizon: options.FittedHorizon = None,
        progress: options.Progress = None,
        samples: options.Samples = None,
        seed: options.PathSeed = 0,
        only: options.Only = None,
        *,
        levels: options.Levels = None,
        quantiles: options.Quantiles = None,
        fill_known: options.FillKnown = None,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "Forecast":
        """Returns the forecast of every series in a table, or of some.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.
            ConfigError: the horizon is too long for the model, or it has no sample paths, or no such level.
        """
        check_levels(levels, quantiles)

        from forecaster.forecast.predictor import Predictor
        from forecaster.forecast.window import resolve_window

        start = date_text(cutoff, "cutoff")
        panel = self.open(data, future, covariates, **data_options)
        window = resolve_window(
            self.artifact, panel, start, horizon, samples, seed, levels, quantiles, fill_known
        )
        return Predictor(self.artifact).predict(panel, window, only, progress)

    @public
    @runs_on_device
    def what_if(
        self,
        data: options.Table,
        future: options.Future,
        changes: options.WhatIf,
        covariates: options.Covariates = None,
        cutoff: options.Cutoff = "own",
        horizon: options.FittedHorizon = None,
        samples: options.Differences = None,
        seed: options.PathSeed = 0,
        only: options.Only = None,
        *,
        levels: options.Levels = None,
        quantiles: options.Quantiles = None,
        fill_known: options.FillKnown = None,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "WhatIf[Forecast]":
        """Returns forecasts as a table is and with other known covariates, and their difference with its band.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.
            ConfigError: there is no such covariate or value, or the model draws no paths, or no such level.

        Example:
            >>> model.what_if("sales.csv", "promos.csv", {"price": lambda p: 0.9 * p}).frame   # doctest: +SKIP
        """
        from forecaster.panel.known import changes_of

        found = changes_of(changes)
        check_levels(levels, quantiles)

        from forecaster.forecast.forecast import none_forecast
        from forecaster.forecast.predictor import Predictor
        from forecaster.forecast.task import WhatIfTask
        from forecaster.forecast.totals import PATHS
        from forecaster.forecast.window import resolve_window

        panel = self.open(data, future, covariates, **data_options)
        start = date_text(cutoff, "cutoff")
        window = resolve_window(
            self.artifact, panel, start, horizon, None, seed, levels, quantiles, fill_known
        )
        task = WhatIfTask(window, PATHS if samples is None else samples, found)
        panel, findings = task.audited(panel, self.artifact, only)
        compared = task.made(Predictor(self.artifact), panel)
        if error := none_forecast(panel, compared.lost, int(panel.present.sum())):
            raise error
        return replace(compared, findings=tuple(findings))

    @public
    def future(
        self,
        data: options.Table,
        cutoff: options.Cutoff = "own",
        horizon: options.FittedHorizon = None,
        covariates: options.Covariates = None,
        only: options.Only = None,
        **data_options: Unpack[DataOptions],
    ) -> "AnyFrame":
        """Returns the table of known covariates that a forecast needs, to be filled in and passed as `future`.

        It has the keys, the times after each cutoff, and the known covariates, empty but where `data` has them.

        Raises:
            DataError: the table does not fit the model.
            ConfigError: the horizon is too long for the model.

        Example:
            >>> model.future("sales.csv").to_csv("promos.csv")   # doctest: +SKIP
        """
        from forecaster.forecast.window import locate_leads, resolve_window
        from forecaster.panel.frames import to_kind
        from forecaster.panel.known import future_frame

        panel = self.open(data, None, covariates, **data_options)
        window = resolve_window(self.artifact, panel, date_text(cutoff, "cutoff"), horizon)
        leads, ahead = locate_leads(panel.only(only), self.artifact, window), window.horizon
        rows = future_frame(leads.panel, leads.rows[:, :ahead], leads.time[:, :ahead])
        return to_kind(rows, panel.kind, panel.original)

    @public
    @runs_on_device
    def predict_to(
        self,
        path: Annotated[options.PathLike, Option("File for the forecasts: .csv, .parquet or .xlsx.")],
        data: Annotated[
            object,
            Option(
                "History, with the columns the model was fitted to; a store is read block by block."
            ),
        ],
        future: options.Future = None,
        covariates: options.Covariates = None,
        cutoff: options.Cutoff = "own",
        horizon: options.FittedHorizon = None,
        samples: Annotated[
            int | None,
            Option(
                "Write this many joint sample paths per series instead of quantiles; with `sum`, `hierarchy` or "
                "`what_if`: use so many for these. None = quantiles, or 200 paths."
            ),
        ] = None,
        seed: options.PathSeed = 0,
        only: options.Only = None,
        sum: options.SumPeriod = None,
        by: options.By = None,
        sum_partial: options.SumPartial = False,
        what_if: options.WhatIf = None,
        hierarchy: options.Hierarchy = None,
        reconcile: options.Reconcile = None,
        parts: options.Parts = False,
        shard: options.Shard = None,
        devices: options.Devices = None,
        restart: options.Restart = False,
        engine: options.Engine = None,
        overwrite: Annotated[bool, Option("Overwrite an existing file.")] = False,
        progress: options.Progress = None,
        *,
        levels: options.Levels = None,
        quantiles: options.Quantiles = None,
        fill_known: options.FillKnown = None,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "BatchResult":
        """Writes the forecast of every series of a table of any size to a file, in bounded memory, or sums.

        The same call resumes one that was killed. With `what_if` all forecasts are in memory.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.
            ConfigError: the horizon is too long for the model, or it has no sample paths, or no such level.
            OutputError: a file cannot be written or exists, or parts of another forecast are there.

        Example:
            >>> model.predict_to("forecasts.parquet", "sales.store").report   # doctest: +SKIP
        """
        from forecaster.panel.known import changes_of

        changes = None if what_if is None else changes_of(what_if)

        from forecaster.forecast.source import Source
        from forecaster.forecast.task import ForecastTask, HierarchyTask, TotalTask, WhatIfTask
        from forecaster.forecast.totals import PATHS
        from forecaster.forecast.window import resolve_window
        from forecaster.runs.batch_predict import predict_to

        start = date_text(cutoff, "cutoff")
        check_levels(levels, quantiles)
        if samples is not None and sum is None and changes is None and hierarchy is None:
            given = {"levels": levels, "quantiles": quantiles}
            refuse(given, "a file of sample paths (--samples)")

        request = total_request(sum, by, sum_partial)
        tree = hierarchy_request(hierarchy, reconcile, sum=sum, only=only, what_if=what_if)

        def task_of(panel: "Panel") -> ForecastTask:
            kept = samples if request is None and changes is None and tree is None else None
            window = resolve_window(
                self.artifact, panel, start, horizon, kept, seed, levels, quantiles, fill_known
            )
            used = PATHS if samples is None else samples
            if changes is not None:
                return WhatIfTask(window, used, changes, request)
            if tree is not None:
                return HierarchyTask(window, used, tree)
            return ForecastTask(window) if request is None else TotalTask(window, used, request)

        source = Source(data, future, covariates, data_options, only)
        how = (parts, shard, devices, restart, engine, overwrite, progress)
        return predict_to(self.artifact, Path(path), source, task_of, *how)

    @public
    @runs_on_device
    def update(
        self,
        data: Annotated[object, Option("The table as it is now: the history, and rows that are new.")],
        future: options.Future = None,
        covariates: options.Covariates = None,
        refit: Annotated[
            Literal["bands", "experts", "all"],
            Option(
                "Learn again: bands alone; experts too; or all, attention over experts and networks that count "
                "from where they are."
            ),
        ] = "all",
        out: Annotated[options.PathLike | None, Option("Folder for the new model.")] = None,
        overwrite: options.Overwrite = False,
        tracking: options.Tracking = True,
        name: options.Name = None,
        quiet: options.Quiet = False,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "Forecaster":
        """Returns a model that knows the new rows of its table too, at the same settings; this one stays.

        New series are taken in. Where the table has no new rows this model is returned.

        Raises:
            DataError: the table ends before the model's rows do, does not reach back far enough, or does not fit.
            OutputError: `out` cannot be written, or exists.

        Example:
            >>> model = model.update("sales.csv")   # doctest: +SKIP
        """
        if out is not None:
            check_target(Path(out), overwrite)
        check_paths(data, future, covariates)

        from forecaster.forecast.source import Source
        from forecaster.runs.console import Screen
        from forecaster.runs.pipeline import run_update

        console = Screen(quiet=quiet)
        with console.stage("reading the table"):
            source = Source(data, future, covariates, data_options)
            panel = source.panel(self.artifact, with_new_words=True)
        folder, store = None if out is None else Path(out), self._store(tracking)
        new = run_update(self.artifact, panel, refit, folder, console, store, name)
        return self if new is self.artifact else Forecaster(new, self.tracking)

    @public
    @runs_on_device
    def backtest(
        self,
        data: options.Table,
        windows: options.Windows = 8,
        refit: Annotated[
            Literal["once", "each", "never"] | int,
            Option(
                "Fit the same settings before the first cutoff (once), before each, every so many, or "
                "never: use these weights, an error where they have seen a scored row.",
                metavar="once|each|never|N",
            ),
        ] = "once",
        stride: options.Stride = None,
        covariates: options.Covariates = None,
        quiet: options.Quiet = False,
        horizon: Annotated[int | None, Option("Leads to score. None = as fitted.")] = None,
        only: options.Scored = None,
        tracking: options.Tracking = True,
        name: options.Name = None,
        *,
        gap: options.Gap = 0,
        others: options.Others = None,
        hierarchy: options.ScoredHierarchy = None,
        reconcile: options.Reconcile = None,
        levels: options.Levels = None,
        quantiles: options.Quantiles = None,
        update_every: options.UpdateEvery = None,
        keep: options.Keep = None,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "Backtest":
        """Returns forecasts at past cutoffs with the truth beside them, and scores.

        Raises:
            ConfigError: `refit` is unknown or dishonest, or the horizon is too long for the model.
            DataError: the table has too little history for so many windows.
        """
        from forecaster.forecast.model_folder import reading_with
        from forecaster.runs.pipeline import BacktestOptions, run_backtest_pipeline

        tree = hierarchy_request(hierarchy, reconcile, only=only)
        scoring = BacktestOptions(
            windows,
            refit,
            gap,
            stride,
            horizon,
            only,
            levels=levels,
            quantiles=quantiles,
            update_every=update_every,
        )
        tables = other_forecasts(others)
        panel = self.open(data, None, covariates, **data_options)
        source = (data, reading_with(self.artifact.requested.data, data_options), covariates)
        more = {
            "covariates": covariates,
            "others": others,
            "hierarchy": hierarchy,
            "reconcile": reconcile,
        }
        command = call_of("model.backtest", data, scoring, **more, **data_options)
        store = self._store(tracking)
        how = (scoring, store, source, quiet, name, command, None, tables, tree, keep)
        return run_backtest_pipeline(self.artifact, panel, *how)

    @public
    @runs_on_device
    def monitor(
        self,
        data: Annotated[object, Option("The table as it is now: the history, and rows that are new.")],
        forecasts: Annotated[
            options.OtherTables | None,
            Option("Files of forecasts that were made earlier, or frames by name. None = made again."),
        ] = None,
        future: options.Future = None,
        covariates: options.Covariates = None,
        tracking: options.Tracking = True,
        name: options.Name = None,
        quiet: options.Quiet = False,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "Monitor | None":
        """Returns what forecasts were worth since the fit, and whether a band or the skill has broken down.

        None where no truth has come. Forecasts that are made again begin at cutoffs after the last row that the
        model knows.

        Raises:
            DataError: the table does not fit the model, or the forecasts do not fit the table.
            ConfigError: the forecasts are of another model.

        Example:
            >>> model.monitor("sales.csv").sentence   # doctest: +SKIP
        """
        from forecaster.runs.console import Screen
        from forecaster.runs.monitoring import run_monitor

        panel = self.open(data, future, covariates, **data_options)
        files = [*other_forecasts(forecasts).values()]
        console = Screen(quiet=quiet)
        return run_monitor(self.artifact, panel, files, console, self._store(tracking), name)

    @public
    @runs_on_device
    def detect(
        self,
        data: options.Table,
        level: options.Level = 99.0,
        covariates: options.Covariates = None,
        only: options.Only = None,
        progress: options.Progress = None,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "Anomalies":
        """Returns whether each observed step lies inside, above or below the band forecast before it.

        Raises:
            DataError: the table does not fit the model.
            ConfigError: `level` is no percentage.

        Example:
            >>> model.detect("sales.csv").write("anomalies.parquet")   # doctest: +SKIP
        """
        from forecaster.forecast.detect import detect

        panel = self.open(data, None, covariates, **data_options)
        return detect(self.artifact, panel.only(only), level, progress)

    @public
    def explain(
        self,
        data: options.Table,
        only: options.OneSeries = None,
        channel: options.ExplainedChannel = None,
        cutoff: options.ExplainedCutoff = "own",
        future: options.Future = None,
        covariates: options.Covariates = None,
        **data_options: Unpack[DataOptions],
    ) -> "Explanation":
        """Returns the attention weights of one forecast, and how covariates and the past change it.

        Raises:
            DataError: the table does not fit the model, or has no such series or channel.

        Example:
            >>> model.explain("sales.csv", only="store_1").write("attention.html")  # doctest: +SKIP
        """
        from forecaster.forecast.explain import explain

        start = date_text(cutoff, "cutoff")
        panel = self.open(data, future, covariates, **data_options)
        return explain(self.artifact, panel, only, channel, start)

    @public
    def onnx_inputs(
        self,
        data: options.Table,
        future: options.Future = None,
        covariates: options.Covariates = None,
        cutoff: options.Cutoff = "own",
        **data_options: Unpack[DataOptions],
    ) -> "tuple[list[str], dict[str, NDArray[Any]]]":
        """Returns what the file of `export_onnx` reads, from a table.

        Returns:
            The names of the series that can be forecast, and by name the inputs, a row for each of them.

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.

        Example:
            >>> names, inputs = model.onnx_inputs("sales.csv", "promos.csv")   # doctest: +SKIP
            >>> quantiles, mean = session.run(["quantiles", "mean"], inputs)    # doctest: +SKIP
        """
        from forecaster.forecast.onnx_export import onnx_inputs

        panel = self.open(data, future, covariates, **data_options)
        return onnx_inputs(self.artifact, panel, date_text(cutoff, "cutoff"))


class Classifier(Model["ClassEnsemble"]):
    """A fitted classifier: predict, backtest, explain, embed, save, export."""

    def __repr__(self) -> str:
        return f"Classifier({self.artifact.schema.label}: {', '.join(self.classes)})"

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes in words, in the order of the probabilities."""
        return self.artifact.classes

    @public
    @runs_on_device
    def predict(
        self,
        data: options.Table,
        covariates: options.Covariates = None,
        progress: options.Progress = None,
        only: options.Only = None,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "Classification":
        """Returns the class of every series in a table, or of every step, with probabilities.

        A class column in the table is not read.

        Raises:
            DataError: the table does not fit the model.
        """
        from forecaster.forecast.classification import ClassPredictor
        from forecaster.panel.audit import audit_panel

        panel = self._open(data, covariates, data_options).only(only)
        found = tuple(audit_panel(panel, classes=True))
        return replace(ClassPredictor(self.artifact).predict(panel, progress), findings=found)

    @public
    @runs_on_device
    def predict_to(
        self,
        path: Annotated[options.PathLike, Option("File for the classes: .csv, .parquet or .xlsx.")],
        data: options.Table,
        covariates: options.Covariates = None,
        only: options.Only = None,
        parts: options.Parts = False,
        shard: options.Shard = None,
        devices: options.Devices = None,
        restart: options.Restart = False,
        engine: options.Engine = None,
        overwrite: options.Overwrite = False,
        progress: options.Progress = None,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "BatchResult":
        """Writes the classes of a table of any size to a file, in bounded memory; see `Forecaster.predict_to`.

        Raises:
            DataError: the table does not fit the model.
            OutputError: a file cannot be written or exists, or parts of another prediction are there.
        """
        from forecaster.forecast.classification import ClassTask
        from forecaster.forecast.source import Source
        from forecaster.runs.batch_predict import predict_to

        source = Source(data, None, covariates, data_options, only)
        how = (parts, shard, devices, restart, engine, overwrite, progress)
        return predict_to(self.artifact, Path(path), source, lambda panel: ClassTask(), *how)

    @public
    @runs_on_device
    def backtest(
        self,
        data: Annotated[
            object,
            Option(
                "Table with a class column; series that the fit has seen are left out with a warning."
            ),
        ],
        covariates: options.Covariates = None,
        only: options.Only = None,
        tracking: options.Tracking = True,
        name: options.Name = None,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "ClassBacktest":
        """Returns predicted and true classes of a table, and scores.

        Raises:
            DataError: the table does not fit the model, or has no classes.
            ConfigError: the fit has seen all series.
            ArtifactError: the model was fitted before it kept which series it has seen.
        """
        from forecaster.runs.class_scoring import backtest_classes

        panel = self._open(data, covariates, data_options, with_classes=True).only(only)
        return backtest_classes(self.artifact, panel, self._store(tracking), name)

    @public
    @runs_on_device
    def embed(
        self,
        data: options.Table,
        covariates: options.Covariates = None,
        only: options.Only = None,
        *,
        device: options.Device = None,
        **data_options: Unpack[DataOptions],
    ) -> "AnyFrame":
        """Returns one vector per series, as the kind of frame of the input: keys, v_0, v_1, …

        Near vectors belong to series that look alike to the encoder.

        Raises:
            DataError: the table does not fit the model.
        """
        from forecaster.forecast.classification import ClassPredictor
        from forecaster.panel.audit import audit_panel
        from forecaster.panel.frames import to_kind

        panel = self._open(data, covariates, data_options).only(only)
        audit_panel(panel, classes=True)
        vectors = ClassPredictor(self.artifact).vectors(panel)
        columns = {f"v_{place}": column for place, column in enumerate(vectors.T)}
        return to_kind(panel.series_frame(**columns), panel.kind, panel.original)

    @public
    def explain(
        self,
        data: options.Table,
        only: options.OneSeries = None,
        covariates: options.Covariates = None,
        **data_options: Unpack[DataOptions],
    ) -> "ClassExplanation":
        """Returns how much each step of a series adds to the probability of its class.

        Raises:
            DataError: the table does not fit the model, or has no such series.

        Example:
            >>> model.explain("gestures.csv", only="T3").write("steps.png")  # doctest: +SKIP
        """
        from forecaster.forecast.classification import explain_class

        return explain_class(self.artifact, self._open(data, covariates, data_options), only)

    def _open(
        self, data: object, covariates: object, options: Mapping[str, Any], with_classes: bool = False
    ) -> "Panel":
        """Returns a table opened with this model's roles, its class column too where it is wanted."""
        from forecaster.forecast.source import Source

        return Source(data, None, covariates, options).panel(self.artifact, with_classes)


class Study:
    """The trials of a search, the best of them, and the preset they are compared with."""

    def __init__(self, outcome: "Outcome", kind: str, artifact: "Artifact | None"):
        self._outcome, self._kind, self._artifact = outcome, kind, artifact

    def __repr__(self) -> str:
        plan = self._outcome.plan
        finished = len(self._outcome.ended)
        return f"Study({plan.study}: {finished} trials, {plan.metrics[0]} {self.best_value:.5g})"

    @property
    def name(self) -> str:
        """Name of the study; `tune` continues the study of the same name."""
        return self._outcome.plan.study

    @property
    def metrics(self) -> tuple[str, ...]:
        """The scores that are minimised; the first one ranks the trials."""
        return tuple(self._outcome.plan.metrics)

    @property
    def best(self) -> Config:
        """The config with the smallest value; of several metrics, of the first one."""
        return self._outcome.config(self._outcome.best)

    @property
    def best_value(self) -> float:
        """Its value on the validation span."""
        return self._outcome.best_value

    @property
    def preset_value(self) -> float | None:
        """The value of the config as it was given; None where its trial has not finished."""
        return self._outcome.preset_value

    @property
    def trials(self) -> "AnyFrame":
        """A row per trial, as the caller's kind of frame: state, values, seconds, settings, note."""
        from forecaster.panel.frames import frame_of, to_kind

        return to_kind(frame_of(self._outcome.columns()), self._kind)

    @property
    def model(self) -> "Forecaster | Classifier":
        """A model of the best config, fitted to all rows.

        Raises:
            ConfigError: the search was run with `refit=False`.
        """
        if self._artifact is None:
            raise ConfigError("refit was False, so there is no model: fit(data, config=study.best)")
        return model_of(self._artifact, self._outcome.plan.config.tracking)
