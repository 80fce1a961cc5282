"""The mixed regression against dense generalised least squares, and its variances against a search."""

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.stats import chi2, norm

from forecaster.fitting import regression
from forecaster.fitting.regression import Unit, deviations, fitted, normal_equations, solve, summed

GROUP = np.repeat(np.arange(3), [2, 3, 1])


def units_of(seed, count=8, rows=50, gaps=0.0, same=False, phi=0.5):
    """Units whose third group is own, whose second is shared and whose last says nothing."""
    random = np.random.default_rng(seed)
    shared = random.normal(size=(rows, 6))
    units = []
    for _ in range(count):
        x = shared if same else random.normal(size=(rows, 6))
        noise = np.zeros(rows)
        for row in range(1, rows):
            noise[row] = phi * noise[row - 1] + random.normal()
        own = np.r_[0, 0, random.normal(size=3), 0]
        z = 3.0 + x @ (np.r_[1.0, -1.0, 0, 0, 0, 0] + own) + noise
        z[random.random(rows) < gaps] = np.nan
        units.append(Unit(z, x, np.arange(len(z))))
    return units


def whitened(unit, phi):
    """Columns, level and trend, and z of rows with a row before them, less φ times that row."""
    count = len(unit.z)
    level = np.column_stack([np.ones(count), np.arange(count) / count - 0.5])
    seen = ~np.isnan(unit.z)
    both = seen[1:] & seen[:-1]
    parts = (unit.columns, level, unit.z - np.nanmean(unit.z))
    return [(part[1:] - phi * part[:-1])[both] for part in parts]


def marginal(unit, found, noise):
    """The covariance of a whitened unit given b, and its parts, level and trend of any size."""
    x, level, z = whitened(unit, found.phi)
    own = noise * np.diag(found.own_variance[GROUP])
    return x, level, z, x @ own @ x.T + noise * np.eye(len(z)) + 1e8 * level @ level.T


@pytest.mark.parametrize(("gaps", "same"), [(0.0, True), (0.0, False), (0.2, False)])
def test_coefficients_are_those_of_dense_generalised_least_squares(monkeypatch, gaps, same):
    units = units_of(1, gaps=gaps, same=same)
    found = solve(units, GROUP)
    monkeypatch.setattr(regression, "_SWEEPS", 1)
    monkeypatch.setattr(regression, "_PASSES", 1)
    swept = solve(units, GROUP, found.phi, start=found)
    precision = np.diag(1 / found.shared_variance[GROUP])
    right = np.zeros(6)
    for unit, noise in zip(units, found.noise, strict=True):
        x, _, z, covariance = marginal(unit, found, noise)
        factor = cho_factor(covariance)
        precision += x.T @ cho_solve(factor, x) / found.together
        right += x.T @ cho_solve(factor, z) / found.together
    shared = np.linalg.solve(precision, right)
    np.testing.assert_allclose(swept.shared, shared, atol=1e-6)
    again = deviations(units, GROUP, found)
    for number, (unit, noise) in enumerate(zip(units, found.noise, strict=True)):
        x, _, z, covariance = marginal(unit, found, noise)
        own = noise * np.diag(found.own_variance[GROUP])
        expected = own @ x.T @ np.linalg.solve(covariance, z - x @ found.shared)
        np.testing.assert_allclose(again.own[number], expected, atol=1e-6)


@pytest.mark.parametrize(("count", "same"), [(6, False), (6, True), (1, False)])
def test_uncertainty_is_that_of_the_dense_posterior(count, same):
    """Twin: the covariance of b and all d, given all rows at once."""
    units = units_of(7, count, same=same)
    found = solve(units, GROUP, phi=0.5)
    readings = np.random.default_rng(0).normal(size=(4, 6))
    precision = np.zeros((1 + count, 6, 1 + count, 6))
    precision[0, :, 0] = np.diag(1 / found.shared_variance[GROUP])
    for number, (unit, noise) in enumerate(zip(units, found.noise, strict=True), start=1):
        x, level, z = whitened(unit, found.phi)
        within = noise * np.eye(len(z)) + 1e8 * level @ level.T
        gram = x.T @ np.linalg.solve(within, x)
        own = found.own_variance[GROUP] if count > 2 else np.full(6, 1e-12)
        precision[number, :, number] = np.diag(1 / (noise * own)) + gram
        precision[0, :, 0] += gram
        precision[0, :, number] = precision[number, :, 0] = gram
    whole = np.linalg.inv(precision.reshape(6 + 6 * count, -1)).reshape(precision.shape)
    deviation = found.uncertainty(readings)
    for number in range(1, 1 + count):
        both = (0, number)
        covariance = sum(whole[one, :, other] for one in both for other in both)
        expected = np.sqrt(np.diag(readings @ covariance @ readings.T))
        np.testing.assert_allclose(deviation[number - 1], expected, rtol=0.02)


def test_errors_that_all_units_share_are_those_of_one():
    random = np.random.default_rng(5)
    rows, count = 100, 40
    x, common = random.normal(size=(rows, 6)), random.normal(size=rows)
    units = [Unit(common + 0.1 * random.normal(size=rows), x, np.arange(rows)) for _ in range(count)]
    found = solve(units, GROUP)
    assert 0.9 * count < found.together <= count
    (alone,) = [solve([Unit(common, x, np.arange(rows))], GROUP)]
    assert np.abs(found.shared).max() < 1.2 * np.abs(alone.shared).max() + 0.01
    assert solve(units_of(6), GROUP).together < 1.5


def test_units_of_one_design_have_the_sums_of_units_by_themselves():
    together = summed(units_of(2, same=True))
    alone = [summed([unit]) for unit in units_of(2, same=True)]
    assert together.xx.shape[1] == 1
    for number, one in enumerate(alone):
        np.testing.assert_allclose(together.xx[:, 0], one.xx[:, 0])
        np.testing.assert_allclose(together.xz[:, number], one.xz[:, 0])
        np.testing.assert_allclose(together.zz[:, number], one.zz[:, 0])


def test_a_gap_breaks_two_pairs_of_rows():
    (unit,) = units_of(3, count=1)
    whole = summed([unit])
    z = unit.z.copy()
    z[20] = np.nan
    assert summed([unit._replace(z=z)]).rows == whole.rows - 2


@pytest.mark.long
def test_variances_are_near_those_of_the_largest_restricted_likelihood():
    units = units_of(4, count=20)
    found = solve(units, GROUP, phi=0.5)
    gram, cross, square, freedom, design = normal_equations(summed(units), 0.5)
    gram = gram[design]

    def deviance(logs):
        tau, delta, noise = np.exp(logs[:3])[GROUP], np.exp(logs[3:6])[GROUP], np.exp(logs[6])
        precision, right, total = np.diag(1 / tau), np.zeros(6), np.log(tau).sum()
        for a, r, zz, free in zip(gram, cross, square, freedom, strict=True):
            inverse = np.linalg.inv(a + np.diag(1 / delta))
            total += np.log(delta).sum() - np.linalg.slogdet(inverse)[1]
            total += free * np.log(noise) + (zz - r @ inverse @ r) / noise
            precision = precision + (a - a @ inverse @ a) / noise
            right = right + (r - a @ inverse @ r) / noise
        total += np.linalg.slogdet(precision)[1] - right @ np.linalg.solve(precision, right)
        return total

    ours = np.log(np.r_[found.shared_variance, found.own_variance, found.noise.mean()].clip(1e-6))
    best = minimize(deviance, ours, method="Nelder-Mead", options={"maxiter": 4000})
    assert (
        deviance(ours) < best.fun + 2.0
    )  # the logarithm of a likelihood, twice: a tenth of its curvature


def test_a_group_without_evidence_vanishes_and_one_that_differs_is_own():
    found = solve(units_of(5, count=40), GROUP)
    assert found.phi == pytest.approx(
        0.5, abs=0.1
    )  # estimated beside a level and a trend, it is too small
    assert found.own_variance[1] == pytest.approx(1, rel=0.3)
    assert found.own_variance[[0, 2]].max() < 0.02
    assert found.shared_variance[0] > 20 * found.shared_variance[2]
    np.testing.assert_allclose(found.shared[:2], [1, -1], atol=0.1)


def test_what_is_fitted_is_level_trend_and_columns():
    units = units_of(6, count=1, rows=200)
    found = solve(units, GROUP)
    left = units[0].z - fitted(units, found)[0]
    assert np.abs(left.mean()) < 0.3
    assert left.std() == pytest.approx(1 / np.sqrt(1 - 0.25), rel=0.2)


def walk_of(random, rows, phi):
    steps, walk = random.normal(size=rows), np.zeros(rows)
    for row in range(1, rows):
        walk[row] = phi * walk[row - 1] + steps[row]
    return walk


@pytest.mark.parametrize("seed", range(4))
def test_a_relation_hidden_in_changes_from_row_to_row_is_met_by_a_lower_autocorrelation(
    monkeypatch, seed
):
    """A covariate that is measured roughly: its changes from row to row are mostly noise."""
    random = np.random.default_rng(seed)
    slow = walk_of(random, 600, 0.97)
    x = (slow + random.normal(size=600))[:, None]
    z = 2 * slow + walk_of(random, 600, 0.9)
    unit = [Unit(z, x, np.arange(600))]
    found = solve(unit, np.zeros(1, int), season=24)
    monkeypatch.setattr(regression, "_WORTH", 0.0)
    of_changes = solve(unit, np.zeros(1, int), season=24)
    assert found.phi in (0.4, 0.7) and of_changes.phi > 0.8
    assert found.shared[0] > 1.2 * of_changes.shared[0]
    later = 2 * walk_of(random, 600, 0.97)
    seen = (later / 2 + random.normal(size=600))[:, None]

    def missed(one):
        left = later - seen @ one.shared
        return np.abs(left[24:] - left[:-24]).mean()

    assert missed(found) < 0.9 * missed(of_changes)


@pytest.mark.parametrize("phi", [0.3, 0.9, 0.97])
def test_the_learned_autocorrelation_stays_where_it_is_right(phi):
    learned = []
    for seed in range(5):
        random = np.random.default_rng(seed)
        x = walk_of(random, 400, 0.9)[:, None]
        unit = [Unit(x[:, 0] + walk_of(random, 400, phi), x, np.arange(400))]
        learned.append(solve(unit, np.zeros(1, int), season=7).phi)
    assert np.abs(np.median(learned) - phi) < 0.1 and np.min(learned) > phi - 0.2


def test_the_last_unit_has_its_coefficients_and_their_uncertainty():
    found = solve(units_of(8), GROUP, phi=0.5)
    last = found.of_last()
    readings = np.eye(6)
    np.testing.assert_array_equal(last.coefficients, found.coefficients[-1:])
    np.testing.assert_allclose(last.uncertainty(readings), found.uncertainty(readings)[-1:])


def test_a_group_is_beyond_chance_where_wald_s_test_of_least_squares_says_so():
    group, held = np.array([0, 1, 2, 2, 2]), []
    for seed in range(60):
        random = np.random.default_rng(seed)
        x = random.normal(size=(400, 5))
        z = 5 + x @ random.normal(0, [0.1, 0.2, 0.15, 0.15, 0.15]) + random.normal(size=400)
        found = solve([Unit(z, x, np.arange(400))], group, 0.0)
        columns = np.column_stack([x, np.ones(400), np.arange(400.0)])[1:]
        inverse = np.linalg.inv(columns.T @ columns)
        plain = inverse @ columns.T @ z[1:]
        for number, decided in enumerate(found.beyond_chance(group)):
            of_group = np.flatnonzero(group == number)
            own = np.linalg.inv(inverse[np.ix_(of_group, of_group)])
            square = plain[of_group] @ own @ plain[of_group] / found.noise[0]
            ratio = square / chi2.isf(norm.sf(4), len(of_group))
            if not 0.8 < ratio < 1.25:  # near it other priors decide
                held.append((ratio > 1) == decided)
    assert len(held) > 120 and all(held)


def test_a_group_that_is_left_out_stays_so_and_many_columns_are_not_asked():
    random = np.random.default_rng(0)
    x = random.normal(size=(400, 21))
    z = x[:, 0] + random.normal(size=400)
    group = np.r_[0, np.ones(20, np.int64)]
    found = solve([Unit(z, x, np.arange(400))], group, 0.0)
    assert found.beyond_chance(group)[0]
    left = solve([Unit(z, x, np.arange(400))], group, 0.0, start=found.without(np.array([True, False])))
    assert np.abs(left.shared[0]) < 1e-6 < np.abs(found.shared[0])
    wide = random.normal(size=(400, 20)) @ np.diag(np.full(20, 0.2))
    found = solve([Unit(z + wide.sum(axis=1), wide, np.arange(400))], np.zeros(20, np.int64), 0.0)
    assert found.beyond_chance(np.zeros(20, np.int64)).all()
