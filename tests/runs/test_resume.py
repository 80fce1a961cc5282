"""A fit that was stopped goes on: the same model in the end, one MLflow run, no other fit between."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
import pytorch_lightning as pl_lightning
from forecast import tiny
from mlflow.tracking import MlflowClient

import forecaster as fc
from forecaster.config import config_from, load_config
from forecaster.errors import ArtifactError, ConfigError, DataError, FitError, OutputError
from forecaster.model.learner import Learner
from forecaster.runs.progress import TrainingBar
from forecaster.runs.resume import FitRequest, claimed

STEPS = 8
FIT = {"steps": STEPS, "batch_size": 32, "patience": None}


class _Stopped(BaseException):
    """Stands for whatever ends a process."""


@pytest.fixture
def stops(monkeypatch):
    """Ends fits before the step that is put into the list."""
    wanted = []

    def stop(self, trainer, learner, batch, batch_index):
        if wanted and trainer.global_step == wanted[0]:
            wanted.pop()
            raise _Stopped

    monkeypatch.setattr(TrainingBar, "on_train_batch_start", stop)
    assert issubclass(TrainingBar, pl_lightning.Callback)
    return wanted


def _config(experts=(), **more):
    model = tiny.TINY["model"] | {"dropout": 0.2, "experts": [*experts]}
    return {"fit": FIT | more, "model": model, "tracking": {"enabled": False}}


def _fit(table="shop.csv", out="model", config=None, **options):
    every = None if "resume" in options else 2
    config = config or _config()
    return fc.fit(table, 7, config=config, out=out, quiet=True, checkpoint_every=every, **options)


def _parts(folder):
    """All files of a model; its report names the folder."""
    name = f"--out {folder}".encode()
    return {
        path.name: path.read_bytes().replace(name, b"--out model")
        for path in sorted(Path(folder).iterdir())
    }


@pytest.fixture
def place(place):
    """A working folder with a table and an MLflow store."""
    tiny.shop().write_csv("shop.csv")
    return place


def test_a_stopped_fit_goes_on_to_the_same_model_in_one_run(place, stops, capsys):
    config = _config(["naive", "linear"]) | {"tracking": {"enabled": True}}
    options = {"config": config, "known": "price", "until": "2024-04-05"}
    _fit(out="whole", **options)
    stops.append(5)
    with pytest.raises(_Stopped):
        fc.fit("shop.csv", 7, out="model", checkpoint_every=2, **options)
    said = capsys.readouterr().out
    assert "stopped after step 4; go on with: forecaster fit --resume model" in said
    assert not Path("model").exists()
    fc.fit(resume="model")
    said = capsys.readouterr().out
    assert "resumes after step 4" in said
    assert _parts("model") == _parts("whole")
    assert not Path("model.run").exists()

    client = MlflowClient(f"sqlite:///{place / 'mlflow.db'}")
    second, first = client.search_runs(["1"])
    assert [run.info.run_name for run in (first, second)] == ["whole", "model"]
    assert second.info.status == "FINISHED"
    assert second.data.params == first.data.params
    assert second.data.metrics == first.data.metrics and "train_loss" not in first.data.metrics
    for name in first.data.metrics:
        whole, resumed = (client.get_metric_history(run.info.run_id, name) for run in (first, second))
        assert [(p.step, p.value) for p in resumed] == [(p.step, p.value) for p in whole], name


def test_a_resumed_fit_is_recorded_where_its_own_environment_says(place, stops, monkeypatch):
    config = _config() | {"tracking": {"enabled": True, "uri": f"sqlite:///{place}/then.db"}}
    (place / "then.db").write_bytes((place / "mlflow.db").read_bytes())
    stops.append(3)
    with pytest.raises(_Stopped):
        _fit(config=config)
    assert "then.db" not in Path("model.run/run.json").read_text()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place / 'mlflow.db'}")
    fc.fit(resume="model", quiet=True)
    for name, status in (("then.db", "FAILED"), ("mlflow.db", "FINISHED")):
        (run,) = MlflowClient(f"sqlite:///{place / name}").search_runs(["1"])
        assert run.info.status == status


def test_the_same_command_with_resume_goes_on_and_the_folder_names_it_too(place, stops):
    stops.append(3)
    with pytest.raises(_Stopped):
        _fit()
    stops.append(6)
    with pytest.raises(_Stopped):
        _fit(resume="model")
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    model = fc.fit(resume="../model.run", quiet=True)
    os.chdir("..")
    whole = _fit(out="whole")
    assert model.metrics == whole.metrics
    names = ("member-00.safetensors", "plan.json", "metrics.json")
    ours, theirs = _parts("model"), _parts("whole")
    assert [ours[name] for name in names] == [theirs[name] for name in names]


def test_a_table_in_memory_is_given_again(place, stops):
    table = tiny.shop()
    stops.append(4)
    with pytest.raises(_Stopped):
        _fit(table)
    with pytest.raises(ConfigError, match="DATA: the fit to resume was given it in memory; give it"):
        fc.fit(resume="model", quiet=True)
    with pytest.raises(
        DataError, match=r"table has changed since the fit was begun: fingerprint .{16} "
    ):
        fc.fit(table.with_columns(pl.col("sales") + 1), resume="model", quiet=True)
    model = fc.fit(table, resume="model", quiet=True)
    assert model.metrics == fc.fit(table, 7, config=_config(), quiet=True).metrics


def test_a_warm_start_is_recorded_and_has_to_be_the_same(place, stops):
    tiny.model().save("old")
    stops.append(4)
    config = {"fit": FIT, "tracking": {"enabled": False}}
    with pytest.raises(_Stopped):
        _fit(config=config, warm_start="old", known="price")
    shutil.move("old", "other")
    tiny.plain_model().save("old")
    with pytest.raises(DataError, match="the model it started from has changed"):
        fc.fit(resume="model", quiet=True)
    shutil.rmtree("old")
    shutil.move("other", "old")
    fc.fit(resume="model", quiet=True)
    _fit(config=config, warm_start="old", known="price", out="whole")
    assert _parts("model") == _parts("whole")


def test_whatever_is_told_otherwise_is_refused_with_both_values_at_once(place, stops):
    stops.append(4)
    with pytest.raises(_Stopped):
        _fit(known="price")
    before = tiny.tree(place)
    tiny.shop().write_csv("other.csv")
    with pytest.raises(ConfigError) as refused:
        fc.fit(
            "other.csv",
            9,
            config={"fit": {"steps": 20, "batch_size": 32, "patience": None}},
            future="soon.csv",
            until="2024-03-01",
            precision="bf16",
            compile=True,
            checkpoint_every=3,
            resume="model",
        )
    assert str(refused.value).splitlines() == [
        "horizon 9: the fit to resume has 7",
        "fit.steps 20: the fit to resume has 8",
        "DATA other.csv: the fit to resume has shop.csv",
        "future=soon.csv: the fit to resume has none",
        "until=2024-03-01: the fit to resume has none",
        "precision=bf16: the fit to resume has none",
        "`compile`: the fit to resume has none",
        "checkpoint_every=3: the fit to resume has 2",
        "a resumed fit keeps what it was begun with: leave this out, or begin anew with `restart`",
    ]
    with pytest.raises(ConfigError, match="out=new: the fit to resume writes model; leave `out` away"):
        fc.fit(out="new", resume="model")
    with pytest.raises(ConfigError, match="`resume` goes on, `restart` begins anew: give one of them"):
        fc.fit(out="model", resume="model", restart=True)
    record = json.loads(Path("model.run/run.json").read_text())
    Path("model.run/run.json").write_text(json.dumps(record | {"version": "0.0.9"}))
    with pytest.raises(ConfigError, match=r"begun by version 0\.0\.9, this is .*: resume it there"):
        fc.fit(resume="model")
    Path("model.run/run.json").write_text("{}")
    with pytest.raises(ArtifactError, match=r"model\.run/run\.json: damaged"):
        fc.fit(resume="model")
    Path("model.run/run.json").write_text(json.dumps(record, indent=1) + "\n")
    os.unlink("other.csv")
    assert tiny.tree(place) == before
    changed = pl.read_csv("shop.csv").with_columns(pl.col("sales") * 2)
    changed.write_csv("shop.csv")
    with pytest.raises(DataError, match="the table has changed since the fit was begun"):
        fc.fit(resume="model", quiet=True)


def test_there_is_something_to_resume_or_that_is_said(place):
    with pytest.raises(
        ConfigError, match=r"resume=model: no fit was begun there: model\.run is missing"
    ):
        fc.fit(resume="model")
    _fit()
    with pytest.raises(ConfigError, match="resume=model: this fit is finished, there is nothing to"):
        fc.fit(resume="model")
    with pytest.raises(ConfigError, match="checkpoint_every and restart need out"):
        fc.fit("shop.csv", 7, checkpoint_every=3)
    with pytest.raises(ConfigError, match="data: expected a table"):
        fc.fit(horizon=7)


def test_a_new_fit_gives_nothing_up_unasked(place, stops):
    stops.append(5)
    with pytest.raises(_Stopped):
        _fit()
    before = tiny.tree(place)
    with pytest.raises(OutputError) as refused:
        _fit()
    assert str(refused.value) == (
        "model.run: an unfinished fit, stopped after step 4: go on with forecaster fit --resume model, "
        "or discard it with `restart`"
    )
    assert tiny.tree(place) == before
    _fit(config=_config(steps=4), restart=True)
    assert fc.load("model").metrics["steps"] == 4
    assert not Path("model.run").exists()


def test_a_fit_that_fails_before_its_first_checkpoint_leaves_nothing(place, stops):
    before = tiny.tree(place)
    stops.append(1)
    with pytest.raises(_Stopped):
        _fit(out="models/of/this/model")
    with pytest.raises(DataError):
        _fit("missing.csv", out="models/of/this/model")
    assert tiny.tree(place) == before


def test_a_fit_into_the_folder_of_another_is_refused_with_its_process(place):
    holder = (
        "import fcntl, os, sys\n"
        "os.mkdir('model.run')\n"
        "file = open('model.run/lock', 'a')\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "file.write(f'process {os.getpid()} on here')\n"
        "file.flush()\n"
        "print('held', flush=True)\n"
        "sys.stdin.read()\n"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", holder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "held\n"
        for options in ({}, {"restart": True}):
            with pytest.raises(OutputError) as refused:
                _fit(**options)
            assert re.fullmatch(
                rf"model: another fit is writing it \(process {other.pid} on here\): "
                "wait for it, or choose another `out`",
                str(refused.value),
            )
        other.kill()
        other.wait(timeout=30)
        with claimed(Path("model")):  # its lock died with it
            pass
    finally:
        other.kill()
        other.wait(timeout=30)
        other.stdin.close()
        other.stdout.close()
    assert not Path("model.run").exists()


def test_a_lock_is_not_taken_from_a_thread_of_the_same_process(tmp_path):
    with (
        claimed(tmp_path / "model"),
        pytest.raises(OutputError, match=f"process {os.getpid()} "),
        claimed(tmp_path / "model"),
    ):
        pytest.fail("claimed twice")
    assert list(tmp_path.iterdir()) == []


def test_a_loss_that_is_not_finite_leaves_the_last_checkpoint_and_names_it(place, monkeypatch, capsys):
    step = Learner.training_step

    def ruined(self, batch, batch_index):
        if self.global_step == 5:
            batch.target[0] = float("inf")
        return step(self, batch, batch_index)

    monkeypatch.setattr(Learner, "training_step", ruined)
    config = _config() | {"tracking": {"enabled": True}}
    with pytest.raises(FitError, match="the loss is not finite at step 6: 1 of 3 series in the batch"):
        fc.fit("shop.csv", 7, config=config, out="model", checkpoint_every=2)
    assert "the checkpoint after step 4 is kept in model.run" in capsys.readouterr().out
    kept = sorted(path.name for path in Path("model.run").glob("step-*"))
    assert kept == ["step-00000002.checkpoint", "step-00000004.checkpoint"]
    (run,) = MlflowClient(f"sqlite:///{place / 'mlflow.db'}").search_runs(["1"])
    assert run.info.status == "FAILED"


def test_a_model_that_cannot_be_written_leaves_its_last_checkpoint(place, monkeypatch):
    from forecaster.forecast import saved_model

    def full(tensors):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(saved_model, "save_tensors", full)
        with pytest.raises(OutputError, match="model: cannot be written: No space left on device"):
            _fit()
    assert not Path("model").exists()
    fc.fit(resume="model", quiet=True)
    _fit(out="whole")
    assert _parts("model") == _parts("whole")


def test_a_folder_that_cannot_be_made_is_one_line_before_any_work(place, monkeypatch):
    def refuse(*args, **options):
        raise PermissionError(13, "Permission denied")

    before = tiny.tree(place)
    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OutputError, match=r"model\.run: cannot be written: Permission denied"):
        _fit()
    monkeypatch.undo()
    os.chdir(place)
    assert tiny.tree(place) == before


def test_the_command_of_a_fit_gives_its_request_again(tmp_path):
    options = {"known": ["unit price", "a,b"], "freq": "1d", "season_length": 7}
    config = config_from({"model": {"quantile_levels": [0.05, 0.5, 0.95]}}, 7, options)
    asked = FitRequest(config, "my table.csv", until="2024-01-01", precision="bf16", compile=True)
    words = shlex.split(asked.command(tmp_path / "it's"))
    flags = {flag: words[n + 1] for n, flag in enumerate(words[:-1]) if flag.startswith("--")}
    assert words[:3] == ["forecaster", "fit", "my table.csv"] and flags["--until"] == "2024-01-01"
    assert flags["--precision"] == "bf16" and "--compile" in words and words[-1] == f"{tmp_path}/it's"
    sets = [words[n + 1] for n, flag in enumerate(words) if flag == "--set"]
    again = config_from(load_config(None, sets), int(flags["--horizon"]), {})
    assert again.model_dump() == config.model_dump()
