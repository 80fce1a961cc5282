"""A fit or a backtest from start to finish: said aloud, done, saved, recorded.

What comes in: an open panel and a config. What goes out: an artifact on disk, or a backtest, and one
MLflow run. Promised: a fit whose tracking store is away ends well and says how to send its run later; a
backtest never scores a row that its model has seen.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from forecaster.config import Config
from forecaster.errors import ConfigError, ForecasterError
from forecaster.evaluation.backtest import Backtest, Said, rolling_cutoffs, run_backtest
from forecaster.evaluation.report.page import page_of
from forecaster.forecast.artifact import Artifact
from forecaster.forecast.plots import plot_curves
from forecaster.forecast.predictor import Predictor, check_horizon
from forecaster.forecast.writer import write_page
from forecaster.panel.audit import check_panel
from forecaster.panel.categories import recoded
from forecaster.panel.findings import refuse_errors
from forecaster.panel.panel import Panel
from forecaster.runs import announce, announce_table
from forecaster.runs.fit import fit_panel, prepare, with_found_cycles
from forecaster.runs.pages import REPORT, validation_page, with_origin
from forecaster.runs.progress import BufferedLogger, TrainingBar
from forecaster.runs.refits import Refit, Refits
from forecaster.runs.resume.under_way import Opened, UnderWay
from forecaster.runs.tracking.content import log_artifact, score_points
from forecaster.runs.tracking.run import open_run
from forecaster.runs.training.devices import SINGLE, Place, windows_per_step
from forecaster.runs.training.train import Surroundings
from forecaster.runs.transfer import Start, started_config

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class BacktestPlan:
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
    under_way: UnderWay | None = None,
    place: Place = SINGLE,
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
        place: of this process among those that train together; the first alone speaks and writes.
        introduced: what there is to say about the table has been said.
        report: where the page about the validation windows goes, beside the artifact's own copy.

    Raises:
        DataError: the audit finds errors, or a resumed fit finds another table.
        ConfigError: settings do not fit the table, each other, or the artifact to start from.
    """
    if not place.leads:
        console, out, report = Console(quiet=True), None, None
    config = started_config(config, start)
    panel = with_found_cycles(panel, config)
    found = check_panel(panel, config.horizon)
    refuse_errors(found)
    if not introduced:
        announce_table.roles(console, panel)
        announce_table.findings(console, found)
    config, split = prepare(panel, config, start)
    windows_per_step(config, panel.n_channels, place)
    announce.plan(console, panel, config, split)
    first = (
        None if start is None else Start(start, partial(announce.start, console, panel, split, start))
    )
    say = partial(announce.sentence, console)
    name = out.name if out else Path(panel.name).stem
    validated: list[Said] = []
    opening = under_way.opened(config, panel, start, say) if under_way else _unkept(config, name, place)
    with opening as opened, tempfile.TemporaryDirectory() as scratch:
        run = opened.run
        around = Surroundings(
            logger=BufferedLogger(run) if run.recorded else None,
            callbacks=(TrainingBar(console),),
            place=place,
            checkpoints=opened.checkpoints,
            settled=opened.settled,
            say=say,
            validated=validated.append,
        )
        artifact = fit_panel(panel, config, split, around, start=first)
        announce.scores(console, artifact)
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
            announce.report(console, report, page is not None)
    announce.saved(console, out, run)
    return artifact


def run_backtest_job(
    artifact: Artifact, panel: Panel, plan: BacktestPlan, config: Config, console: Console
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
    announce_table.findings(console, [finding for finding in found if finding.severity == "warning"])
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
        announce.afresh(console, artifact.parent)
    refits = Refits(artifact, panel, cutoffs, horizon, plan.refit, console)
    with open_run(config.tracking, f"backtest {Path(panel.name).stem}", kind="backtest") as run:
        backtest = run_backtest(cutoffs, refits.said)
        flags = asdict(plan).items()
        told = " ".join(f"--{name} {value}" for name, value in flags if value is not None)
        backtest = with_origin(backtest, refits.artifact, panel, found, told)
        if run.recorded:
            run.log_params({"backtest": asdict(plan), **artifact.config.model_dump(mode="json")})
            run.log_dataset(panel.name, panel.fingerprint(), panel.schema, "evaluation")
            run.log_metrics(score_points(backtest.scores, "backtest"))
            run.log_figure(backtest.plot(), "backtest.png")
            run.log_text(page_of(backtest), REPORT)
    announce.tracked(console, run)
    return backtest


@contextmanager
def _unkept(config: Config, name: str, place: Place) -> Iterator[Opened]:
    """Yields the run of a fit that keeps no checkpoints."""
    enabled = config.tracking.enabled and place.leads
    with open_run(config.tracking.model_copy(update={"enabled": enabled}), name) as run:
        yield Opened(run)


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
