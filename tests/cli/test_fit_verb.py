"""`forecaster fit`, stopped and resumed."""

import signal
from pathlib import Path

import pytest

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


def test_a_fit_stopped_by_ctrl_c_goes_on_without_being_told_anything_again(folder, shell, interrupted):
    stopped = shell(*FIT, "--out", "new", "--checkpoint-every", 2)
    assert stopped.code == 130 and stopped.err == ""
    assert stopped.out.endswith("stopped after step 3; go on with: forecaster fit --resume new\n")
    assert not Path("new").exists()

    again = shell(*FIT, "--out", "new", "--checkpoint-every", 2)
    assert again.code == 2
    assert again.err == (
        "error: new.run: an unfinished fit, stopped after step 3: go on with "
        "forecaster fit --resume new, or discard it with --restart\n"
    )
    other = shell(*FIT, "--resume", "new", "--horizon", 9, "--set", "fit.batch_size=64")
    assert other.code == 2
    assert other.err.splitlines() == [
        "error: horizon 9: the fit to resume has 7",
        "error: fit.batch_size 64: the fit to resume has 32",
        "error: a resumed fit keeps what it was begun with: leave this out, "
        "or begin anew with --restart",
    ]

    resumed = shell("fit", "--resume", "new")
    assert resumed.code == 0
    assert "resumes after step 3" in resumed.out and "saved new" in resumed.out
    assert not list(Path().glob("*.run"))
    assert shell("fit", "--resume", "new").err == (
        "error: --resume new: this fit is finished, there is nothing to resume\n"
    )


def test_what_a_new_fit_needs_is_asked_for(shell):
    assert shell("fit", "--out", "new").err == (
        "error: Missing argument DATA: the table to fit a model to\n"
    )
    assert shell("fit", "shop.csv").err == "error: Missing option --out: the folder for the model\n"
