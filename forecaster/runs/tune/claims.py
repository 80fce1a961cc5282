"""Which trial a worker runs next, so that exactly the asked number is told, by however many workers.

What comes in: a study that processes of any machine share. What goes out: a trial that this process
alone runs, or none. Promised: no more than `total` trials count, and no fewer once the search ends; the
settings of a worker that died run again, once for each death; the preset runs once, as trial 0.

Nothing is locked. A worker makes its trial, with its name in it, in one step of the storage. Then it
looks at all trials in the order of their numbers, which storages give out one by one, and whoever looks
sees the same trials standing: the first with the preset, the first that runs a lost one again, and of
these and all others as many as there are places. A trial that does not stand is withdrawn by its own
worker before it has run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from forecaster.runs.tune.owner import Owner, Watch
from forecaster.runs.tune.study import counted

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial

DEATHS = 3
"""So many workers die of the same settings before these count as failed."""
DIED, LEFT, SPARE = "its worker died", "its worker was stopped", "one worker too many"
"""Why a trial does not count. The settings of the first two run again."""


class Claims:
    """Trials for one process."""

    def __init__(
        self, study: Study, total: int, preset: Mapping[str, Any], sampler: str = "tpe", seed: int = 0
    ):
        """Takes what a search is about.

        Args:
            study: opened.
            total: trials that are to count in all.
            preset: settings of the first trial, as far as the sampler could propose them.
            sampler: tpe, gp or random.
            seed: of the sampler.
        """
        self.study, self.total = study, total
        self._preset, self._sampler, self._seed = preset, sampler, seed
        self._me = str(Owner.this())
        self._watch = Watch()
        self._storage = study._storage

    def trials(self) -> list[FrozenTrial]:
        """Returns all trials of the study as they are now."""
        return self.study.get_trials(deepcopy=False)  # type: ignore[no-any-return]

    def claim(self) -> Trial | None:
        """Returns a trial to run; None when all places are taken, whether finished or not.

        Raises:
            StorageLost: the storage stayed away.
        """
        from optuna import Trial
        from optuna.trial import TrialState, create_trial

        while True:
            self.leave()  # a storage that was away for a moment may have made one without saying so
            self.bury()
            trials = self.trials()
            if len(standing(trials, self.total)) >= self.total:
                return None
            task, fixed = self._next(trials)
            made = create_trial(
                state=TrialState.RUNNING,
                user_attrs={"owner": self._me, **task},
                system_attrs={"fixed_params": dict(fixed)},
            )
            trial_id = self._storage.create_new_trial(self.study._study_id, made)
            mine = next(
                (t for t in standing(self.trials(), self.total) if t._trial_id == trial_id), None
            )
            if mine is None:
                self._void(trial_id, SPARE)
                continue
            # By number: the same proposals whichever worker asks, and another call repeats none.
            self.study.sampler = make_sampler(self._sampler, self._seed, mine.number)
            return Trial(self.study, trial_id)

    def bury(self) -> None:
        """Takes trials from workers that are gone, so that their settings run again."""
        from optuna.trial import TrialState

        trials = self.trials()
        stand = {trial.number for trial in standing(trials, len(trials))}
        for trial in trials:
            if trial.state == TrialState.RUNNING and self._watch.is_lost(trial):
                deaths = trial.user_attrs.get("deaths", 0) + 1
                if trial.number not in stand:
                    self._void(trial._trial_id, SPARE)
                elif deaths < DEATHS:
                    self._void(trial._trial_id, DIED)
                else:
                    error = f"its worker died {deaths} times with these settings"
                    self._end(trial._trial_id, "error", error)

    def leave(self) -> None:
        """Gives back what this process has claimed and not told, so that the settings run again."""
        from optuna.trial import TrialState

        for trial in self.trials():
            if trial.state == TrialState.RUNNING and trial.user_attrs.get("owner") == self._me:
                self._void(trial._trial_id, LEFT)

    def _next(self, trials: Sequence[FrozenTrial]) -> tuple[dict[str, Any], Mapping[str, Any]]:
        """Returns what the next trial is for, and the settings that are given with it."""
        again = {trial.user_attrs.get("retry_of") for trial in trials if not _is_spare(trial)}
        for trial in trials:
            if is_lost(trial) and trial.number not in again:
                died = trial.user_attrs["void"] == DIED
                task = {"retry_of": trial.number}
                if deaths := trial.user_attrs.get("deaths", 0) + died:
                    task["deaths"] = deaths
                if trial.user_attrs.get("preset"):
                    task["preset"] = True
                return task, {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        if not any(trial.user_attrs.get("preset") for trial in trials):
            return {"preset": True}, self._preset
        return {}, {}

    def _void(self, trial_id: int, why: str) -> None:
        self._end(trial_id, "void", why)

    def _end(self, trial_id: int, attribute: str, why: str) -> None:
        from optuna.exceptions import UpdateFinishedTrialError
        from optuna.trial import TrialState

        with suppress(UpdateFinishedTrialError):  # others saw the same and were quicker
            self._storage.set_trial_user_attr(trial_id, attribute, why)
            self._storage.set_trial_state_values(trial_id, TrialState.FAIL)


def standing(trials: Iterable[FrozenTrial], total: int) -> list[FrozenTrial]:
    """Returns the trials that may run or have run, in their order: the same for all who look.

    Args:
        trials: in the order of their numbers.
        total: how many there may be.
    """
    stand: list[FrozenTrial] = []
    tasks: set[object] = set()
    for trial in trials:
        again = trial.user_attrs.get("retry_of")
        task = "preset" if again is None and trial.user_attrs.get("preset") else again
        if is_lost(trial):
            tasks.add(task)
        elif counted([trial]) and (task is None or task not in tasks) and len(stand) < total:
            tasks.add(task)
            stand.append(trial)
    return stand


def is_lost(trial: FrozenTrial) -> bool:
    """Whether a trial ended because its worker went away, so that its settings are to run again."""
    return not counted([trial]) and trial.user_attrs.get("void") in (DIED, LEFT)


def _is_spare(trial: FrozenTrial) -> bool:
    return not counted([trial]) and not is_lost(trial)


def make_sampler(kind: str, seed: int, number: int) -> BaseSampler:
    """Returns what proposes the settings of one trial.

    Args:
        kind: tpe, gp or random.
        seed: of the search.
        number: of the trial.
    """
    import numpy as np
    import optuna

    own = int(np.random.SeedSequence([seed, number]).generate_state(1)[0])
    if kind == "random":
        return optuna.samplers.RandomSampler(seed=own)
    if kind == "gp":
        return optuna.samplers.GPSampler(seed=own)
    return optuna.samplers.TPESampler(seed=own)
