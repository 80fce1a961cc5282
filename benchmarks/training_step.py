"""Milliseconds of a training step beside neuralforecast's PatchTST of the same size, on one thread.

    python benchmarks/training_step.py [--rounds 5] [--cache ~/.cache/forecaster-peers]

Windows of 336 + 96 steps of one target, 256 a step; tokens of 16 steps, width 64, feed-forward 128,
4 heads. "2 + 1 layers" is our network as `fit` trains it, with nine quantiles. "2 layers" is our
encoder with PatchTST's head, a matrix from all tokens to all leads, in place of the decoder, and the
median alone: the work that the peer does. Each round times every program in turn, in a process of its
own; the ratio is the median of the rounds' ratios. Time is processor time of whole steps in each
package's own loop: loading, forward, loss, backward, optimiser. The peer lives in an environment of its
own (see `peers.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import peers
from rich.console import Console
from rich.table import Table

PEER = "neuralforecast PatchTST, 2 layers"
TARGETS = {"2 layers": 0.25, "2 + 1 layers": 0.45}


def main() -> None:
    parser = argparse.ArgumentParser(description="training steps beside a peer")
    parser.add_argument("--rounds", type=int, default=5, help="times each program runs")
    parser.add_argument("--cache", type=Path, default=peers.CACHE, help="folder of the environments")
    given = parser.parse_args()
    python = peers.installed(given.cache.expanduser() / "neuralforecast", peers.PEERS["neuralforecast"])
    here = Path(__file__)
    programs = {PEER: [str(python), str(here.with_name("peer_step.py"))]}
    programs |= {name: [sys.executable, str(here.with_name("own_step.py")), name] for name in TARGETS}
    rounds = [
        {name: milliseconds(command) for name, command in programs.items()} for _ in range(given.rounds)
    ]
    table = Table(title=f"training step of 256 windows, one thread, {given.rounds} rounds")
    for heading in ("program", "ms per step", "ratio to the peer", "target"):
        table.add_column(heading, justify="left" if heading == "program" else "right")
    for name in programs:
        ms = statistics.median(taken[name] for taken in rounds)
        ratio = statistics.median(taken[name] / taken[PEER] for taken in rounds)
        goal = f"<= {TARGETS[name]}" if name in TARGETS else ""
        table.add_row(name, f"{ms:.0f}", f"{ratio:.3f}", goal)
    Console().print(table)


def milliseconds(command: list[str]) -> float:
    """Returns what a program printed last: its median milliseconds per step."""
    environment = {**os.environ, **peers.ONE_THREAD}
    said = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return float(json.loads(said.stdout.splitlines()[-1]))


if __name__ == "__main__":
    main()
