"""Promise: a process that forecasts and fits for long stays as it is: memory, files, threads."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
import soak

MOST_MB_PER_CALL = 0.25
"""A table, a model or a network kept by each call would be more than this."""


def test_the_slope_is_that_of_the_many_not_of_the_few():
    flat = [100.0] * 5 + [130.0] + [100.0] * 5
    assert soak.theil_sen(soak.np.array(flat)) == 0
    assert soak.theil_sen(soak.np.arange(20) * 0.5) == pytest.approx(0.5)


@pytest.mark.slow
@pytest.mark.usefixtures("short_fits")
@pytest.mark.parametrize(("work", "calls"), [(soak.predictions, 40), (soak.fits, 12)])
def test_many_calls_leave_nothing_behind(tmp_path, work, calls, monkeypatch):
    own = tmp_path / "temporary"
    own.mkdir()
    monkeypatch.setattr(soak.tempfile, "tempdir", str(own))  # others write to the shared one meanwhile
    found = work(tmp_path, calls)
    print(f"{calls} {work.__name__}: {1000 * found.slope:+.1f} kB per call")
    assert found.slope < MOST_MB_PER_CALL
    assert found.after == found.before
