"""A sweep in MLflow: one parent run per study, one nested run per trial.

What comes in: a study, and what becomes of its trials, in whichever process they run. What goes out: a
parent found again by study and storage whenever the study goes on, with the figures of the whole, and
under it runs that are finished, pruned (MLflow: KILLED) or failed. Promised: no run of a trial stays
open, even if its worker was killed (`close_dead_trial`); a store that is away stops no trial.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from forecaster.config import TrackingConfig
from forecaster.runs.tracking.identity import Identity, sweep_identity
from forecaster.runs.tracking.run import TrackedRun, ending
from forecaster.runs.tracking.store import tracking_uri

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

_STATUS = {"finished": "FINISHED", "pruned": "KILLED", "failed": "FAILED"}


class Sweep:
    """The parent run of a study."""

    def __init__(self, run: TrackedRun, study: str):
        self.run, self.study = run, study

    @property
    def key(self) -> str | None:
        """What `open_trial` nests trials under, in any process; None when nothing is tracked."""
        return self.run.key or None

    def summarise(self, study: Study, trials: Sequence[FrozenTrial], metrics: Sequence[str]) -> None:
        """Records how far the study is: counts by state, best values and settings, figures.

        Args:
            study: as it is now.
            trials: those that count.
            metrics: names of its values.
        """
        if not self.run.recorded:
            return
        from forecaster.runs.tracking.sweep_figures import sweep_figures

        ended = [trial for trial in trials if trial.state.is_finished()]
        counts = Counter(trial.state.name for trial in ended)
        tags = {
            f"trials.{word}": str(counts[state])
            for word, state in (("finished", "COMPLETE"), ("pruned", "PRUNED"), ("failed", "FAIL"))
        }
        tags |= {"trials": str(len(ended)), "metrics": ", ".join(metrics)}
        complete = [trial for trial in ended if trial.values]
        if len(metrics) == 1 and complete:
            best = min(complete, key=lambda trial: trial.values[0])
            tags |= {f"best.{name}": str(value) for name, value in best.params.items()}
            tags["best.trial"] = str(best.number)
        self.run.log_tags(tags)
        now = int(max((trial.datetime_complete.timestamp() for trial in ended), default=0) * 1000)
        self.run.log_metrics(
            [
                (f"best/{name}", min(trial.values[place] for trial in complete), now, len(ended))
                for place, name in enumerate(metrics)
                if complete
            ]
        )
        for name, figure in sweep_figures(study, trials, metrics).items():
            self.run.log_figure(figure, name)

    def keep_best(self, yaml: str) -> None:
        """Records the best config as a file that `forecaster fit --config` takes."""
        self.run.log_text(yaml, "best.yaml")


@contextmanager
def open_sweep(config: TrackingConfig, study: str, storage: str) -> Iterator[Sweep]:
    """Yields the parent run of a study, a new one or that of earlier calls, and closes it.

    Only the process that leads the search opens it; its workers open trials.

    Args:
        config: where, and whether at all.
        study: its name.
        storage: where it is kept; the same words for the same place.
    """
    run = TrackedRun(tracking_uri(config))
    if config.enabled:
        run = TrackedRun(run.uri, sweep_identity(config.experiment, study, storage))
        run.open(fresh=False)
        run.reopen()
    try:
        yield Sweep(run, study)
    except BaseException as error:
        run.close(ending(error))
        raise
    run.close()


@contextmanager
def open_trial(
    config: TrackingConfig, parent: str | None, study: str, number: int, retry_of: int | None = None
) -> Iterator[TrackedRun]:
    """Yields the nested run of a trial; however the work ends, the run is closed with its state.

    A `TrialPruned` closes it as pruned. Keep `run.key` with the trial: with it `close_dead_trial`
    closes the run of a worker that was killed.

    Args:
        config: where the store is.
        parent: `Sweep.key`; None = nothing is tracked.
        study: name of the study.
        number: of the trial.
        retry_of: number of the trial whose settings are tried again.
    """
    run = TrackedRun(tracking_uri(config))
    if config.enabled and parent is not None:
        run = TrackedRun(run.uri, _trial_identity(config, parent, study, number, retry_of))
        run.open()
    try:
        yield run
    except BaseException as error:
        pruned = type(error).__name__ == "TrialPruned"  # Optuna's, which need not be loaded
        _end(run, "pruned" if pruned else "failed", str(error) or type(error).__name__, error)
        raise
    _end(run, "finished")


def close_dead_trial(
    config: TrackingConfig, parent: str | None, study: str, number: int, key: str, reason: str
) -> None:
    """Closes the run of a trial whose worker is gone.

    Args:
        config: where the store is.
        parent: `Sweep.key`; None = nothing is tracked.
        study: name of the study.
        number: of the trial.
        key: `TrackedRun.key` of the run; "" = it had none.
        reason: why it failed.
    """
    if not config.enabled or parent is None or not key:
        return
    identity = _trial_identity(config, parent, study, number, key=key)
    run = TrackedRun(tracking_uri(config), identity)
    run.open(fresh=False)
    _end(run, "failed", reason)


def _trial_identity(
    config: TrackingConfig,
    parent: str,
    study: str,
    number: int,
    retry_of: int | None = None,
    key: str = "",
) -> Identity:
    sweep = Identity(study, config.experiment, parent, tags={"kind": "sweep", "study": study})
    tags = {"kind": "trial", "study": study, "trial": str(number), "state": "running"}
    if retry_of is not None:
        tags["retry_of"] = str(retry_of)
    identity = Identity.known(key, f"trial-{number:03d}", config.experiment, tags)
    return replace(identity, parent=sweep)


def _end(
    run: TrackedRun, state: str, reason: str | None = None, error: BaseException | None = None
) -> None:
    tags = {"state": state} if reason is None else {"state": state, "reason": reason}
    run.log_tags(tags)
    asked = error is not None and ending(error) == "KILLED"
    run.close("KILLED" if asked else _STATUS[state])
