"""The demo tables are what `data/README.md` says, and the script makes them again byte for byte."""

import csv
import subprocess
import sys
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path

import pytest

DATA = Path(__file__).parents[1] / "data"
TABLES = ("demo.csv", "demo_future.csv")
LAST_DAY = date(2025, 12, 31)


def _by_store(name: str) -> dict[str, dict[date, dict[str, str]]]:
    """The rows of one table by store and day; a day twice in one store is a fault."""
    stores: dict[str, dict[date, dict[str, str]]] = defaultdict(dict)
    with (DATA / name).open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            day = date.fromisoformat(row["date"])
            assert day not in stores[row["store"]]
            stores[row["store"]][day] = row
    return dict(stores)


@pytest.fixture(scope="module")
def history() -> dict[str, dict[date, dict[str, str]]]:
    return _by_store("demo.csv")


def test_the_script_reproduces_the_files_byte_for_byte(tmp_path):
    subprocess.run([sys.executable, str(DATA / "make_demo.py"), str(tmp_path)], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(TABLES)
    for table in TABLES:
        assert (tmp_path / table).read_bytes() == (DATA / table).read_bytes()


def test_twelve_stores_end_on_the_same_day_and_one_opened_late(history):
    assert sorted(history) == sorted(f"store_{number}" for number in range(1, 13))
    assert {max(days) for days in history.values()} == {LAST_DAY}
    late = history.pop("store_12")
    assert min(late) == LAST_DAY - timedelta(days=119) and len(late) == 120
    assert {min(days) for days in history.values()} == {date(2024, 1, 1)}
    history["store_12"] = late


def test_the_only_gaps_are_nine_absent_rows_and_five_empty_cells(history):
    absent, empty = set(), set()
    for store, days in history.items():
        span = (LAST_DAY - min(days)).days + 1
        every_day = {min(days) + timedelta(days=offset) for offset in range(span)}
        absent |= {(store, day) for day in every_day - set(days)}
        empty |= {(store, day) for day, row in days.items() if row["sales"] == ""}
    assert absent == {("store_4", date(2025, 5, 12) + timedelta(days=k)) for k in range(9)}
    assert empty == {("store_7", date(2025, 8, 4) + timedelta(days=k)) for k in range(5)}
