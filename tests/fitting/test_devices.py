"""Several devices: who stands where, and that they learn what one device learns."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
from forecast import tiny
from pytorch_lightning.trainer.connectors import accelerator_connector
from runs.processes import free_port
from safetensors.numpy import load_file

from forecaster.errors import ConfigError, FitError
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.distributed import (
    DistributedContext,
    find_distributed_context,
    windows_per_step,
)
from forecaster.fitting.fit import fit_panel, resolve

BIN = Path(sys.executable).parent
DATA = Path(__file__).parents[2] / "data"
TINY = """
model: {width: 8, heads: 2, encoder_layers: 1, dropout: 0.0, experts: []}
fit: {steps: 12, batch_size: 32, learning_rate: 0.001}
tracking: {enabled: false}
"""
TABLE = ["shop.csv", "prices.csv"]
SETTINGS = ["--horizon", "7", "--config", "tiny.yaml"]
FIT = ["shop.csv", "--future", "prices.csv", *SETTINGS]
EXPERTS = ["--set", "model.experts=[naive,linear]"]
FIT_DEMO = [DATA / "demo.csv", "--future", DATA / "demo_future.csv", *SETTINGS, *EXPERTS]
TORCHRUN = dict(RANK="3", WORLD_SIZE="4", LOCAL_RANK="1", MASTER_ADDR="h", MASTER_PORT="1")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    """Whatever starts the tests is none of theirs."""
    for name in list(os.environ):
        if name in TORCHRUN or name == "LOCAL_WORLD_SIZE":
            monkeypatch.delenv(name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


def told(monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_without_a_launcher_one_device_is_alone_and_several_are_started():
    assert find_distributed_context(None, None) == DistributedContext()
    expected = DistributedContext(devices=3, launches=True)
    assert find_distributed_context(3, 1) == expected
    assert expected.is_main and expected.world_size == 3


def test_a_process_of_torchrun_joins_the_others_without_being_told_how_many(monkeypatch):
    told(monkeypatch, TORCHRUN | {"LOCAL_WORLD_SIZE": "2"})
    expected = DistributedContext(rank=3, local_rank=1, devices=2, nodes=2)
    assert find_distributed_context(None, None) == find_distributed_context(2, 2) == expected
    assert not expected.is_main


@pytest.mark.parametrize(
    ("variables", "asked", "expected"),
    [
        ({}, (2, 3), r"--nodes 3: this command runs on one machine; .* each of the 3, with torchrun"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "2"}, (4, 2), r"4 --nodes 2 are 8 .* torchrun started 2 x 2"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "3"}, (None, None), r"are 3 processes, but torchrun started"),
        (TORCHRUN | {"RANK": "x"}, (2, 2), r"RANK: expected a number from torchrun, found 'x'"),
    ],
)
def test_numbers_that_contradict_each_other_are_refused(monkeypatch, variables, asked, expected):
    told(monkeypatch, variables)
    with pytest.raises(ConfigError, match=expected):
        find_distributed_context(*asked)


def test_more_devices_than_there_are_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        ConfigError, match=r"--devices 2: this machine has 1 CUDA device; ask for as many"
    ):
        find_distributed_context(2, None)


def test_a_batch_that_cannot_be_shared_evenly_is_refused_with_the_numbers(make_config):
    config = make_config(4, fit={"batch_size": 32})
    assert windows_per_step(config, 3, DistributedContext(devices=4)) == 8
    with pytest.raises(
        ConfigError, match=r"batch_size 32 cannot be shared .* 3 devices: take a multiple of 3"
    ):
        windows_per_step(config, 3, DistributedContext(devices=3))
    together = make_config(4, fit={"batch_size": 32}, model={"channel_attention": True})
    expected = r"batch_size 32 \(10 windows of 3 channels\) .* 4 devices: take a multiple of 12"
    with pytest.raises(ConfigError, match=expected):
        windows_per_step(together, 3, DistributedContext(devices=4))


def test_the_refusal_comes_before_any_process_is_started(tmp_path, monkeypatch, capsys):
    import forecaster as fc

    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    with pytest.raises(ConfigError, match=r"batch_size 32 cannot be shared evenly by 3 devices"):
        fc.fit(DATA / "demo.csv", 7, config="tiny.yaml", out="model", devices=3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiny.yaml"]


def weights(artifact):
    """By name; biases of keys shift all scores alike, so their gradient is nothing but rounding."""
    state = artifact.ensemble.members[0].state_dict()
    return {name: value for name, value in state.items() if not name.endswith("key.bias")}


def fitted(panel, config, devices):
    config, split = resolve(panel, config)
    return fit_panel(
        panel, config, split, TrainingContext(distributed=find_distributed_context(devices, None))
    )


@pytest.mark.slow
def test_two_devices_with_half_the_batch_learn_what_one_learns_with_the_whole(
    make_panel, make_config, monkeypatch
):
    """Also in a notebook, and where they see unlike numbers of observed cells; without dropout."""
    monkeypatch.setattr(accelerator_connector, "_IS_INTERACTIVE", True)
    # On some tables slopes of a bias cancel but for rounding, of which Adam makes a whole step.
    panel = make_panel(4, 60, missing=0.5, known=1, categories=True)
    fit = {"steps": 7}
    config = make_config(4, fit=fit)
    one, two = (fitted(panel, config, devices) for devices in (1, 2))
    for name, weight in weights(one).items():
        torch.testing.assert_close(weights(two)[name], weight, rtol=0, atol=1e-6, msg=name)
    curves = [artifact.metrics["curves"]["validation_loss"] for artifact in (one, two)]
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-6)
    assert one.metrics["best_step"] == two.metrics["best_step"]


@pytest.mark.slow
def test_two_devices_train_one_member_after_the_other_and_all_of_them_again(make_panel, make_config):
    """The processes that were started are handed each training; the budget is measured on both.

    A gradient of the output's bias is a sum of levels that may cancel; Adam's first step makes a
    whole step of the rounding that is left.
    """
    panel = make_panel(3, 60, missing=0.3, known=1)
    fit = {"ensemble_size": 2, "refit": True, "budget_seconds": 1e6}
    model = {"experts": ["naive", "linear"], "lookbacks": (12,)}
    config = make_config(4, fit=fit, model=model)
    one, two = (fitted(panel, config, devices) for devices in (1, 2))
    for first, second in zip(one.ensemble.members, two.ensemble.members, strict=True):
        state = second.state_dict()
        for name, weight in first.state_dict().items():
            if not name.endswith("key.bias"):
                atol = config.fit.learning_rate if name == "output.bias" else 1e-4
                torch.testing.assert_close(state[name], weight, rtol=0, atol=atol, msg=name)
    np.testing.assert_allclose(one.ensemble.weights, two.ensemble.weights, atol=1e-4)
    assert [m["network_weight"] for m in one.metrics["members"]] == [
        m["network_weight"] for m in two.metrics["members"]
    ]


@pytest.mark.slow
def test_a_loss_that_is_not_finite_on_one_device_ends_both_and_names_the_series(
    make_panel, make_config
):
    panel = make_panel(3, 60)
    late = panel.indptr[2] - 5  # the last rows of the second series: validated, never trained on
    panel.values[late : late + 5 : 2, 0], panel.values[late + 1 : late + 5 : 2, 0] = 3e38, -3e38
    expected = r"the validation loss is not finite at step 1: 1 of \d series in the batch, s1; "
    with pytest.raises(FitError, match=expected):
        fitted(panel, make_config(4, fit={"steps": 2}), 2)


@pytest.fixture
def started(tmp_path, monkeypatch):
    """Starts commands in a folder with a config and a table, with the variables given; ends what is left."""
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    tiny.shop().write_csv("shop.csv")
    tiny.prices().write_csv("prices.csv")
    processes = []

    def start(*words, **variables):
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"} | variables
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen([*map(str, words)], env=env, **pipes))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def left(process):
    out, err = process.communicate(timeout=300)
    return process.returncode, out, err


def same_weights(one, other, atol):
    first, second = (load_file(f"{folder}/member-00.safetensors") for folder in (one, other))
    for name, weight in first.items():
        if not name.endswith("key.bias"):
            np.testing.assert_allclose(second[name], weight, rtol=0, atol=atol, err_msg=name)


@pytest.mark.slow
def test_fit_with_two_devices_and_under_torchrun_writes_what_fit_with_one_does(started):
    """On one machine, and on two nodes of torchrun that have a process each."""
    for devices in (1, 2):
        words = BIN / "forecaster", "fit", *FIT_DEMO, "--devices", devices, "--out", f"model{devices}"
        code, out, err = left(started(*words))
        assert (code, err) == (0, ""), err
        assert f"saved model{devices}" in out
    same_weights("model1", "model2", 1e-5)
    port = str(free_port())
    nodes = []
    for node in range(2):
        torchrun = ["--nnodes", 2, "--node-rank", node, "--nproc-per-node", 1]
        torchrun += ["--master-addr", "127.0.0.1", "--master-port", port]
        fit = ["-m", "forecaster", "fit", *FIT_DEMO, "--nodes", 2, "--out", "model3"]
        nodes.append(started(BIN / "torchrun", *torchrun, *fit))
    answers = [left(node) for node in nodes]
    assert [code for code, *_ in answers] == [0, 0], answers
    assert sorted("saved model3" in out for _, out, _ in answers) == [False, True]
    assert sorted(len(out) for _, out, _ in answers)[0] == 0  # the others say nothing
    same_weights("model2", "model3", 0)
    made = {path.name for path in Path.cwd().iterdir()}
    assert made == {"model1", "model2", "model3", "tiny.yaml", *TABLE}


SCRIPT = """
import os, sys
import forecaster as fc
future = sys.argv[2]
model = fc.fit(sys.argv[1], 7, config="tiny.yaml", future=future, out="model", devices=2)
model.save("of_" + os.environ["RANK"])
"""


def torchrun(started, port, *words):
    """Starts two ranks as torchrun would."""
    common = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": port}
    return [started(*words, **common, RANK=number, LOCAL_RANK=number) for number in "01"]


@pytest.mark.slow
def test_ranks_of_torchrun_run_a_script_and_rank_zero_writes(started):
    Path("script.py").write_text(SCRIPT)
    words = sys.executable, "script.py", *TABLE
    answers = [left(rank) for rank in torchrun(started, str(free_port()), *words)]
    assert [code for code, *_ in answers] == [0, 0], answers
    assert "saved model" in answers[0][1] and answers[1][1:] == ("", "")
    same_weights("of_0", "of_1", 0)
    same_weights("of_0", "model", 0)
    assert not Path("model.run").exists()


def trains(process):
    """Waits until a fit has begun to train."""
    for line in process.stdout:
        if " weights" in line:
            return
    raise AssertionError(process.communicate())


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_others_within_a_minute_with_one_line(started):
    long = ["--set", "fit.steps=1000000", "--out", "model"]
    process = started(BIN / "forecaster", "fit", *FIT, *long, "--devices", 2)
    trains(process)
    (worker,) = (
        child for child in psutil.Process(process.pid).children() if child.name().startswith("python")
    )
    worker.send_signal(signal.SIGKILL)
    begun = time.monotonic()
    code, _, err = left(process)
    assert time.monotonic() - begun < 60
    line = "error: rank 1 of 2 was killed by signal 9; training has stopped\n"
    assert (code, err) == (2, line)
    tasks = torchrun(
        started, str(free_port()), BIN / "forecaster", "fit", *FIT, *long, "--devices", 2, "--restart"
    )
    trains(tasks[0])
    tasks[1].send_signal(signal.SIGKILL)
    begun = time.monotonic()
    code, _, err = left(tasks[0])
    assert time.monotonic() - begun < 60
    assert code == 2 and re.fullmatch(
        r"error: rank 0 of 2 lost the connection to another rank; .*\n", err
    )
    assert not Path("model").exists()


KILLED = """
import os, signal, sys
import forecaster as fc
from forecaster.runs.progress import TrainingBar

def stop(self, trainer, learner, batch, batch_index):
    if trainer.global_step == 25:
        os.killpg(0, signal.SIGKILL)

def fit(out):
    model = {"width": 8, "heads": 2, "encoder_layers": 1, "dropout": 0.3, "experts": []}
    fit = {"steps": 40, "batch_size": 32}
    config = {"model": model, "fit": fit, "tracking": {"enabled": False}}
    fc.fit(sys.argv[2], 7, config=config, future=sys.argv[3], out=out, devices=2, checkpoint_every=1)

if sys.argv[1] == "killed":
    fit("whole")
    TrainingBar.on_train_batch_start = stop
fit("model")
"""


@pytest.mark.slow
def test_a_fit_on_two_devices_that_was_killed_goes_on_to_the_same_model(started):
    """All its processes at once, between two checkpoints; each has random numbers of its own."""
    Path("script.py").write_text(KILLED)

    def run(what):
        words = "setsid", "--wait", sys.executable, "script.py", what
        return left(started(*words, *TABLE))

    code, out, err = run("killed")
    assert code in (-signal.SIGKILL, 128 + signal.SIGKILL), (out, err)
    assert "saved whole" in out and not Path("model").exists()
    steps = sorted(path.name for path in Path("model.run").glob("*.checkpoint"))
    assert steps == ["step-00000010.checkpoint", "step-00000020.checkpoint"]
    code, out, err = run("resumed")
    assert (code, err) == (0, ""), err
    assert "resumes after step 20" in out
    for path in Path("whole").iterdir():
        whole = path.read_bytes().replace(b"--out whole", b"--out model")  # in the report
        assert (Path("model") / path.name).read_bytes() == whole, path.name


@pytest.mark.slow
def test_ranks_of_torchrun_resume_alike_or_are_refused_alike(started):
    """After a signal the same command goes on to the same model; another one ends both ranks with one line."""

    def run(out, *more):
        ranks = ["--nproc-per-node", 2, "--master-port", free_port(), "-m", "forecaster"]
        long = ["--set", "fit.steps=100", "--checkpoint-every", 10]
        return started(BIN / "torchrun", *ranks, "fit", *FIT, *long, "--out", out, *more)

    code, out, err = left(run("whole"))
    assert code == 0 and "saved whole" in out, err
    process = run("model")
    while not list(Path().glob("model.run/*.checkpoint")):
        assert process.poll() is None
        time.sleep(0.01)
    process.terminate()
    _, out, _ = left(process)
    (step,) = re.findall(r"stopped at step (\d+); rerun the command to continue\n", out)
    # `left` waits for half as long as a rank waits for one that never comes.
    code, out, err = left(run("model", "--set", "fit.seed=1"))
    assert code != 0 and not Path("model").exists()
    (line,) = re.findall("^error: .*", err, re.MULTILINE)
    assert f"at step {step} has fit.seed 0, this one fit.seed 1" in line
    code, out, err = left(run("model"))
    assert code == 0 and out.count(f"resumes after step {step}\n") == 1, err
    for path in Path("whole").iterdir():
        whole = path.read_bytes().replace(b"--out whole", b"--out model")  # in the report
        assert (Path("model") / path.name).read_bytes() == whole, path.name
