"""The study of a search: its options, its plan, its Optuna storage.

| user attribute of a trial | meaning |
|---|---|
| `preset` | True: the config as it is |
| `process` | the process that runs it, see `processes.this_process` |
| `run` | id of its MLflow run |
| `retry_of` | number of the lost trial whose settings it repeats |
| `deaths` | worker processes that have died with these settings |
| `error`, `refused` | why it failed; why its settings were not fitted |
| `network_weight` | weight of the network beside the experts alone |
| `fitted` | metrics of the fitted model; the values of a trial differ from them at network weight 0 |
| `used` | digest of the settings that its fit uses |
| `same_as` | number of the finished trial with the same digest, whose result it has |
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from forecaster.config import FORECAST_SETTINGS, Config, parse_duration
from forecaster.errors import ConfigError, first_line, is_count
from forecaster.runs.tracking import database, in_memory, local_store, tracking_uri, without_password
from forecaster.runs.tune.space import Space, load_space

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

    from forecaster.panel.panel import Panel
    from forecaster.runs.resume import FitRequest

Sampler = Literal["tpe", "gp", "random"]
Pruner = Literal["asha", "hyperband", "none"]
Metric = Literal["WQL", "MASE", "MSE", "MAE", "RMSE", "sMAPE", "log_loss"]
SAMPLERS, PRUNERS, METRICS = get_args(Sampler), get_args(Pruner), get_args(Metric)

_IDENTITY = "identity"
_NAME = re.compile(r"\w[\w .+-]*")
_DIGESTS = ("space", "data", "config")  # parts of an identity that are of no use to a reader
_USUAL_STEPS = 400  # where the data chooses them
_LOCK_SECONDS = 10  # a lock whose process was killed; Optuna's default of 30 only delays a restart


@dataclass(frozen=True)
class SweepPlan:
    """A search with all options settled; picklable, so that a worker process can take part."""

    study: str
    storage: str
    """Path of a journal, or a database URL."""
    source: str | None
    """Path, glob or address of the table; None = a frame."""
    config: Config
    """Trial 0 runs it as it is; all others replace settings of the space."""
    space: Space
    fingerprint: str
    """Of the table until `until`."""
    metrics: tuple[Metric, ...] = ("WQL",)
    """Minimised; several make a Pareto study."""
    trials: int = 50
    """Total, those of earlier calls included."""
    sampler: Sampler = "tpe"
    pruner: Pruner = "asha"
    seed: int = 0
    """Of the sampler."""
    workers: int = 1
    """Processes on this machine."""
    timeout_seconds: float | None = None
    """No trial starts later."""
    until: str | None = None
    """Date after which rows are held out."""
    future: str | None = None
    covariates: str | None = None

    @property
    def identity(self) -> dict[str, str]:
        """What two calls must share to work on one study: short texts to compare and to show."""
        return {
            "metric": ", ".join(self.metrics),
            "horizon": str(self.config.horizon),
            "space": digest(self.space.yaml),
            "data": self.fingerprint[:16],
            "until": self.until or "the end of the table",
            "config": digest(self.config.model_dump(mode="json", exclude={"tracking"})),
        }


def plan_search(
    panel: Panel,
    config: Config,
    request: FitRequest,
    space: str | Path | Mapping[str, Any] | None,
    study: str | None,
    storage: str | Path | None,
    pruner: Pruner | None,
    metrics: str | Sequence[str] | None,
    timeout: str | float | None,
    **options: Any,
) -> SweepPlan:
    """Returns the plan of a search over the panel of a request, whose settings are those of `config`.

    Raises:
        ConfigError: options contradict each other or the space; all faults at once.
    """
    searched, source, label = load_space(space), _address(request.data), config.data.label
    if space is None and label is not None:
        searched = searched.without(*FORECAST_SETTINGS, "model.context_length")
    metrics = metrics or ("WQL" if label is None else "log_loss")
    measured: Any = (metrics,) if isinstance(metrics, str) else tuple(metrics)
    if study is None:
        stem = re.sub(r"[^\w.+-]+", "-", Path(panel.name).stem).strip(".-+") or "table"
        study = f"{'frame' if source is None else stem}-{label or config.horizon}"
    storage = str(storage or default_storage(study, tracking_uri(config.tracking)))
    plan = SweepPlan(
        study=study,
        storage=storage if "://" in storage else str(Path(storage).expanduser()),
        source=source,
        config=config,
        space=searched,
        fingerprint=panel.fingerprint(),
        metrics=measured,
        pruner=pruner or ("none" if len(measured) > 1 or searched.losses_differ or label else "asha"),
        timeout_seconds=parse_duration(timeout, "--timeout"),
        until=request.until,
        future=_address(request.future),
        covariates=_address(request.covariates),
        **options,
    )
    _check(plan)
    return plan


def default_storage(study: str, uri: str) -> str:
    """Returns the journal of a study: beside a store that was named, else in the working directory."""
    file = database(uri)
    folder = Path.cwd() if file is None or uri == local_store() else file.parent
    return str(folder / "studies" / f"{study}.journal")


def open_study(plan: SweepPlan) -> Study:
    """Returns the study of a plan, created with trial 0 enqueued if it does not exist.

    Raises:
        ConfigError: a study of that name searched something else, or its storage cannot be opened.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = open_storage(plan.storage)
    study = optuna.create_study(
        storage=storage,
        study_name=plan.study,
        directions=["minimize"] * len(plan.metrics),
        load_if_exists=True,
        pruner=make_pruner(plan),
    )
    trials = study.get_trials(deepcopy=False)  # first: another process sets the identity before trials
    found = study.user_attrs.get(_IDENTITY)
    if found is None and not trials:
        study.set_user_attr(_IDENTITY, plan.identity)
        found = plan.identity
        study.enqueue_trial(plan.space.preset(plan.config), user_attrs={"preset": True})
    _check_identity(plan, found, optuna.get_all_study_names(storage))
    return study


def open_storage(address: str) -> Any:
    """Returns the Optuna storage of a journal file or a database URL.

    Raises:
        ConfigError: it cannot be opened.
    """
    import optuna
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    shown = without_password(address)
    if "://" in address:
        try:
            # Checks each connection before its use: servers restart.
            return optuna.storages.RDBStorage(address, engine_kwargs={"pool_pre_ping": True})
        except ImportError as error:
            missing = getattr(error.__cause__, "name", None) or error.name or str(error)
            raise ConfigError(
                f"--storage {shown}: needs the module {missing.split('.')[0]}, which is not installed "
                "(psycopg: pip install 'psycopg[binary]')"
            ) from error
        except Exception as error:  # SQLAlchemy's errors are of many kinds
            raise ConfigError(
                f"--storage {shown}: {first_line(error)}; expected a path, sqlite:///FILE or "
                "postgresql+psycopg://USER@HOST/DATABASE"
            ) from error
    path = Path(address).absolute()  # the working directory may change
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            with path.open("rb") as file:
                first = file.readline()
            # Optuna would append to any file.
            if first and not first.startswith(b'{"op_code"'):
                raise ConfigError(f"--storage {path}: is not a journal of studies; name another file")
        lock = JournalFileSymlinkLock(str(path), grace_period=_LOCK_SECONDS)
        return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock))
    except (OSError, ValueError, KeyError) as error:  # the last two of a damaged journal
        reason = error.strerror if isinstance(error, OSError) else f"is damaged ({error})"
        raise ConfigError(f"--storage {path}: {reason}; name another file") from error


def make_pruner(plan: SweepPlan) -> Any:
    """Returns the pruner of a plan, with rungs at a quarter and a half of the training.

    Source: Li et al., "A system for massively parallel hyperparameter tuning" (2020).
    """
    import optuna

    steps: int = plan.config.fit.steps or _USUAL_STEPS
    first = max(1, round(steps / 4))
    if plan.pruner == "none":
        return optuna.pruners.NopPruner()
    if plan.pruner == "asha":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=2)
    return optuna.pruners.HyperbandPruner(
        min_resource=first, max_resource=max(first, steps), reduction_factor=2
    )


def make_sampler(plan: SweepPlan, number: int) -> Any:
    """Returns the sampler of one trial. Its seed depends on the number alone, so that an interrupted
    search proposes the same settings as an uninterrupted one.
    """
    import numpy as np
    import optuna

    seed = int(np.random.SeedSequence([plan.seed, number]).generate_state(1)[0])
    samplers = optuna.samplers
    kinds = {"random": samplers.RandomSampler, "gp": samplers.GPSampler, "tpe": samplers.TPESampler}
    return kinds[plan.sampler](seed=seed)


def counted(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """Returns the trials that count: not the waiting ones, nor the lost ones, which are retried."""
    trials = list(trials)
    retried = {trial.user_attrs.get("retry_of") for trial in trials}
    return [
        trial
        for trial in trials
        if trial.state.name != "WAITING"
        and not (trial.state.name == "FAIL" and trial.number in retried)
    ]


def _check(plan: SweepPlan) -> None:
    """Raises ConfigError with all faults of the options of a plan."""
    faults, metrics = [], plan.metrics
    if not _NAME.fullmatch(plan.study):  # it names files
        faults.append(
            f"--study {plan.study!r}: expected letters, digits, blanks and . _ + -, a letter or digit first"
        )
    if in_memory(plan.storage):
        faults.append(
            f"--storage {plan.storage}: it is in memory and ends with this process; name a file, as "
            f"sqlite:///{plan.study}.db"
        )
    is_classifier = plan.config.data.label is not None
    known = {
        "sampler": SAMPLERS,
        "pruner": PRUNERS,
        "metric": METRICS[-1:] if is_classifier else METRICS[:-1],
    }
    given: list[tuple[str, str]] = [("sampler", plan.sampler), ("pruner", plan.pruner)]
    for name, value in given + [("metric", metric) for metric in metrics]:
        if value not in known[name]:
            faults.append(f"--{name} {value}: expected one of {', '.join(known[name])}")
    if not metrics or len(set(metrics)) < len(metrics):
        faults.append(f"--metric {', '.join(metrics) or '(none)'}: expected each one once")
    for name, least in (("trials", 1), ("workers", 1), ("seed", 0)):
        if not is_count(number := getattr(plan, name), least):
            faults.append(f"--{name} {number!r}: expected {least} or more")
    if is_classifier:
        odd = [entry.path for entry in plan.space.entries if entry.path in FORECAST_SETTINGS]
        faults += [f"space: {path}: a classifier has no such setting; leave it out" for path in odd]
        if plan.pruner != "none":
            faults.append(
                f"--pruner {plan.pruner}: expected none: fits of classifiers have no loss to compare"
            )
    elif plan.pruner != "none":
        if len(metrics) > 1:
            faults.append(
                f"--pruner {plan.pruner}: trials with {len(metrics)} metrics cannot be "
                "compared before their end; take --pruner none, or one --metric"
            )
        if differ := plan.space.losses_differ:
            faults.append(
                f"--pruner {plan.pruner}: the space searches {differ}, so losses of "
                "two trials do not mean the same; take --pruner none, or leave it out of the space"
            )
    if faults:
        raise ConfigError("\n".join(faults))


def _check_identity(plan: SweepPlan, found: Any, names: list[str]) -> None:
    wanted = plan.identity
    if found == wanted:
        return
    new = next(name for k in range(2, len(names) + 3) if (name := f"{plan.study}-{k}") not in names)
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"study {plan.study} in {without_password(plan.storage)} was created by another program: "
            f"name a new one (--study {new})"
        )
    other = [
        name if name in _DIGESTS else f"{name} ({found.get(name)}, now {value})"
        for name, value in wanted.items()
        if found.get(name) != value
    ]
    raise ConfigError(
        f"study {plan.study} searched with another {', another '.join(other)}: name a new one "
        f"(--study {new}), or give this one's"
    )


def _address(table: object | None) -> str | None:
    return str(table) if isinstance(table, str | Path) else None


def digest(content: Mapping[str, Any]) -> str:
    """Returns a short text that differs where contents do."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
