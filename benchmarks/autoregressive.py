"""How much faster an autoregressive forecast is with cached keys and values than without.

    python benchmarks/autoregressive.py [--windows 256] [--horizon 64] [--context 128] [--device cpu]

One greedy path per window, a token per step (patch 1), generated three ways: with the cache; by decoding
the prefix again at each step, as a decoder without one has to; and by teacher forcing on the values
found, all leads in one pass, which shows what the steps themselves cost. Medians of repeats, one thread
on a CPU.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from forecaster.config import DataConfig, ModelPlan
from forecaster.model.embedding import Shape, previous_values
from forecaster.model.network import Network
from forecaster.model.scaling import Scale
from forecaster.panel.build import open_panel
from forecaster.windows.batch import Inputs
from forecaster.windows.store import WindowStore

REPEATS = 3
TARGET = 5.0  # times faster, at 64 steps of 256 windows


def main() -> None:
    parser = argparse.ArgumentParser(description="an autoregressive forecast, cached or not")
    parser.add_argument("--windows", type=int, default=256)
    parser.add_argument("--horizon", type=int, default=64)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    torch.set_num_threads(1)
    network, inputs = task(given.windows, given.horizon, given.context, given.device)
    with torch.inference_mode():
        path, again = with_cache(network, inputs), without_cache(network, inputs)
        apart = float((path - again).abs().max())
        cached = seconds(lambda: with_cache(network, inputs), given.device)
        anew = seconds(lambda: without_cache(network, inputs), given.device)
        at_once = seconds(lambda: teacher_forced(network, inputs, path), given.device)
    table = Table(title=f"{given.windows} windows, {given.horizon} steps one by one, {given.device}")
    for column in ("how", "seconds", "times the cached"):
        table.add_column(column, justify="left" if column == "how" else "right")
    for name, taken in (("cached", cached), ("prefix anew", anew), ("teacher forcing", at_once)):
        table.add_row(name, f"{taken:.3f}", f"{taken / cached:.2f}")
    Console().print(table)
    print(
        f"cache speed-up {anew / cached:.1f} (target {TARGET:g}); paths differ by {apart:.1e} at most"
    )


def task(windows: int, horizon: int, context: int, device: str) -> tuple[Network, Inputs]:
    """Returns a decoder of two layers with random weights, and windows of a series of noise."""
    torch.manual_seed(0)
    config = ModelPlan(
        decoder="autoregressive",
        decoder_layers=2,
        context_length=context,
        patch=1,
        decoder_patch=1,
    )
    network = Network(config, Shape(horizon=horizon, channels=1)).eval().to(device)
    torch.nn.init.normal_(network.output.weight, std=0.1)
    values = np.random.default_rng(0).normal(size=windows + context + horizon)
    panel = open_panel(polars.DataFrame({"y": values}), DataConfig(time="row", target=("y",)))
    series, cutoff = np.zeros(windows, np.int64), np.arange(windows) + context - 1
    inputs = WindowStore(panel, config, horizon).batch(series, None, cutoff).inputs
    return network, inputs.to(device)


def _median(network: Network, raw: Tensor, scale: Scale) -> Tensor:
    return network.head.quantiles(raw, scale)[..., network.config.quantile_levels.index(0.5)]


def with_cache(network: Network, inputs: Inputs) -> Tensor:
    """Returns the path of medians."""
    memory = network.encode(inputs)
    return network.generate(memory, inputs, lambda raw, own, _: _median(network, raw, own), 1)[:, 0]


def without_cache(network: Network, inputs: Inputs) -> Tensor:
    """Returns the greedy path, the whole prefix decoded at each step."""
    memory = network.encode(inputs)
    written = inputs.context[:, :0]
    for steps in range(1, inputs.elapsed.shape[1] - network.config.context_length + 1):
        so_far = replace(inputs, elapsed=inputs.elapsed[:, : network.config.context_length + steps])
        previous = previous_values(inputs, torch.cat([written, inputs.context[:, :1]], dim=1), 1)
        last = network.decode(memory, so_far, previous)[:, -1:]
        written = torch.cat([written, _median(network, last, memory.scale)], dim=1)
    return written


def teacher_forced(network: Network, inputs: Inputs, path: Tensor) -> Tensor:
    """Returns the raw numbers of all leads of a given path."""
    return network.decode(network.encode(inputs), inputs, previous_values(inputs, path, 1))


def seconds(work: Callable[[], Tensor], device: str) -> float:
    """Returns the median time of a few repeats; on a CPU in its own processor time."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    taken = []
    for _ in range(REPEATS):
        begin = clock()
        work()
        if device != "cpu":
            torch.cuda.synchronize()
        taken.append(clock() - begin)
    return statistics.median(taken)


if __name__ == "__main__":
    main()
