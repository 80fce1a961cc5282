"""Checkpoints of a training: exact to go on from, whole, two of them, and only data."""

import os
import pickle
import shutil
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers.logger import Logger

from forecaster.config import FitPlan, TrackingConfig
from forecaster.errors import ArtifactError
from forecaster.fitting import checkpointing
from forecaster.fitting.checkpoints import Checkpoints, checkpoints_in, step_of
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.fit import fit_panel, resolve

STEPS = 5
KINDS = {
    "no validation": {"fit": {"validation": None, "steps": 3}},
    "evidence": {"model": {"dropout": 0.3}, "fit": {"learning_rate": 0.5, "steps": None}},
    "draws": {
        "model": {"decoder": "autoregressive", "head": "student_t", "decoder_layers": 1},
        "fit": {"steps": 3},
    },
    "refit": {
        "model": {"experts": ["naive", "linear"], "lookbacks": (12,), "dropout": 0.2},
        "fit": {"ensemble_size": 2, "refit": True, "learning_rate": 0.05, "steps": 3},
    },
}


class _Stopped(Exception):
    """Stands for whatever ends a process between two steps."""


class _StopAt(pl.Callback):
    """Ends a process before a step, or after some steps of its own, in whichever training."""

    def __init__(self, step=None, after=None):
        self._step, self._after, self._taken = step, after, 0

    def on_train_batch_start(self, trainer, learner, batch, batch_index):
        if trainer.global_step == self._step or self._taken == self._after:
            raise _Stopped
        self._taken += 1


class _Told(Logger):
    """What a logger is told, in the order of name and step."""

    name = version = "told"

    def __init__(self):
        super().__init__()
        self._told, self.finished = set(), False

    @property
    def points(self):
        return sorted(self._told)

    def log_metrics(self, metrics, step=None):
        self._told |= {(name, step, value) for name, value in metrics.items()}

    def log_hyperparams(self, *args, **kwargs):
        pass

    def finalize(self, status):
        self.finished = True


def _prepared(make_panel, make_config, known=1, **sections):
    panel = make_panel(3, 60, past=1, known=known)
    fit = {"steps": STEPS} | sections.pop("fit", {})
    config, split = resolve(panel, make_config(4, fit=fit, **sections))
    return panel, config, split


def _files(folder, identity="this fit", every=1, say=lambda text: None):
    return Checkpoints(folder, identity, every, say)


def _assert_same(one, other):
    assert one.metrics == other.metrics
    first, second = (artifact.ensemble.state_dict() for artifact in (one, other))
    assert first.keys() == second.keys()
    for name, weight in first.items():
        assert torch.equal(weight, second[name]), name


def _stopped_at_every_step(folder, fit):
    """Returns the artifact of a fit that was stopped before each of its steps, and how many it took."""
    for processes in range(1, 10 * STEPS):
        files = _files(folder)
        with suppress(_Stopped):
            around = TrainingContext(callbacks=(_StopAt(after=1),), checkpoints=files)
            return fit(context=around), processes
    raise AssertionError("never finished")


def _steps(artifact):
    """All that were taken, in all trainings."""
    members = artifact.metrics["members"]
    again = [m["best_step"] * (m["network_weight"] > 0) for m in members if artifact.plan.fit.refit]
    return sum(member["steps"] for member in members) + sum(again)


# Each of its processes solves the experts anew, which takes most of the time.
SLOW = {"refit": [pytest.mark.slow]}


@pytest.mark.long
@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize("kind", [pytest.param(name, marks=SLOW.get(name, [])) for name in KINDS])
def test_a_training_stopped_at_every_step_ends_as_one_that_never_was(
    tmp_path, make_panel, make_config, monkeypatch, kind
):
    monkeypatch.setattr(FitPlan, "validate_every", 1)
    fit = partial(fit_panel, *_prepared(make_panel, make_config, **KINDS[kind]))
    resumed, processes = _stopped_at_every_step(tmp_path, fit)
    whole = fit()
    _assert_same(resumed, whole)
    assert processes == _steps(whole)
    assert ("gained no more" in whole.metrics["ended"]) == (kind == "evidence")
    # The last checkpoints hold all of it: nothing is trained again.
    again = fit(context=TrainingContext(callbacks=(_StopAt(after=0),), checkpoints=_files(tmp_path)))
    _assert_same(again, whole)


@pytest.mark.long
def test_a_training_with_no_step_left_tells_its_curves_again(tmp_path, small):
    # What the process before had told may have died with it, before it was sent.
    fit, _ = small
    told = []
    for _ in range(2):
        told.append(_Told())
        fit(context=TrainingContext(logger=told[-1], checkpoints=_files(tmp_path)))
    assert told[0].points and told[1].points == told[0].points
    assert told[1].finished


@pytest.mark.long
@pytest.mark.parametrize("fit", [{"freeze_encoder": True}, {"adapters": 2}], ids=str)
def test_a_warm_start_goes_on_exactly(tmp_path, make_panel, make_config, fit):
    start = fit_panel(*_prepared(make_panel, make_config, known=0, fit={"steps": 1}))
    panel, plan, _ = _prepared(make_panel, make_config, fit={"steps": 3})
    config = plan.as_config(TrackingConfig(enabled=False)).replaced(fit=fit)
    plan, split = resolve(panel, config, start)
    warm = partial(fit_panel, panel, plan, split, start=start)
    resumed, _ = _stopped_at_every_step(tmp_path, warm)
    _assert_same(resumed, warm())


@pytest.mark.long
def test_stops_between_checkpoints_are_made_up_for(tmp_path, small):
    fit, whole = small
    for step in (1, 4, 4):
        with pytest.raises(_Stopped):
            files = _files(tmp_path, every=3)
            fit(context=TrainingContext(callbacks=(_StopAt(step),), checkpoints=files))
        assert [step_of(path) for path in checkpoints_in(tmp_path)] == list(range(3, step + 1, 3))
    _assert_same(fit(context=TrainingContext(checkpoints=_files(tmp_path, every=3))), whole)
    assert [step_of(path) for path in checkpoints_in(tmp_path)] == [3, STEPS]


@pytest.fixture(scope="module")
def small(make_panel, make_config):
    """A fit, and what it gives."""
    fit = partial(fit_panel, *_prepared(make_panel, make_config))
    return fit, fit()


def _run_until(folder, fit, step, identity="this fit"):
    files = _files(folder, identity)
    with pytest.raises(_Stopped):
        fit(context=TrainingContext(callbacks=(_StopAt(step),), checkpoints=files))


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, small):
    """The checkpoints of a fit that was stopped before step 4."""
    folder = tmp_path_factory.mktemp("stopped")
    _run_until(folder, small[0], 4)
    return folder


def _cut(path):
    path.write_bytes(path.read_bytes()[:-1000])


def _flip(path):
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = bytes(200)  # longer than what lies between two tensors
    path.write_bytes(content)


class _Payload:
    def __reduce__(self):
        return os.system, ("touch executed",)


def _hostile(path):
    with path.open("wb") as file:
        pickle.dump(_Payload(), file)


def _hostile_zip(path):
    torch.save({"fit": "this fit", "loops": _Payload()}, path)


def _empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [_cut, _flip, _empty, _hostile, _hostile_zip])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(
    tmp_path, monkeypatch, small, stopped, harm
):
    monkeypatch.chdir(tmp_path)
    fit, whole = small
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    newest = checkpoints_in(tmp_path)[-1]
    assert step_of(newest) == 4
    harm(newest)
    said = []
    files = _files(tmp_path, say=said.append)
    _assert_same(fit(context=TrainingContext(checkpoints=files)), whole)
    assert said == [
        f"{newest}: damaged, or no checkpoint; falling back to the previous checkpoint",
        "resumes after step 3",
    ]
    assert not (tmp_path / "executed").exists()


def test_a_checkpoint_of_another_fit_is_passed_over_and_none_left_is_an_error(tmp_path, small):
    fit, _ = small
    _run_until(tmp_path, fit, 3, identity="another fit")
    with pytest.raises(
        ArtifactError, match=r"000003\.checkpoint: of another fit.*start over with --restart"
    ):
        Checkpoints(tmp_path, "this fit").newest()
    assert Checkpoints(tmp_path / "empty", "this fit").newest() is None


def test_a_full_disk_is_said_once_and_stops_no_training(tmp_path, monkeypatch, small):
    fit, whole = small
    said, write = [], Path.write_bytes

    def full(path, content):
        if path.name.startswith((".step-00000002", ".step-00000003")):
            write(path, content[:4])
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(Path, "write_bytes", full)
    files = _files(tmp_path, say=said.append)
    _assert_same(fit(context=TrainingContext(checkpoints=files)), whole)
    place = tmp_path / "step-00000002.checkpoint"
    assert said == [
        f"no checkpoint: {place}: cannot be written: No space left on device; make room there, or choose "
        "another place; training continues without"
    ]
    assert [step_of(path) for path in checkpoints_in(tmp_path)] == [4, 5]
    assert {path.suffix for path in tmp_path.iterdir()} == {".checkpoint"}


def test_minutes_are_counted_by_a_clock_that_nobody_sets(
    tmp_path, monkeypatch, make_panel, make_config
):
    past, kept = iter(range(10**9, 0, -(10**6))), []

    class Steps(Checkpoints):
        def save_checkpoint(self, checkpoint, path, storage_options=None):
            kept.append(checkpoint["global_step"])

    for minutes, expected in ((1e-9, [1, 2, 3, 4, 5]), (60.0, [5])):
        kept.clear()
        panel, config, split = _prepared(make_panel, make_config)
        monkeypatch.setattr(time, "time", lambda: float(next(past)))
        monkeypatch.setattr(checkpointing, "MINUTES", minutes)
        files = Steps(tmp_path, "this fit")
        fit_panel(panel, config, split, TrainingContext(checkpoints=files))
        assert kept == expected


class _Signal(pl.Callback):
    def __init__(self, number, step):
        self._number, self._step = number, step

    def on_train_batch_end(self, trainer, learner, outputs, batch, batch_index):
        if trainer.global_step == self._step:
            signal.raise_signal(self._number)


@pytest.mark.parametrize(
    ("number", "ends", "step"),
    [(signal.SIGINT, KeyboardInterrupt, 2), (signal.SIGTERM, SystemExit, STEPS)],
)
def test_a_signal_ends_a_training_after_its_step_with_a_checkpoint(tmp_path, small, number, ends, step):
    fit, whole = small
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with pytest.raises(ends) as left:
        fit(context=TrainingContext(callbacks=(_Signal(number, step),), checkpoints=_files(tmp_path)))
    assert getattr(left.value, "code", 143) == 143
    assert step_of(checkpoints_in(tmp_path)[-1]) == step
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before
    _assert_same(fit(context=TrainingContext(checkpoints=_files(tmp_path))), whole)


def test_the_second_ctrl_c_ends_a_training_at_once(tmp_path, make_panel, make_config):
    class Twice(pl.Callback):
        def on_train_batch_end(self, trainer, learner, outputs, batch, batch_index):
            if trainer.global_step == 2:
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
                pytest.fail("still here")

    panel, config, split = _prepared(make_panel, make_config)
    files = _files(tmp_path, every=100)
    with pytest.raises(KeyboardInterrupt):
        fit_panel(panel, config, split, TrainingContext(callbacks=(Twice(),), checkpoints=files))
    assert checkpoints_in(tmp_path) == []
