"""A real `mlflow models serve` process: forecasts over HTTP for many at once, and faults by name."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from forecast import tiny
from runs.processes import end, free_port

from forecaster.config import TrackingConfig

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::sqlalchemy.exc.SADeprecationWarning"),
]

CLIENTS, REQUESTS = 16, 160
# Runs when Python starts: what is installed here cannot be imported, so only what was shipped is.
HIDDEN = """
import sys
from pathlib import Path
hidden = "forecaster/__init__.py"
sys.path[:] = [path for path in sys.path if path and not (Path(path) / hidden).exists()]
"""


def _environment(folder: Path) -> dict[str, str]:
    """The context of a server that has MLflow and torch, but not our package."""
    hidden = folder / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "sitecustomize.py").write_text(HIDDEN)
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(hidden),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "OMP_NUM_THREADS": "1",
        "POLARS_MAX_THREADS": "1",
    }


@pytest.fixture(scope="module")
def server(tmp_path_factory, empty_store):
    """The address of a server of the shop's champion, in a folder far from the repository."""
    folder = tmp_path_factory.mktemp("served")
    shutil.copy(empty_store, folder / "mlflow.db")
    tiny.model().export("shop", tracking=TrackingConfig(uri=f"sqlite:///{folder}/mlflow.db"))
    port, log = free_port(), folder / "server.log"
    words = ["-m", "mlflow", "models", "serve", "-m", "models:/shop@champion"]
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, *words, "--env-manager", "local", "--port", str(port)],
            cwd=folder,
            env=_environment(folder),
            stdout=out,
            stderr=out,
            start_new_session=True,  # it starts a server of its own, which has to end with it
        )
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_for(address, process, log)
        yield address
    finally:
        end(process)


def _wait_for(address: str, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + 240
    while time.monotonic() < end:
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{address}/ping", timeout=5):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError(f"no answer: {log.read_text()}")


def _ask(address: str, body: object, kind: str = "application/json") -> tuple[int, dict]:
    content = body if isinstance(body, str) else json.dumps(body)
    request = urllib.request.Request(f"{address}/invocations", content.encode(), {"Content-Type": kind})
    try:
        with urllib.request.urlopen(request, timeout=240) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def _table(days: int = 100, stores: tuple[str, ...] = tiny.STORES) -> pl.DataFrame:
    """The shop with the prices of the week after it, whose sales are empty."""
    past = tiny.shop(100, stores).filter(pl.col("date") < tiny.day(days))
    city = dict(past.select("store", "city").unique().rows())
    ahead = tiny.prices(days, stores=stores)
    ahead = ahead.with_columns(city=pl.col("store").replace_strict(city))
    return pl.concat([past, ahead], how="diagonal").with_columns(pl.col("date").cast(pl.String))


def _split(table: pl.DataFrame) -> dict:
    return {"columns": table.columns, "data": [list(row) for row in table.rows()]}


def _same(answer: list[dict], wanted: pl.DataFrame) -> None:
    found = pl.DataFrame(answer).select(wanted.columns)
    numbers = [name for name, dtype in wanted.schema.items() if dtype.is_float()]
    keys = [name for name in wanted.columns if name not in numbers]
    text = wanted.select(pl.col(name).cast(pl.String) for name in keys)
    assert found.select(pl.col(name).cast(pl.String) for name in keys).equals(text)
    assert np.allclose(found[numbers].to_numpy(), wanted[numbers].to_numpy(), rtol=1e-5, atol=1e-5)


def test_a_server_that_cannot_import_us_runs_what_was_shipped(server, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", "import forecaster.errors"],
        cwd=tmp_path,
        env=_environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "No module named 'forecaster" in done.stderr
    status, answer = _ask(server, {"dataframe_split": _split(_table())})
    assert status == 200 and len(answer["predictions"]) == 21


@pytest.mark.parametrize("shape", ["dataframe_split", "dataframe_records", "inputs", "columns"])
def test_rows_in_any_shape_of_json_are_answered_as_predict_does(server, shape):
    table = _table()
    bodies = {
        "dataframe_split": {"dataframe_split": _split(table)},
        "dataframe_records": {"dataframe_records": table.to_dicts()},
        "inputs": {"inputs": table.to_dicts()},
        "columns": {"inputs": table.to_dict(as_series=False)},
    }
    status, answer = _ask(server, bodies[shape])
    assert status == 200
    _same(answer["predictions"], tiny.ahead().rows)
    first = answer["predictions"][0]
    assert (first["store"], first["cutoff"], first["date"]) == ("a", "2024-04-09", "2024-04-10")


def test_horizon_and_cutoff_are_parameters(server):
    body = {"dataframe_split": _split(_table())}
    status, answer = _ask(server, body | {"params": {"horizon": 3}})
    assert status == 200
    _same(answer["predictions"], tiny.model().predict(_table(), horizon=3).rows)
    status, answer = _ask(server, body | {"params": {"cutoff": "2024-03-01"}})
    assert status == 200
    _same(answer["predictions"], tiny.model().predict(_table(), cutoff="2024-03-01").rows)


def test_many_clients_at_once_are_all_answered_as_the_local_predictor_answers(server):
    kinds = [
        (_table(days, stores), horizon)
        for days, stores, horizon in [
            (100, ("a", "b", "c"), 7),
            (90, ("b",), 7),
            (77, ("a", "c"), 4),
            (60, ("c", "b"), 1),
            (41, ("a",), 6),
            (99, ("c", "a", "b"), 2),
        ]
    ]
    wanted = [tiny.model().predict(table, horizon=horizon).rows for table, horizon in kinds]
    bodies = [
        {"dataframe_split": _split(table), "params": {"horizon": horizon}} for table, horizon in kinds
    ]

    def ask(number: int) -> tuple[int, dict]:
        return _ask(server, bodies[number % len(bodies)])

    with ThreadPoolExecutor(CLIENTS) as clients:
        answers = list(clients.map(ask, range(REQUESTS)))
    assert [status for status, _ in answers] == [200] * REQUESTS
    for number, (_, answer) in enumerate(answers):
        _same(answer["predictions"], wanted[number % len(wanted)])


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            lambda row: {k: v for k, v in row.items() if k != "price"},
            "Model is missing inputs ['price']",
        ),
        (
            lambda row: {k: v for k, v in row.items() if k != "sales"},
            "Model is missing inputs ['sales']",
        ),
        (lambda row: row | {"sales": "many"}, "Failed to convert column sales"),
        (lambda row: row | {"price": "cheap"}, "Failed to convert column price"),
        (lambda row: row | {"date": "tomorrow"}, "column 'date': expected dates, found 'tomorrow'"),
        (lambda row: row | {"sales": None}, "expected values of sales, found none in any of 3 series"),
        (
            lambda row: row | ({"price": None} if row["sales"] is None else {}),
            "'price' is known in advance, but has no value for series a at 2024-04-10 (lead 1 of 7)",
        ),
    ],
)
def test_a_fault_of_a_request_is_answered_with_400_and_the_column(server, change, named):
    rows = [change(row) for row in _table().to_dicts()]
    status, answer = _ask(server, {"dataframe_records": rows})
    assert status == 400
    assert named in answer["message"]
    assert "Traceback" not in json.dumps(answer)


def test_a_fault_of_a_parameter_is_answered_with_400_and_its_name(server):
    body = {"dataframe_split": _split(_table())}
    for params, named in (
        ({"horizon": 30}, "horizon 30: this model forecasts 1 to 7 steps"),
        ({"horizon": "long"}, "horizon"),
        ({"cutoff": "never"}, "cutoff 'never': expected a date, as YYYY-MM-DD"),
    ):
        status, answer = _ask(server, body | {"params": params})
        assert status == 400 and named in answer["message"]
    for broken in ({}, {"dataframe_records": []}, {"dataframe_split": {"columns": ["store"]}}):
        assert _ask(server, broken)[0] == 400


def test_a_csv_is_refused_not_read_otherwise(server):
    """MLflow would read the id 007 as the number 7."""
    status, answer = _ask(server, _table().write_csv(), "text/csv")
    assert status == 400 and "Failed to parse input" in answer["message"]


def test_python_loads_what_is_served_with_dates_as_dates_too(server, tmp_path_factory):
    import mlflow.pyfunc

    folder = next(path.parent for path in tmp_path_factory.getbasetemp().glob("served*/mlflow.db"))
    (package,) = (folder / "mlartifacts" / "models").glob("*/artifacts")
    model = mlflow.pyfunc.load_model(str(package))
    table = _table().with_columns(pl.col("date").str.to_date())
    found = model.predict(table.to_pandas())
    assert str(found["date"].iloc[0])[:10] == "2024-04-10"
    assert np.allclose(found["forecast"], tiny.ahead().frame["forecast"], rtol=1e-5)
