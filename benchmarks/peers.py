"""Other packages' window loading, each measured in a virtual environment of its own.

    python benchmarks/peers.py [--cache ~/.cache/forecaster-peers]

Makes what environments are missing (once: some minutes and 1.5 GB each), with the torch of
constraints.txt, then times `peer_windows.py` in each. Without an index of CPU builds pip takes a torch
that pulls gigabytes of CUDA: `PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu` names one. A
peer that cannot be installed or run is listed with the reason in place of figures. `windows.py
--peers` prints ours beside them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
CACHE = Path("~/.cache/forecaster-peers")
PEERS = {
    "neuralforecast": "neuralforecast==3.3.0",
    "darts": "darts[torch]==0.48.1",
    "gluonts": "gluonts[torch]==0.17.0",
    "pytorch-forecasting": "pytorch-forecasting==1.8.0",
}
SIZES = {"200 series x 500 rows": (200, 500), "40 series x 5,000 rows": (40, 5000)}
ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")}


def main() -> None:
    parser = argparse.ArgumentParser(description="window loading of other packages")
    parser.add_argument("--cache", type=Path, default=CACHE, help="folder of the environments")
    table = Table(title="us per window, one thread")
    table.add_column("package")
    for name in SIZES:
        table.add_column(name, justify="right")
    for stage, figures in measured(parser.parse_args().cache):
        table.add_row(stage, *figures)
    Console(width=110).print(table)


def measured(cache: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields every stage of every peer with its microseconds per window, or the reason for none."""
    for peer, requirement in PEERS.items():
        try:
            python = installed(cache.expanduser() / peer, requirement)
            runs = [timed(python, peer, *size) for size in SIZES.values()]
        except subprocess.CalledProcessError as error:
            said = (error.stderr or "").strip().splitlines() or ["no reason given"]
            yield f"{requirement}: {said[-1][:120]}", ["-"] * len(SIZES)
            continue
        for stage in runs[0]:
            yield stage, [f"{run[stage]:.1f}" for run in runs]


def installed(folder: Path, requirement: str) -> Path:
    """Returns the interpreter of an environment that has a package, made if it is not there yet."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp = folder / "installed.txt"
    if stamp.exists() and stamp.read_text() == requirement:
        return python
    print(f"installing {requirement} into {folder}", flush=True)
    venv.create(folder, clear=True, with_pip=True)
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    torch = folder / "torch.txt"
    # Only torch: the other pins are ours, and some peers need older pandas.
    torch.write_text("\n".join(line for line in lines if line.startswith("torch==")))
    pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    _run([*pip, "-c", str(torch), requirement])
    stamp.write_text(requirement)
    return python


def timed(python: Path, peer: str, n_series: int, n_rows: int) -> dict[str, float]:
    """Returns the microseconds per window of a peer's stages on a panel of noise."""
    script = str(Path(__file__).with_name("peer_windows.py"))
    said = _run([str(python), script, peer, str(n_series), str(n_rows)])
    figures: dict[str, float] = json.loads(said.splitlines()[-1])
    return figures


def _run(command: list[str]) -> str:
    environment = {**os.environ, **ONE_THREAD}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


if __name__ == "__main__":
    main()
