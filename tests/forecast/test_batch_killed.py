"""Batch forecasts that are killed at any moment: the next start ends as an uninterrupted one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from forecast import tiny

import forecaster as fc

N_SERIES, N_ROWS = 5000, 12
"""Five blocks."""


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A folder with a model and a store."""
    folder = tmp_path_factory.mktemp("store")
    tiny.network_model().save(folder / "model")
    number = np.repeat(np.arange(N_SERIES), N_ROWS)
    frame = pl.DataFrame(
        {
            "store": [f"s{k:05}" for k in number],
            "date": pl.Series([tiny.day(k) for k in range(N_ROWS)] * N_SERIES),
            "sales": (10 + number % 7 + np.random.default_rng(0).normal(size=len(number))).round(3),
        }
    )
    fc.convert(frame, folder / "store", quiet=True)
    return folder


def started(program, *words):
    """A process with one thread for each library, which may then fork."""
    one = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *program, *map(str, words)],
        env=one, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.slow
def test_killed_at_eight_moments_a_forecast_loses_and_repeats_nothing(tmp_path, store):
    (tmp_path / "out").mkdir()
    driver = Path(__file__).with_name("killed.py")
    words = (store / "model", store / "store", tmp_path / "out" / "out.parquet", 0)
    process = started([str(driver)], *words)
    try:
        out, err = process.communicate(timeout=600)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err[-3000:]
    found = json.loads(out)
    assert found["kills"] == 8
    assert len(set(found["parts"])) > 1, found  # at more than one place
    assert found["half_merged"] == found["half_recorded"] == [False, True]
    assert found["merged"] == found["half_removed"] == [True, True]
    assert found["shards 2"] and found["shards 3"]
    rows = pl.read_parquet(tmp_path / "whole.parquet")
    keys = [(f"s{k:05}", lead) for k in range(N_SERIES) for lead in range(1, 8)]
    assert rows.select("store", "lead").rows() == keys  # none missing, none twice


@pytest.mark.slow
def test_processes_of_a_killed_forecast_end_with_it(tmp_path, store):
    out = tmp_path / "out.parquet"
    words = ["predict", store / "model", store / "store", "--out", out, "--devices", 2]
    process = started(["-m", "forecaster"], *words)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    try:
        until(lambda: len(workers := children.read_text().split()) == 2 and workers)
        workers = children.read_text().split()
        until(lambda: any((tmp_path / "out.parquet.parts").glob("part-*.json")))
        process.send_signal(signal.SIGKILL)
        process.wait()
        until(lambda: not any(is_alive(pid) for pid in workers))
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            pipe.close()
    model = fc.load(store / "model")
    assert model.predict_to(out, store / "store").there >= 1
    model.predict_to(tmp_path / "twin.parquet", store / "store")
    assert out.read_bytes() == (tmp_path / "twin.parquet").read_bytes()


def until(true):
    """Waits for something, at most two minutes."""
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def is_alive(pid):
    """Whether a process is there, and not only its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
