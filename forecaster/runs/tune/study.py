"""The study of a search: opened or made, and known to be the same one.

What comes in: a plan. What goes out: an Optuna study whose trials several processes share. Promised: a
study of the same name that searched otherwise — another metric, space, table, horizon — is refused with
what differs, and left as it is.

A trial does not count if its worker went away before it told a result, or if it was one too many. It
stays in the study as failed, with the reason as its attribute `void`; `counted` leaves it out.

| attribute of a trial | meaning |
|---|---|
| `preset` | True: the settings that the search started from |
| `owner` | its process (`Owner`) |
| `beat` | how often its process has said that it lives |
| `error` | why it failed |
| `void` | why it does not count |
| `retry_of` | number of the trial whose settings it runs again |
| `deaths` | how many processes have died of these settings |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from forecaster.errors import ConfigError
from forecaster.runs.tune.plan import SweepPlan
from forecaster.runs.tune.storage import PATIENCE_SECONDS, Say, open_storage

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

IDENTITY = "identity"
"""Attribute of a study: what it searches."""
_NAME = re.compile(r"\w[\w .+-]*")
_DIGEST = re.compile(r"[0-9a-f]{16,}")


def default_storage(study: str, tracking_uri: str) -> str:
    """Returns the journal of a study: beside a local MLflow store, else in the working directory.

    Raises:
        ConfigError: the study's name cannot be a file's.
    """
    check_name(study)
    folder = Path.cwd()
    if tracking_uri.startswith("sqlite:///"):
        folder = Path(unquote(tracking_uri.removeprefix("sqlite:///"))).absolute().parent
    return str(folder / "studies" / f"{study}.journal")


def check_name(study: str) -> None:
    """Refuses a study's name that cannot be a file's.

    Raises:
        ConfigError: it holds other signs than letters, digits, blanks and . _ + -
    """
    if not _NAME.fullmatch(study):
        raise ConfigError(
            f"--study {study!r}: expected letters, digits, blanks and . _ + -, a letter or digit first"
        )


def open_study(
    plan: SweepPlan, patience_seconds: float = PATIENCE_SECONDS, say: Say | None = None
) -> Study:
    """Returns the study of a plan, made if it is not there.

    Args:
        plan: what is searched, and where the study is kept.
        patience_seconds: how long a storage that is away is asked again.
        say: receives one line when it is away.

    Raises:
        ConfigError: the study searched otherwise, or its storage stayed away.
    """
    import optuna

    check_name(plan.study)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = open_storage(plan.storage, patience_seconds, say)
    study = optuna.create_study(
        storage=storage,
        study_name=plan.study,
        directions=["minimize"] * len(plan.metrics),
        load_if_exists=True,
    )
    found = study.user_attrs.get(IDENTITY)
    if found is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(IDENTITY, plan.identity)
        found = plan.identity
    _refuse_another(plan, found, optuna.get_all_study_names(storage))
    return study


def counted(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """Returns the trials that count, in their order: not those that nobody finished."""
    from optuna.trial import TrialState

    return [
        trial
        for trial in trials
        if trial.state != TrialState.WAITING
        and not (trial.state == TrialState.FAIL and "void" in trial.user_attrs)
    ]


def finished(trials: Iterable[FrozenTrial]) -> list[FrozenTrial]:
    """Returns the trials that count and have ended, whether complete, pruned or failed."""
    return [trial for trial in counted(trials) if trial.state.is_finished()]


def _refuse_another(plan: SweepPlan, found: Any, names: list[str]) -> None:
    mine = plan.identity
    if found == mine:
        return
    new = next(name for k in range(2, len(names) + 3) if (name := f"{plan.study}-{k}") not in names)
    if not isinstance(found, Mapping):
        raise ConfigError(
            f"study {plan.study} in {plan.storage} was made by another program: name a new one "
            f"(--study {new})"
        )
    other = [
        f"{name}{_values(found.get(name), mine.get(name))}"
        for name in {**mine, **found}
        if found.get(name) != mine.get(name)
    ]
    raise ConfigError(
        f"study {plan.study} searched with another {', another '.join(other)}: name a new one "
        f"(--study {new}), or give this one's"
    )


def _values(theirs: Any, mine: Any) -> str:
    """Returns both values where they are words: a digest tells nobody anything."""
    if theirs is None or mine is None or _DIGEST.fullmatch(str(theirs)):
        return ""
    return f" ({theirs}, now {mine})"
