"""The learning rate by step, beside a slow twin that walks through the steps."""

from math import sqrt

import pytest

from forecaster.model.schedule import Schedule


def slow(steps: int, begin: int, length: int) -> list[float]:
    """The factor of each step: it rises, stays, and falls."""
    warmup, factors = max(1, min(40, steps // 20)), []
    for step in range(steps):
        if step < warmup:
            factor = (step + 1) / warmup
        elif step <= begin:
            factor = 1.0
        elif step < begin + length:
            factor = 1 - sqrt((step - begin) / length)
        else:
            factor = 0.0
        factors.append(factor)
    return factors


@pytest.mark.parametrize(("begin", "before"), [(500, 500), (500, 300), (833, 833), (990, 990)])
def test_the_rate_rises_stays_and_falls_over_a_fifth_of_the_steps_before(begin, before):
    schedule = Schedule(1000)
    schedule.decay(begin, before)
    assert schedule.length == min(before // 5, 1000 - begin)
    expected = slow(1000, begin, schedule.length)
    assert [schedule(step) for step in range(1000)] == pytest.approx(expected)


def test_until_a_decay_is_set_the_rate_stays():
    assert [Schedule(1000)(step) for step in (0, 9, 39, 40, 999)] == [1 / 40, 1 / 4, 1, 1, 1]


@pytest.mark.parametrize("steps", [1, 2, 5, 6, 7, 60, 1000, 999_999])
def test_a_number_of_steps_has_its_decay_at_its_end(steps):
    schedule = Schedule(steps)
    schedule.decay(schedule.last_begin, schedule.last_begin)
    assert schedule.last_begin == steps - steps // 6
    assert abs(schedule.begin + schedule.length - steps) <= 1
    assert all(schedule(step) > 0 for step in {0, steps // 2, steps - 1})
