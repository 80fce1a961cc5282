"""Evaluators that cost nothing; worker processes find them by name."""

import os
import time

from forecaster.runs.tune.worker import TrialResult

SPACE = {
    "fit.learning_rate": {"float": [0.0005, 0.02], "log": True},
    "model.encoder_layers": {"int": [1, 4]},
}


def bowl(plan):
    """A bowl over two settings; three layers are pruned."""

    def evaluate(request, report):
        rate, layers = request.values["fit.learning_rate"], request.values["model.encoder_layers"]
        time.sleep(float(os.environ.get("CHEAP_SECONDS", "0")))
        attributes = {"worker": os.getpid()}
        if layers == 3:
            return TrialResult("PRUNED", None, "three layers", attributes)
        return TrialResult("COMPLETE", ((1000 * rate - 4) ** 2 + layers,), None, attributes)

    return evaluate


def curves(plan):
    """Trials that report losses, those of many layers higher ones, and stop when they are pruned."""

    def evaluate(request, report):
        for step in range(10, 101, 10):
            if report(step, request.values["model.encoder_layers"] + 1 / step) and request.prunable:
                return TrialResult("PRUNED", None, None, {"steps": step})
        return TrialResult("COMPLETE", (float(request.values["model.encoder_layers"]),), None)

    return evaluate


def broken(plan):
    """Trials that always fail alike."""

    def evaluate(request, report):
        raise ValueError("four is too many")

    return evaluate


def deadly(plan):
    """Trials that end their process at once."""

    def evaluate(request, report):
        os._exit(9)

    return evaluate


def unusable(plan):
    """No evaluator: its table is missing."""
    from forecaster.errors import DataError

    raise DataError("sales.csv: the file is gone")
