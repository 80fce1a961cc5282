"""Autoregression of each row, solved in closed form from its autocovariances.

In the formulas y₁ … yₙ is the history of a row, ŷ(h) the forecast of the step h = 1, 2, … after yₙ, m the
season length.

Axes: R row, a channel of a window · T history · K step · J cutoff · L lead · H lead up to the last · p lag.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from forecaster.model.channels import before_cutoffs, last_steps

ORDER = 3
"""Lags."""
RIDGE = 2.0
"""Penalty, in steps of mean square: it shrinks the coefficients of a short history."""
BOUND = 0.97
"""Most of a partial autocorrelation: with all of them below 1 an autoregression is stable."""
LONGEST = 64
"""Leads that are iterated; later ones decay."""
DECAY = 0.95
"""Of a deviation from one lead after these to the next."""
_STEPS = 128  # that the autocovariances are of, at most
_SEASONS = 3  # that a value is compared with the mean of
_TINY = 1e-6


def _read(memory: int, season: int) -> tuple[int, int]:
    """How many seasons a value is compared with, and how many values before a cutoff are."""
    seasons = min(_SEASONS, memory // season - 1) if season > 1 else 1
    return seasons, min(_STEPS, memory - seasons * season)


def autoregression(
    filled: Float[Tensor, "R T"],
    length: Int[Tensor, " R"],
    memory: int,
    season: int,
    shifts: list[int],
    leads: list[int],
) -> Float[Tensor, "R J L"]:
    """What autoregression adds to naive or to the mean of the last seasons; it is of differences from these:

        m = 1    w_t = y_t − y_{t−1}                       ŷ(h) = yₙ + ŵ(1) + … + ŵ(h)
        m > 1    w_t = y_t − (y_{t−m} + … + y_{t−3m})/3    ŷ(h) = mean of the phase over three seasons + ŵ(h)
        ŵ(h) = φ₁·ŵ(h−1) + … + φ₃·ŵ(h−3)                   ŵ(h) = 0.95·ŵ(h−1) from h = 65 on

    with φ by `coefficients`. w before the second season of a row are 0, and with fewer seasons these are all.
    """
    seasons, steps = _read(memory, season)
    begin = filled.shape[1] - max(shifts) - steps  # of w, before the earliest cutoff
    span = filled.shape[1] - begin
    values = filled[:, begin:]
    before = [filled[:, begin - back * season :][:, :span] for back in range(1, seasons + 1)]
    known = last_steps(length - season, span)
    deviation = torch.where(known, values - sum(before[1:], before[0]) / seasons, 0.0)  # w
    shift = torch.tensor(shifts, device=length.device)
    count = (length[:, None] - season - shift).clamp(1, steps)  # [R, J]
    phi = coefficients(_autocovariances(deviation, shifts, steps), count)
    recent = before_cutoffs(deviation, shifts, min(ORDER, steps))
    path = _iterated(phi, recent, min(max(leads) + 1, LONGEST))  # [R, J, L]
    # Sums of geometric series: ŵ(64)·(0.95 + … ) after the last that is iterated.
    after = torch.tensor(
        [lead + 1 - LONGEST for lead in leads if lead >= LONGEST], device=length.device
    )
    later = path[..., -1:] * (DECAY * (1 - DECAY**after) / (1 - DECAY) if season == 1 else DECAY**after)
    if season == 1:
        path = path.cumsum(dim=-1)
        later = path[..., -1:] + later
    near = path[..., [lead for lead in leads if lead < LONGEST]]
    return torch.cat([near, later], dim=-1)  # leads rise


def coefficients(
    covariances: list[Float[Tensor, "R J"]], count: Int[Tensor, "R J"]
) -> list[Float[Tensor, "R J"]]:
    """Returns φ₁ … φ_p by the recursion of Levinson and Durbin, which solves Σⱼ φⱼ·c|i−j| = cᵢ:

        κ = (cᵢ − Σⱼ φⱼ·cᵢ₋ⱼ)/v    partial autocorrelation of lag i = 1, 2, …, within ±.97
        φⱼ ← φⱼ − κ·φᵢ₋ⱼ           φᵢ = κ        v ← v·(1 − κ²), from v = c₀

    A ridge penalty is a larger c₀, by a share 2/n of n steps.

    Args:
        covariances: c₀ … c_p.
        count: n.
    """
    variance = covariances[0] * (1 + RIDGE / count) + _TINY**2
    phi: list[Tensor] = []
    for lag, covariance in enumerate(covariances[1:], start=1):
        for number, coefficient in enumerate(phi, start=1):
            covariance = covariance - coefficient * covariances[lag - number]
        partial = (covariance / variance).clamp(-BOUND, BOUND)
        phi = [one - partial * other for one, other in zip(phi, phi[::-1], strict=True)]
        phi.append(partial)
        variance = variance * (1 - partial * partial)
    return phi


def _autocovariances(
    deviation: Float[Tensor, "R K"], shifts: list[int], steps: int
) -> list[Float[Tensor, "R J"]]:
    """Sums of w_t·w_{t−i} over the steps before each cutoff, i = 0 … p: 0 where these are fewer."""
    span = deviation.shape[1]
    step = torch.arange(span, device=deviation.device)[:, None]  # [K, 1]
    end = span - torch.tensor(shifts, device=deviation.device)  # [J]
    sums = []
    for lag in range(ORDER + 1):
        products = deviation[:, lag:] * deviation[:, : max(span - lag, 0)]
        inside = (step >= end - steps + lag) & (step < end)  # [K, J]
        # One pass over the products for all cutoffs, whose steps overlap.
        sums.append(
            (inside[lag:].to(products.dtype).T @ products.T).T
        )  # a thin product, as its transpose
    return sums


def _iterated(
    phi: list[Float[Tensor, "R J"]], recent: Float[Tensor, "R J p"], leads: int
) -> Float[Tensor, "R J L"]:
    """ŵ(1), ŵ(2), … from the last values, twice as many at each turn.

    With the state xₕ = (ŵ(h), ŵ(h − 1), …) and the companion matrix A, xₕ₊₁ = A·xₕ:

        x₁ … xₙ  ─▶  Aⁿ·(x₁ … xₙ) = xₙ₊₁ … x₂ₙ
    """
    # Steps before the first are 0.
    latest = F.pad(recent, (ORDER - recent.shape[-1], 0)).flip(-1)  # [R, J, p]
    # From numbers: torch's `eye` has no translation into ONNX.
    places = [[float(row == column) for column in range(ORDER)] for row in range(ORDER - 1)]
    shifted = torch.tensor(places, device=recent.device).expand(*phi[0].shape, -1, -1)
    step = torch.cat([torch.stack(phi, dim=-1)[..., None, :], shifted], dim=-2)  # [R, J, p, p]
    states = step @ latest[..., None]
    while states.shape[-1] < leads:
        states = torch.cat([states, step @ states], dim=-1)
        step = step @ step
    return states[..., 0, :leads]
