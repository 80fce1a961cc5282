"""What tracking costs a fit: whole processes with and without it, in turn, on a store that exists.

    python benchmarks/tracking_cost.py [--rounds 5]

Each process is `forecaster fit` of the demo table for 192 steps, in a folder of its own whose
store was made before. Three clocks: the training loop (around `train`), the whole process by the wall,
and its processor time. Other work on the machine only ever adds, so the least of each is compared.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

DATA = Path(__file__).parents[1] / "data" / "demo.csv"
STEPS = 192
LIMITS = {"loop": 0.5, "wall": 3.0}
FIT = """
import sys, time
from forecaster.fitting import train as training
from forecaster.cli import main
real = training.train
def timed(*words, **named):
    begun = time.perf_counter()
    try:
        return real(*words, **named)
    finally:
        print("loop", time.perf_counter() - begun, file=sys.stderr)
training.train = timed
main()
"""


def measure(folder: Path, tracked: bool) -> dict[str, float]:
    """Returns the seconds of one fit by clock."""
    words = ["fit", str(DATA), "--horizon", "28", "--out", "model"]
    words += ["--set", f"fit.steps={STEPS}"]
    words += ["--set", f"tracking.enabled={str(tracked).lower()}"]
    shutil.rmtree(folder / "model", ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", FIT, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    wall = time.perf_counter() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    loop = float(done.stderr.rpartition("loop ")[2].split()[0])
    return {"loop": loop, "wall": wall, "processor": cpu}


def main() -> None:
    """Prints the least of each clock, with and without tracking, and the difference."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure(folder, tracked=True)  # makes the store, and warms up
        found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
        for number in range(rounds):
            for tracked in (True, False) if number % 2 else (False, True):
                found[tracked].append(measure(folder, tracked))
    table = Table(title=f"least of {rounds} fits of {STEPS} steps, seconds")
    for heading in ("clock", "without", "with", "tracking adds", "allowed"):
        table.add_column(heading, justify="right")
    for clock in ("loop", "wall", "processor"):
        without, with_ = (min(one[clock] for one in found[tracked]) for tracked in (False, True))
        allowed = str(LIMITS.get(clock, ""))
        table.add_row(clock, f"{without:.2f}", f"{with_:.2f}", f"{with_ - without:+.2f}", allowed)
    Console().print(table)


if __name__ == "__main__":
    main()
