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


@pytest.fixture(scope="module")
def future() -> dict[str, dict[date, dict[str, str]]]:
    return _by_store("demo_future.csv")


def test_the_script_reproduces_the_files_byte_for_byte(tmp_path):
    subprocess.run([sys.executable, str(DATA / "make_demo.py"), str(tmp_path)], check=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(TABLES)
    for table in TABLES:
        assert (tmp_path / table).read_bytes() == (DATA / table).read_bytes()


def test_columns_are_the_promised_ones(history, future):
    history_columns = ["date", "store", "sales", "price", "promo", "category", "size"]
    assert list(history["store_1"][LAST_DAY]) == history_columns
    first_future_day = LAST_DAY + timedelta(days=1)
    assert list(future["store_1"][first_future_day]) == ["date", "store", "price", "promo"]


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


def test_category_and_size_never_change_within_a_store(history):
    for days in history.values():
        assert len({(row["category"], row["size"]) for row in days.values()}) == 1
    categories = {next(iter(days.values()))["category"] for days in history.values()}
    assert categories == {"city", "suburb", "resort"}


def test_the_future_covers_28_days_of_every_store_with_promotions_in_it(history, future):
    assert future.keys() == history.keys()
    wanted = [LAST_DAY + timedelta(days=lead) for lead in range(1, 29)]
    for days in future.values():
        assert list(days) == wanted
        assert all(float(row["price"]) > 0 for row in days.values())
        assert {row["promo"] for row in days.values()} == {"0", "1"}


def test_promotions_lower_the_price_and_clearly_lift_sales(history):
    for days in history.values():
        rows = [row for row in days.values() if row["sales"]]
        sales = {flag: [int(r["sales"]) for r in rows if r["promo"] == flag] for flag in "01"}
        prices = {flag: [float(r["price"]) for r in rows if r["promo"] == flag] for flag in "01"}
        mean_sales = {flag: sum(cells) / len(cells) for flag, cells in sales.items()}
        mean_price = {flag: sum(cells) / len(cells) for flag, cells in prices.items()}
        assert mean_sales["1"] > 1.4 * mean_sales["0"]
        assert mean_price["1"] < 0.95 * mean_price["0"]
        assert min(sales["0"]) > 0
