"""What a caller may say of a search, and the plan that follows.

What comes in: options as a shell or Python gives them. What goes out: a `SweepPlan`. Promised: what
cannot be is refused before anything is made, all faults at once; what is left open is decided here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from forecaster.config import Config, parse_duration
from forecaster.errors import ConfigError, nearest
from forecaster.panel.panel import Panel
from forecaster.runs.tracking.store import tracking_uri
from forecaster.runs.tune.plan import METRICS, PRUNERS, SAMPLERS, Metric, Pruner, Sampler, SweepPlan
from forecaster.runs.tune.space import Space
from forecaster.runs.tune.study import check_name, default_storage


@dataclass(frozen=True)
class Wishes:
    """What a caller may say of a search; None = decided here, and said."""

    trials: int = 50
    """In all, those of earlier calls included."""
    space: str | Path | Mapping[str, Any] | None = None
    """YAML file, or what it would say."""
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
            near = nearest(name, known)
            hint = f", did you mean '{near}'?" if near else ""
            raise ConfigError(f"tune: unknown option '{name}'{hint}")
    given = {name: value for name, value in told.items() if value is not None}
    metrics = given.get("metrics", "WQL")
    given["metrics"] = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    if "out" in given:
        given["out"] = Path(given["out"])
    return Wishes(trials, **given)


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
        timeout_seconds=parse_duration(wishes.timeout, "--timeout"),
        until=wishes.until,
        future=_address(tables.future),
        covariates=_address(tables.covariates),
    )


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


def _address(table: object | None) -> str | None:
    return str(table) if isinstance(table, str | Path) else None


def _word(name: str) -> str:
    """Returns a table's name as a study may be called."""
    return re.sub(r"[^\w.+-]+", "-", name).strip(".-+") or "table"
