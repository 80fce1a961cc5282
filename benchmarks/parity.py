"""Compares this tree with figures recorded from an earlier commit, and its speed with that commit's tree.

    python benchmarks/parity.py                         losses and demo forecasts: 3 minutes
    python benchmarks/parity.py --accuracy DATASETS     and validation accuracy on five tables: 15 minutes
    python benchmarks/parity.py --speed OLD_TREE        and seconds beside a checkout of the earlier commit
    python benchmarks/parity.py --record OLD_TREE [--accuracy DATASETS]    writes benchmarks/parity.json

Losses and forecasts come from the same seed and have to agree to 1e-5 (relative); accuracy is the WQL and
MASE of one seed on rows before the test spans and may not be worse by more than 1 %. EPF-DE is scored on the
364 days before the last 728. Each fit runs in a process of its own. Exit code 1: something differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "benchmarks" / "parity.json"
RECORDED_COMMIT = "e917b4f"
LOSS_TOLERANCE, ACCURACY_TOLERANCE, SPEED_TOLERANCE = 1e-5, 0.01, 1.10

PRESETS: dict[str, tuple[str, ...]] = {
    "smoke": ("fit.validate_every=3",),
    "default": (),
    "vanilla": ("fit.validate_every=100", "fit.warmup=0.05"),
    "long": ("fit.validate_every=37", "fit.validation_windows=1024"),
}
"""Presets fitted to the demo data. The overrides are for the recorded commit only: they write out, in its
setting names, what this tree has as constants."""


@dataclass(frozen=True)
class Task:
    """One table of the accuracy comparison; rows are counted from the end of the file."""

    file: str
    horizon: int
    preset: str = "default"
    target: str | None = None
    known: tuple[str, ...] = ()
    layout: str | None = None
    unseen: int = 0
    """Last rows that nothing reads."""
    scored: int = 0
    """Rows before them that are scored after the fit, in windows of the horizon; 0 = the validation windows."""
    old: tuple[str, ...] = field(default=("fit.members=1", "fit.refit=false"))
    new: tuple[str, ...] = field(default=("fit.ensemble_size=1", "fit.refit=false"))


TASKS = {
    "ETTh1-96": Task("ETTh1.csv", 96, "ett", unseen=17_420 - 11_520),
    "EPF-DE": Task(
        "EPF-DE.csv",
        24,
        "epf",
        target="OT",
        known=("Wind power forecast", "Ampirion zonal load forecast"),
        unseen=728 * 24,
        scored=364 * 24,
    ),
    "M4 Hourly": Task("M4-Hourly-train.csv", 48, "m4", layout="rows"),
    "vic": Task(
        "vic_electricity.csv", 48, target="Demand", known=("Temperature", "Holiday"), unseen=50 * 48
    ),
    "bike": Task(
        "bike_sharing.csv",
        24,
        target="users",
        known=("holiday", "workingday", "weather", "temp", "atemp", "hum", "windspeed"),
        unseen=50 * 24,
    ),
}

FIT = """
import json, sys
import forecaster as fc
from forecaster.config import load_config
job = json.load(sys.stdin)
config = load_config(job["config"], [*job["overrides"], "tracking.enabled=false"])
options = {name: job[name] for name in ("future", "known", "target", "layout", "out") if job.get(name)}
model = fc.fit(job["data"], horizon=job["horizon"], config=config, quiet=True, **options)
found = {"curves": model.metrics["curves"], "validation": model.metrics["validation"]["scores"]["forecaster"]}
if job.get("future"):
    forecast = model.predict(job["data"], future=job["future"])
    found["quantiles"] = forecast.quantiles[:, ::9].ravel().tolist()
if job.get("scored"):
    backtest = model.backtest(job["scored"], windows=job["windows"], refit="never", quiet=True)
    found["validation"] = backtest.scores["forecaster"]
json.dump(found, sys.stdout)
"""


def run_python(tree: Path, program: str, job: dict[str, Any]) -> Any:
    """What a program prints as JSON, run in a process that imports the package from a tree."""
    env = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(job),
        env=env,
        text=True,
        cwd=tree,
        stdout=subprocess.PIPE,
    )
    if done.returncode:
        raise SystemExit(f"{tree}: a fit failed: {job}")
    return json.loads(done.stdout)


def demo_job(tree: Path, preset: str, overrides: tuple[str, ...]) -> dict[str, Any]:
    """A fit of a preset to the demo data, with its forecast."""
    return {
        "config": str(tree / "configs" / f"{preset}.yaml"),
        "overrides": overrides,
        "data": str(tree / "data" / "demo.csv"),
        "future": str(tree / "data" / "demo_future.csv"),
        "horizon": 28,
    }


def accuracy(tree: Path, datasets: Path, task: Task, old: bool) -> dict[str, float]:
    """WQL and MASE of one seed on rows before the test span."""
    with tempfile.TemporaryDirectory() as scratch:
        lines = (datasets / task.file).read_text(encoding="utf-8").splitlines(keepends=True)
        lines = lines[: len(lines) - task.unseen]
        fitted, scored = Path(scratch) / task.file, Path(scratch) / f"scored-{task.file}"
        fitted.write_text("".join(lines[: len(lines) - task.scored]), encoding="utf-8")
        scored.write_text("".join(lines), encoding="utf-8")
        job = {
            "config": str(next(tree.glob(f"*/{task.preset}.yaml"))),  # configs or benchmarks
            "overrides": task.old if old else task.new,
            "data": str(fitted),
            "horizon": task.horizon,
            "known": task.known,
            "target": task.target,
            "layout": task.layout,
            "scored": str(scored) if task.scored else None,
            "windows": task.scored // task.horizon,
        }
        scores = run_python(tree, FIT, job)["validation"]
    return {name: scores[name] for name in ("WQL", "MASE")}


def record(tree: Path, datasets: Path | None) -> None:
    """Writes the figures of a tree that are not recorded yet."""
    found = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    found["commit"] = RECORDED_COMMIT
    for preset, overrides in PRESETS.items():
        if preset in found.get("demo", {}):
            continue
        print(f"fitting {preset}", flush=True)
        found.setdefault("demo", {})[preset] = run_python(tree, FIT, demo_job(tree, preset, overrides))
        RECORD.write_text(json.dumps(found, indent=1) + "\n")
    for name, task in TASKS.items() if datasets else ():
        if name in found.get("accuracy", {}):
            continue
        print(f"fitting {name}", flush=True)
        found.setdefault("accuracy", {})[name] = accuracy(tree, datasets, task, old=True)
        RECORD.write_text(json.dumps(found, indent=1) + "\n")


def largest_difference(found: Any, wanted: Any) -> float:
    """Largest relative difference of two lists of numbers, by their largest size; infinite where they
    differ in length."""
    import numpy as np

    one, other = np.array(found, np.float64).ravel(), np.array(wanted, np.float64).ravel()
    if one.shape != other.shape:
        return float("inf")
    return float(np.abs(one - other).max() / np.abs(other).max()) if len(one) else 0.0


def compare_demo(recorded: dict[str, Any]) -> bool:
    """Prints and judges losses and forecasts on the demo data."""
    good = True
    for preset in PRESETS:
        found = run_python(ROOT, FIT, demo_job(ROOT, preset, ()))
        wanted = recorded[preset]
        differences = {
            name: largest_difference(found["curves"].get(name, []), wanted["curves"][name])
            for name in ("train_loss", "validation_loss")
        }
        differences["quantiles"] = largest_difference(found["quantiles"], wanted["quantiles"])
        good &= max(differences.values()) <= LOSS_TOLERANCE
        listed = ", ".join(f"{name} {value:.1e}" for name, value in differences.items())
        scores = found["validation"]["WQL"], wanted["validation"]["WQL"]
        print(f"{preset:10} relative differences: {listed}; WQL {scores[0]:.4f}, was {scores[1]:.4f}")
    return good


def compare_accuracy(recorded: dict[str, Any], datasets: Path) -> bool:
    """Prints and judges validation accuracy."""
    good = True
    for name, task in TASKS.items():
        if name not in recorded:
            print(f"{name:10} not recorded: run --record with a checkout of {RECORDED_COMMIT}")
            good = False
            continue
        found, wanted = accuracy(ROOT, datasets, task, old=False), recorded[name]
        worse = max(found[metric] / wanted[metric] - 1 for metric in wanted)
        good &= worse <= ACCURACY_TOLERANCE
        listed = ", ".join(
            f"{metric} {found[metric]:.4f}, was {wanted[metric]:.4f}" for metric in wanted
        )
        print(f"{name:10} {listed}: {100 * worse:+.2f} %", flush=True)
    return good


def compare_speed(old: Path, rounds: int) -> bool:
    """Prints and judges seconds of whole processes, both trees in turn, the least of several rounds."""
    with tempfile.TemporaryDirectory() as scratch:
        table = Path(scratch) / "table.csv"
        rows = ["series,date,y\n"]
        for s in range(2_000):
            rows += [
                f"s{s:04},2024-{1 + d // 28:02}-{1 + d % 28:02},{(s * 31 + d * d) % 97}.5\n"
                for d in range(112)
            ]
        table.write_text("".join(rows), encoding="utf-8")
        models = {}
        for tree, overrides in ((ROOT, ()), (old, PRESETS["smoke"])):
            models[tree] = str(Path(scratch) / f"model-{len(models)}")
            job = demo_job(tree, "smoke", overrides) | {"out": models[tree]}
            run_python(tree, FIT, job)
            job |= {"data": str(table), "future": None, "horizon": 7, "out": models[tree] + "-batch"}
            run_python(tree, FIT, job)
        demo, future = str(ROOT / "data" / "demo.csv"), str(ROOT / "data" / "demo_future.csv")
        fit = "--horizon 28 --set tracking.enabled=false --set fit.patience=null"
        commands = {
            "help": "--help",
            "open and check 224,000 rows": f"check {table}",
            "predict the demo": f"predict {{model}} {demo} --future {future} --out {scratch}/p.csv",
            "predict 2,000 series": f"predict {{model}}-batch {table} --out {scratch}/b.parquet",
            "fit the demo, 400 steps": f"fit {demo} --future {future} {fit} --out {scratch}/fitted",
        }
        good = True
        for name, command in commands.items():
            least = {ROOT: float("inf"), old: float("inf")}
            for _ in range(rounds):
                for tree in least:
                    words = command.format(model=models[tree], tree=tree).split()
                    env = os.environ | {"PYTHONPATH": str(tree)}
                    for left in Path(scratch).glob("[pb].*"):
                        left.unlink()
                    subprocess.run(["rm", "-rf", f"{scratch}/fitted"], check=True)
                    began = time.perf_counter()
                    subprocess.run(
                        [sys.executable, "-m", "forecaster", *words],
                        env=env,
                        check=True,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                        cwd=scratch,
                    )
                    least[tree] = min(least[tree], time.perf_counter() - began)
            ratio = least[ROOT] / least[old]
            good &= ratio <= SPEED_TOLERANCE
            print(f"{name:30} {least[ROOT]:.2f} s, was {least[old]:.2f} s: {ratio:.2f} ×", flush=True)
    return good


def main() -> int:
    """Runs what the flags ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--accuracy", type=Path, metavar="DATASETS", help="folder of the public tables")
    parser.add_argument(
        "--speed", type=Path, metavar="OLD_TREE", help="checkout of the recorded commit"
    )
    parser.add_argument(
        "--record", type=Path, metavar="OLD_TREE", help="write the figures of this checkout"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of the speed comparison")
    options = parser.parse_args()
    if options.record:
        record(options.record.resolve(), options.accuracy)
        return 0
    recorded = json.loads(RECORD.read_text(encoding="utf-8"))
    good = compare_demo(recorded["demo"])
    if options.accuracy:
        good &= compare_accuracy(recorded["accuracy"], options.accuracy)
    if options.speed:
        good &= compare_speed(options.speed.resolve(), options.rounds)
    print("equal within the tolerances" if good else "differs: see above")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
