"""Milliseconds of neuralforecast's training step, as JSON; `training_step.py` runs it in its place."""

from __future__ import annotations

import json
import logging
import statistics
import time
import warnings
from typing import ClassVar

import numpy as np
import pandas as pd
import pytorch_lightning as pl
import torch

CONTEXT, HORIZON, STEPS, WARM = 336, 96, 24, 8


class Clock(pl.Callback):
    """Times the steps after the first few, from batch end to batch end."""

    ends: ClassVar[list[float]] = []  # shared: the peer trains a copy of what it is given

    def on_train_batch_end(self, *_: object) -> None:
        self.ends.append(time.process_time())


def main() -> None:
    from neuralforecast import NeuralForecast
    from neuralforecast.models import PatchTST

    warnings.simplefilter("ignore")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    clock = Clock()
    model = PatchTST(
        h=HORIZON,
        input_size=CONTEXT,
        encoder_layers=2,
        n_heads=4,
        hidden_size=64,
        linear_hidden_size=128,
        patch_len=16,
        stride=16,
        windows_batch_size=256,
        batch_size=32,
        max_steps=STEPS,
        enable_progress_bar=False,
        logger=False,
        enable_checkpointing=False,
        callbacks=[clock],
    )
    rng = np.random.default_rng(0)
    stamps = pd.date_range("1970-01-01", periods=2000, freq="h")
    frame = pd.concat(
        pd.DataFrame({"unique_id": f"s{k}", "ds": stamps, "y": rng.normal(size=2000)})
        for k in range(32)
    )
    NeuralForecast([model], freq="h").fit(frame)
    print(json.dumps(1e3 * statistics.median(np.diff(clock.ends[WARM:]))))


if __name__ == "__main__":
    main()
