"""Milliseconds of our training step, as JSON; `training_step.py` runs it.

python benchmarks/own_step.py "2 layers" | "2 + 1 layers"
"""

from __future__ import annotations

import json
import statistics
import sys
import time

import numpy as np
import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from windows import make_panel

from forecaster.config import Config
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.fit import resolve
from forecaster.fitting.train import train
from forecaster.forecast.artifact import shape_of
from forecaster.model.attention import Memory
from forecaster.model.learner import Learner
from forecaster.model.network import Network
from forecaster.windows.batch import Inputs
from forecaster.windows.store import training_store

CONTEXT, HORIZON, STEPS, WARM = 336, 96, 24, 8


class EncoderOnly(Network):
    """Our encoder with a matrix from all tokens to all leads in place of the decoder."""

    def __init__(self, *made_of: object) -> None:
        super().__init__(*made_of)  # type: ignore[arg-type]
        self.decoder = nn.ModuleList()
        width, levels = self.config.width, len(self.config.quantile_levels)
        self.flat = nn.Linear(CONTEXT // 16 * width, HORIZON * levels)

    def decode(self, memory: Memory, inputs: Inputs, previous: Tensor | None = None) -> Tensor:
        raw = self.flat(memory.tokens.flatten(1))
        return raw.view(len(raw), HORIZON, 1, -1)


def main() -> None:
    torch.set_num_threads(1)
    alone = sys.argv[1] == "2 layers"
    model = {"width": 64, "heads": 4, "encoder_layers": 2, "decoder_layers": 1}
    sizes = {"context_length": CONTEXT, "patch": 16, "experts": []}
    levels = {"quantile_levels": [0.5]} if alone else {}
    fit = {"steps": STEPS, "batch_size": 256, "validation": None}
    panel = make_panel(32, 2000, known=0)
    config = Config().replaced(horizon=HORIZON, model=model | sizes | levels, fit=fit)
    plan, split = resolve(panel, config)
    network = (EncoderOnly if alone else Network)(plan.model, shape_of(panel, HORIZON))
    clock = Clock(WARM)
    store = training_store(panel, plan)
    learner = Learner(network, plan.fit, panel.series_names)
    train(learner, store, split, plan, TrainingContext(callbacks=(clock,)))
    print(json.dumps(clock.milliseconds))


class Clock(pl.Callback):
    """Times the steps after the first few, from batch end to batch end."""

    def __init__(self, warm: int) -> None:
        self.warm, self.ends = warm, list[float]()

    def on_train_batch_end(self, *_: object) -> None:
        self.ends.append(time.process_time())

    @property
    def milliseconds(self) -> float:
        return 1e3 * statistics.median(np.diff(self.ends[self.warm :]))


if __name__ == "__main__":
    main()
