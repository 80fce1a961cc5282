"""A fit or a backtest from start to finish: checked, printed, run, saved and tracked.

A fit whose tracking store is unreachable still ends well and prints how to send its run later.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from forecaster.config import (
    Config,
    DataConfig,
    Expert,
    FitConfig,
    ModelConfig,
    Plan,
    TrackingConfig,
    parse_duration,
    required_horizon,
)
from forecaster.errors import (
    ConfigError,
    DataError,
    ForecasterError,
    check_count,
    is_count,
    number_of,
)
from forecaster.evaluation.backtest import Backtest, ForecastsByModel, rolling_cutoffs, run_backtest
from forecaster.evaluation.comparison import EXPERT_OF, EXPERTS, MODEL, NO_FIT, RIDGE
from forecaster.evaluation.leaderboard import Leaderboard
from forecaster.evaluation.others import OtherModel, check_taken
from forecaster.evaluation.report import render_report
from forecaster.evaluation.report_data import ReportContext
from forecaster.fitting.classes import Folds, fit_classes, resolve_classes
from forecaster.fitting.context import NO_CONTEXT, TrainingContext
from forecaster.fitting.distributed import windows_per_step
from forecaster.fitting.experts.pool import fit_experts
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.fitting.members import trains_network
from forecaster.fitting.mixture import experts_alone
from forecaster.fitting.no_fit import baseline_models, described, unfitted
from forecaster.fitting.plan import with_found_cycles
from forecaster.fitting.update import Refitted, new_rows, updated
from forecaster.fitting.warm_start import requested
from forecaster.forecast.artifact import Artifact, is_forecaster
from forecaster.forecast.bands import Levels, check_levels
from forecaster.forecast.error_levels import measured_errors
from forecaster.forecast.forecast import Forecast
from forecaster.forecast.model_folder import FORECAST, LOSSES, REPORT
from forecaster.forecast.plots import plot_curves
from forecaster.forecast.predictor import Predictor
from forecaster.forecast.saved_model import save_artifact
from forecaster.forecast.source import coded
from forecaster.forecast.window import check_horizon, columns_for
from forecaster.forecast.writer import write_figure, write_page
from forecaster.model.sampling import NUM_SAMPLES
from forecaster.panel.audit import audit_panel
from forecaster.panel.build import with_roles_until
from forecaster.panel.calendar import FIXED
from forecaster.panel.categories import recoded
from forecaster.panel.findings import Finding
from forecaster.panel.forecast_rows import read_others
from forecaster.panel.panel import Only, Panel
from forecaster.runs.console import Screen
from forecaster.runs.fit_reporter import (
    FitReporter,
    StageReporter,
    print_class_plan,
    print_plan,
    print_scores,
    print_update,
)
from forecaster.runs.kept_models import KeptModels, kept_models
from forecaster.runs.resume import RunFolder
from forecaster.runs.tracking import TrackedRun, identity_of, log_artifact, log_scores, open_run
from forecaster.windows.split import Split

if TYPE_CHECKING:
    from forecaster.panel.tree import HierarchyRequest
    from forecaster.runs.progress import TrainingBar

Refit = Literal["once", "each", "never"] | int


@dataclass(frozen=True)
class BacktestOptions:
    """Which cutoffs are forecast, and what is fitted before them."""

    windows: int = 8
    """Cutoffs."""
    refit: Refit = "once"
    """once: before the first cutoff; each: before every one; a number: every so many; never: the model as it is."""
    gap: int = 0
    """Steps between the last row of a fit and the first cutoff that it serves."""
    stride: int | None = None
    """Steps between cutoffs; None = the horizon."""
    horizon: int | None = None
    """Leads; None = as the model was fitted."""
    only: Only = None
    """Series that are scored; refits read all."""
    fit: bool = True
    """False: nothing is fitted; before each cutoff a model is made of the table as it is."""
    levels: Levels = None
    """Central bands that are scored too, percent."""
    quantiles: Levels = None
    """Levels of quantiles that are scored too."""
    update_every: int | str | None = None
    """Steps, or a duration as 28d, after which the model is updated; None = it is not."""

    def served(self, panel: Panel, horizon: int) -> int:
        """Returns how many neighbouring cutoffs one model forecasts."""
        if self.update_every is not None:
            return max(1, _steps_in(self.update_every, panel) // (self.stride or horizon))
        if self.refit == "each" or not self.fit:
            return 1
        return self.refit if isinstance(self.refit, int) else self.windows

    def __post_init__(self) -> None:
        if not is_count(self.refit) and self.refit not in get_args(get_args(Refit)[0]):
            raise ConfigError(
                f"refit {self.refit!r}: expected once, each or never, or a number of windows"
            )
        if not is_count(self.gap, 0):
            raise ConfigError(f"gap {self.gap!r}: expected steps, 0 or more")
        counts = {"windows": self.windows or 0, "stride": self.stride, "horizon": self.horizon}
        for name, count in counts.items():
            check_count(count, name)
        check_levels(self.levels, self.quantiles)
        if self.update_every is not None and (not self.fit or self.refit not in ("once", "never")):
            raise ConfigError(
                "--update-every: expected --refit once or never: between updates nothing is fitted anew"
            )


@dataclass(frozen=True)
class _FitTask:
    """A fit that is prepared: its table is checked, its settings are resolved."""

    panel: Panel
    config: Config
    """The request."""
    plan: Plan
    windows: Split | Folds
    """Of forecasts a split, of classes folds."""
    start: Artifact | None
    """Of a warm start."""
    findings: tuple[Finding, ...]

    @property
    def trains(self) -> bool:
        """Whether a network is trained."""
        return isinstance(self.windows, Folds) or trains_network(self.plan, self.windows)


def run_fit(
    panel: Panel,
    config: Config,
    out: Path | None,
    console: Screen,
    start: Artifact | None = None,
    folder: RunFolder | None = None,
    context: TrainingContext = NO_CONTEXT,
    report: Path | None = None,
    name: str | None = None,
    command: str = "fc.fit(...)",
    introduced: bool = False,
    fits: bool = True,
) -> Artifact[Any]:
    """Returns the fitted artifact, saved and tracked.

    Args:
        panel: the table; rows of a holdout already cut off.
        config: the request.
        out: folder for the artifact; None = keep it in memory.
        console: receives what is printed.
        start: the artifact of a warm start; None = random weights.
        folder: where checkpoints are kept; None = there are none.
        context: devices and precision; rank 0 alone prints and writes.
        report: path of the page about the validation windows, beside the artifact's own copy.
        name: of the tracked run; None = of the folder or the table.
        command: makes that page again.
        introduced: roles and findings have been printed.
        fits: False = nothing is fitted; the model is that of `predict` on a table alone.

    Raises:
        DataError: the audit finds errors.
        ConfigError: settings do not fit the table, each other, or the artifact of the start; or another
            fit was interrupted in the folder.
    """
    name = name or (out.name if out else Path(panel.name).stem)
    if not context.distributed.is_main:
        console, out, report = Screen(quiet=True), None, None
    task = _prepare(panel, config, start, console, introduced)
    windows_per_step(task.plan, panel.n_channels, context.distributed)
    reporter = FitReporter(console, folder)
    context = replace(context, callbacks=_bars(console, task.trains), reporter=reporter)
    with _opened(task, name, folder, context) as (plan, run, context):
        artifact = _learn(replace(task, plan=plan), context) if fits else _unfitted(task)
        print_scores(console, artifact)
        _keep(panel, task.findings, artifact, run, reporter, out, report, command)
    if out is not None:
        console.print_line(f"saved {out}")
    console.print_tracked(run)
    return artifact


def run_update(
    start: Artifact,
    panel: Panel,
    refit: Refitted,
    out: Path | None,
    console: Screen,
    tracking: TrackingConfig,
    name: str | None = None,
) -> Artifact:
    """Returns a model that knows all rows of a table, saved and tracked; the same model where none is new.

    Args:
        start: the model.
        panel: the table as it is now, opened with the model's schema and new words.
        refit: what is learned again.
        out: folder for the new model; None = keep it in memory.
        console: receives what is printed.
        tracking: where the run is recorded.
        name: of the run; None = of the folder or the table.

    Raises:
        DataError: the audit finds errors, or the table is not that of the model with further rows.
    """
    found = new_rows(start, panel)
    text = panel.calendar.text
    if found.steps == 0:
        console.print_line(
            f"no rows after {text(found.since)}, which the model knows: nothing to update"
        )
        return start
    findings = tuple(audit_panel(panel, start.horizon, start.plan.target))
    console.print_findings([*found.findings, *findings])
    until = f"from {text(found.since)} to {text(found.until)}"
    console.print_line(f"{number_of(found.steps, 'new step')}, {until}")
    reporter = FitReporter(console, None)
    bars = _bars(console, refit == "all" and not experts_alone(start.ensemble.networks))
    context = TrainingContext(callbacks=bars, reporter=reporter)
    with open_run(tracking, name or (out.name if out else Path(panel.name).stem), kind="update") as run:
        run.nest_under(identity_of(start))
        new = updated(start, panel, found, refit, context)
        print_update(console, new)
        _keep(panel, findings, new, run, reporter, out, None, "model.update(...)")
    if out is not None:
        console.print_line(f"saved {out}")
    console.print_tracked(run)
    return new


def _prepare(
    panel: Panel, config: Config, start: Artifact | None, console: Screen, introduced: bool
) -> _FitTask:
    """Checks a table, resolves the settings, and prints both."""
    if start is not None and config.horizon is None:
        config = config.model_copy(update={"horizon": start.horizon})
    panel = with_found_cycles(panel, config)
    findings = audit_panel(panel, config.horizon, config.target)
    if not introduced:
        console.print_roles(panel)
        console.print_findings(findings)
    windows: Split | Folds
    if config.data.label is not None:
        plan, windows = resolve_classes(panel, config)
        print_class_plan(console, plan, windows)
    else:
        with console.stage("choosing experts and their settings"):
            plan, windows = resolve(panel, config, start)
        print_plan(console, panel, plan, windows)
    return _FitTask(panel, config, plan, windows, start, tuple(findings))


@contextmanager
def _opened(
    task: _FitTask, name: str, folder: RunFolder | None, context: TrainingContext
) -> Iterator[tuple[Plan, TrackedRun, TrainingContext]]:
    """Yields the plan, the MLflow run and the context with checkpoints, as an interrupted fit left them."""
    tracked = task.config.tracking.enabled and context.distributed.is_main
    tracking = task.config.tracking.model_copy(update={"enabled": tracked})
    with ExitStack() as stack:
        if folder is None:
            plan = task.plan
            run = stack.enter_context(open_run(tracking, name))
        else:
            opening = folder.opened(task.plan, task.panel, task.start, context.reporter.notice)
            plan, checkpoints = stack.enter_context(opening)
            run = stack.enter_context(open_run(tracking, name, folder.record.run))
            folder.update(run=run.run_id)
            context = replace(context, checkpoints=checkpoints)
        if run.recorded and task.trains:
            from forecaster.runs.progress import BufferedLogger

            context = replace(context, logger=BufferedLogger(run))
        yield plan, run, context


def _bars(console: Screen, trains: bool) -> tuple[TrainingBar, ...]:
    """The progress bar of a training; without one nothing loads Lightning."""
    if not trains:
        return ()
    from forecaster.runs.progress import TrainingBar

    return (TrainingBar(console),)


def _learn(task: _FitTask, context: TrainingContext) -> Artifact[Any]:
    """Returns the fitted artifact with its request."""
    artifact: Artifact[Any]
    if isinstance(task.windows, Folds):
        artifact = fit_classes(task.panel, task.plan, task.windows, context)
    else:
        artifact = fit_panel(task.panel, task.plan, task.windows, context, task.start)
    return replace(artifact, request=requested(task.config, artifact.plan, task.start))


def _unfitted(task: _FitTask) -> Artifact:
    """Returns the model of a table that nothing is fitted to, as a fit keeps it."""
    artifact = unfitted(task.panel, task.config)
    errors = measured_errors(artifact, coded(task.panel, artifact))
    metrics = artifact.metrics | {"steps": 0, "best_step": 0, "curves": {}}
    return replace(artifact, errors=errors, metrics=metrics)


def _keep(
    panel: Panel,
    findings: tuple[Finding, ...],
    artifact: Artifact[Any],
    run: TrackedRun,
    reporter: FitReporter,
    out: Path | None,
    report: Path | None,
    command: str,
) -> None:
    """Saves an artifact with its pictures and its report, and records it in its run."""
    console, backtest = reporter.console, reporter.backtest
    saves = out is not None or run.recorded
    if not saves and report is None:
        return
    with ExitStack() as stack:
        folder = out or Path(stack.enter_context(tempfile.TemporaryDirectory())) / "model"
        save_artifact(artifact, folder)
        page = folder / REPORT
        drawings: dict[str, Callable[[], None]] = {}
        if saves:
            drawings[LOSSES] = partial(_draw_losses, artifact, folder / LOSSES)
        if saves and is_forecaster(artifact):
            drawings[FORECAST] = partial(_draw_forecast, artifact, panel, folder / FORECAST)
        if backtest is not None:
            # No date: the folder of a resumed fit equals that of an uninterrupted one, byte by byte.
            report_context = ReportContext(
                artifact,
                command,
                panel.fingerprint(),
                findings,
                validation=True,
                date=None,
            )
            scored = replace(backtest, report_context=report_context)
            drawings[REPORT] = partial(_draw_report, scored, {page, report or page})
        with console.stage("drawing pictures and report"):
            drawn = console.draw(drawings, "the model itself is complete")
        with console.stage("recording the run"):
            if saves:
                log_artifact(run, artifact, folder, _verdict(artifact, backtest))
            if page.exists():
                run.log_text(page.read_text(encoding="utf-8"), REPORT)
    if report is None or not drawn:
        return
    if backtest is not None:
        console.print_line(f"wrote {report}")
    else:
        missing = "no rows were set aside for validation, so there is nothing to report"
        console.print_notice(f"no {report}: {missing}")


def run_backtest_pipeline(
    model: Artifact | Config,
    panel: Panel,
    options: BacktestOptions,
    tracking: TrackingConfig,
    source: tuple[object, DataConfig, object],
    quiet: bool,
    name: str | None,
    command: str,
    presets: Mapping[str, Config] | None = None,
    others: Mapping[str, object] | None = None,
    hierarchy: HierarchyRequest | None = None,
    keep: str | Path | None = None,
) -> Backtest:
    """Returns the backtest of a request on a panel, tracked; a leaderboard where there are presets.

    Args:
        model: the request, or an artifact that has one and, with `refit="never"`, the weights.
        panel: opened with the schema of the artifact.
        options: cutoffs and refitting.
        tracking: where the run is recorded.
        source: the table of the panel, how it was to be read, and the second table.
        quiet: print nothing.
        name: of the run; None = after the table.
        command: makes the report again.
        presets: further requests of a leaderboard, by name; None = a backtest of the model alone.
        others: tables of forecasts of other origin, by name.
        hierarchy: sums whose accuracy is scored too, by level.
        keep: folder of the models made so far, from which the same call resumes; None = in memory.

    Raises:
        DataError: the audit finds errors, or forecasts of other origin do not fit the table.
        ConfigError: the model cannot forecast that many leads, or `refit="never"` would score rows
            that the artifact has seen.
    """
    console = Screen(quiet=quiet)
    findings = audit_panel(panel, target=(model if isinstance(model, Config) else model.plan).target)
    if isinstance(model, Config):
        if options.refit == "never":
            raise ConfigError(
                "refit 'never': expected once or each: there is no model to score as it is"
            )
        horizon = required_horizon(model)
        console.print_roles(panel)
    else:
        horizon = options.horizon or model.horizon
        check_horizon(model, horizon)
    console.print_findings([finding for finding in findings if finding.severity == "warning"])
    scored = panel.only(options.only)
    if hierarchy is not None:
        hierarchy.check(scored, findings)
    cutoffs = rolling_cutoffs(scored, options.windows, horizon, options.stride)
    check_taken([*(others or ())], [EXPERTS, NO_FIT, *(presets or ())])
    beside_model = [
        OtherModel(name, read_others(table, scored)) for name, table in (others or {}).items()
    ]
    for other in beside_model:
        other.check_cutoffs(cutoffs, scored)
    if isinstance(model, Artifact) and options.refit == "never":
        _check_unseen(model, panel, cutoffs[0], options.gap)
    elif isinstance(model, Artifact) and model.parent is not None:
        console.print_fresh_refit(model.parent)
    reopened = partial(with_roles_until, panel, *source)
    with ExitStack() as stack:
        kept = stack.enter_context(kept_models(keep, model, panel, options))
        refits = _Refits(model, panel, cutoffs, horizon, options, console, reopened, presets, kept)
        title = name or f"backtest {Path(panel.name).stem}"
        run = stack.enter_context(open_run(tracking, title, kind="backtest"))
        scoring = partial(console.stage, "scoring model and baselines")

        def forecasts(some: Sequence[int]) -> Iterator[ForecastsByModel]:
            for made in refits.forecasts(some):
                beside = {other.name: other.beside(made[MODEL]) for other in beside_model}
                yield {**made, **beside}

        backtest = run_backtest(cutoffs, forecasts, scoring=scoring)
        known = (panel.fingerprint(), tuple(findings), source[2])
        backtest = replace(
            backtest,
            report_context=ReportContext(refits.artifact, command, *known),
            seconds=backtest.seconds | refits.seconds,
            notes=tuple(other.finding() for other in beside_model),
        )
        if hierarchy is not None:
            from forecaster.evaluation.by_level import score_levels  # it loads scipy's sparse matrices

            with console.stage("reconciling forecasts"):
                levels = score_levels(backtest.forecasts, hierarchy)
            backtest = replace(backtest, level_columns=levels)
        if presets is not None:
            backtest = Leaderboard(**vars(backtest))
        if run.recorded:
            run.log_params({"backtest": asdict(options)})
            log_scores(run, refits.artifact, backtest, f"{MODEL} {backtest.verdict}")
            with console.stage("drawing picture and report"):
                pictures: dict[str, Callable[[], None]] = {
                    "backtest.png": lambda: run.log_figure(backtest.plot(), "backtest.png"),
                    REPORT: lambda: run.log_text(render_report(backtest), REPORT),
                }
                console.draw(pictures, "the scores are complete")
    console.print_tracked(run)
    return backtest


def before(panel: Panel, cutoff: int, steps: int) -> int:
    """Returns the time some steps before a cutoff."""
    return int(panel.calendar.before(cutoff, steps)[0]) if steps else cutoff


def _steps_in(span: int | str, panel: Panel) -> int:
    """Returns the steps of a number of them, or of a duration up to the last time of a table."""
    if str(span).isdecimal() and int(span) > 0:
        return int(span)
    flag, calendar, end = "--update-every", panel.calendar, panel.last_time()
    begin = end - round((parse_duration(span, flag) or 0.0) * FIXED["s"])
    steps = 0 if calendar.integer else int(calendar.steps(begin, end))
    if steps < 1:
        raise ConfigError(
            f"{flag} {span}: expected a number of steps, or a duration of at least a step of {calendar.freq}"
        )
    return steps


def _check_unseen(artifact: Artifact, panel: Panel, first: int, gap: int) -> None:
    """Refuses `refit="never"` where cutoffs from the first on, or the gap before it, have been seen."""
    if before(panel, first, gap) < artifact.trained_until:
        text = panel.calendar.text
        raise ConfigError(
            f"--refit never: the model was trained until {text(artifact.trained_until)}, the first "
            f"cutoff is {text(first)}{f', less {gap} steps' if gap else ''}: it would be scored on what it has "
            "seen; use --refit once, or fit with --until that cutoff"
        )
    rows_only = panel.schema.time is None
    if rows_only and panel.until(artifact.trained_until).fingerprint() != artifact.fingerprint:
        raise ConfigError(
            "--refit never: rows without times are numbered from the end of each table, and this is not "
            f"the table of the fit ({artifact.data}): it cannot be known which rows the model has seen; "
            "use --refit once, or give the rows times"
        )


@dataclass
class _Refits:
    """Forecasts of a model and of what stands beside it, by weights fitted before each cutoff."""

    model: Artifact | Config
    panel: Panel
    cutoffs: Sequence[int]
    horizon: int
    options: BacktestOptions
    console: Screen
    reopened: Callable[[int], Panel]
    presets: Mapping[str, Config] | None = None
    kept: KeptModels = field(default_factory=KeptModels)
    artifact: Artifact = field(init=False)
    """The model that forecasts now."""
    models: dict[str, tuple[Predictor, Panel]] = field(default_factory=dict)
    first: int = -1
    """Number of the first cutoff that `models` serve; −1 = there are none yet."""
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """By model, of its fits and forecasts; experts share one fit, and baselines another, which count for each."""
    solving: float = 0.0
    """Seconds of the last fit that chose, solved and weighed experts."""

    def __post_init__(self) -> None:
        if isinstance(self.model, Artifact):
            self.artifact = self.model
            # From random weights: those of a warm start are not kept, and may have seen more.
            fit = {"freeze_encoder": False, "adapters": None}
            self.config = self.model.requested.replaced(horizon=self.model.horizon, fit=fit)
        else:
            self.config = self.model

    def forecasts(self, cutoffs: Sequence[int]) -> Iterator[ForecastsByModel]:
        """Yields the forecasts at some neighbouring cutoffs, by model.

        Raises:
            DataError: the rows before a cutoff are too few to fit.
        """
        served = self.options.served(self.panel, self.horizon)
        for number, group in groupby(cutoffs, lambda cutoff: self.cutoffs.index(cutoff) // served):
            some = list(group)
            if self.first != number * served:
                self.first = number * served
                self._prepare(self.cutoffs[self.first : self.first + served])
            made = [self._forecast(name, some) for name in self.models]
            for forecasts in zip(*made, strict=True):
                yield dict(zip(self.models, forecasts, strict=True))

    def _forecast(self, name: str, cutoffs: Sequence[int]) -> list[Forecast]:
        predictor, panel = self.models[name]
        decoder = predictor.artifact.plan.model.decoder
        num_samples = NUM_SAMPLES if decoder == "autoregressive" else None
        with self.console.stage(f"forecasting {len(cutoffs)} cutoffs: {name}"), self._timed(name):
            fitted = predictor.artifact.plan.model.quantile_levels
            columns = columns_for(panel, self.options.levels, self.options.quantiles, fitted)
            return predictor.forecasts_at(panel, cutoffs, self.horizon, num_samples, columns)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds[name] += time.perf_counter() - begun

    def _prepare(self, served: Sequence[int]) -> None:
        """Fits what forecasts at these cutoffs."""
        cutoff, text = before(self.panel, served[0], self.options.gap), self.panel.calendar.text
        if self.models and self.options.update_every is not None:
            seen = self.panel.until(cutoff)
            with (
                self._timed(MODEL),
                self.console.stage(f"updating the model with rows until {text(cutoff)}"),
            ):
                self.artifact = self.kept.at(cutoff, partial(self._updated, seen))
        elif self.options.refit == "never":
            seen = self.panel.until(self.artifact.trained_until)
            self.console.print_cutoffs(self.panel, served, None)
        else:
            panel = self.reopened(cutoff)
            if panel.schema != self.panel.schema:  # else forecasts share its arrays
                self.panel = panel
            seen = self.panel.until(cutoff)
            if self.options.fit:
                seen = with_found_cycles(seen, self.config)
                with self._timed(MODEL):
                    fitted = partial(self._fitted, seen, cutoff, self.config)
                    self.artifact = self.kept.at(cutoff, fitted)
                self.console.print_cutoffs(self.panel, served, cutoff)
            else:
                with self._timed(MODEL):
                    self.artifact = unfitted(seen, self.config)
                if not self.models:
                    self.console.print_line(f"no fit: {described(self.artifact).text}")
        begun = time.perf_counter()
        beside = baseline_models(seen, self._defaults())
        seconds = time.perf_counter() - begun
        for name in beside:
            self.seconds[name] += seconds
        if self.options.fit:
            beside |= self._experts(seen, RIDGE)
        if self.presets is not None:
            beside |= self._contenders(seen, cutoff)
        self.models = {
            name: (Predictor(model), coded(self.panel.only(self.options.only), model))
            for name, model in {MODEL: self.artifact, **beside}.items()
        }

    def _updated(self, seen: Panel) -> Artifact:
        context = TrainingContext(errors=self.kept.folder is not None)
        return updated(self.artifact, seen, new_rows(self.artifact, seen), "all", context)

    def _fitted(self, seen: Panel, cutoff: int, config: Config) -> Artifact:
        """A request fitted to the rows up to a cutoff, nothing kept of what it chose on others."""
        begun = time.perf_counter()
        try:
            plan, split = resolve(seen, config)
        except DataError as error:
            when = self.panel.calendar.text(cutoff)
            raise DataError(
                f"refit before the cutoff {when}: {error}; or use fewer --windows"
            ) from error
        bars, stages = _bars(self.console, trains_network(plan, split)), StageReporter(self.console)
        errors = self.kept.folder is not None  # a saved model has them
        context = TrainingContext(callbacks=bars, reporter=stages, errors=errors)
        resolved = time.perf_counter() - begun
        artifact = fit_panel(seen, plan, split, context)
        self.solving = resolved + stages.of_experts
        return replace(artifact, request=config)

    def _contenders(self, seen: Panel, cutoff: int) -> dict[str, Artifact]:
        """The presets fitted to the same rows, the experts of the table, and each of them alone."""
        found: dict[str, Artifact] = {}
        with self._timed(NO_FIT):
            found[NO_FIT] = unfitted(self.panel.until(cutoff), self._defaults())
        before = self.seconds[EXPERTS]
        pools = self._experts(seen, EXPERTS)
        solved = self.seconds[EXPERTS] - before
        for pool in pools.values():
            for expert in pool.plan.model.pool.experts:
                # A baseline, or one that forecasts as `linear` does, is a row already.
                if expert in EXPERT_OF.values() or (expert == "arx" and not _has_drivers(pool)):
                    continue
                if alone := pool.ensemble.experts_only(expert):
                    found[f"expert {expert}"] = replace(pool, ensemble=alone)
                    self.seconds[f"expert {expert}"] += solved
        for name, config in (self.presets or {}).items():
            with self._timed(name):
                found[name] = self._fitted(seen, cutoff, config)
        return pools | found

    def _experts(self, seen: Panel, name: str) -> dict[str, Artifact]:
        """The linear expert, or all, without a network: those of the model, else fitted to the same rows.

        Nothing where the rows do not allow it.
        """
        if name == RIDGE or self.config.model.experts is None:
            own = self.artifact.ensemble.experts_only("linear" if name == RIDGE else None)
            if own is not None:
                self.seconds[name] += self.solving
                return {name: replace(self.artifact, ensemble=own)}
        config = self._defaults(("linear",) if name == RIDGE else None)
        try:
            with self.console.stage(f"fitting {name}"), self._timed(name):
                return {name: fit_experts(seen, *resolve(seen, config))}
        except ForecasterError as error:
            self.console.print_notice(f"no {name} in the table: {error}")
            return {}

    def _defaults(self, experts: tuple[Expert, ...] | None = None) -> Config:
        """The default settings with some experts, for the roles, bounds and levels of the request."""
        asked = self.config
        return Config(
            horizon=self.horizon,
            data=asked.data,
            target=asked.target,
            model=ModelConfig(experts=experts, quantile_levels=asked.model.quantile_levels),
            fit=FitConfig(validation=asked.fit.validation),
        )


def _has_drivers(pool: Artifact) -> bool:
    """Whether `arx` reads any column."""
    experts = pool.ensemble.networks[0].experts
    return experts is not None and experts.arx is not None and bool(experts.arx.used.any())


def _verdict(artifact: Artifact[Any], backtest: Backtest | None) -> str:
    """Returns how a fit compares with seasonal naive, or how well it classifies, in one sentence."""
    if backtest is not None:
        return f"{MODEL} {backtest.verdict}"
    scores = artifact.metrics.get("validation", {}).get("scores", {}).get(MODEL, {})
    if "accuracy" in scores:
        return f"held-out accuracy {scores['accuracy']:.4f}, log loss {scores['log_loss']:.4f}"
    return "no rows were set aside for validation: no scores"


def _draw_losses(artifact: Artifact[Any], path: Path) -> None:
    curves = artifact.metrics["curves"]
    losses = {name: curve for name, curve in curves.items() if name.endswith("_loss")}
    write_figure(plot_curves(losses), path)


def _draw_forecast(artifact: Artifact, panel: Panel, path: Path) -> None:
    """Draws the last horizon of the table, forecast beside the truth."""
    try:
        (cutoff,) = rolling_cutoffs(panel, 1, artifact.horizon)
    except ForecasterError:  # a table barely longer than the horizon has no past to show
        return
    panel = recoded(panel, artifact.schema.categories)
    write_figure(Predictor(artifact).forecast_at(panel, cutoff).plot(), path)


def _draw_report(backtest: Backtest, paths: set[Path]) -> None:
    page = render_report(backtest)
    for path in paths:
        write_page(page, path)
