"""A fit or a backtest from start to finish: said aloud, done, saved, recorded.

What comes in: an open panel and a config. What goes out: an artifact on disk, or a backtest, and one
MLflow run. Promised: a fit whose tracking store is away ends well and says how to send its run later; a
backtest never scores a row that its model has seen.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from forecaster.config import Config
from forecaster.errors import ConfigError, DataError, ForecasterError
from forecaster.evaluation.backtest import (
    Backtest,
    ForecastsByModel,
    rolling_cutoffs,
    run_backtest,
    score_forecasts,
)
from forecaster.evaluation.comparison import CHEAP_BASELINES, MODEL, RIDGE
from forecaster.evaluation.report import render_report
from forecaster.evaluation.report_data import ReportContext
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.plots import plot_curves
from forecaster.forecast.predictor import Predictor, check_horizon
from forecaster.forecast.writer import write_page
from forecaster.model.sampling import NUM_SAMPLES
from forecaster.panel.audit import check_panel
from forecaster.panel.categories import recoded
from forecaster.panel.findings import Finding, refuse_errors
from forecaster.panel.panel import Panel
from forecaster.runs.console import (
    print_cutoffs,
    print_findings,
    print_fresh_refit,
    print_notice,
    print_plan,
    print_report,
    print_roles,
    print_saved,
    print_scores,
    print_start,
    print_tracked,
)
from forecaster.runs.distributed import SINGLE_PROCESS, DistributedContext, windows_per_step
from forecaster.runs.fit import fit_panel, prepare, with_found_cycles
from forecaster.runs.linear import fit_floor
from forecaster.runs.progress import BufferedLogger, TrainingBar
from forecaster.runs.resume import OpenFit, ResumableFit
from forecaster.runs.tracking import log_artifact, open_run, score_points
from forecaster.runs.train import TrainingContext
from forecaster.runs.transfer import Start, from_scratch, started_config

if TYPE_CHECKING:
    from matplotlib.figure import Figure


REPORT = "report.html"
"""What the page is called in a model's folder and among a run's files."""


def validation_page(
    artifact: Artifact,
    panel: Panel,
    findings: Sequence[Finding],
    said: Sequence[Mapping[str, Forecast]],
) -> str | None:
    """Returns the page about the validation windows of a fit; None where there were none.

    Args:
        artifact: what was fitted.
        panel: what it was fitted to.
        findings: of the audit.
        said: by model, the forecasts of the validation windows.
    """
    if not said:
        return None
    command = f"forecaster fit {_name(panel)} --config config.yaml --out MODEL"
    # No date: the folder of a model that was resumed is that of one that was not, byte by byte.
    origin = ReportContext(
        artifact, command, panel.fingerprint(), tuple(findings), validation=True, date=None
    )
    # Baselines that cost something are left to backtests.
    return render_report(replace(score_forecasts(said, CHEAP_BASELINES), report_context=origin))


def with_report_context(
    backtest: Backtest, artifact: Artifact, panel: Panel, findings: Sequence[Finding], options: str
) -> Backtest:
    """Returns a backtest that knows how it came about.

    Args:
        backtest: as scored.
        artifact: what forecast its last cutoff.
        panel: the whole table.
        findings: of the audit.
        options: what to tell the command beside model and table.
    """
    command = f"forecaster backtest MODEL {_name(panel)} {options}"
    return replace(
        backtest, report_context=ReportContext(artifact, command, panel.fingerprint(), tuple(findings))
    )


def _name(panel: Panel) -> str:
    return Path(panel.name).name if panel.kind == "file" else "DATA"


Refit = Literal["once", "each", "never"]


class Refits:
    """Forecasts at cutoffs, by weights that have not seen them."""

    def __init__(
        self,
        artifact: Artifact,
        panel: Panel,
        cutoffs: Sequence[int],
        horizon: int,
        refit: Refit,
        console: Console,
    ):
        """Takes what is to be forecast.

        Args:
            artifact: gives the config, and with `refit="never"` the weights.
            panel: opened with the artifact's schema.
            cutoffs: all there will be, rising.
            horizon: leads; what the model can reach.
            refit: "once" before the first cutoff, "each" before every one, or "never".
            console: where to say what is fitted.
        """
        self._artifact, self._panel, self._cutoffs = artifact, panel, cutoffs
        self._horizon, self._refit, self._console = horizon, refit, console
        self._models: dict[str, tuple[Predictor, Panel]] = {}

    @property
    def artifact(self) -> Artifact:
        """The model that forecasts now; before any forecast, the one it takes the config from."""
        return self._models[MODEL][0].artifact if self._models else self._artifact

    def said(self, cutoffs: Sequence[int]) -> Iterator[ForecastsByModel]:
        """Yields the forecasts at some neighbouring cutoffs, by model.

        Raises:
            DataError: the rows before a cutoff are too few to fit.
        """
        for some in [[one] for one in cutoffs] if self._refit == "each" else [list(cutoffs)]:
            if self._refit == "each" or not self._models:
                self._settle(some[0])
            made = [self._made(*model, some) for model in self._models.values()]
            yield from (
                dict(zip(self._models, forecasts, strict=True)) for forecasts in zip(*made, strict=True)
            )

    def _made(self, predictor: Predictor, panel: Panel, cutoffs: Sequence[int]) -> list[Forecast]:
        model = predictor.artifact.config.model
        # What it draws anyway is scored, too.
        num_samples = NUM_SAMPLES if model.decoder == "autoregressive" else None
        return predictor.forecasts_at(panel, cutoffs, self._horizon, num_samples)

    def _settle(self, cutoff: int) -> None:
        """Fits what forecasts from this cutoff on."""
        served = [cutoff] if self._refit == "each" else self._cutoffs
        artifact, floor = self._artifact, None
        if self._refit == "never":
            print_cutoffs(self._console, self._panel, served, None)
            floor = self._floor(artifact, artifact.trained_until)
        else:
            artifact = self._fitted(cutoff)
            print_cutoffs(self._console, self._panel, served, cutoff)
            floor = self._floor(artifact, cutoff)
        self._models = {
            name: (Predictor(model), recoded(self._panel, model.schema.categories))
            for name, model in ((MODEL, artifact), (RIDGE, floor))
            if model is not None
        }

    def _fitted(self, cutoff: int) -> Artifact:
        """Returns the same config fitted to the rows up to a cutoff."""
        seen = self._panel.until(cutoff)
        try:
            # From random weights: those a warm start began with are not kept, and may have seen more.
            config, split = prepare(seen, from_scratch(self._artifact.config))
        except DataError as error:
            when = self._panel.calendar.text(cutoff)
            raise DataError(
                f"refit before the cutoff {when}: {error}; or use fewer --windows"
            ) from error
        watched = TrainingContext(callbacks=(TrainingBar(self._console),))
        return fit_panel(seen, config, split, watched)

    def _floor(self, artifact: Artifact, until: int) -> Artifact | None:
        """Returns the linear part of a model alone, or one fitted to the same rows."""
        own = artifact.ensemble.linear_only()
        if own is not None:
            return replace(artifact, ensemble=own)
        seen = self._panel.until(until)
        try:
            config, split = prepare(seen, _straight(artifact.config, self._horizon))
            return fit_floor(seen, config, split)
        except ForecasterError as error:
            print_notice(self._console, f"no {RIDGE} in the table: {error}")
            return None


def _straight(config: Config, horizon: int) -> Config:
    """Returns settings of linear maps alone, for a model whose network has none."""
    fit = config.fit
    return Config(horizon=horizon, data=config.data, target=config.target).replaced(
        model={"linear": "blend", "quantile_levels": config.model.quantile_levels},
        fit={"validation": fit.validation, "validation_windows": fit.validation_windows},
    )


@dataclass(frozen=True)
class BacktestOptions:
    """Which cutoffs are forecast, and what is fitted before them."""

    windows: int = 8
    """Cutoffs."""
    refit: Refit = "once"
    """once: before the first cutoff; each: before every one; never: the model as it is."""
    stride: int | None = None
    """Steps between cutoffs; None = the horizon."""
    horizon: int | None = None
    """Leads; None = as the model was fitted."""


def run_fit(
    panel: Panel,
    config: Config,
    out: Path | None,
    console: Console,
    start: Artifact | None = None,
    under_way: ResumableFit | None = None,
    distributed: DistributedContext = SINGLE_PROCESS,
    introduced: bool = False,
    report: Path | None = None,
) -> Artifact:
    """Returns the fitted artifact, saved and recorded.

    Args:
        panel: the table; rows of a holdout already cut off.
        config: with a horizon.
        out: folder for the artifact; None = keep it in memory.
        console: where to say what happens.
        start: whose weights the training starts from; None = random ones.
        under_way: where checkpoints are kept; None = there are none.
        distributed: of this process among those that train together; the first alone speaks and writes.
        introduced: what there is to say about the table has been said.
        report: where the page about the validation windows goes, beside the artifact's own copy.

    Raises:
        DataError: the audit finds errors, or a resumed fit finds another table.
        ConfigError: settings do not fit the table, each other, or the artifact to start from.
    """
    if not distributed.is_main:
        console, out, report = Console(quiet=True), None, None
    config = started_config(config, start)
    panel = with_found_cycles(panel, config)
    found = check_panel(panel, config.horizon)
    refuse_errors(found)
    if not introduced:
        print_roles(console, panel)
        print_findings(console, found)
    config, split = prepare(panel, config, start)
    windows_per_step(config, panel.n_channels, distributed)
    print_plan(console, panel, config, split)
    first = None if start is None else Start(start, partial(print_start, console, panel, split, start))
    say = partial(print_notice, console)
    name = out.name if out else Path(panel.name).stem
    validated: list[ForecastsByModel] = []
    opening = (
        under_way.opened(config, panel, start, say) if under_way else _unkept(config, name, distributed)
    )
    with opening as opened, tempfile.TemporaryDirectory() as scratch:
        run = opened.run
        around = TrainingContext(
            logger=BufferedLogger(run) if run.recorded else None,
            callbacks=(TrainingBar(console),),
            distributed=distributed,
            checkpoints=opened.checkpoints,
            settled=opened.settled,
            say=say,
            validated=validated.append,
        )
        artifact = fit_panel(panel, config, split, around, start=first)
        print_scores(console, artifact)
        saves = out is not None or run.recorded
        if saves or report is not None:
            page = validation_page(artifact, panel, found, validated)
            if saves:
                folder = out or Path(scratch) / "model"
                artifact.save(folder, _figures(artifact, panel), {} if page is None else {REPORT: page})
                log_artifact(run, artifact, folder)
            if page is not None:
                run.log_text(page, REPORT)
                if report is not None:
                    write_page(page, report)
            print_report(console, report, page is not None)
    print_saved(console, out, run)
    return artifact


def run_backtest_pipeline(
    artifact: Artifact, panel: Panel, plan: BacktestOptions, config: Config, console: Console
) -> Backtest:
    """Returns the backtest of an artifact's config on a panel, recorded.

    Args:
        artifact: gives the config, and with `refit="never"` the weights.
        panel: opened with the artifact's schema.
        plan: cutoffs and refitting.
        config: its tracking section says where the run goes.
        console: where to say what happens.

    Raises:
        DataError: the audit finds errors.
        ConfigError: the model cannot reach that far, or `refit="never"` would score rows that the
            artifact has seen.
    """
    if plan.horizon is not None:
        check_horizon(artifact, plan.horizon)
    found = check_panel(panel)
    refuse_errors(found)
    print_findings(console, [finding for finding in found if finding.severity == "warning"])
    horizon = plan.horizon or artifact.horizon
    cutoffs = rolling_cutoffs(panel, plan.windows, horizon, plan.stride)
    if plan.refit == "never" and cutoffs[0] < artifact.trained_until:
        text = panel.calendar.text
        raise ConfigError(
            f"--refit never: the model was trained until {text(artifact.trained_until)}, the first "
            f"cutoff is {text(cutoffs[0])}: it would be scored on what it has seen; "
            "use --refit once, or fit with --until that cutoff"
        )
    if artifact.parent is not None and plan.refit != "never":
        print_fresh_refit(console, artifact.parent)
    refits = Refits(artifact, panel, cutoffs, horizon, plan.refit, console)
    with open_run(config.tracking, f"backtest {Path(panel.name).stem}", kind="backtest") as run:
        backtest = run_backtest(cutoffs, refits.said)
        flags = asdict(plan).items()
        told = " ".join(f"--{name} {value}" for name, value in flags if value is not None)
        backtest = with_report_context(backtest, refits.artifact, panel, found, told)
        if run.recorded:
            run.log_params({"backtest": asdict(plan), **artifact.config.model_dump(mode="json")})
            run.log_dataset(panel.name, panel.fingerprint(), panel.schema, "evaluation")
            run.log_metrics(score_points(backtest.scores, "backtest"))
            run.log_figure(backtest.plot(), "backtest.png")
            run.log_text(render_report(backtest), REPORT)
    print_tracked(console, run)
    return backtest


@contextmanager
def _unkept(config: Config, name: str, distributed: DistributedContext) -> Iterator[OpenFit]:
    """Yields the run of a fit that keeps no checkpoints."""
    enabled = config.tracking.enabled and distributed.is_main
    with open_run(config.tracking.model_copy(update={"enabled": enabled}), name) as run:
        yield OpenFit(run)


def _figures(artifact: Artifact, panel: Panel) -> dict[str, Figure]:
    """Returns the loss curves, and the last horizon of the table forecast beside the truth."""
    curves = artifact.metrics["curves"]
    losses = {name: curve for name, curve in curves.items() if name.endswith("_loss")}
    figures = {"loss.png": plot_curves(losses)}
    try:
        (cutoff,) = rolling_cutoffs(panel, 1, artifact.horizon)
    except ForecasterError:  # a table barely longer than the horizon has no past to show
        return figures
    coded = recoded(panel, artifact.schema.categories)
    figures["forecast.png"] = Predictor(artifact).forecast_at(coded, cutoff).plot()
    return figures
