"""The recipe of docs/how-to.md from a saved model to an answer over HTTP, line by line in a shell."""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import polars as pl
import pytest
from runs.processes import end, free_port

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")


def _environment(home: Path) -> dict[str, str]:
    """A user whose home is new and whose environment is active; no store is named."""
    programs = home / "bin"
    programs.mkdir()
    (programs / "forecaster").write_text(f'#!/bin/sh\nexec {sys.executable} -m forecaster "$@"\n')
    (programs / "forecaster").chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    unset = ("XDG_DATA_HOME", "MLFLOW_TRACKING_URI")
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    return kept | {"HOME": str(home), "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_the_recipe_that_serves_a_model_works_as_it_stands(tmp_path):
    section = re.search(r"^## Serve\n(.+?)^## ", PAGE, re.MULTILINE | re.DOTALL)[1]
    commands, request = re.findall(r"^```\n(.+?)^```$", section, re.MULTILINE | re.DOTALL)
    export, predict, serve = commands.splitlines()
    (tmp_path / "data").symlink_to(ROOT / "data")
    environment = _environment(tmp_path)

    def run(line: str) -> str:
        done = subprocess.run(
            ["sh", "-c", line],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(
        "forecaster fit data/demo.csv --future data/demo_future.csv --horizon 28 --experts seasonal_naive "
        "--no-tracking --out models/sales"
    )
    # The page writes the home of whoever reads it.
    assert run(export).splitlines()[-1] == f"serve it: {serve.replace('$HOME', str(tmp_path))}"
    run(predict)
    rows = pl.read_parquet(tmp_path / "forecasts.parquet")
    port = str(free_port())
    log = tmp_path / "server.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            ["sh", "-c", serve.replace("5001", port)],
            cwd=tmp_path,
            env=environment,
            stdout=out,
            stderr=out,
            start_new_session=True,  # it starts a server of its own, which has to end with it
        )
    try:
        until = time.monotonic() + 240
        while True:
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5):
                    break
            except OSError:
                time.sleep(0.2)
        body = re.search(r"-d '(.+)'", request, re.DOTALL)[1]
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/invocations", body.encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=240) as answer:
            (row,) = json.load(answer)["predictions"]
        wrong = json.loads(body) | {"params": {"horizont": 1}}
        asked.data = json.dumps(wrong).encode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=240)
        assert refused.value.code == 400
        assert "horizont" in json.load(refused.value)["message"]
    finally:
        end(process)
    assert list(row) == rows.columns
    # Two rows do not show how far values spread: the band is that of other series, and the status says so.
    assert (row["store"], row["date"]) == ("store_1", "2026-01-01")
    assert row["status"] == "ok, 2 observations"
    assert not (tmp_path / "mlflow.db").exists()
