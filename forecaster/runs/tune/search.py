"""A search from start to finish: announced, run, told, written, refitted, registered.

What comes in: an open panel, a config and the caller's wishes. What goes out: an `Outcome`, the best
config as a file, and a model fitted with it. Promised: the same call goes on with the study that is
there; everything that was told stays, whatever ends the search.
"""

from __future__ import annotations

import difflib
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from forecaster.config import Config
from forecaster.errors import ConfigError
from forecaster.forecast.artifact import Artifact
from forecaster.panel.audit import check_panel
from forecaster.panel.finding import refuse_errors
from forecaster.panel.panel import Panel
from forecaster.panel.stores.store import write_store
from forecaster.runs import announce
from forecaster.runs.job import run_fit
from forecaster.runs.tracking.store import tracking_uri
from forecaster.runs.tracking.sweep import close_dead_trial, open_sweep
from forecaster.runs.tune.objective import RUN, Objective
from forecaster.runs.tune.outcome import Outcome, outcome_of
from forecaster.runs.tune.plan import METRICS, PRUNERS, SAMPLERS, Metric, Pruner, Sampler, SweepPlan
from forecaster.runs.tune.report import SearchBar, say_plan, say_results
from forecaster.runs.tune.space import Space, load_space
from forecaster.runs.tune.study import check_name, default_storage, open_study
from forecaster.runs.tune.worker import Session, run_worker
from forecaster.runs.tune.workers import run_workers

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Wishes:
    """What a caller may say of a search; None = decided here, and said."""

    trials: int = 50
    """In all, those of earlier calls included."""
    space: str | Path | None = None
    """YAML file."""
    study: str | None = None
    """Name; None = from the table and the horizon."""
    storage: str | Path | None = None
    """Path of a journal or an address; None = a journal beside the tracking store."""
    workers: int = 1
    """Processes."""
    sampler: Sampler = "tpe"
    """Proposes settings."""
    pruner: Pruner | None = None
    """Stops trials that fall behind; None = asha where losses can be compared, else none."""
    metrics: tuple[Metric, ...] = ("WQL",)
    """What is made small."""
    timeout: str | float | None = None
    """As 90, 45m or 2h."""
    seed: int = 0
    """Of the sampler."""
    until: str | None = None
    """Date after which rows are a holdout."""
    out: Path | None = None
    """Folder for the model of the best settings."""
    register: str | None = None
    """Name in the registry."""
    refit: bool = True
    """Whether a model is fitted with the best settings."""
    command: str = "fc.tune(...)"
    """What was called, for the file of the best settings."""


@dataclass(frozen=True)
class Tables:
    """Where the panel came from, so that a worker can open it too."""

    data: object
    """Path, glob, address or frame."""
    future: object | None = None
    """Covariates known in advance."""
    covariates: object | None = None
    """Second table."""


def wishes_of(trials: int, told: Mapping[str, Any]) -> Wishes:
    """Returns a caller's wishes; one metric may stand for a list of one.

    Raises:
        ConfigError: there is no such wish.
    """
    known = [field.name for field in fields(Wishes)]
    for name in told:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f", did you mean '{near[0]}'?" if near else ""
            raise ConfigError(f"tune: unknown option '{name}'{hint}")
    given = {name: value for name, value in told.items() if value is not None}
    metrics = given.get("metrics", "WQL")
    given["metrics"] = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    if "out" in given:
        given["out"] = Path(given["out"])
    return Wishes(trials, **given)


def run_search(
    panel: Panel, tables: Tables, config: Config, wishes: Wishes, console: Console
) -> tuple[Outcome, Artifact | None]:
    """Returns what a search found, and the model of its best settings.

    Args:
        panel: the table; rows of a holdout already cut off.
        tables: that the panel was made of.
        config: with a horizon; trial 0 tries it as it is.
        wishes: how to search.
        console: where to say what happens.

    Raises:
        ConfigError: wishes, space and config contradict each other, the table, or the study that is
            there; or its storage stayed away.
        DataError: the audit finds errors, or the table is too short.
        FitError: three trials in a row failed alike, or none finished.
    """
    found = check_panel(panel, config.horizon)
    refuse_errors(found)
    space = load_space(wishes.space)
    plan = plan_search(panel, tables, config, wishes, space)
    objective = Objective(plan, panel)
    objective.check()
    announce.roles(console, panel)
    announce.findings(console, found)
    say_plan(console, objective)
    outcome = _searched(panel, plan, objective, wishes, console)
    if not wishes.refit and wishes.out is None and wishes.register is None:
        return outcome, None
    return outcome, _refitted(panel, outcome, wishes, console)


def plan_search(
    panel: Panel, tables: Tables, config: Config, wishes: Wishes, space: Space
) -> SweepPlan:
    """Returns the plan of a search.

    Raises:
        ConfigError: wishes contradict each other or the space; all faults at once.
    """
    if config.horizon is None:
        raise ConfigError("a horizon is required: how many steps to forecast (--horizon 28)")
    _check(wishes, space)
    pruner = wishes.pruner
    if pruner is None:
        pruner = "none" if len(wishes.metrics) > 1 or space.losses_differ else "asha"
    source = _address(tables.data)
    word = "frame" if source is None else _word(Path(panel.name).stem)
    study = wishes.study or f"{word}-{config.horizon}"
    check_name(study)
    return SweepPlan(
        study=study,
        storage=str(wishes.storage or default_storage(study, tracking_uri(config.tracking))),
        source=source or "",
        config=config.model_dump(mode="json"),
        space=space.told,
        fingerprint=panel.fingerprint(),
        metrics=wishes.metrics,
        trials=wishes.trials,
        sampler=wishes.sampler,
        pruner=pruner,
        seed=wishes.seed,
        workers=wishes.workers,
        timeout_seconds=seconds_of(wishes.timeout),
        until=wishes.until,
        future=_address(tables.future),
        covariates=_address(tables.covariates),
    )


def seconds_of(duration: str | float | None) -> float | None:
    """Returns a duration in seconds: 90, "90", "45m", "2h", "1d"; None stays None.

    Raises:
        ConfigError: it is none.
    """
    if duration is None:
        return None
    told = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", str(duration).strip())
    if told is None or float(told[1]) <= 0:
        raise ConfigError(f"--timeout {duration}: expected a duration, as 90s, 45m or 2h")
    return float(told[1]) * _UNITS[told[2] or "s"]


def _check(wishes: Wishes, space: Space) -> None:
    faults = []
    known = {"sampler": SAMPLERS, "pruner": PRUNERS, "metric": METRICS}
    asked = [("sampler", wishes.sampler), ("pruner", wishes.pruner or "none")]
    for name, value in asked + [("metric", metric) for metric in wishes.metrics]:
        if value not in known[name]:
            faults.append(f"--{name} {value}: expected one of {', '.join(known[name])}")
    if not wishes.metrics or len(set(wishes.metrics)) < len(wishes.metrics):
        faults.append(f"--metric {', '.join(wishes.metrics) or '(none)'}: expected each one once")
    for name, number in (("trials", wishes.trials), ("workers", wishes.workers)):
        if number < 1:
            faults.append(f"--{name} {number}: expected 1 or more")
    if wishes.pruner not in (None, "none"):
        if len(wishes.metrics) > 1:
            faults.append(
                f"--pruner {wishes.pruner}: trials with {len(wishes.metrics)} metrics cannot be "
                "compared before their end; take --pruner none, or one --metric"
            )
        if space.losses_differ:
            faults.append(
                f"--pruner {wishes.pruner}: the space searches {space.losses_differ}, so losses of two "
                "trials do not mean the same; take --pruner none, or leave it out of the space"
            )
    if faults:
        raise ConfigError("\n".join(faults))


def _searched(
    panel: Panel, plan: SweepPlan, objective: Objective, wishes: Wishes, console: Console
) -> Outcome:
    """Runs the trials that are still wanted, and records the study as a whole."""
    say = partial(announce.sentence, console)
    study = open_study(plan, say=say)
    session = Session.begin(study, plan, say=say)
    tracking = plan.settings.tracking
    with open_sweep(tracking, plan.study, plan.storage) as sweep, ExitStack() as stack:
        plan = replace(plan, parent_run=sweep.key)
        bar = stack.enter_context(
            SearchBar(console, outcome_of(plan, study.get_trials(deepcopy=False)))
        )
        begun = datetime.now()
        try:
            if plan.workers == 1:
                objective.plan = plan
                run_worker(plan, objective, session, bar.told)
            else:
                run_workers(stack.enter_context(_reachable(plan, panel)), study, session, bar.told)
        finally:
            trials = study.get_trials(deepcopy=False)
            outcome = outcome_of(plan, trials)
            _close_dead(plan, [trial for trial in trials if _ended_since(trial, begun)])
            bar.stop()
            if len(outcome.ended) < plan.trials:
                say(f"{len(outcome.ended)} of {plan.trials} trials are told; the same command goes on")
            sweep.summarise(study, outcome.trials, plan.metrics)
        best = _best_path(plan)
        outcome.write_best(best, wishes.command)
        sweep.keep_best(best.read_text(encoding="utf-8"))
    say_results(console, outcome)
    announce.tracked(console, sweep.run)
    announce.sentence(console, f"wrote {best}")
    return outcome


@contextmanager
def _reachable(plan: SweepPlan, panel: Panel) -> Iterator[SweepPlan]:
    """Yields a plan whose table a worker can open: a frame is written to a store for as long."""
    if plan.source:
        yield plan
        return
    with tempfile.TemporaryDirectory(prefix="forecaster-tune-") as scratch:
        store = Path(scratch) / panel.name
        write_store(panel, store, plan.settings.data)
        yield replace(plan, source=str(store), future=None, covariates=None)


def _close_dead(plan: SweepPlan, trials: list[FrozenTrial]) -> None:
    """Closes the runs of trials whose worker could not."""
    tracking = plan.settings.tracking
    for trial in trials:
        key, why = trial.user_attrs.get(RUN, ""), trial.user_attrs.get("void")
        if why is not None:
            close_dead_trial(tracking, plan.parent_run, plan.study, trial.number, key, why)


def _ended_since(trial: FrozenTrial, begun: datetime) -> bool:
    return trial.datetime_complete is not None and trial.datetime_complete >= begun


def _refitted(panel: Panel, outcome: Outcome, wishes: Wishes, console: Console) -> Artifact:
    """Returns the model of the best settings, fitted to all rows; saved and registered as wished."""
    config = outcome.settings(outcome.best)
    console.rule(f"fit with trial {outcome.best.number}", align="left")
    with tempfile.TemporaryDirectory(prefix="forecaster-tune-") as scratch:
        out = wishes.out
        if out is None and wishes.register is not None:
            out = Path(scratch) / outcome.plan.study
        artifact = run_fit(panel, config, out, console, introduced=True)
        if wishes.register is not None and out is not None:
            from forecaster.runs.registry.publish import publish

            published = publish(out, wishes.register, config.tracking)
            announce.sentence(console, f"registered {published.address}: {published.sentence}")
    return artifact


def _best_path(plan: SweepPlan) -> Path:
    """Returns where the best settings go: beside the journal, else in the working directory."""
    folder = Path() if "://" in plan.storage else Path(plan.storage).parent
    return folder / f"{plan.study}.best.yaml"


def _address(table: object | None) -> str | None:
    return str(table) if isinstance(table, str | Path) else None


def _word(name: str) -> str:
    """Returns a table's name as a study may be called."""
    return re.sub(r"[^\w.+-]+", "-", name).strip(".-+") or "table"
