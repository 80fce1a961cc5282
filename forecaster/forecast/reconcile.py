"""Reconciliation: changes forecasts of all nodes by as little as their errors allow, so that they add up.

    S        [I; A]: leaves, and inner nodes as sums of them
    W        covariance of the errors of base forecasts: diag(own) + Q Qᵀ
    b̃        = b̂ + (diag(own_b) Aᵀ − Q_b Uᵀ) M⁻¹ (â − A b̂), which equals (Sᵀ W⁻¹ S)⁻¹ Sᵀ W⁻¹ ŷ
    M        = K + U Uᵀ, K = diag(own_a) + A diag(own_b) Aᵀ, U = Q_a − A Q_b
    mint     W = (1 − λ) covariance + λ its diagonal
    wls      λ = 1: Q is empty

So only inner nodes are solved for, sparsely, whatever the number of leaves. Sources: Wickramasuriya,
Athanasopoulos and Hyndman, "Optimal forecast reconciliation … through trace minimization" (2019); Schäfer and
Strimmer, "A shrinkage approach to large-scale covariance matrix estimation" (2005), for λ.

Axes: T error (cutoff and lead) · R inner node, a · N leaf, b · X any number of forecasts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csc_array, csr_array, diags_array
from scipy.sparse.linalg import splu

from forecaster.panel.arrays import Floats, Ints


@dataclass(frozen=True)
class ErrorCovariance:
    """W = diag(own) + Q Qᵀ of nodes."""

    own: Float[ndarray, " R"]
    shared: Float[ndarray, "R T"]
    """Q"""

    def select(self, nodes: Ints) -> ErrorCovariance:
        """Returns that of some nodes."""
        return ErrorCovariance(self.own[nodes], self.shared[nodes])


def error_covariance(
    errors: Float[ndarray, "T R"],
    cutoffs: Ints,
    spread: Float[ndarray, " R"],
    full: bool,
) -> ErrorCovariance:
    """Returns the covariance of the errors of base forecasts.

    Args:
        errors: data units; NaN = not known, which counts for nothing.
        cutoffs: [R] of how many cutoffs they are.
        spread: variance that the base forecast itself expects; it counts as one cutoff.
        full: shrunk as in MinT; else the diagonal.
    """
    seen = np.isfinite(errors)
    errors = np.where(seen, errors, 0.0)
    square = (errors**2).sum(axis=0) / np.maximum(seen.sum(axis=0), 1)
    variance = (cutoffs * square + spread) / (cutoffs + 1)
    if not full or len(errors) < 2:
        return ErrorCovariance(_above_zero(variance), np.zeros((len(variance), 0)))
    scaled = errors / np.sqrt(np.where(square > 0, square, 1.0))
    kept = 1 - shrinkage(scaled)
    shared = (np.sqrt(kept * variance / len(errors)) * scaled).T
    return ErrorCovariance(_above_zero(variance - (shared**2).sum(axis=1)), shared)


def shrinkage(scaled: Float[ndarray, "T R"]) -> float:
    """Returns λ = Σ Var(r) / Σ r² over the correlations r of all pairs of nodes; errors as multiples of their size.

    Never [R, R]: Σᵢⱼ r² is that of the T × T products, and Σᵢⱼ Σₜ (xᵢxⱼ)² = Σₜ (Σᵢ xᵢ²)².
    """
    count = len(scaled)
    squares = scaled**2
    found = ((scaled @ scaled.T) ** 2).sum() / count**2 - (squares.mean(axis=0) ** 2).sum()
    products = (squares.sum(axis=1) ** 2).sum() - (squares**2).sum()
    varying = (products - count * found) / (count * (count - 1))
    return float(np.clip(varying / found, 1e-4, 1.0)) if found > 0 else 1.0


def _above_zero(variance: Floats) -> Floats:
    """Held above rounding, so that no equation is singular."""
    return np.maximum(variance, 1e-9 * variance.mean() or 1.0)


class Reconciliation:
    """What forecasts of inner nodes change in those of the leaves."""

    def __init__(
        self, sums: csr_array, covariance: ErrorCovariance, missing: Float[ndarray, "R X"]
    ) -> None:
        """Takes A [R, N], W of the inner nodes, then of the leaves, and â − A b̂."""
        inner = sums.shape[0]
        self._sums = sums.tocsc()
        self._own, self._shared = covariance.own[inner:], covariance.shared[inner:]
        # M⁻¹ x = K⁻¹ x − K⁻¹ U (I + Uᵀ K⁻¹ U)⁻¹ Uᵀ K⁻¹ x
        k = sums @ diags_array(self._own) @ sums.T + diags_array(covariance.own[:inner])
        factor = splu(csc_array(k))
        u = covariance.shared[:inner] - sums @ self._shared
        solved, of_u = factor.solve(missing), factor.solve(u)
        core = cho_factor(np.eye(u.shape[1]) + u.T @ of_u)
        self._solved = solved - of_u @ cho_solve(core, u.T @ solved)
        self._common = u.T @ self._solved

    def corrections(self, leaves: slice) -> Float[ndarray, "N X"]:
        """Returns b̃ − b̂ of some leaves."""
        own = self._own[leaves, None] * (self._sums[:, leaves].T @ self._solved)
        return own - self._shared[leaves] @ self._common
