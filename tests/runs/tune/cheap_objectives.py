"""Objectives that cost nothing, on the path that real ones take; workers find them by name."""

import os
import time

import optuna

SPACE = {
    "fit.learning_rate": {"float": [0.0005, 0.02], "log": True},
    "model.encoder_layers": {"int": [1, 4]},
}


def bowl(plan):
    """Objectives: a bowl over two settings; three layers are pruned."""

    def value(trial):
        rate = trial.suggest_float("fit.learning_rate", 0.0005, 0.02, log=True)
        layers = trial.suggest_int("model.encoder_layers", 1, 4)
        time.sleep(float(os.environ.get("CHEAP_SECONDS", "0")))
        if layers == 3:
            raise optuna.TrialPruned
        return (1000 * rate - 4) ** 2 + layers

    return value


def noted(plan):
    """Objectives as `bowl`, each call of which leaves a line: the number of its trial."""
    value = bowl(plan)

    def note(trial):
        try:
            return value(trial)
        finally:
            with open(os.environ["CHEAP_NOTES"], "a", encoding="utf-8") as file:
                file.write(f"{trial.number}\n")

    return note


def broken(plan):
    """Objectives that always fail alike."""

    def value(trial):
        trial.suggest_int("model.encoder_layers", 1, 4)
        raise ValueError("four is too many")

    return value


def deadly(plan):
    """Objectives that end their process at once."""

    def value(trial):
        trial.suggest_int("model.encoder_layers", 1, 4)
        os._exit(9)

    return value


def unusable(plan):
    """No objective: what it needs is not there."""
    from forecaster.errors import DataError

    raise DataError("sales.csv: the file is gone")
