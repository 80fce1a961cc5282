"""Which trials run: as many as asked for, each told once, those of dead workers again."""

import itertools
import time
from dataclasses import replace

import optuna
import pytest
from cheap_objectives import bowl
from optuna.trial import TrialState, create_trial
from sweeps import living_process, make_plan, states

from forecaster.errors import FitError
from forecaster.runs.tune.claims import DEATHS, DIED, LEFT, SPARE, Claims, standing
from forecaster.runs.tune.owner import Owner, Watch
from forecaster.runs.tune.study import counted, finished, open_study
from forecaster.runs.tune.worker import Session, run_worker

PRESET = {"fit.learning_rate": 0.004, "model.encoder_layers": 2}


def _claims(plan, owner=None, total=None):
    """Claims of this process, or of another one."""
    made = Claims(open_study(plan), total or plan.trials, PRESET, plan.sampler, plan.seed)
    if owner is not None:
        made._me = owner
    return made


def _suggest(trial):
    trial.suggest_float("fit.learning_rate", 0.0005, 0.02, log=True)
    return trial.suggest_int("model.encoder_layers", 1, 4)


def _trials(plan):
    return open_study(plan).get_trials()


def test_a_search_tells_exactly_as_many_trials_as_asked_for_those_before_included(tmp_path):
    plan = make_plan(tmp_path, trials=5)
    run_worker(plan, bowl(plan))
    assert len(_trials(plan)) == len(finished(_trials(plan))) == 5
    for total, there in ((9, 9), (9, 9), (4, 9)):
        run_worker(replace(plan, trials=total), bowl(plan))
        assert len(_trials(plan)) == len(finished(_trials(plan))) == there


def test_trial_0_has_the_settings_of_the_config(tmp_path):
    plan = make_plan(tmp_path)
    run_worker(plan, bowl(plan))
    trials = _trials(plan)
    fit, model = plan.settings.fit, plan.settings.model
    assert trials[0].params == {
        "fit.learning_rate": fit.learning_rate,
        "model.encoder_layers": model.encoder_layers,
    }
    assert [trial.number for trial in trials if trial.user_attrs.get("preset")] == [0]


@pytest.mark.parametrize(("sampler", "total"), [("tpe", 13), ("random", 6), ("gp", 6)])
def test_a_search_in_parts_proposes_what_one_without_a_break_does(tmp_path, sampler, total):
    whole = make_plan(tmp_path, trials=total, sampler=sampler)
    run_worker(whole, bowl(whole))
    parts = replace(whole, storage=str(tmp_path / "parts.journal"))
    for trials in (1, 4, 5, total):
        run_worker(replace(parts, trials=trials), bowl(parts))
    proposed = [trial.params for trial in _trials(whole)]
    assert [trial.params for trial in _trials(parts)] == proposed
    assert len({str(params) for params in proposed}) == total


def test_another_seed_proposes_otherwise(tmp_path):
    proposed = []
    for seed in (0, 1):
        plan = make_plan(tmp_path, study=f"seed {seed}", seed=seed, sampler="random")
        run_worker(plan, bowl(plan))
        proposed.append([trial.params for trial in _trials(plan)][1:])
    assert all(a != b for a, b in zip(*proposed, strict=True))


def test_a_trial_of_a_process_that_died_runs_again_once_with_its_settings(tmp_path):
    plan = make_plan(tmp_path, trials=3)
    with living_process() as (first, one), living_process() as (second, two):
        lost = [_claims(plan, owner).claim() for owner in (one, two)]
        _suggest(lost[1])
        mine = _claims(plan, total=2)
        assert mine.claim() is None  # both places are taken, by processes that live
        for process in (first, second):
            process.kill()
            process.wait()
        for settings in (PRESET, lost[1].params):
            again = mine.claim()
            _suggest(again)
            assert again.params == settings
            mine.study.tell(again, 1.0)
    assert mine.claim() is None
    trials = _trials(plan)
    assert [trial.user_attrs.get("void") for trial in trials] == [DIED, DIED, None, None]
    assert [trial.user_attrs.get("retry_of") for trial in trials] == [None, None, 0, 1]
    assert [trial.user_attrs.get("preset") for trial in trials] == [True, None, True, None]
    assert [trial.number for trial in counted(trials)] == [2, 3]


def test_settings_that_were_proposed_in_part_are_kept_in_part(tmp_path):
    plan = make_plan(tmp_path, trials=2, sampler="random")
    run_worker(replace(plan, trials=1), bowl(plan))
    with living_process() as (_, owner):
        lost = _claims(plan, owner).claim()
        rate = lost.suggest_float("fit.learning_rate", 0.0005, 0.02, log=True)
    again = _claims(plan).claim()
    _suggest(again)
    assert again.params["fit.learning_rate"] == rate and len(again.params) == 2


def test_many_that_see_the_same_dead_worker_run_its_trial_once(tmp_path):
    plan = make_plan(tmp_path, trials=1)
    with living_process() as (_, gone):
        _claims(plan, gone).claim()
    with living_process() as (_, quick), living_process() as (_, late):
        first, last = _claims(plan, quick), _claims(plan, late)
        decide, claimed = last._next, []

        def overtaken(trials):
            decided = decide(trials)
            claimed.append(first.claim())
            return decided

        last._next = overtaken
        assert last.claim() is None
        trials = _trials(plan)
        assert [trial.user_attrs.get("retry_of") for trial in trials] == [None, 0, 0]
        assert [trial.user_attrs.get("void") for trial in trials] == [DIED, None, SPARE]
        assert claimed[0].number == 1


def test_the_last_place_goes_to_one_of_those_who_saw_it_free(tmp_path):
    plan = make_plan(tmp_path, trials=2)
    run_worker(replace(plan, trials=1), bowl(plan))
    with living_process() as (_, quick), living_process() as (_, late):
        first, last = _claims(plan, quick), _claims(plan, late)
        last._next = lambda trials: [({}, {}), first.claim()][0]
        assert last.claim() is None
        assert [trial.user_attrs.get("void") for trial in _trials(plan)] == [None, None, SPARE]


def test_a_spare_trial_whose_worker_died_before_it_could_withdraw_is_not_run_again(tmp_path):
    plan = make_plan(tmp_path, trials=2)
    study = open_study(plan)
    with living_process() as (_, owner):
        for _ in range(2):
            attributes = {"owner": owner, "preset": True}
            study.add_trial(create_trial(state=TrialState.RUNNING, user_attrs=attributes))
    run_worker(plan, bowl(plan))
    voids = [trial.user_attrs.get("void") for trial in _trials(plan)]
    assert voids == [DIED, SPARE, None, None]


@pytest.mark.parametrize("total", [1, 3, 4])
def test_all_who_look_see_the_same_trials_standing_whatever_came_in_between(total):
    """The slow twin adds them one by one: those that stood when they were added still do."""
    kinds = [
        {"preset": True},
        {},
        {"retry_of": 0},
        {"void": DIED, "preset": True},
        {"void": LEFT},
        {"void": SPARE},
    ]
    for attributes in itertools.product(kinds, repeat=4):
        trials = []
        stood = []
        for number, own in enumerate(attributes):
            state = TrialState.FAIL if "void" in own else TrialState.RUNNING
            made = create_trial(state=state, user_attrs=own)
            made.number = number
            trials.append(made)
            if made in standing(trials, total):
                stood.append(number)
        assert [trial.number for trial in standing(trials, total)] == stood
        assert len(stood) <= total
        assert sum("preset" in attributes[number] for number in stood) <= 1
        assert sum("retry_of" in attributes[number] for number in stood) <= 1


def test_a_number_that_was_given_to_another_process_is_not_taken_for_the_worker():
    me = Owner.this()
    assert not me.is_gone and Owner.read(str(me)) == me
    assert replace(me, started=me.started - 5).is_gone
    assert me.is_here and not replace(me, host="elsewhere").is_here
    assert not replace(me, system="another boot").is_here
    assert Owner.read(None) is None and Owner.read("a b c d") is None


def test_a_machine_whose_clock_is_put_right_keeps_its_processes(monkeypatch):
    import psutil

    me, boot = Owner.this(), psutil.boot_time()
    monkeypatch.setattr(time, "time", lambda: 17.0)
    assert not me.is_gone and psutil.boot_time() == boot


def test_of_another_machine_only_silence_is_judged(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("forecaster.runs.tune.owner.time.monotonic", lambda: now[0])
    watch = Watch(silent_seconds=60)

    def look(beat, after):
        now[0] += after
        owner = "elsewhere boot/1 17 0.5"
        made = create_trial(state=TrialState.RUNNING, user_attrs={"owner": owner, "beat": beat})
        made.number = 4
        return watch.is_lost(made)

    assert [look(1, 0), look(1, 50), look(2, 50), look(2, 59)] == [False] * 4
    assert look(2, 2)
    assert not look(3, 0)


def test_settings_that_keep_killing_their_worker_count_as_failed(tmp_path):
    plan = make_plan(tmp_path, trials=1)
    for _ in range(DEATHS):
        with living_process() as (_, owner):
            assert _claims(plan, owner).claim() is not None
    mine = _claims(plan)
    assert mine.claim() is None
    (failed,) = finished(_trials(plan))
    assert failed.user_attrs["error"] == "its worker died 3 times with these settings"
    assert len(_trials(plan)) == DEATHS


def test_a_search_stopped_by_ctrl_c_runs_the_settings_again(tmp_path):
    plan = make_plan(tmp_path)
    stopped = []

    def value(trial):
        found = bowl(plan)(trial)
        if trial.number == 3 and not stopped:
            stopped.append(trial.params)
            raise KeyboardInterrupt
        return found

    with pytest.raises(KeyboardInterrupt):
        run_worker(plan, value)
    assert len(finished(_trials(plan))) == 3
    run_worker(plan, value)
    trials = _trials(plan)
    assert len(finished(trials)) == 6 and len(trials) == 7
    assert trials[3].user_attrs["void"] == LEFT
    assert trials[4].params == stopped[0] == trials[3].params


def test_a_failed_trial_is_told_with_its_error_and_the_search_goes_on(tmp_path):
    plan = make_plan(tmp_path)

    def value(trial):
        found = bowl(plan)(trial)
        if trial.number == 2:
            raise FitError("loss is not finite in series shop_1\nand more")
        if trial.number == 3:
            raise ValueError("three\nlines")
        return float("nan") if trial.number == 4 else found

    run_worker(plan, value)
    trials = _trials(plan)
    errors = [trial.user_attrs.get("error") for trial in trials]
    assert errors[2:5] == [
        "loss is not finite in series shop_1",
        "ValueError: three",
        "the objective is not a number: nan",
    ]
    assert states(trials[2:5]) == ["FAIL"] * 3 and len(finished(trials)) == 6


def test_the_same_error_three_times_in_a_row_ends_the_search_with_it(tmp_path):
    plan = make_plan(tmp_path, trials=20)

    def value(trial):
        if trial.number in (1, 2, 4, 5, 6):
            raise ValueError("no such file")
        return bowl(plan)(trial)

    with pytest.raises(
        FitError, match="study shop: 3 trials in a row failed alike: ValueError: no such"
    ):
        run_worker(plan, value)
    assert len(finished(_trials(plan))) == 7
    run_worker(plan, value)  # the cause may have been mended: it goes on
    assert len(finished(_trials(plan))) == 20


def test_different_errors_do_not_end_a_search(tmp_path):
    plan = make_plan(tmp_path, trials=7)

    def value(trial):
        raise ValueError(f"number {trial.number}")

    run_worker(plan, value)
    assert states(_trials(plan)) == ["FAIL"] * 7


def test_no_trial_begins_after_the_time_is_over(tmp_path):
    plan = make_plan(tmp_path, timeout_seconds=0.000001)
    study = open_study(plan)
    session = Session.begin(study, plan)
    run_worker(plan, bowl(plan), session)
    assert study.get_trials() == []


def test_each_trial_is_shown_once_it_is_told(tmp_path):
    plan, seen = make_plan(tmp_path), []
    run_worker(plan, bowl(plan), told=seen.append)
    assert [trial.number for trial in seen] == list(range(6))
    assert all(trial.state.is_finished() for trial in seen)


def test_a_result_that_comes_after_its_worker_was_given_up_is_not_told_twice(tmp_path):
    plan = make_plan(tmp_path, trials=2)
    value = bowl(plan)

    def slow(trial):
        if trial.number == 1:  # another machine took this one for dead, and has run its settings
            other = open_study(plan)
            other._storage.set_trial_user_attr(trial._trial_id, "void", DIED)
            other.tell(1, state=TrialState.FAIL)
        return value(trial)

    run_worker(plan, slow)
    trials = _trials(plan)
    assert [trial.user_attrs.get("void") for trial in trials] == [None, DIED, None]
    assert len(finished(trials)) == 2


def test_a_worker_says_that_it_lives(tmp_path, monkeypatch):
    monkeypatch.setattr("forecaster.runs.tune.worker.BEAT_SECONDS", 0.01)
    plan = make_plan(tmp_path, trials=1)

    def value(trial):
        ends = time.monotonic() + 30
        while "beat" not in _trials(plan)[0].user_attrs and time.monotonic() < ends:
            time.sleep(0.01)
        return 1.0

    run_worker(plan, value)
    assert _trials(plan)[0].user_attrs["beat"] >= 1


def test_optuna_itself_reads_the_study(tmp_path):
    plan = make_plan(tmp_path)
    run_worker(plan, bowl(plan))
    backend = optuna.storages.journal.JournalFileBackend(plan.storage)
    study = optuna.load_study(study_name="shop", storage=optuna.storages.JournalStorage(backend))
    assert study.best_value == min(
        trial.value for trial in study.get_trials() if trial.value is not None
    )
