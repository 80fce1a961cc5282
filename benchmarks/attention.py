"""Time and peak memory of each kind of attention, forward and backward, as sequences grow.

    python benchmarks/attention.py [--plot attention.png]
    python benchmarks/attention.py --device cuda --dtype bfloat16 [--compile]

One multi-head layer of the default width on one sequence, the oldest eighth of it padding; the window
is 32 tokens, the factor 5, the rank 64. On a CPU: one thread, processor time, and how
far the process grows above what it held before, each measurement in a fork of its own. On a GPU: time
between events, and the allocator's peak. Figures are the least of several rounds: what else a machine
does only adds to them.
"""

from __future__ import annotations

import argparse
import gc
import math
import os
import pickle
import resource
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import psutil
import torch
from matplotlib import pyplot
from rich.console import Console
from rich.table import Table

from forecaster.model.attention import MultiHeadAttention
from forecaster.model.kernels import make_kernel

KINDS = ("full", "local", "sparse", "low_rank")
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
LINEAR = ("local", "low_rank")
SHORT, LONG, LIMIT = 1024, 8192, 10.0
SECONDS, FEWEST, ROUNDS = 0.5, 2, 4  # a measurement repeats so long and so often, in every round

Cost = tuple[float, float]
"""Milliseconds and MiB."""


def main() -> None:
    parser = argparse.ArgumentParser(description="what each kind of attention costs")
    parser.add_argument("--plot", type=Path, help="draw the figures into this file")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--compile", action="store_true", help="compile the layer first")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rounds = [
        {kind: [measured(kind, length, given) for length in LENGTHS] for kind in KINDS}
        for _ in range(ROUNDS)
    ]
    costs = {
        kind: [least(cell) for cell in zip(*(r[kind] for r in rounds), strict=True)] for kind in KINDS
    }
    where = f"{given.device}, {given.dtype}{', compiled' if given.compile else ''}"
    show(costs, where)
    if given.plot is not None:
        draw(costs, where, given.plot)


def measured(kind: str, length: int, given: argparse.Namespace) -> Cost:
    """Returns what one training pass over `length` tokens takes."""
    if given.device == "cpu":
        return in_a_fork(lambda: on_cpu(make_pass(kind, 64, given), make_pass(kind, length, given)))
    return on_gpu(make_pass(kind, length, given))


def least(costs: Sequence[Cost]) -> Cost:
    """Returns the least time and the least memory of several measurements."""
    milliseconds, mebibytes = zip(*costs, strict=True)
    return min(milliseconds), min(mebibytes)


def make_pass(kind: str, length: int, given: argparse.Namespace) -> Callable[[], None]:
    """Returns a forward and backward pass of one layer."""
    torch.manual_seed(0)
    kernel = make_kernel(kind, None, length)
    layer = MultiHeadAttention(64, 4, kernel).to(given.device, getattr(torch, given.dtype))
    run = torch.compile(layer, dynamic=False) if given.compile else layer
    tokens = torch.randn(1, length, 64).to(given.device, getattr(torch, given.dtype))
    seen = (torch.arange(length, device=given.device) >= length // 8)[None]

    gradient = torch.randn_like(tokens)

    def once() -> None:
        layer.zero_grad()
        run(tokens, tokens, seen).backward(gradient)

    return once


def in_a_fork(work: Callable[[], Cost]) -> Cost:
    """Returns what the work returns, done by a child whose memory is its own to measure."""
    gc.collect()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(writer, "wb") as pipe:
            pickle.dump(work(), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    if not answer:
        return math.nan, math.nan  # out of memory
    found: Cost = pickle.loads(answer)
    return found


def on_cpu(first: Callable[[], None], once: Callable[[], None]) -> Cost:
    first()  # loads what a process loads once
    before = psutil.Process().memory_info().rss
    once()
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times: list[float] = []
    while len(times) < FEWEST or sum(times) < SECONDS:
        begun = time.process_time()
        once()
        times.append(time.process_time() - begun)
    return 1e3 * min(times), (peak - before) / 2**20


def on_gpu(once: Callable[[], None]) -> Cost:
    for _ in range(3):
        once()
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    times: list[float] = []
    while len(times) < FEWEST or sum(times) < 1e3 * SECONDS:
        begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        once()
        ended.record()
        torch.cuda.synchronize()
        times.append(begun.elapsed_time(ended))
    return min(times), (torch.cuda.max_memory_allocated() - held) / 2**20


def show(costs: dict[str, list[Cost]], where: str) -> None:
    """Prints the figures, and how much they grow."""
    console = Console()
    growth = {}
    for what, unit in enumerate(("ms", "MiB")):
        table = Table(title=f"{unit} of a training pass over N tokens; {where}")
        table.add_column("kind")
        for length in LENGTHS:
            table.add_column(str(length), justify="right")
        table.add_column(f"{LONG} / {SHORT}", justify="right")
        for kind, row in costs.items():
            cells = [cost[what] for cost in row]
            factor = cells[LENGTHS.index(LONG)] / max(cells[LENGTHS.index(SHORT)], 1e-9)
            growth[kind, unit] = factor
            table.add_row(kind, *(f"{cell:.1f}" for cell in cells), f"{factor:.1f}")
        console.print(table)
    linear = ", ".join(f"{kind} {growth[kind, 'ms']:.1f}" for kind in LINEAR)
    print(f"target: at {LONG} tokens <= {LIMIT:.0f} x the time at {SHORT}; found {linear}")


def draw(costs: dict[str, list[Cost]], where: str, path: Path) -> None:
    """Draws time and memory over the number of tokens, both axes logarithmic."""
    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for what, (panel, name) in enumerate(zip(panels, ("time, ms", "peak memory, MiB"), strict=True)):
        for kind, row in costs.items():
            style = "o-" if kind in LINEAR else "s--"
            panel.plot(LENGTHS, [cost[what] for cost in row], style, label=kind, markersize=4)
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_xticks(LENGTHS, [str(length) for length in LENGTHS])
        panel.set_xlabel("tokens")
        panel.set_title(name, loc="left")
        panel.grid(alpha=0.3)
    panels[0].legend(frameon=False)
    figure.suptitle(f"One attention layer, forward and backward ({where})")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
