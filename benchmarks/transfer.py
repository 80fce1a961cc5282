"""How many steps a warm start saves: validation WQL by step, from random weights and from others.

    python benchmarks/transfer.py ETTh1.csv bdg2_hourly.csv [--horizon 24] [--seeds 0 1 2] \\
        [--warm "" --warm "fit.learning_rate=0.001 fit.steps=200" ...]

For each seed: a model of the first table, a model of the second from random weights, and models of the
second from the first's weights (`--from`), one per `--warm`, which has what is set otherwise in it.
Each validation also scores its windows by WQL, under the averaged weights. "Reached at" is the first
validation at which a warm start is as good as the best of the model from random weights; step 0 is
before any training. Early stopping is off, so that curves can be compared as far as they go.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from rich.console import Console
from rich.table import Table

from forecaster.config import Config, load_config
from forecaster.evaluation.metrics import pinball
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.fit import fit_panel, resolve
from forecaster.forecast.artifact import Artifact
from forecaster.panel.build import open_panel
from forecaster.panel.panel import Panel

TARGET = 0.5  # of the steps that random weights take to their best
BASE = ["tracking.enabled=false"]


@dataclass
class Curve(pl.Callback):
    """WQL of the validation windows at each validation."""

    points: list[tuple[int, float]] = field(default_factory=list)

    def on_train_start(self, trainer: pl.Trainer, learner: Any) -> None:
        """Scores the weights that training starts from."""
        self.on_validation_end(trainer, learner)

    def on_validation_end(self, trainer: pl.Trainer, learner: Any) -> None:
        """Scores the averaged weights."""
        network, quantiles, actual = learner.average, [], []
        with torch.inference_mode():
            for batch in trainer.datamodule.val_dataloader():
                quantiles.append(network(batch.to(learner.device).inputs)[:, :, 0].cpu().numpy())
                actual.append(batch.target[:, :, 0].numpy())
        levels = network.config.quantile_levels
        truth = np.concatenate(actual)
        loss = pinball(truth, np.concatenate(quantiles), levels).mean(axis=-1)
        score = float(np.nansum(loss) / np.nansum(np.abs(truth)))
        self.points.append((learner.global_step, score))

    @property
    def best(self) -> tuple[int, float]:
        """Step and WQL of the best validation."""
        return min(self.points, key=lambda point: point[1])

    def reached(self, score: float) -> int | None:
        """The first step at which the WQL is this or better."""
        return next((step for step, found in self.points if found <= score), None)


def main() -> None:
    parser = argparse.ArgumentParser(
        description="validation WQL by step, with a warm start and without"
    )
    parser.add_argument("first", help="table to learn from beforehand")
    parser.add_argument("second", help="table to forecast")
    parser.add_argument("--horizon", type=int, default=24)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of all fits")
    parser.add_argument("--warm", action="append", metavar="SETTINGS", help="of one kind of warm start")
    given = parser.parse_args()
    torch.set_num_threads(1)
    common = [*BASE, *given.set, f"horizon={given.horizon}"]
    tables = [open_panel(path, Config().data) for path in (given.first, given.second)]
    cold: list[Curve] = []
    warm: dict[str, list[Curve]] = {settings: [] for settings in given.warm or [""]}
    for seed in given.seeds:
        own = [*common, f"fit.seed={seed}"]
        parent, _ = fitted(tables[0], own)
        cold.append(fitted(tables[1], own)[1])
        print(f"seed {seed}: random weights {written(cold[-1])}", flush=True)
        for settings, curves in warm.items():
            curves.append(fitted(tables[1], [*own, *settings.split()], parent)[1])
            print(f"        {settings or 'warm start'} {written(curves[-1])}", flush=True)
    report(given.seeds, cold, warm)
    print("settings of all fits:", *common)


def fitted(panel: Panel, settings: list[str], parent: Artifact | None = None) -> tuple[Artifact, Curve]:
    """Returns a model, and its scores while it was trained."""
    curve = Curve()
    config, split = resolve(panel, load_config(None, settings), parent)
    context = TrainingContext(callbacks=(curve,))
    return fit_panel(panel, config, split, context, parent), curve


def report(seeds: list[int], cold: list[Curve], warm: dict[str, list[Curve]]) -> None:
    """Prints a row per seed, and what holds of the means."""
    for settings, curves in warm.items():
        table = Table(title=f"random weights and a warm start ({settings or 'the same settings'})")
        for name in ("seed", "random: best", "at step", "warm: at 0", "best", "at step", "reached at"):
            table.add_column(name, justify="right")
        steps: list[int | None] = []
        for seed, random, mine in zip(seeds, cold, curves, strict=True):
            steps.append(mine.reached(random.best[1]))
            table.add_row(
                str(seed),
                f"{random.best[1]:.4f}",
                str(random.best[0]),
                f"{mine.points[0][1]:.4f}",
                f"{mine.best[1]:.4f}",
                str(mine.best[0]),
                "never" if steps[-1] is None else str(steps[-1]),
            )
        Console(width=100).print(table)
        found = [step for step in steps if step is not None]
        wanted = statistics.fmean(random.best[0] for random in cold)
        best = [statistics.fmean(curve.best[1] for curve in kind) for kind in (cold, curves)]
        print(f"mean best WQL {best[0]:.4f} and {best[1]:.4f}; ", end="")
        if len(found) < len(steps):
            print(f"reached by {len(found)} of {len(steps)} seeds (target: all)")
            continue
        ratio = statistics.fmean(found) / wanted
        verdict = "met" if ratio <= TARGET else "not met"
        print(
            f"reached at step {statistics.fmean(found):.0f} of {wanted:.0f} in the mean: {ratio:.2f} "
            f"(target {TARGET:g}, {verdict})"
        )


def written(curve: Curve) -> str:
    """Returns every fifth point of a curve."""
    return " ".join(f"{step}:{score:.4f}" for step, score in curve.points[::5])


if __name__ == "__main__":
    main()
