"""`forecaster fit`, stopped and resumed."""

import re
import signal
from pathlib import Path

import polars as pl
import pytest
from forecast import tiny

from forecaster.model.learner import Learner

pytestmark = pytest.mark.usefixtures("undrawn")  # drawing takes most of a small fit

FIT = ("fit", "shop.csv", "--horizon", 7, "--known", "price", "--config", "tiny.yaml")


@pytest.fixture
def interrupted(monkeypatch):
    """Presses Ctrl-C in the third step of the next training."""
    step, pressed = Learner.training_step, []

    def press(self, batch, batch_index):
        if self.global_step == 2 and not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)
        return step(self, batch, batch_index)

    monkeypatch.setattr(Learner, "training_step", press)


@pytest.mark.long
def test_a_fit_stopped_by_ctrl_c_is_resumed_by_the_same_command(folder, shell, interrupted):
    command = *FIT, "--set", "fit.steps=4", "--out", "new", "--checkpoint-every", 2
    stopped = shell(*command)
    assert stopped.code == 130 and stopped.err == ""
    assert stopped.out.endswith("stopped at step 3; rerun the command to continue\n")
    assert not Path("new").exists()

    other = shell(*command, "--set", "fit.batch_size=64")
    assert other.code == 2
    assert other.err == (
        "error: new.run: the fit that was interrupted there at step 3 has fit.batch_size 32, this one "
        "fit.batch_size 64: rerun its command to continue it, or discard it with --restart\n"
    )

    resumed = shell(*command)
    assert resumed.code == 0
    assert "resumes after step 3" in resumed.out and "saved new" in resumed.out
    assert not list(Path().glob("*.run"))
    finished = shell(*command)
    assert finished.code == 2
    assert finished.err == "error: new: exists; replace it with --overwrite, or choose another name\n"


def test_what_a_new_fit_needs_is_asked_for(shell):
    assert shell("fit", "--out", "new").err == "error: Missing argument 'DATA'.\n"
    assert shell("fit", "shop.csv").err == "error: Missing option '--out'.\n"


@pytest.mark.long
def test_a_fit_never_reads_more_steps_than_there_are(tmp_path, shell):
    tiny.plain(40).filter(pl.col("store") == "a").write_csv(tmp_path / "one.csv")
    words = ["--horizon", 7, "--no-tracking", "--set", "fit.steps=1", "--out", tmp_path / "model"]
    said = " ".join(shell("fit", tmp_path / "one.csv", *words).out.split())
    (steps,) = re.findall(r"experts? on (\d+) steps", said)
    assert int(steps) <= 40 and "of the" not in said.partition("horizon 7")[0].partition("season")[2]
    assert "steps at most." in (tmp_path / "model" / "card.md").read_text()
