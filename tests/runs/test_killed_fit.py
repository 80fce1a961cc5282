"""Fits that are killed or interrupted, as real processes: nothing is lost, nothing is half there.

Starting Python and its imports anew for each of some thirty fits would take minutes: one process imports
everything once and forks for each of them, before any thread is there.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from forecast import tiny
from mlflow.tracking import MlflowClient

import forecaster as fc

pytestmark = pytest.mark.slow

KILLS = 4
STEPS = 60
DRIVER = """
import os, sys
import forecaster.panel.build, forecaster.fitting.fit, forecaster.runs.pipeline
import mlflow.tracking, matplotlib.figure, forecaster.runs.tracking
from forecaster.cli import main
from forecaster.forecast import saved_model
from forecaster.fitting.mixture_learner import MixtureLearner
from forecaster.fitting.experts import cold_bands, tuning
from forecaster.forecast import error_levels
from forecaster.model.learner import Learner

# As conftest.py does for fast tests: what is lost by a kill depends neither on accuracy nor on pictures.
tuning.STEPS, tuning._ROWS, cold_bands._WINDOWS, error_levels.CUTOFFS = 3, 64, 20, 10

def save(figure, target, **options):
    name = isinstance(target, (str, os.PathLike))
    open(target, "wb").write(b"PNG") if name else target.write("<svg></svg>")

matplotlib.figure.Figure.savefig = save

PHASES = {
    "reading": (forecaster.panel.build, "open_panel", 1),
    "opening the run": (forecaster.runs.tracking.TrackedRun, "open", 1),
    "training": (Learner, "training_step", 7),
    "validating": (MixtureLearner, "validation_step", 2),
    "scoring": (forecaster.fitting.fit, "validation_scores", 1),
    "saving": (saved_model, "save_tensors", 1),
    "tracking": (forecaster.runs.pipeline, "log_artifact", 1),
}

def interrupted(phase, number):
    owner, name, call = PHASES[phase]
    function, calls = getattr(owner, name), []
    def wrapped(*args, **options):
        calls.append(1)
        if len(calls) == call:
            os.kill(os.getpid(), number)
        return function(*args, **options)
    setattr(owner, name, wrapped)

print("ready", flush=True)
for line in sys.stdin:
    folder, phase, number, *words = line.rstrip("\\n").split("\\t")
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        os.environ["XDG_DATA_HOME"] = os.path.dirname(folder)  # runs are recorded in the working folder
        said = os.open("said.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream in (1, 2):
            os.dup2(said, stream)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if phase:
            interrupted(phase, int(number))
        sys.argv, code = ["forecaster", *words], 99
        try:
            main()
        except SystemExit as left:
            code = left.code
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class _Fits:
    """Fits in processes of their own, one after the other."""

    def __init__(self, driver):
        self._driver = driver

    def start(self, *words, phase="", number=0):
        """Returns the process id of a fit."""
        self._driver.stdin.write("\t".join([os.getcwd(), phase, str(int(number)), *words]) + "\n")
        self._driver.stdin.flush()
        return int(self._driver.stdout.readline())

    def code(self):
        """Returns how the fit that was started ended."""
        return int(self._driver.stdout.readline())

    def run(self, *words, phase="", number=0):
        """Returns how a fit ended, and what it said."""
        self.start(*words, phase=phase, number=number)
        return self.code(), Path("said.txt").read_text()


@pytest.fixture(scope="module")
def forks():
    """The process that every fit is a fork of."""
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "200"},
    )
    try:
        assert driver.stdout.readline() == "ready\n"
        yield _Fits(driver)
    finally:
        driver.kill()
        driver.wait(timeout=30)
        driver.stdin.close()
        driver.stdout.close()


@pytest.fixture
def fits(place, forks):
    """A way to run fits in a folder with a table, a config and a store."""
    tiny.shop(200).write_csv("shop.csv")
    settings = {
        "fit": {"steps": STEPS, "batch_size": 64},
        "model": tiny.TINY["model"] | {"dropout": 0.2, "experts": ["seasonal_naive", "linear"]},
    }
    Path("config.yaml").write_text(yaml.safe_dump(settings))
    return forks


def _fit(out):
    words = ["fit", "shop.csv", "--horizon", "7", "--known", "price", "--config", "config.yaml"]
    # A fit that is killed as it leaves has saved its model: the same command completes its report and run.
    return [*words, "--out", out, "--overwrite", "--checkpoint-every", "3"]


def _content(folder):
    command = f"--out {folder}".encode()  # in the report
    return {path.name: path.read_bytes().replace(command, b"") for path in Path(folder).iterdir()}


def _runs(place, name):
    client = MlflowClient(f"sqlite:///{place / 'mlflow.db'}")
    return client, [run for run in client.search_runs(["1"]) if run.info.run_name == name]


def _curves(place, name):
    """The points of the one finished run of a fit."""
    client, runs = _runs(place, name)
    (run,) = [run for run in runs if run.info.status == "FINISHED"]
    return {
        metric: sorted(
            (point.step, point.value) for point in client.get_metric_history(run.info.run_id, metric)
        )
        for metric in run.data.metrics
    }


def test_a_fit_killed_at_random_moments_ends_as_one_that_never_was(place, fits):
    code, said = fits.run(*_fit("warm"))
    assert code == 0, said
    begun = time.monotonic()
    fits.run(*_fit("whole"))
    seconds = time.monotonic() - begun
    whole, curves = _content("whole"), _curves(place, "whole")

    rng = random.Random(6)
    kills, resumed, models = 0, set(), 0
    while kills < KILLS:
        out = f"model-{models}"
        models += 1
        record = Path(f"{out}.run", "run.json")
        while record.exists() or not Path(out).exists():  # a fit killed as it leaves is finished
            kept = {path.name for path in record.parent.glob("step-*.checkpoint")}
            process = fits.start(*_fit(out))
            if kept:
                resumed.add((out, max(kept)))
            time.sleep(rng.uniform(0, 1.1 * seconds))  # the moment is what is random here
            if kills < KILLS and Path(f"/proc/{process}").exists():
                os.kill(process, signal.SIGKILL)
            code = fits.code()
            assert code in (0, -signal.SIGKILL), Path("said.txt").read_text()
            kills += code != 0
            if Path(out).exists():
                fc.load(out)  # whole; its report may be missing yet
        assert _content(out) == whole
        assert _curves(place, out) == curves
        assert code or not record.parent.exists()
    print(f"{kills} kills in {models} fits, {len(resumed)} checkpoints resumed from")
    assert resumed


BEFORE_TRAINING = ("reading", "opening the run")
LATER = ("training", "validating", "scoring", "saving", "tracking")


@pytest.mark.parametrize(
    ("number", "code", "phases"),
    [
        (signal.SIGINT, 130, (*BEFORE_TRAINING, *LATER)),
        (signal.SIGTERM, 143, ("reading", "training", "saving")),
    ],
    ids=["SIGINT", "SIGTERM"],
)
def test_a_signal_in_any_phase_leaves_what_can_be_resumed_and_nothing_half(
    place, fits, number, code, phases
):
    fits.run(*_fit("whole"))
    whole = _content("whole")
    for phase in phases:
        before = {path.name for path in Path().iterdir()}
        ended, said = fits.run(*_fit("model"), phase=phase, number=number)
        assert ended == code, (phase, said)
        assert "Traceback" not in said and "Error" not in said, (phase, said)
        left = {path.name for path in Path().iterdir()} - before
        _, runs = _runs(place, "model")
        if phase == "tracking":  # the model was there already, whole
            assert left == {"model", "model.run"} and _content("model") == whole
        else:
            assert left == ({"model.run"} if phase in LATER else set()), phase
        if phase in BEFORE_TRAINING:
            assert not [run for run in runs if run.info.status == "RUNNING"]
            continue
        assert runs[0].info.status == "KILLED", phase
        step = max(path.name for path in Path("model.run").glob("step-*"))
        assert step == {
            "training": "step-00000007.checkpoint",
            "validating": "step-00000014.checkpoint",
        }.get(phase, f"step-{STEPS:08d}.checkpoint")
        assert f"stopped at step {int(step[5:13])}; rerun the command to continue" in said
        ended, said = fits.run(*_fit("model"))
        assert ended == 0, (phase, said)
        assert _content("model") == whole, phase
        assert _runs(place, "model")[1][0].info.status == "FINISHED"
        assert not Path("model.run").exists()
        shutil.rmtree("model")
