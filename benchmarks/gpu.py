"""Windows per second of training and of forecasts on a GPU, and the share of its matrix-product rate.

    python benchmarks/gpu.py                     # the default network, 1 minute
    python benchmarks/gpu.py --width 256 --precision bf16
    python benchmarks/gpu.py --device cpu        # the same figures of the processor

The rate is measured on square matrix products in the same precision; floating-point operations are those
that torch counts in a step of the network. Hourly noise, context 336, horizon 96.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from own_step import CONTEXT, HORIZON
from rich.console import Console
from rich.table import Table
from torch.utils.flop_counter import FlopCounterMode
from windows import make_panel

from forecaster.config import Config
from forecaster.fitting.fit import resolve
from forecaster.forecast.artifact import shape_of
from forecaster.model.hardware import DEVICES
from forecaster.model.network import Network
from forecaster.windows.store import training_store

SIDE, ROUNDS, WARM = 4096, 20, 5


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description="windows per second on a device")
    parser.add_argument(
        "--device", choices=DEVICES, default="cuda" if torch.cuda.is_available() else "cpu"
    )
    parser.add_argument("--precision", choices=("full", "bf16"), default="full")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch", type=int, default=1024, help="windows")
    given = parser.parse_args()
    bf16 = given.precision == "bf16"
    panel = make_panel(32, 2000, known=0)
    model = {"width": given.width, "context_length": CONTEXT, "patch": 16, "experts": []}
    plan, _ = resolve(panel, Config().replaced(horizon=HORIZON, model=model))
    network = Network(plan.model, shape_of(panel, HORIZON)).to(given.device)
    store = training_store(panel, plan)
    series = np.arange(given.batch) % panel.n_series
    inputs = store.batch(series, None, panel.indptr[series] + CONTEXT - 1).inputs.to(given.device)

    def forward() -> torch.Tensor:
        with torch.autocast(given.device, torch.bfloat16, enabled=bf16):
            return network(inputs)

    def step() -> None:
        network.zero_grad()
        forward().float().square().mean().backward()

    @torch.inference_mode()
    def forecast() -> None:
        forward()

    dtype = torch.bfloat16 if bf16 else torch.float32
    square = torch.randn(SIDE, SIDE, device=given.device, dtype=dtype)
    rate = 2 * SIDE**3 / seconds(lambda: square @ square, given.device)
    table = Table(
        title=f"{given.device}, {given.precision}, width {given.width}, {rate / 1e12:.2f} TFLOP/s"
    )
    for heading in ("", "windows/s", "ms per batch", "share of the matrix-product rate"):
        table.add_column(heading, justify="right")
    for name, work in (("training step", step), ("forecast", forecast)):
        with FlopCounterMode(display=False) as counter:
            work()
        taken = seconds(work, given.device)
        share = counter.get_total_flops() / taken / rate
        table.add_row(name, f"{given.batch / taken:,.0f}", f"{1e3 * taken:.1f}", f"{share:.1%}")
    Console(width=100).print(table)


def seconds(work: Callable[[], object], device: str) -> float:
    """Returns the median of several rounds, after some to warm up."""
    taken = []
    for _ in range(WARM + ROUNDS):
        began = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - began)
    return float(np.median(taken[WARM:]))


if __name__ == "__main__":
    main()
