"""What all tests share: shapes are checked while they run, and small panels are one call away."""

import gc
import io
import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import cache, wraps
from pathlib import Path
from typing import Any, NamedTuple

import jaxtyping
import numpy as np
import polars as pl
import pytest
import torch
from filelock import FileLock
from hypothesis import HealthCheck, settings
from matplotlib.figure import Figure

TESTS = Path(__file__).parent

# A slow machine is no fault. Before a merge the same examples are tried each time; at a desk new ones.
settings.register_profile(
    "house",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.load_profile("house")

# A runner in the background hands an ignored Ctrl-C down; tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The threads of numpy's products spin while they wait: those of two processes on two cores hold each other up.
# Processes that this one starts read it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Test files and the package are compiled once, not by each process of each run.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Before anything imports the model: every axis name in its signatures holds, or a test fails. Checked
# where `pytest_runtest_setup` says so: a fit takes half as long again with it.
jaxtyping.install_import_hook("forecaster.model", "beartype.beartype")
_check_shapes = jaxtyping.jaxtyped


def _check_shapes_where_asked(*, typechecker: object) -> Callable[[Any], Any]:
    """Functions within functions are made anew by each call: without checks they are left as they are."""

    def decorate(made: Any) -> Any:
        inner = "<locals>" in made.__qualname__
        return (
            made
            if inner and jaxtyping.config.jaxtyping_disable
            else _check_shapes(made, typechecker=typechecker)
        )

    return decorate


jaxtyping.jaxtyped = _check_shapes_where_asked
# On tensors this small a second thread costs more than it gives.
torch.set_num_threads(1)

from forecaster.fitting import versions  # noqa: E402

# No package is installed and no commit made while tests run: asked once, before others import what asks.
_versions = cache(versions.versions)
versions.versions = wraps(versions.versions)(lambda: dict(_versions()))

from forecaster.cli import main  # noqa: E402
from forecaster.config import Config, DataConfig, ExpertPlan, Plan  # noqa: E402
from forecaster.evaluation.report import render_report  # noqa: E402
from forecaster.fitting.experts import cold_bands, tuning  # noqa: E402
from forecaster.forecast import error_levels, paths  # noqa: E402
from forecaster.panel.build import open_panel  # noqa: E402
from forecaster.panel.panel import Panel  # noqa: E402
from forecaster.runs import pipeline  # noqa: E402


def _make_panel(
    n_series: int = 3,
    n_rows: int = 60,
    *,
    targets: int = 1,
    past: int = 0,
    known: int = 0,
    categories: bool = False,
    static: bool = False,
    missing: float = 0.0,
    gaps: float = 0.0,
    ragged: bool = False,
    irregular: bool = False,
    seed: int = 0,
) -> Panel:
    """Returns a panel of noise on an hourly clock, made from a table as a caller would.

    Args:
        n_series, n_rows: series s0, s1 … and rows of each before anything is dropped.
        targets, past, known: numbers of columns y0 …, p0 …, k0 ….
        categories: adds the categorical columns pc (past) and kc (known).
        static: adds the number sn and the category sc.
        missing: share of cells that are empty; a series' first target never is.
        gaps: share of rows left out.
        ragged: each series starts 7 steps later than the one before and has 10 rows fewer.
        irregular: steps are ten minutes to two hours.
        seed: of the noise.
    """
    rng = np.random.default_rng(seed)
    tables = []
    for s in range(n_series):
        rows = n_rows - (10 * s if ragged else 0)
        steps = rng.integers(601, 7200, rows) if irregular else np.full(rows, 3600)
        start = datetime(2024, 2, 27, 21) + timedelta(hours=7 * s if ragged else 0)
        clock = [start + timedelta(seconds=int(after)) for after in np.cumsum(steps)]
        columns = {"id": [f"s{s}"] * rows, "time": clock}
        for prefix, count in (("y", targets), ("p", past), ("k", known)):
            for i in range(count):
                cells = np.float32(10 * (s + 1) * (i + 1) + rng.normal(size=rows))
                cells[1:][rng.random(rows - 1) < missing] = np.nan
                columns[f"{prefix}{i}"] = cells
        if categories:
            columns["pc"] = rng.choice(["low", "middle", "high"], rows).tolist()
            columns["kc"] = rng.choice(["off", "on"], rows).tolist()
        if static:
            columns["sn"], columns["sc"] = [float(s)] * rows, ["north" if s % 2 else "south"] * rows
        keep = rng.random(rows) >= gaps
        keep[[0, 1, -1]] = True
        tables.append(pl.DataFrame(columns).fill_nan(None).filter(keep))
    names = pl.concat(tables).columns
    roles = {role: tuple(name for name in names if name[0] == role) for role in "ypk"}
    data = DataConfig(
        time="time",
        series=("id",),
        target=roles["y"],
        past=roles["p"],
        known=roles["k"],
        static=("sn", "sc") if static else (),
        freq=None if irregular else "1h",
    )
    return open_panel(pl.concat(tables), data)


# Tests of what users rely on: they survive every redesign. All others may go with the code they test.
CONTRACT = (
    "cli/",
    "golden/",
    "hostile/",
    "windows/",
    "evaluation/test_protocols.py",
    "forecast/test_artifact.py",
    "forecast/test_batch.py",
    "forecast/test_batch_killed.py",
    "forecast/test_forecast.py",
    "model/test_attention.py",
    "model/test_published.py",
    "panel/test_fuzz.py",
    "panel/test_round_trip.py",
    "runs/registry/test_serve.py",
    "fitting/test_checkpoints.py",
    "fitting/test_devices.py",
    "runs/test_killed_fit.py",
    "runs/test_resume.py",
    "runs/tune/test_workers.py",
    "test_api.py",
    "test_bad_inputs.py",
    "test_everyday.py",
    "test_no_fit.py",
    "test_promises.py",
    "test_readme.py",
)


# Slow proofs of every preset, kind of table and decoder: with these, every kind of network is checked.
CHECKED_SLOW = ("fitting", "test_configs.py", "test_classes.py", "test_sweeps.py")


# What takes most of a small fit, and what fast tests have instead: fewer steps and rows of attention over experts,
# fewer windows for the bands of cold series, and the fewest earlier cutoffs of which no status speaks.
ALL_STEPS, FEW_STEPS = tuning.STEPS, 3
ALL_ROWS, FEW_ROWS = tuning._ROWS, 64
ALL_WINDOWS, FEW_WINDOWS = cold_bands._WINDOWS, 20
ALL_CUTOFFS, FEW_CUTOFFS = error_levels.CUTOFFS, paths.FEWEST


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Checks shapes in tests of the model, of its golden artifact, and in some slow proofs.

    Fast tests, and slow proofs that ask for `short_fits`, fit with fewer steps, rows, windows and cutoffs.
    """
    top = item.path.relative_to(TESTS).parts[0]
    is_slow = item.get_closest_marker("slow") is not None
    checked = top in ("model", "golden") or (is_slow and top in CHECKED_SLOW)
    jaxtyping.config.update("jaxtyping_disable", not checked)
    is_whole = is_slow and "short_fits" not in item.fixturenames
    tuning.STEPS = ALL_STEPS if is_whole else FEW_STEPS
    tuning._ROWS = ALL_ROWS if is_whole else FEW_ROWS
    cold_bands._WINDOWS = ALL_WINDOWS if is_whole else FEW_WINDOWS
    error_levels.CUTOFFS = ALL_CUTOFFS if is_whole else FEW_CUTOFFS


def pytest_collection_finish() -> None:
    """What is imported stays: no collection of garbage looks at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def short_fits() -> None:
    """Marks a slow proof that holds whatever the accuracy of a fit: `pytest_runtest_setup` looks for it."""


@pytest.fixture
def all_cutoffs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measures errors at as many earlier cutoffs as a user has."""
    monkeypatch.setattr(error_levels, "CUTOFFS", ALL_CUTOFFS)


@pytest.fixture
def all_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the bands of cold series from as many windows as a user has."""
    monkeypatch.setattr(cold_bands, "_WINDOWS", ALL_WINDOWS)


@pytest.fixture
def unchecked_shapes() -> None:
    """Turns shape checks off: torch traces a network for ONNX with symbols, not numbers."""
    jaxtyping.config.update("jaxtyping_disable", True)


# Files of the longest proofs come first: at the end one would run while all other processes wait.
LONGEST = ("test_wheel.py", "test_memory.py", "test_transfer.py", "test_real_data.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test as a contract with users or as internal (`pytest -m contract`)."""
    for item in items:
        path = item.path.relative_to(TESTS).as_posix()
        item.add_marker("contract" if path.startswith(CONTRACT) else "internal")
    items.sort(key=lambda item: item.path.name not in LONGEST)


@pytest.fixture(scope="session")
def make_panel() -> Callable[..., Panel]:
    """The factory of small panels."""
    return _make_panel


@pytest.fixture(scope="session")
def make_config() -> Callable[..., Config]:
    """The factory of resolved configs of the smallest network: `make_config(4, fit={"steps": 3})`."""

    def make(horizon: int, *, context_length: int = 12, **sections: dict) -> Config:
        tiny = {
            "width": 8,
            "heads": 2,
            "encoder_layers": 1,
            "dropout": 0.0,
            "context_length": context_length,
            "patch": 2,
            "experts": [],
        }
        small = {"steps": 6, "batch_size": 8}
        return Config().replaced(
            horizon=horizon,
            model=tiny | sections.get("model", {}),
            fit=small | sections.get("fit", {}),
            tracking={"enabled": False},
        )

    return make


@pytest.fixture(scope="session")
def make_plan(make_config: Callable[..., Config]) -> Callable[..., Plan]:
    """The factory of plans of the smallest network, with the options of `make_config`."""

    def make(horizon: int, **options: object) -> Plan:
        config = make_config(horizon, **options)
        patch, length = config.model.patch, config.model.context_length
        pool = ExpertPlan(history_length=length)
        return Plan(
            horizon=horizon,
            data=config.data,
            target=config.target,
            model=config.model.settled(decoder_patch=min(patch, horizon), pool=pool),
            fit=config.fit.settled(),
        )

    return make


@pytest.fixture(scope="session", autouse=True)
def _alike_everywhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No run is recorded in the user's own store; a slow machine prints no more lines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        patch.setattr("forecaster.runs.console._SHORT", 1000.0)
        yield


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The file of an SQLite store of MLflow without runs, built once and copied: building one takes seconds."""
    from mlflow.tracking import MlflowClient

    # Workers of one run have folders side by side.
    base = tmp_path_factory.getbasetemp()
    path = (base if worker_id == "master" else base.parent) / "mlflow.db"
    with FileLock(path.with_suffix(".lock")):
        if not path.exists():
            made = base / "made.db"
            # MLflow's own tables: the test that meets them first is not at fault.
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The ``noload`` loader strategy is deprecated")
                MlflowClient(tracking_uri=f"sqlite:///{made}").search_experiments()
            shutil.copy(made, path)
    return path


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are saved without being drawn: drawing takes most of the time of a small fit."""

    def save(figure: Figure | None, target: object, **options: object) -> None:
        if isinstance(target, io.StringIO):
            target.write("<svg ></svg>")
        else:
            Path(str(target)).write_bytes(b"\x89PNG\r\n")

    monkeypatch.setattr(Figure, "savefig", save)
    # Most of it is the making of axes: those of what a fit or a recorded backtest leaves behind are not made.
    monkeypatch.setattr(pipeline, "_draw_losses", lambda artifact, path: save(None, path))
    monkeypatch.setattr(pipeline, "_draw_forecast", lambda artifact, panel, path: save(None, path))
    monkeypatch.setattr(pipeline, "render_report", lambda backtest: "<!doctype html>\n")


@pytest.fixture
def paged(undrawn: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are made all the same, of figures that are not drawn."""
    monkeypatch.setattr(pipeline, "render_report", render_report)


class Answer(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> Callable[..., Answer]:
    """Runs `forecaster WORDS...` in this process."""

    def run(*words: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["forecaster", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        return Answer(left.value.code, *capsys.readouterr())

    return run
