"""Classes of series and of steps: scores on test tables, over seeds, beside simple methods.

    python benchmarks/classes.py --root FOLDER GunPoint ItalyPowerDemand JapaneseVowels --seeds 3
    python benchmarks/classes.py --faults

Each NAME is a pair of long tables, NAME-train.csv and NAME-test.csv, with the columns series, step and
label; fits have default settings. `--faults` plants faults in a table of its own, one class per step, and
compares the classes with the band that a forecast has one step ahead (`detect`).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import forecaster as fc

ROLES = {"label": "label", "series": "series", "time": "step"}


def planted(seed: int, machines: int, steps: int = 900) -> pd.DataFrame:
    """A daily cycle in two columns that follow each other; in faults one is stuck, noisy or reversed."""
    random, frames = np.random.default_rng(seed), []
    for number in range(machines):
        step = np.arange(steps)
        x = np.sin(2 * np.pi * step / 24 + 6 * random.random()) + 0.2 * random.standard_normal(steps)
        y = 0.8 * x + 0.2 * random.standard_normal(steps)
        label = np.full(steps, "ok", object)
        for begin in range(40, steps - 80, 80):
            begin += int(random.integers(30))
            here = slice(begin, begin + int(random.integers(15, 40)))
            label[here] = kind = str(random.choice(["stuck", "noisy", "reversed"]))
            if kind == "stuck":
                x[here] = x[begin]
            elif kind == "noisy":
                x[here] += random.standard_normal(here.stop - begin)
            else:
                y[here] = -y[here]
        columns = {"series": f"m{seed}-{number}", "step": step, "x": x, "y": y, "label": label}
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def faults() -> None:
    """Prints the F1 of faulty steps, by classes and by bands."""
    train, test = planted(0, 8), planted(1, 4)
    begun = time.perf_counter()
    model = fc.fit(train, **ROLES, tracking=False, quiet=True)
    spent = time.perf_counter() - begun
    scores = model.backtest(test, tracking=False).scores["forecaster"]
    truth = test["label"] != "ok"
    found = model.predict(test).frame["label"] != "ok"
    plain: dict[str, Any] = {"series": "series", "time": "step", "target": ["x", "y"], "past": []}
    bands = fc.fit(train.drop(columns="label"), 1, **plain, tracking=False, quiet=True)
    rows: pd.DataFrame = bands.detect(test.drop(columns="label")).frame
    outside = rows.assign(outside=rows["anomaly"].isin(["above", "below"]))
    outside = outside.groupby(["series", "step"])["outside"].any()
    keys = pd.MultiIndex.from_frame(test[["series", "step"]])
    by_band = outside.reindex(keys).fillna(False).to_numpy()
    print(
        f"planted faults: F1 of faulty steps {f1(truth, found):.3f}, bands alone {f1(truth, by_band):.3f}; "
        f"macro F1 of four classes {scores['macro_F1']:.3f}, accuracy {scores['accuracy']:.4f}, {spent:.0f} s"
    )


def f1(truth: pd.Series, found: pd.Series | np.ndarray) -> float:
    """Harmonic mean of precision and recall."""
    return 2 * int((truth & found).sum()) / max(1, int(truth.sum()) + int(found.sum()))


def classes(root: Path, name: str, seeds: int) -> None:
    """Prints the mean accuracy over seeds on the test table."""
    rows, seconds = [], []
    # Series are numbered from 0 in both tables: a backtest leaves out those with the key of one of the fit.
    test = pd.read_csv(root / f"{name}-test.csv")
    test["series"] = "test " + test["series"].astype(str)
    for seed in range(seeds):
        begun = time.perf_counter()
        config = {"fit": {"seed": seed}}
        model = fc.fit(
            str(root / f"{name}-train.csv"), **ROLES, config=config, tracking=False, quiet=True
        )
        seconds.append(time.perf_counter() - begun)
        scores = model.backtest(test, tracking=False).scores
        rows.append({model: own["accuracy"] for model, own in scores.items()})
        held_out = model.metrics["validation"]["scores"]["forecaster"]["accuracy"]
        print(
            f"  {name} seed {seed}: accuracy {rows[-1]['forecaster']:.4f}, held-out {held_out:.4f}, "
            f"network weight {100 * model.metrics['network_weight']:.0f} %, {seconds[-1]:.0f} s",
            flush=True,
        )
    means = pd.DataFrame(rows).mean()
    print(f"{name}: " + ", ".join(f"{model} {value:.4f}" for model, value in means.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--root", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--faults", action="store_true")
    given = parser.parse_args()
    for name in given.names:
        classes(given.root, name, given.seeds)
    if given.faults:
        faults()


if __name__ == "__main__":
    main()
