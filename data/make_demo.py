"""Writes `demo.csv` and `demo_future.csv`: two years of daily sales of twelve invented stores.

Comes in: nothing but a fixed seed. Goes out: the two tables that `README.md` here describes.
Promised: the same bytes on each platform, and a file appears whole or not at all. The bytes hold
because only `+ − × ÷`, exactly rounded sums and plain uniform draws are used: no `exp`, `sin` or
`normal`, whose last digit depends on the machine's mathematics library, and prices are whole cents.

    python data/make_demo.py [FOLDER]
"""

import csv
import os
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from math import fsum
from pathlib import Path

import numpy as np

SEED = 20251231
FIRST_DAY, LAST_DAY = date(2024, 1, 1), date(2025, 12, 31)
HORIZON = 28  # days of the future table
NOISE = 0.08  # spread of the multiplicative daily noise
ELASTICITY = 1.6  # share of sales gained per share of price taken off

ABSENT_ROWS = ("store_4", date(2025, 5, 12), 9)  # store, first day, days: no rows at all
EMPTY_SALES = ("store_7", date(2025, 8, 4), 5)  # rows are there, their sales cell is empty
LATE_STORE = ("store_12", 120)  # opened this many days before the end

HISTORY_COLUMNS = ("date", "store", "sales", "price", "promo", "category", "size")
FUTURE_COLUMNS = ("date", "store", "price", "promo")

# Monday … Sunday, as a multiple of the mean day.
WEEK = {
    "city": (1.05, 1.03, 1.04, 1.08, 1.18, 1.02, 0.60),
    "suburb": (0.85, 0.82, 0.86, 0.92, 1.10, 1.45, 1.00),
    "resort": (0.80, 0.75, 0.78, 0.88, 1.15, 1.35, 1.29),
}
# January … December; each value holds in the middle of its month, straight lines between.
YEAR = {
    "city": (0.90, 0.92, 0.97, 1.02, 1.04, 1.01, 0.92, 0.90, 1.01, 1.04, 1.08, 1.19),
    "suburb": (0.91, 0.92, 0.96, 1.00, 1.03, 1.04, 1.00, 0.97, 0.99, 1.00, 1.04, 1.14),
    "resort": (0.82, 0.85, 0.88, 0.97, 1.03, 1.14, 1.27, 1.25, 1.05, 0.92, 0.86, 0.96),
}


@dataclass(frozen=True)
class Store:
    """What does not change from day to day; `level` is the sales of a mean day at the start."""

    name: str
    category: str
    size: int
    level: float
    trend: float
    promo_lift: float
    regular_cents: int
    opened: date


@dataclass(frozen=True)
class Offer:
    """One day's shelf: `promo_day` is 0 without a promotion, else 1, 2, … within its run."""

    cents: int
    promo_day: int


def main(folder: Path) -> None:
    """Writes both tables into `folder`, which must exist."""
    history: list[Sequence[object]] = []
    future: list[Sequence[object]] = []
    for number in range(1, 13):
        random = np.random.Generator(np.random.PCG64([SEED, number]))
        store = _draw_store(number, random)
        last_known_day = LAST_DAY + timedelta(days=HORIZON)
        days = _days(store.opened, last_known_day)
        offers = _draw_offers(store, len(days), random)
        sales = _draw_sales(store, days, offers, random)
        for day, offer, sold in zip(days, offers, sales, strict=True):
            shelf = (_money(offer.cents), int(offer.promo_day > 0))
            if day > LAST_DAY:
                future.append((day, store.name, *shelf))
            elif not _falls_in(ABSENT_ROWS, store, day):
                shown = "" if _falls_in(EMPTY_SALES, store, day) else sold
                history.append((day, store.name, shown, *shelf, store.category, store.size))
    _write(folder / "demo.csv", HISTORY_COLUMNS, history)
    _write(folder / "demo_future.csv", FUTURE_COLUMNS, future)


def _draw_store(number: int, random: np.random.Generator) -> Store:
    name = f"store_{number}"
    size = 200 + 20 * _whole(random, 0, 45)
    late_name, days_open = LATE_STORE
    return Store(
        name=name,
        category=tuple(WEEK)[(number - 1) % len(WEEK)],
        size=size,
        level=0.25 * size * _between(random, 0.8, 1.2),
        trend=_between(random, -0.06, 0.14),
        promo_lift=_between(random, 1.30, 1.55),
        regular_cents=10 * _whole(random, 42, 64) + 9,
        opened=LAST_DAY - timedelta(days=days_open - 1) if name == late_name else FIRST_DAY,
    )


def _draw_offers(store: Store, count: int, random: np.random.Generator) -> list[Offer]:
    """The price and promotion of each day: both are planned, so both are known in advance."""
    offers: list[Offer] = []
    regular = store.regular_cents
    next_price_change = _whole(random, 40, 110)
    while len(offers) < count:
        quiet_days = _whole(random, 9, 27)
        for _ in range(quiet_days):
            if len(offers) >= next_price_change:
                regular += 10 * (_whole(random, 0, 3) - 1)  # prices rise more often than they fall
                next_price_change += _whole(random, 60, 120)
            offers.append(Offer(regular, 0))
        percent_off = 5 * _whole(random, 2, 5)
        for promo_day in range(1, _whole(random, 3, 8) + 1):
            offers.append(Offer(regular * (100 - percent_off) // 100, promo_day))
    return offers[:count]


def _draw_sales(
    store: Store, days: Sequence[date], offers: Sequence[Offer], random: np.random.Generator
) -> list[int]:
    """Level × trend × wandering × year × week × price × promotion × noise, in whole units."""
    sales: list[int] = []
    wander = 0.0
    for day, offer in zip(days, offers, strict=True):
        wander = 0.97 * wander + 0.012 * _bell(random)
        since_start = (day - FIRST_DAY).days / (LAST_DAY - FIRST_DAY).days
        discount = (store.regular_cents - offer.cents) / store.regular_cents
        # The first days of a promotion sell best.
        fade = 1.0 - 0.05 * (offer.promo_day - 1)
        promo = 1.0 + (store.promo_lift - 1.0) * fade if offer.promo_day else 1.0
        mean = (
            store.level
            * (1.0 + store.trend * since_start)
            * (1.0 + wander)
            * _year_shape(store.category, day)
            * WEEK[store.category][day.weekday()]
            * (1.0 + ELASTICITY * discount)
            * promo
            * _opening_ramp(store, day)
        )
        sales.append(max(0, round(mean * (1.0 + NOISE * _bell(random)))))
    return sales


def _year_shape(category: str, day: date) -> float:
    months = (day - date(day.year, 1, 1)).days / 30.5 - 0.5  # 0 in the middle of January
    earlier = int(months // 1)
    share = months - earlier
    anchors = YEAR[category]
    return (1.0 - share) * anchors[earlier % 12] + share * anchors[(earlier + 1) % 12]


def _opening_ramp(store: Store, day: date) -> float:
    """A new store needs six weeks to find its customers."""
    if store.opened == FIRST_DAY:
        return 1.0
    return min(1.0, 0.65 + 0.35 * (day - store.opened).days / 42)


def _falls_in(gap: tuple[str, date, int], store: Store, day: date) -> bool:
    name, first, count = gap
    return store.name == name and 0 <= (day - first).days < count


def _days(first: date, last: date) -> list[date]:
    return [first + timedelta(days=offset) for offset in range((last - first).days + 1)]


def _between(random: np.random.Generator, low: float, high: float) -> float:
    return low + (high - low) * float(random.random())


def _whole(random: np.random.Generator, low: int, high: int) -> int:
    """A whole number from low to high, both included."""
    return low + int((high - low + 1) * float(random.random()))


def _bell(random: np.random.Generator) -> float:
    """Close to a standard normal draw, but free of `log` and `exp`: twelve uniforms less six.

    `fsum` because the order of numpy's sum, and the rounding of Python's own, changed by version.
    """
    return fsum(random.random(12).tolist()) - 6.0


def _money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)
    os.replace(unfinished, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
