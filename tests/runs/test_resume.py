"""The same command resumes a fit: the same model in the end, one MLflow run, no other fit between."""

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
from forecaster.config import Config, config_from, load_config
from forecaster.errors import ArtifactError, ConfigError, DataError, FitError, OutputError
from forecaster.model.learner import Learner
from forecaster.runs.progress import TrainingBar
from forecaster.runs.resume import FitRequest, RunFolder, claimed

STEPS = 8
FIT = {"steps": STEPS, "batch_size": 32}
REQUEST = FitRequest(Config())


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


def _fit(table="shop.csv", out="model", **options):
    options = {"horizon": 7, "config": _config(), "checkpoint_every": 2, "quiet": True} | options
    return fc.fit(table, out=out, **options)


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


@pytest.fixture
def interrupted(place, stops):
    """A working folder with a fit that was stopped, and a model to start from."""
    tiny.model().save("old")
    stops.append(5)
    with pytest.raises(_Stopped):
        _fit(known="price")
    return place


@pytest.mark.long
def test_a_stopped_fit_goes_on_to_the_same_model_in_one_run(place, stops, capsys):
    config = _config(["naive", "linear"]) | {"tracking": {"enabled": True}}
    options = {"config": config, "known": "price", "until": "2024-04-05"}
    _fit(out="whole", **options)
    options["quiet"] = False
    stops.append(5)
    with pytest.raises(_Stopped):
        _fit(**options)
    said = capsys.readouterr().out
    assert said.endswith("stopped at step 4; rerun the command to continue\n")
    assert not Path("model").exists()
    _fit(**options)
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


@pytest.mark.long
def test_a_resumed_fit_is_recorded_where_its_own_environment_says(place, stops, monkeypatch):
    config = _config() | {"tracking": {"enabled": True, "uri": f"sqlite:///{place}/then.db"}}
    (place / "then.db").write_bytes((place / "mlflow.db").read_bytes())
    stops.append(3)
    with pytest.raises(_Stopped):
        _fit(config=config)
    assert "then.db" not in Path("model.run/run.json").read_text()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place / 'mlflow.db'}")
    _fit(config=_config() | {"tracking": {"enabled": True}})
    for name, status in (("then.db", "FAILED"), ("mlflow.db", "FINISHED")):
        (run,) = MlflowClient(f"sqlite:///{place / name}").search_runs(["1"])
        assert run.info.status == status


@pytest.mark.long
def test_a_fit_that_is_stopped_twice_is_resumed_from_another_folder_too(place, stops):
    for step in (3, 6):
        stops.append(step)
        with pytest.raises(_Stopped):
            _fit()
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    model = _fit("../shop.csv", out="../model")
    os.chdir("..")
    whole = _fit(out="whole")
    assert model.metrics == whole.metrics
    names = ("member-00.safetensors", "plan.json", "metrics.json")
    ours, theirs = _parts("model"), _parts("whole")
    assert [ours[name] for name in names] == [theirs[name] for name in names]


@pytest.mark.long
def test_a_table_in_memory_is_known_by_its_fingerprint(place, stops, capsys):
    table = tiny.shop()
    stops.append(5)
    with pytest.raises(_Stopped):
        _fit(table)
    with pytest.raises(ConfigError, match=r"has a table of fingerprint (.{16}), this one a table of"):
        _fit(table.with_columns(pl.col("sales") + 1))
    model = _fit(table.to_pandas(), quiet=False)
    assert "resumes after step 4" in capsys.readouterr().out
    assert model.metrics == fc.fit(table, 7, config=_config(), quiet=True).metrics


@pytest.mark.slow
@pytest.mark.usefixtures("short_fits")
def test_a_warm_start_is_recorded_and_has_to_be_the_same(place, stops):
    tiny.model().save("old")
    stops.append(4)
    config = {"fit": FIT, "tracking": {"enabled": False}}
    with pytest.raises(_Stopped):
        _fit(config=config, warm_start="old", known="price")
    shutil.move("old", "other")
    tiny.plain_model().save("old")
    with pytest.raises(ConfigError, match=r"has `warm_start` weights .{16}, this one `warm_start` wei"):
        _fit(config=config, warm_start="old", known="price")
    shutil.rmtree("old")
    shutil.move("other", "old")
    _fit(config=config, warm_start="old", known="price")
    _fit(config=config, warm_start="old", known="price", out="whole")
    assert _parts("model") == _parts("whole")


DIFFERENCES = [
    ({"horizon": 9}, "horizon 7, this one horizon 9"),
    ({"config": _config(steps=20)}, "fit.steps 8, this one fit.steps 20"),
    ({"known": ()}, r'data.known \["price"\], this one data.known \[\]'),
    ({"until": "2024-03-01"}, "no `until`, this one until=2024-03-01"),
    ({"precision": "bf16"}, "no `precision`, this one precision=bf16"),
    ({"compile": True}, "no `compile`, this one compile=True"),
    ({"checkpoint_every": 3}, "checkpoint_every=2, this one checkpoint_every=3"),
    (
        {"warm_start": "old", "config": {"fit": FIT}},
        "no `warm_start`, this one `warm_start` weights .{16}",
    ),
    ({"horizon": 9, "until": "2024-03-01"}, "no `until`, this one until=2024-03-01"),
]


@pytest.mark.long
def test_another_fit_is_refused_with_the_first_difference(interrupted):
    tree = tiny.tree(interrupted)
    for options, words in DIFFERENCES:
        with pytest.raises(ConfigError) as refused:
            _fit(**{"known": "price"} | options)
        assert re.fullmatch(
            rf"model\.run: the fit that was interrupted there at step 4 has {words}: rerun its command to "
            "continue it, or discard it with `restart`",
            str(refused.value),
        )
        assert tiny.tree(interrupted) == tree


@pytest.mark.long
def test_another_version_or_a_damaged_record_is_refused(interrupted):
    path = Path("model.run/run.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"version": "0.0.9"}))
    with pytest.raises(ConfigError, match=r"has version 0\.0\.9, this one version .*`restart`"):
        _fit(known="price")
    for damaged in ("{}", json.dumps(record | {"budgeted": {"steps": "many"}}), "{"):
        path.write_text(damaged)
        with pytest.raises(ArtifactError, match=r"model\.run/run\.json: damaged, .* `restart`$"):
            _fit(known="price")


@pytest.mark.long
def test_settings_that_are_spelled_out_are_those_that_were_chosen(interrupted, capsys):
    """What is resolved counts, not what was typed."""
    named = _config(stride=1, validation=0.15, seed=0)
    _fit(known=["price"], config=named, freq="D", precision=None, quiet=False)
    assert "resumes after step 4" in capsys.readouterr().out


def test_nothing_resumes_without_a_folder(place, stops):
    for options in ({"checkpoint_every": 3}, {"restart": True}):
        with pytest.raises(ConfigError, match="checkpoint_every and restart need out"):
            fc.fit("shop.csv", 7, **options)
    stops.append(5)
    with pytest.raises(_Stopped):
        fc.fit("shop.csv", 7, config=_config(), quiet=True)
    assert {path.name for path in place.iterdir()} == {"shop.csv", "mlflow.db"}


@pytest.mark.long
def test_a_finished_model_is_never_resumed(place, stops, capsys):
    _fit()
    tree = tiny.tree(place)
    for options in ({}, {"restart": True}):
        with pytest.raises(
            OutputError, match=r"^model: exists; replace it with `overwrite`, or choose"
        ):
            _fit(**options)
    assert tiny.tree(place) == tree
    stops.append(5)
    with pytest.raises(_Stopped):
        _fit(overwrite=True)
    with pytest.raises(OutputError, match=r"^model: exists; replace it with `overwrite`, or choose"):
        _fit()
    _fit(overwrite=True, quiet=False)
    assert "resumes after step 4" in capsys.readouterr().out
    after = tiny.tree(place)
    assert after == tree


def test_a_fit_without_a_checkpoint_gives_way_to_another(place, stops, monkeypatch):
    stops.append(1)
    with monkeypatch.context() as killed, pytest.raises(_Stopped):
        killed.setattr(RunFolder, "remove", lambda folder: None)
        _fit()
    assert Path("model.run/run.json").exists()
    _fit(horizon=9)
    assert fc.load("model").artifact.horizon == 9
    assert not Path("model.run").exists()


def test_checkpoints_without_a_record_are_leftovers(place, stops, capsys):
    stops.append(5)
    with pytest.raises(_Stopped):
        _fit()
    os.unlink("model.run/run.json")  # as `remove` begins
    _fit(config=_config(steps=4), quiet=False)
    assert "resumes" not in capsys.readouterr().out
    assert fc.load("model").metrics["steps"] == 4


def test_restart_begins_anew_and_the_line_on_interruption_knows_it(place, stops, capsys):
    stops.append(5)
    with pytest.raises(_Stopped):
        _fit()
    stops.append(3)
    with pytest.raises(_Stopped):
        _fit(config=_config(steps=4), restart=True, quiet=False)
    said = capsys.readouterr().out
    assert "resumes" not in said
    assert said.endswith("stopped at step 2; rerun the command without --restart to continue\n")
    _fit(config=_config(steps=4))
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
        with claimed(Path("model"), REQUEST):  # its lock died with it
            pass
    finally:
        other.kill()
        other.wait(timeout=30)
        other.stdin.close()
        other.stdout.close()
    assert not Path("model.run").exists()


def test_a_lock_is_not_taken_from_a_thread_of_the_same_process(tmp_path):
    with (
        claimed(tmp_path / "model", REQUEST),
        pytest.raises(OutputError, match=f"process {os.getpid()} "),
        claimed(tmp_path / "model", REQUEST),
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


@pytest.mark.long
def test_a_model_that_cannot_be_written_leaves_its_last_checkpoint(place, monkeypatch):
    from forecaster.forecast import saved_model

    def full(tensors):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(saved_model, "save_tensors", full)
        with pytest.raises(OutputError, match="model: cannot be written: No space left on device"):
            _fit()
    assert not Path("model").exists()
    _fit()
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
