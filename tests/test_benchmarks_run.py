"""Each script of benchmarks/ runs: on a small table, or `--help` where that takes minutes."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"

ELSEWHERE = {
    "batch_forecast": "test_batch_benchmark",
    "compare_rows": "test_compare_rows",
    "daily_tables": "test_league",
    "coverage_tables": "test_compare_rows",
    "epf": "test_accuracy_benchmarks",
    "gift": "test_public_protocols",
    "league": "test_league",
    "m4": "test_accuracy_benchmarks",
    "mcomp": "test_public_protocols",
    "panels": "test_accuracy_benchmarks",
    "r_tables": "test_league",
}
"""Scripts that another test runs."""
HELP = ("peers", "training_step", "tune")
"""Scripts that install another package first, or compare whole processes for minutes."""
OF_PEERS = {
    "league_peers": "league",
    "peer_batch": "batch_forecast",
    "peer_step": "training_step",
    "peer_windows": "peers",
}
"""Programs that a script runs in an environment with another package, and that script."""
IMPORTED = ("accuracy", "accuracy_report", "epf_two_years", "known_tables", "planted", "stored_rows")
"""Modules that scripts import; they are no scripts."""

TINY = {"width": 8, "heads": 2, "encoder_layers": 1, "context_length": 48, "patch": 24, "experts": []}
SETS = " --set fit.steps=2 --set fit.batch_size=8"
SETS += "".join(f" --set model.{name}={value}" for name, value in TINY.items())


@dataclass(frozen=True)
class Run:
    """A small run of a script, and patterns of what it prints. `{folder}`: that of its table."""

    script: str
    words: str
    prints: Sequence[str]
    table: Callable[[Path], object] = lambda folder: None
    """Writes what the script reads."""
    smaller: str = ""
    """Statements that change constants of the script before it runs."""
    writes: str = ""
    """Name of a file that it writes, or changes."""


# Tables


def hours(path: Path, rows: int, columns: Sequence[str] = ("y",)) -> None:
    """Writes hours with a daily season and noise."""
    random = np.random.default_rng(0)
    day = np.sin(np.arange(rows) * 2 * np.pi / 24)
    begin = datetime(2020, 1, 1)
    cells = {name: 10 + 5 * day + random.normal(size=rows) for name in columns}
    clock = [str(begin + timedelta(hours=row)) for row in range(rows)]
    pl.DataFrame({"date": clock} | cells).write_csv(path)


def two_tables(folder: Path) -> None:
    for name in ("first", "second"):
        hours(folder / f"{name}.csv", 400)


def market(folder: Path) -> None:
    hours(folder / "sales.csv", 600, ("units", "price"))


def ett_table(folder: Path) -> None:
    hours(folder / "made.csv", 14_400)


def days(folder: Path) -> None:
    """Writes a table of gift.py: two series of days with a week."""
    (folder / "gift").mkdir()
    random, number = np.random.default_rng(0), np.arange(500)
    week = 20 + 5 * np.sin(number * 2 * np.pi / 7)
    stamps = [datetime(2020, 1, 1) + timedelta(days=int(one)) for one in number]
    frame = pl.DataFrame(
        {"ds": stamps, "a": week + random.normal(size=500), "b": week + random.normal(size=500)}
    )
    frame.write_parquet(folder / "gift" / "made_D.parquet")
    rows = "config,file,horizon,windows,season\nus_births/D/short,made_D.parquet,7,2,1\n"
    (folder / "gift" / "list.csv").write_text(rows)


def quarters(folder: Path) -> None:
    """Writes the quarterly series of M3."""
    target = folder / "mcomp" / "m3_quarterly_train.parquet"
    target.parent.mkdir()
    series_table(24, 60).write_parquet(target)


def series_table(series: int, rows: int) -> pl.DataFrame:
    """Returns quarterly series as M3's."""
    random = np.random.default_rng(0)
    level = np.repeat(random.normal(100, 10, series), rows)
    season = np.tile(5 * np.sin(np.arange(rows) * np.pi / 2), series)
    days = pl.date_range(datetime(2000, 1, 1), datetime(2000 + rows // 4 - 1, 10, 1), "1q", eager=True)
    return pl.DataFrame(
        {
            "unique_id": np.repeat([f"s{number}" for number in range(series)], rows),
            "ds": pl.concat([days] * series),
            "y": level + season + random.normal(size=series * rows),
        }
    )


def corpus(folder: Path) -> None:
    """Writes two sources of a corpus, and the tables of gift.py with one of them."""
    (folder / "corpus").mkdir()
    (folder / "gift").mkdir()
    series_table(6, 60).write_parquet(folder / "corpus" / "made_quarterly.parquet")
    shared = series_table(8, 60).filter(pl.col("unique_id") == "s7")
    shared.write_parquet(folder / "corpus" / "shared_quarterly.parquet")
    shared.write_parquet(folder / "gift" / "hospital_M.parquet")


def classes(folder: Path) -> None:
    """Writes series of two classes."""
    random = np.random.default_rng(0)
    for part in ("train", "test"):
        step = np.tile(np.arange(20), 16)
        series = np.repeat(np.arange(16), 20)
        wave = np.sin(step * (1 + series % 2)) + 0.1 * random.normal(size=320)
        table = {"series": series, "step": step, "y": wave, "label": series % 2}
        pl.DataFrame(table).write_csv(folder / f"Made-{part}.csv")


def space(folder: Path) -> None:
    """Writes a space whose header has the command of a short search."""
    hours(folder / "first.csv", 400)
    words = f"forecaster tune {folder}/first.csv --horizon 12 --trials 2{SETS}"
    header = f"# A search.\n#\n#   {words} \\\n#       --space {folder}/short.yaml\n#\n# Hardware: ?\n"
    (folder / "short.yaml").write_text(header + "\nmodel.dropout: {float: [0.0, 0.3]}\n")


# Runs

RUNS = (
    Run(
        "attention",
        "--plot {folder}/attention.png",
        ["ms of a training pass", r"low_rank .*\d\.\d", r"target: at 128 tokens <= 10 x"],
        smaller="LENGTHS = (64, 128); SHORT = 64; LONG = 128; SECONDS = 0; FEWEST = 1; ROUNDS = 1",
        writes="attention.png",
    ),
    Run(
        "autoregressive",
        "--windows 4 --horizon 4 --context 16",
        ["4 windows, 4 steps one by one", "teacher forcing", r"cache speed-up \d+\.\d .*differ by \d\.\de-0[5-9]"],
    ),
    Run(
        "classes",
        "--root {folder} Made --seeds 1",
        [r"Made seed 0: accuracy [01]\.\d+, held-out", r"Made: .*forecaster [01]\.\d+"],
        classes,
    ),
    Run(
        "coverage",
        "{folder}/sales.csv --target units --known price --horizon 12 --windows 4 --seeds 1 --no-track" + SETS,
        [r"\| sales \| 4 \| \d+\.\d % \| \d+\.\d % \|", r"\*\*mean\*\*"],
        market,
    ),
    Run(
        "ett",
        "{folder}/made.csv --horizons 96 --seeds 1 --no-track" + SETS,
        ["seasonal_naive", "forecaster"],
        ett_table,
    ),
    Run(
        "fit_overhead",
        "",
        ["median of 1 rounds of 2 steps", r"fit, dummy logger .*\d\.\d{3}", "target: fit"],
        smaller="STEPS = 3; WARM = 1; ROUNDS = 1",
    ),
    Run(
        "gpu",
        "--device cpu --batch 8 --width 8",
        [r"cpu, full, width 8, \d", "training step", r"forecast .*%"],
        smaller="SIDE = 64; ROUNDS = 1; WARM = 1",
    ),
    Run(
        "hostile",
        "--seed 1 --count 4",
        [r"4 tables: \d+ ", r"4 calls: \d+ "],
    ),
    Run(
        "ingest",
        "--rows 4000 --repeats 1",
        ["seconds, minimum / median of 1 rounds", "shuffled .*<= 3.0", "peak MB above the imports"],
        smaller="MEMORY_ROUNDS = 1",
    ),
    Run(
        "own_step",
        "'2 layers'",
        [r"^\d+\.\d+$"],
        smaller="STEPS = 3; WARM = 1",
    ),
    Run(
        "parity",
        "--against HEAD --only golden",
        [r"golden +forecasts equal"],
    ),
    Run(
        "pretrain",
        "--corpus {folder}/corpus --resume {folder} --steps 2 --out {folder}/weights",
        ["Weights of attention over experts", r"from [\d,]+ rows of \d+ tables", "band holds"],
        corpus,
        "SEEDS = 2; MADE_CLOCKS = MADE_CLOCKS[:2]; LONG_CLOCKS = (); MADE = 4; HELD_OUT = 10**9; MOST = 40\n"
        "KINDS = {'level': KINDS['level'], 'local_trend': KINDS['local_trend']}",
        writes="weights",
    ),
    Run(
        "pretrain_tables",
        "--corpus {folder}/corpus --gift {folder}/gift",
        ["sealed by seed", "--league not given", r"corpus: 7 series .* kept", r"hospital +\d+ left out"],
        corpus,
    ),
    Run(
        "calendar_effects",
        "--seeds 1 --only '50 × 10 days'",
        [r"case +regret coverage\n", r"50 × 10 days +\d\.\d\d +\d\.\d\d"],
    ),
    Run(
        "effects",
        "--seeds 1 --only slope",
        [r"case +error +without\n", r"slope +\d\.\d\d +\d\.\d\d"],
    ),
    Run(
        "known",
        "--seeds 1 --only level",
        [r"case +regret +first +all +last +total +mean\n", r"level( +\d\.\d\d){6}", r"above 1\.12: [01] of 1"],
    ),
    Run(
        "monitoring",
        "--root {folder}/gift --spans 1 --set fit.steps=1",
        [r"us_births/D/short +0 +level found", r"false alarms: 0% of 1", r"band after recalibration: \d\d"],
        days,
    ),
    Run(
        "updates",
        "--root {folder}/gift --only us_births/D/short --set fit.steps=1 --set model.experts=[naive,linear]",
        [r"us_births/D/short +[01]\.\d{3} +[01]\.\d{3} +\d\.\d\d", "geometric means"],
        days,
    ),
    Run(
        "relations",
        "--only 'lag: past'",
        [r"lag: past covariate +\d+\.\d\d +1\.15 +\d+\.\d%"],
        smaller="ROWS = 400; WINDOWS = 2",
    ),
    Run(
        "soak",
        "--predictions 4 --fits 4",
        [r"4 predictions: [+-].* kB per call", r"4 fits: [+-].* kB per call", "before Left.*\n.*after"],
        smaller="TINY['model']['experts'] = FEW['model']['experts'] = ['naive']",
    ),
    Run(
        "stats",
        str(BENCHMARKS / "stats.py"),
        [r"stats\.py .*\d", "tokens"],
    ),
    Run(
        "sweeps",
        "short",
        ["WQL"],
        space,
        "SWEEPS = Path('{folder}')",
        writes="short.yaml",
    ),
    Run(
        "totals",
        "--root {folder} --only m3_quarterly_train --json {folder}/rows.json",
        [rf"m3_quarterly_train +{of} +\d+ +\d+\.\d \d\.\d{{4}}" for of in ("series", "ten series", "all")]
        + [r"mean +ten series"],
        quarters,
        writes="rows.json",
    ),
    Run(
        "tracking_cost",  # one of its fits, without tracking: all of them take minutes
        "",
        [r"'loop': \d+\.\d+, 'wall': \d+\.\d+, 'processor': \d+\.\d+"],
        two_tables,
        "STEPS = 2; DATA = '{folder}/first.csv'\n"
        "main = lambda: print(measure(Path('{folder}'), tracked=False))",
    ),
    Run(
        "transfer",
        "{folder}/first.csv {folder}/second.csv --horizon 12 --seeds 0" + SETS,
        ["seed 0: random weights 0:", "reached at", r"mean best WQL \d\.\d{4} and", "settings of all fits:"],
        two_tables,
    ),
    Run(
        "windows",
        "",
        ["us per window of 96 . 24 rows", r"bare gather, 256 .*<= 0.3", "DataLoader over single windows, 256"],
        smaller="REPEATS = 1",
    ),
)  # fmt: skip


def python(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in a folder, with this checkout's package."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.script)
def test_a_script_runs_and_prints_its_table(run, tmp_path):
    if run.script == "parity" and not (ROOT / ".git").exists():
        pytest.skip("compares with a commit; this tree has no history")
    run.table(tmp_path)
    words = shlex.split(run.words.replace("{folder}", str(tmp_path)))
    script = str(BENCHMARKS / f"{run.script}.py")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    if run.smaller:
        smaller = run.smaller.replace("{folder}", str(tmp_path))
        start = f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r}); import {run.script} as script"
        done = python(
            tmp_path, "-c", f"{start}\nexec({smaller!r}, vars(script))\nsys.exit(script.main())", *words
        )
    else:
        done = python(tmp_path, script, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    for pattern in run.prints:
        assert re.search(pattern, done.stdout, re.MULTILINE), (pattern, done.stdout)
    if run.writes:
        written = (tmp_path / run.writes).read_bytes()
        assert written and written != before.get(run.writes)


@pytest.mark.slow
@pytest.mark.parametrize("script", HELP)
def test_a_script_that_takes_minutes_answers_help(script, tmp_path):
    done = python(tmp_path, str(BENCHMARKS / f"{script}.py"), "--help")
    assert done.returncode == 0 and "usage: " in done.stdout, done.stderr


def test_each_script_has_a_row_here_or_a_test_elsewhere():
    run = [run.script for run in RUNS]
    listed = [*run, *ELSEWHERE, *HELP, *OF_PEERS, *IMPORTED]
    assert sorted(listed) == sorted(path.stem for path in BENCHMARKS.glob("*.py"))
    readme = (BENCHMARKS / "README.md").read_text(encoding="utf-8")
    for script in {*run, *ELSEWHERE, *HELP} - {"own_step"}:  # which training_step.py runs
        assert f"| `{script}.py" in readme, script
    for script, test in ELSEWHERE.items():
        text = (ROOT / "tests" / f"{test}.py").read_text(encoding="utf-8")
        assert f"import {script}\n" in text, (script, test)
    for program, script in OF_PEERS.items():
        assert f"{program}.py" in (BENCHMARKS / f"{script}.py").read_text(encoding="utf-8")
    for module in IMPORTED:
        assert "__main__" not in (BENCHMARKS / f"{module}.py").read_text(encoding="utf-8")
