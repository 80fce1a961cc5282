"""A study is what its name says, wherever it is kept; a storage that is away is waited for a while."""

import json
import threading
import time
from dataclasses import replace

import optuna
import pytest
from cheap_objectives import SPACE, bowl
from sweeps import make_plan

from forecaster.config import Config
from forecaster.errors import ConfigError
from forecaster.runs.tune import journal
from forecaster.runs.tune.owner import Owner
from forecaster.runs.tune.storage import PatientStorage, StorageLost, hidden, open_storage
from forecaster.runs.tune.study import default_storage, finished, open_study
from forecaster.runs.tune.worker import run_worker


def _trials(plan):
    return open_study(plan).get_trials()


def test_the_same_plan_opens_the_same_study(tmp_path):
    plan = make_plan(tmp_path)
    run_worker(plan, bowl(plan))
    other = replace(plan, trials=9, sampler="random", pruner="asha", seed=3, workers=4)
    assert len(open_study(other).get_trials()) == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metrics": ("MASE",)}, "another metric (WQL, now MASE)"),
        ({"metrics": ("WQL", "MASE")}, "another metric (WQL, now WQL, MASE)"),
        ({"space": {"fit.learning_rate": SPACE["fit.learning_rate"]}}, "another space:"),
        ({"fingerprint": "1" * 64}, "another data:"),
        ({"until": "2024-01-01"}, "another until (the end of the table, now 2024-01-01)"),
        ({"horizon": 14}, "another horizon (7, now 14), another config:"),
    ],
)
def test_a_study_that_searched_otherwise_is_refused_and_left_as_it_is(tmp_path, change, words):
    plan = make_plan(tmp_path)
    run_worker(plan, bowl(plan))
    before = (tmp_path / "shop.journal").read_bytes().count(b"\n")
    with pytest.raises(ConfigError) as refused:
        open_study(make_plan(tmp_path, **change))
    assert words in str(refused.value) and "--study shop-2" in str(refused.value)
    assert len(str(refused.value).splitlines()) == 1
    # Optuna notes down that somebody asked; nothing else is written.
    added = (tmp_path / "shop.journal").read_text().splitlines()[before:]
    assert all(json.loads(line)["op_code"] == 0 for line in added)


def test_the_name_that_a_refusal_proposes_is_free(tmp_path):
    plan = make_plan(tmp_path)
    for name in ("shop", "shop-2"):
        open_study(replace(plan, study=name))
    with pytest.raises(ConfigError, match="--study shop-3"):
        open_study(replace(plan, metrics=("MSE",)))


def test_a_study_of_another_program_is_refused(tmp_path):
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "shop.journal"))
    storage = optuna.storages.JournalStorage(backend)
    study = optuna.create_study(storage=storage, study_name="shop", direction="minimize")
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
    with pytest.raises(ConfigError, match=r"made by another program.*--study shop-2"):
        open_study(make_plan(tmp_path))
    assert len(study.get_trials()) == 1 and study.user_attrs == {}


@pytest.mark.parametrize("name", ["../shop", "a/b", "", "-x", "shop\n"])
def test_a_studys_name_stays_in_its_folder(name):
    with pytest.raises(ConfigError, match="--study"):
        default_storage(name, "sqlite:////data/mlflow.db")


def test_a_journal_lies_beside_the_tracking_store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert default_storage("shop", "sqlite:////data/mlflow.db") == "/data/studies/shop.journal"
    assert default_storage("shop", "http://host:1") == f"{tmp_path}/studies/shop.journal"


@pytest.mark.parametrize("content", [b"date,sales\n2024-01-01,3\n", b"hello", b'{"a": 1}\n'])
def test_a_file_that_is_no_journal_is_refused_and_left_as_it_is(tmp_path, content):
    (tmp_path / "shop.journal").write_bytes(content)
    with pytest.raises(ConfigError, match="is not a journal"):
        open_study(make_plan(tmp_path))
    assert (tmp_path / "shop.journal").read_bytes() == content


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("oops://host", "expected a path, sqlite:///FILE"),
        ("mysql://me:secret@host/db", r"mysql://me:\*\*\*@host/db: needs the module MySQLdb"),
        ("grpc://host", "expected grpc://HOST:PORT|needs the module grpc"),
    ],
)
def test_an_address_that_cannot_be_is_refused_at_once(address, words):
    with pytest.raises(ConfigError, match=words) as refused:
        open_storage(address, patience_seconds=60)
    assert "secret" not in str(refused.value)


def test_a_journal_in_a_place_for_none_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="name another file"):
        open_storage(str(tmp_path / "file" / "shop.journal"), patience_seconds=60)


def test_a_database_that_is_away_is_asked_again_and_then_said_to_be_away_in_one_line(unused_port):
    pytest.importorskip("psycopg")
    said = []
    address = f"postgresql+psycopg://me:secret@127.0.0.1:{unused_port}/studies"
    with pytest.raises(StorageLost) as lost:
        open_storage(address, patience_seconds=0.3, say=said.append)
    message = str(lost.value)
    assert len(message.splitlines()) == 1 and "refused" in message and "tried for 0.3 s" in message
    (line,) = said
    assert "trying again for 0.3 s" in line and "secret" not in line + message


class _Flaky:
    """A storage that is away for some calls."""

    def __init__(self, faults):
        self.faults, self.calls = faults, 0

    def get(self, number):
        """Fails so many times."""
        self.calls += 1
        if self.calls <= self.faults:
            raise OSError(5, "Input/output error")
        return number


def test_a_storage_that_comes_back_is_not_noticed():
    flaky = _Flaky(3)
    assert PatientStorage(flaky, "x", 60).get(7) == 7
    assert flaky.calls == 4


def test_a_wrong_question_is_not_asked_again():
    with pytest.raises(AttributeError):
        PatientStorage(_Flaky(0), "x", 60).nothing()
    with pytest.raises(TypeError):
        PatientStorage(_Flaky(0), "x", 60).get()


def test_a_journal_that_goes_away_in_a_trial_loses_nothing_that_was_told(tmp_path):
    plan = make_plan(tmp_path / "disk", trials=5)
    (tmp_path / "disk").mkdir()
    value = bowl(plan)

    def away(trial):
        if trial.number == 2:
            (tmp_path / "disk").rename(tmp_path / "gone")
            threading.Timer(0.3, lambda: (tmp_path / "gone").rename(tmp_path / "disk")).start()
        return value(trial)

    run_worker(plan, away)
    trials = _trials(plan)
    assert len(trials) == len(finished(trials)) == 5
    assert all("error" not in trial.user_attrs for trial in trials)


def test_an_entry_cut_short_is_taken_away_and_the_rest_kept(tmp_path):
    plan = make_plan(tmp_path)
    run_worker(plan, bowl(plan))
    told = [trial.params for trial in _trials(plan)]
    with (tmp_path / "shop.journal").open("ab") as file:
        file.write(b'{"op_code":4,"worker_id":"x","study')
    assert [trial.params for trial in _trials(plan)] == told
    more = replace(plan, trials=8)
    run_worker(more, bowl(more))
    assert [trial.params for trial in _trials(plan)][:6] == told and len(_trials(plan)) == 8


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    plan = make_plan(tmp_path)
    run_worker(plan, bowl(plan))
    before = (tmp_path / "shop.journal").read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(journal.os, "fsync", full)
        with pytest.raises(StorageLost, match="No space left on device"):
            open_study(replace(plan, study="second"), patience_seconds=0.1)
    assert (tmp_path / "shop.journal").read_bytes() == before
    assert len(_trials(plan)) == 6


def test_a_lock_of_a_process_that_died_is_broken_at_once(tmp_path):
    me = Owner.this()
    lock = tmp_path / "x.lock"
    lock.symlink_to(str(Owner(me.host, me.system, me.pid, me.started + 1)))
    begun = time.monotonic()
    with journal.locked(lock):
        assert lock.is_symlink()
    assert not lock.is_symlink() and time.monotonic() - begun < journal._FOREIGN_SECONDS / 2


def test_a_lock_of_another_machine_is_broken_after_a_while(tmp_path, monkeypatch):
    monkeypatch.setattr(journal, "_FOREIGN_SECONDS", 0.2)
    lock = tmp_path / "x.lock"
    lock.symlink_to("elsewhere boot/1 17 0.5")
    begun = time.monotonic()
    with journal.locked(lock):
        assert time.monotonic() - begun >= 0.2


def test_a_lock_lets_one_in_at_a_time(tmp_path):
    inside, most = [], []

    def work():
        for _ in range(20):
            with journal.locked(tmp_path / "x.lock"):
                inside.append(1)
                most.append(len(inside))
                time.sleep(0.0005)
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80 and max(most) == 1


def test_a_password_is_not_shown():
    assert hidden("postgresql://me:word@host/db") == "postgresql://me:***@host/db"
    assert hidden("studies/a.journal") == "studies/a.journal"


def test_a_plan_is_read_back_equal(tmp_path):
    from forecaster.runs.tune.plan import read_plan

    plan = make_plan(tmp_path, metrics=("WQL", "MASE"), timeout_seconds=3.5)
    plan.write(tmp_path / "plan.json")
    again = read_plan(tmp_path / "plan.json")
    assert again == plan and list(again.space) == list(plan.space)
    assert again.settings == Config().replaced(horizon=7)
