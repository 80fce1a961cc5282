"""Series have the effects of those alike by their statics, until their own rows say otherwise."""

import numpy as np
import polars as pl
import pytest
import tiny

import forecaster as fc
from forecaster.fitting.mixed_effects import _of_static
from forecaster.windows.effects import of_statics

STEPS, HORIZON = 120, 14
WEEKS = np.array(
    [
        [1, 1, 1, 1, 1.2, 1.6, 1.4],
        [1.3, 1.2, 1.1, 1.1, 1, 0.6, 0.5],
        [1, 1.1, 1.3, 1.1, 1, 0.9, 0.8],
    ]
)
LEVELS = np.array([50.0, 100.0, 200.0])


@pytest.fixture
def random():
    return np.random.default_rng(8)


def shops(random, kinds, rows):
    """Long rows of shops of some kinds, their last ones, and means and values [S, H] of the days after."""
    level = LEVELS[kinds] * random.uniform(0.95, 1.05, len(kinds))
    mean = level[:, None] * WEEKS[kinds][:, np.arange(STEPS + HORIZON) % 7]
    values = mean * (1 + random.normal(0, 0.05, mean.shape))
    days = [tiny.day(number) for number in range(STEPS - rows, STEPS)]
    table = pl.DataFrame(
        {
            "shop": np.repeat([f"{rows:03} rows {number:02}" for number in range(len(kinds))], rows),
            "date": days * len(kinds),
            "kind": np.repeat([f"kind {kind}" for kind in kinds], rows),
            "sales": values[:, STEPS - rows : STEPS].ravel(),
        }
    )
    return table, mean[:, STEPS:], values[:, STEPS:]


@pytest.mark.parametrize(("rows", "most"), [(1, 1.5), (3, 1.4), (7, 1.5)])
def test_a_new_shop_has_the_week_of_its_kind(rows, most, random):
    old, *_ = shops(random, np.repeat([0, 1, 2], 10), STEPS)
    new, mean, truth = shops(random, np.array([0, 1, 2] * 3), rows)
    forecast = fc.predict(pl.concat([old, new]), HORIZON, static="kind")
    median = forecast.median[:9, :, 0]  # by name the new ones are first
    assert forecast.panel.series_names[8].startswith(f"{rows:03} rows")
    assert np.abs(median - truth).sum() < most * np.abs(mean - truth).sum()


@pytest.mark.long
def test_a_shop_that_a_model_has_not_seen_has_the_week_of_its_kind(random):
    old, *_ = shops(random, np.repeat([0, 1, 2], 8), STEPS)
    model = fc.fit(old, horizon=HORIZON, static="kind", config=tiny.TINY, quiet=True)
    new, mean, truth = shops(random, np.array([0, 1, 2] * 3), 3)
    forecast = model.predict(new)
    assert np.abs(forecast.median[:, :, 0] - truth).sum() < 1.6 * np.abs(mean - truth).sum()
    # One of no known kind has that of all.
    other = model.predict(new.with_columns(kind=pl.lit("another")))
    assert np.abs(other.median[:, :, 0] - truth).sum() > 2 * np.abs(mean - truth).sum()


def test_a_static_that_says_nothing_changes_next_to_nothing(random):
    old, *_ = shops(random, np.zeros(30, int), STEPS)
    nothing = {"b": random.integers(0, 3, 30)}
    names = old["shop"].unique(maintain_order=True)
    color = pl.DataFrame({"shop": names, "color": [f"color {one}" for one in nothing["b"]]})
    plain = old.drop("kind")
    with_color = plain.join(color, on="shop")
    one = fc.predict(plain, HORIZON).median
    other = fc.predict(with_color, HORIZON, static="color").median
    assert np.abs(one / other - 1).max() < 0.01


def test_means_of_codes_equal_those_of_a_slow_twin(random):
    codes = random.integers(0, 4, (60, 2)).astype(np.int32)
    group = np.array([0, 0, 0, 1])
    own = random.normal(size=(60, 1, 4)) + 2.0 * (codes[:, 0] == 2)[:, None, None]
    known = random.uniform(1, 50, own.shape)
    found, left = _of_static(codes, own, known, group)
    rest = own[:, 0].copy()
    for static in range(2):
        expected = slow_means(codes[:, static], rest, known[:, 0], group)
        np.testing.assert_allclose(found[0, static, 1:], expected)
        for series, code in enumerate(codes[:, static]):
            if code:
                rest[series] -= expected[code - 1]
    for term in (0, 1):
        columns = group == term
        weight = known[:, 0, columns]
        whole = (weight * own[:, 0, columns] ** 2).sum()
        share = (weight * rest[:, columns] ** 2).sum() / whole
        assert left[term] == pytest.approx(share)
    added = of_statics(found, codes)
    np.testing.assert_allclose(own - added, rest[:, None], atol=1e-12)
    assert not of_statics(found, np.full((1, 2), 9, np.int32)).any()
    one_by_one, _ = _of_static(np.arange(1, 31, dtype=np.int32)[:, None], own[:30], known[:30], group)
    assert not one_by_one.any()


def test_a_static_with_very_many_words_or_none_known_says_nothing(random):
    own, known, group = random.normal(size=(200, 1, 2)), np.ones((200, 1, 2)), np.zeros(2, int)
    many = random.integers(1, 100, (200, 1)).astype(np.int32)
    for codes in (many, np.zeros((200, 1), np.int32)):
        found, left = _of_static(codes, own, known, group)
        assert not found.any()
        assert left == pytest.approx(1)


def slow_means(codes, own, known, group):
    """[3, K] shrunken means by code, by loops."""
    means, count = np.zeros((3, 4)), np.zeros(3)
    for code in (1, 2, 3):
        chosen = codes == code
        count[code - 1] = max(1, chosen.sum())
        means[code - 1] = (known * own)[chosen].sum(axis=0) / known[chosen].sum(axis=0)
    for term in (0, 1):
        squares, weight = 0.0, 0.0
        for series, code in enumerate(codes):
            for column in np.flatnonzero(group == term):
                mean = means[code - 1, column] if code else 0.0
                squares += known[series, column] * (own[series, column] - mean) ** 2
                weight += known[series, column]
        chance = squares / weight / count * len(codes) / (len(codes) - 3)
        of_means = (means[:, group == term] ** 2).mean(axis=1)
        between = max(0.0, (of_means - chance).mean())
        means[:, group == term] *= (between / (between + chance))[:, None]
    return means


def test_where_few_errors_are_known_the_table_says_how_much_the_calendar_counts(random):
    old, *_ = shops(random, np.zeros(20, int), STEPS)
    new, mean, truth = shops(random, np.zeros(5, int), 2)
    known = fc.predict(pl.concat([old, new]), HORIZON)
    alone = fc.predict(new, HORIZON)
    with_others, without = (
        np.abs(one.median[:5, :, 0] - truth).sum() / np.abs(mean - truth).sum()
        for one in (known, alone)
    )
    assert with_others < 1.5 < without
