"""Runs the search of each space in configs/sweeps, and writes into its header what it took and found.

    python benchmarks/sweeps.py [default] [smoke]

The command is that of the header; the study is new, and nothing is tracked.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SWEEPS = ROOT / "configs" / "sweeps"


def main() -> None:
    parser = argparse.ArgumentParser(description="headers of configs/sweeps")
    parser.add_argument("names", nargs="*", help="of spaces; none = all")
    names = parser.parse_args().names or [path.stem for path in sorted(SWEEPS.glob("*.yaml"))]
    for name in names:
        describe(SWEEPS / f"{name}.yaml")


def describe(path: Path) -> None:
    """Searches a space as its header says, and rewrites the lines of the header after the command."""
    header, entries = path.read_text(encoding="utf-8").split("\n\n", 1)
    kept = header.split("\n# Hardware:")[0]
    lines = [line.removeprefix("#").strip() for line in kept.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("forecaster tune"))
    words = shlex.split(" ".join(lines[first:]).replace("\\ ", ""))
    begun = processor_seconds()
    with tempfile.TemporaryDirectory() as folder:
        own = ["--storage", f"{folder}/study.journal", "--study", "sweep", "--no-tracking"]
        subprocess.run([sys.executable, "-m", *words, *own], cwd=ROOT, check=True)
        best = (Path(folder) / "sweep.best.yaml").read_text(encoding="utf-8")
    minutes = (processor_seconds() - begun) / 60
    # What the search says of itself, after its own command.
    found = best.split("\n#\n")[0].splitlines()[1:]
    cost = f"# Hardware: {os.cpu_count()} CPU cores. Minutes: {minutes:.1f} of processor time."
    text = "\n".join([kept, cost, f"# Expected: {found[0].removeprefix('# ')}", *found[1:]])
    path.write_text(f"{text}\n\n{entries}", encoding="utf-8")


def processor_seconds() -> float:
    """Returns the time of ended child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
