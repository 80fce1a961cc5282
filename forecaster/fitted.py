"""`Forecaster`, a fitted model: predict, backtest, detect, explain, save, export.

What comes in: an artifact, then tables of the same columns. What goes out: forecasts and scores as the
caller's own kind of frame. Everything heavy loads when it is needed.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from rich.console import Console

from forecaster.arguments import BatchOptions, Names, Reading, Roles
from forecaster.config import Config, TrackingConfig
from forecaster.errors import ConfigError

if TYPE_CHECKING:
    from forecaster.evaluation.backtest import Backtest
    from forecaster.forecast.artifact import Artifact
    from forecaster.forecast.detect import Labels
    from forecaster.forecast.explain import Explanation
    from forecaster.forecast.forecast import Forecast
    from forecaster.forecast.predictor import Progress
    from forecaster.panel.panel import Panel
    from forecaster.runs.batch_predict import BatchResult
    from forecaster.runs.registry import Published


class Forecaster:
    """A fitted model."""

    def __init__(self, artifact: Artifact, tracking: TrackingConfig | None = None):
        self.artifact = artifact
        self.tracking = tracking or TrackingConfig()
        """Where its runs are recorded."""

    def __repr__(self) -> str:
        schema = self.artifact.schema
        return f"Forecaster({', '.join(schema.target)}: {self.artifact.horizon} steps of {schema.freq})"

    @property
    def config(self) -> Config:
        """The settings it was fitted with, everything chosen."""
        return self.artifact.config.as_config(self.tracking)

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
        from forecaster.forecast.parts import open_for

        return open_for(self.artifact, data, future, covariates, roles)

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
        from forecaster.forecast.predictor import Predictor

        panel = self.open(data, future, covariates, **roles)
        return Predictor(self.artifact).predict(panel, cutoff, horizon, progress, samples, seed)

    def predict_to(
        self, path: str | Path, data: object, **options: Unpack[BatchOptions]
    ) -> BatchResult:
        """Writes the forecast of every series of a table of any size to a file, in bounded memory.

        A call that was killed goes on where it was when it is made again.

        Args:
            path: .csv or .parquet file.
            data: history, as `predict` takes it; a store of `convert` is read block by block.
            options: `future`, `covariates`, `cutoff`, `horizon`, `samples`, `seed`, roles and
                `progress` as in `predict`; `parts` (leave the parts, in the folder PATH.parts),
                `shard` ((k, n), k from 1: make only this share of the parts; the same call without it
                puts all together), `devices` (processes, each with a GPU or its share of the cores),
                `restart` (begin anew where parts are there), `engine` (makes the parts elsewhere).

        Raises:
            DataError: the table does not fit the model, or a known covariate is missing.
            ConfigError: the model cannot reach that far, or has no paths.
            OutputError: a file cannot be written, or parts of another forecast are there.

        Example:
            >>> model.predict_to("forecasts.parquet", "sales.store").report   # doctest: +SKIP
        """
        from forecaster.runs.batch_predict import predict_to

        return predict_to(self.artifact, Path(path), data, **options)

    def backtest(
        self,
        data: object,
        windows: int = 8,
        refit: str = "once",
        stride: int | None = None,
        covariates: object | None = None,
        quiet: bool = False,
        horizon: int | None = None,
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
            horizon: leads that are scored; None = as fitted.
            roles: columns that are called otherwise in this table, in the model's order.

        Raises:
            ConfigError: `refit` is unknown, "never" would be dishonest, or the model cannot reach the
                horizon.
            DataError: the table has too little history for so many windows.
        """
        from forecaster.runs.pipeline import BacktestOptions, run_backtest_pipeline

        if refit not in ("once", "each", "never"):
            raise ConfigError(f"refit {refit!r}: expected once, each or never")
        if windows < 1 or (stride is not None and stride < 1):
            raise ConfigError(f"windows {windows}, stride {stride}: expected 1 or more")
        plan = BacktestOptions(windows, refit, stride, horizon)  # type: ignore[arg-type]
        panel = self.open(data, covariates=covariates, **roles)
        return run_backtest_pipeline(self.artifact, panel, plan, self.tracking, Console(quiet=quiet))

    def detect(
        self,
        data: object,
        beyond: float = 1.0,
        covariates: object | None = None,
        progress: Progress | None = None,
        **roles: Unpack[Roles],
    ) -> Labels:
        """Returns a label for each observed step: inside, above or below the band forecast before it.

        Args:
            data: history, with the columns the model was fitted to.
            beyond: half-widths from the median at which a value is outside; 1 = the band itself.
            covariates: a second table, joined on series and time.
            progress: called with (series done, series wanted).
            roles: columns that are called otherwise in this table, in the model's order.

        Raises:
            DataError: the table does not fit the model.
            ConfigError: the model has no band, or `beyond` is no number above 0.

        Example:
            >>> model.detect("sales.csv").write("labels.parquet")   # doctest: +SKIP
        """
        from forecaster.forecast.detect import detect

        panel = self.open(data, covariates=covariates, **roles)
        return detect(self.artifact, panel, beyond, progress)

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

    def export(self, name: str, tracking: TrackingConfig | None = None) -> Published:
        """Registers the model in MLflow, which `mlflow models serve` and `load` then know by name.

        Args:
            name: of the registered model. A version with a lower WQL on its champion's validation
                windows becomes the champion.
            tracking: where MLflow's store is; None = where the fit was recorded.

        Raises:
            ConfigError: the store is away, or refuses the name.

        Example:
            >>> model.export("sales").address  # doctest: +SKIP
            'models:/sales@champion'
        """
        from forecaster.runs.registry import publish

        with tempfile.TemporaryDirectory() as scratch:
            self.save(Path(scratch) / "model")
            return publish(Path(scratch) / "model", name, tracking or self.tracking)

    def export_onnx(self, path: str | Path) -> str:
        """Writes the model as an ONNX file, for other languages; returns what is in it, in words.

        Raises:
            ConfigError: this kind of model has no such form, or the extra `onnx` is not installed.
            OutputError: the file cannot be written.

        Example:
            >>> model.export_onnx("sales.onnx")  # doctest: +SKIP
        """
        from forecaster.forecast.onnx_export import write_onnx

        return write_onnx(self.artifact, Path(path))
