"""What Lightning and our hooks cost: a fit beside a bare torch loop over the same network and batches.

    python benchmarks/fit_overhead.py

Default preset, 256 windows a step, hourly series of noise with two known covariates, no validation.
Ours is `fit_panel`'s own learner and trainer, without and with a logger that throws everything away.
The bare loop has the same fused AdamW, clipping and cosine; it is timed without and with the moving
average of the weights. The loops take turns; ratios are medians over rounds, in processor time of the
one thread, so that what else a machine does is not counted.
"""

from __future__ import annotations

import copy
import statistics
from collections.abc import Callable
from itertools import islice

import torch
from own_step import Clock
from pytorch_lightning.loggers.logger import DummyLogger
from rich.console import Console
from rich.table import Table
from windows import make_panel

from forecaster.config import Config
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.fit import resolve
from forecaster.fitting.train import GRADIENT_CLIP, train
from forecaster.forecast.artifact import shape_of
from forecaster.model.learner import Learner
from forecaster.model.network import Network
from forecaster.windows.store import training_store
from forecaster.windows.streams import TrainingStream

STEPS, WARM, ROUNDS = 16, 4, 7
BARE, AVERAGED, OURS, LOGGED = "bare loop", "bare loop + average", "fit", "fit, dummy logger"


class Bench:
    """One table and config; each call trains a fresh network of the same weights for a few steps."""

    def __init__(self) -> None:
        panel = make_panel(200, 500)
        fit = {"steps": STEPS, "validation": None}
        asked = Config().replaced(horizon=24, model={"experts": []}, fit=fit)
        self.config, self.split = resolve(panel, asked)
        model = self.config.model
        self.series = panel.series_names
        self.store = training_store(panel, self.config)
        torch.manual_seed(0)
        self.network = Network(model, shape_of(panel, 24))

    def learner(self) -> Learner[Network]:
        return Learner(copy.deepcopy(self.network), self.config.fit, self.series)

    def fit(self, logger: DummyLogger | None) -> float:
        """Returns milliseconds per step of `fit_panel`'s training, its first steps left out."""
        clock = Clock(WARM)
        train(self.learner(), self.store, self.split, self.config, TrainingContext(logger, (clock,)))
        return clock.milliseconds

    def bare(self, averaged: bool) -> float:
        """Returns milliseconds per step of a torch loop that a reader could write in ten minutes."""
        learner, fit = self.learner(), self.config.fit
        network, average = learner.network.train(), learner.average
        made = learner.configure_optimizers()
        optimizer, schedule = made["optimizer"], made["lr_scheduler"]["scheduler"]
        parameters, kept = list(network.parameters()), list(average.parameters())
        stream = TrainingStream(self.store, self.split.train, fit.batch_size, fit.seed)
        clock = Clock(WARM)
        for batch in islice(stream, STEPS):
            total, count = network.losses(batch)
            loss = total.sum() / count.sum().clamp(min=1)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, GRADIENT_CLIP)
            optimizer.step()
            schedule.step()
            if averaged:
                data = [parameter.data for parameter in parameters]
                torch._foreach_lerp_([parameter.data for parameter in kept], data, 0.01)
            clock.on_train_batch_end()
        return clock.milliseconds


def main() -> None:
    torch.set_num_threads(1)
    bench = Bench()
    loops: dict[str, Callable[[], float]] = {
        BARE: lambda: bench.bare(averaged=False),
        AVERAGED: lambda: bench.bare(averaged=True),
        OURS: lambda: bench.fit(logger=None),
        LOGGED: lambda: bench.fit(logger=DummyLogger()),
    }
    rounds = []
    for number in range(ROUNDS + 1):
        names = list(loops) if number % 2 else list(reversed(loops))
        taken = {name: loops[name]() for name in names}
        rounds += [taken] if number else []  # the first round warms up
    table = Table(title=f"median of {ROUNDS} rounds of {STEPS - WARM} steps, one thread")
    for heading in ("loop", "ms per step", "ratio to bare", "ratio to bare + average"):
        table.add_column(heading, justify="left" if heading == "loop" else "right")
    for name in loops:
        ms = statistics.median(taken[name] for taken in rounds)
        ratios = [statistics.median(t[name] / t[base] for t in rounds) for base in (BARE, AVERAGED)]
        table.add_row(name, f"{ms:.1f}", *(f"{ratio:.3f}" for ratio in ratios))
    Console().print(table)
    print("target: fit / (bare + average) <= 1.05")


if __name__ == "__main__":
    main()
