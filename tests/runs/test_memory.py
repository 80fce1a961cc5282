"""Tables and stores several times larger than the memory a process may have."""

import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from time import sleep

import numpy as np
import polars as pl
import pytest

from forecaster.config import DataConfig
from forecaster.panel.calendar import Calendar
from forecaster.panel.panel import Panel
from forecaster.panel.schema import Schema
from forecaster.panel.store import open_store, writing

ROOT = Path(__file__).parents[2]
MIB = 2**20
HOUR = 3_600_000_000
ROWS, COLUMNS, SERIES = 20_000, 8, 25
"""Of a series, and of a block of series."""

# RLIMIT_DATA bounds what a process allocates; maps of files that are only read do not count.
LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
"""
FIT = """
import forecaster as fc
sets = ["fit.steps=5", "tracking.enabled=false"]
sets += ["model.context_length=96"]  # linear maps are solved from its square, whatever the rows
model = fc.fit("store", horizon=24, config=fc.load_config(None, sets), out="model", quiet=True)
assert model.metrics["validation"]["windows"] == 1024
"""
CONVERT = """
from pathlib import Path
from forecaster.config import DataConfig
from forecaster.panel.convert import convert_table
panel = convert_table("table", Path("store"), DataConfig())
assert panel.n_series == {series} and panel.n_rows == {series} * {rows}
"""


def blocks(count):
    """(keys, times, values) of blocks of series: days of noise, each series on its own hour."""
    rng = np.random.default_rng(0)
    day = np.sin(np.arange(SERIES * ROWS) * (2 * np.pi / 24)).astype(np.float32)
    time = np.tile(np.arange(ROWS, dtype=np.int64) * HOUR, SERIES)
    for number in range(count):
        ids = np.arange(number * SERIES, (number + 1) * SERIES)
        # Of each block its own: noise that many series share says more than chance.
        noise = rng.standard_normal((SERIES * ROWS, COLUMNS), np.float32)
        yield ids, time, noise / 2 + np.roll(day, number)[:, None]


def write_store(folder, size):
    """Writes a store of at least `size` bytes in values and times."""
    names = tuple(f"x{number}" for number in range(1, COLUMNS))
    schema = Schema("time", series=("id",), target=("y",), past=names, freq="1h", layout="long")
    empty = {
        "static": np.zeros((SERIES, 0)),
        "static_codes": np.zeros((SERIES, 0), np.int32),
    }
    indptr = np.arange(SERIES + 1, dtype=np.int64) * ROWS
    codes = np.zeros((SERIES * ROWS, 0), np.int32)
    with writing(folder) as store:
        for ids, time, values in blocks(-(-size // (SERIES * ROWS * (8 * COLUMNS + 8)))):
            keys, calendar = pl.DataFrame({"id": ids}), Calendar("1h", None, False)
            store.append(
                Panel(schema, calendar, keys, values.astype(np.float64), codes, time, indptr,
                      kind="file", name="big.parquet", **empty)
            )  # fmt: skip
        store.finish(DataConfig(), ())


def run_limited(folder, program, limit):
    """Runs a program that may allocate `limit` bytes; one thread each, whose stacks count too."""
    one = {
        "OMP_NUM_THREADS": "1",
        "POLARS_MAX_THREADS": "1",
        "PYTHONPATH": str(ROOT),
        "PATH": "/usr/bin:/bin",
        "HOME": str(folder),
    }
    done = subprocess.run(
        [sys.executable, "-c", LIMITED.format(limit=limit) + program],
        cwd=folder, env=one, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]


def anonymous_memory(folder, program):
    """Most bytes a program holds that no file backs; what polars reserves but never touches is not counted."""
    one = os.environ | {"OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
    process, most = subprocess.Popen([sys.executable, "-c", program], cwd=folder, env=one), 0
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        held = re.search(r"RssAnon:\s+(\d+) kB", status)  # a process that ends has none
        most = max(most, int(held[1]) * 1024 if held else 0)
        sleep(0.02)
    assert process.returncode == 0
    return most


def require_disk(folder, size):
    free = shutil.disk_usage(folder).free
    if free < size:
        pytest.skip(f"needs {size / 1e9:.1f} GB of disk, {free / 1e9:.1f} are free")


@pytest.mark.slow
def test_a_fit_on_a_store_three_times_the_allowed_memory_stays_below_it(tmp_path):
    # torch, Lightning and polars alone take some 500; at most 528 were in use, 724 reserved, once over 768.
    limit = 896 * MIB
    require_disk(tmp_path, 4 * limit)
    write_store(tmp_path / "store", 3 * limit)
    panel = open_store(tmp_path / "store")
    assert panel.values.nbytes + panel.time.nbytes >= 3 * limit
    run_limited(tmp_path, FIT, limit)
    assert (tmp_path / "model" / "contract.json").is_file()
    shutil.rmtree(tmp_path / "store")


@pytest.mark.slow
def test_a_table_larger_than_the_allowed_memory_is_converted_below_it(tmp_path):
    limit = 640 * MIB  # the interpreter and polars alone take some 250
    require_disk(tmp_path, 6 * limit)
    (tmp_path / "table").mkdir()
    count = -(-3 * limit // (2 * SERIES * ROWS * (16 + 4 * COLUMNS)))
    for number, (ids, time, values) in enumerate(blocks(count)):
        frame = pl.DataFrame({"id": np.repeat(ids, ROWS)}).with_columns(
            pl.Series("time", time).cast(pl.Datetime("us")),
            *(pl.Series(f"x{n}" if n else "y", values[:, n]) for n in range(COLUMNS)),
        )
        # Sorted by time within the file, so that rows have to be partitioned by series.
        frame.sort("time").write_parquet(tmp_path / "table" / f"{number}.parquet", row_group_size=2**16)
    assert anonymous_memory(tmp_path, CONVERT.format(series=count * SERIES, rows=ROWS)) < limit
    for path in ("store", "table"):
        shutil.rmtree(tmp_path / path)


def test_limits_bind():
    with pytest.raises(AssertionError, match=r"MemoryError|cannot allocate|Aborted|died"):
        run_limited("/", "import numpy\nnumpy.ones(10**8)", 256 * MIB)
    assert resource.getrlimit(resource.RLIMIT_DATA)[0] != 256 * MIB
