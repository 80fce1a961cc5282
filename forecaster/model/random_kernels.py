"""Random convolution kernels with a ridge: classes of series or steps in closed form.

Fixed kernels of nine taps run over the channels at several dilations. A feature is the share of steps, of
the series or around a step, at which the result exceeds a threshold. Thresholds are quantiles of training
series, weights a ridge.

Sources: Dempster, Petitjean and Webb, "ROCKET" (2020); Dempster, Schmidt and Webb, "MiniRocket" (2021).

Axes: B window · T step · C channel · K kernel · D dilation · P threshold · F feature · G class · N sample.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

TAPS = 9
KERNELS = 84
"""Choices of three of nine taps, which weigh 2; the others −1. A kernel sums to 0: a level adds nothing."""
_FEATURES = 4_000  # of a series
_STEP_FEATURES = 900  # of a step: twice as many had macro F1 .877 for .875, in 17 s for 1
_AROUND = 15
"""Steps whose share is the feature of the one in their middle: with 9 and 25 macro F1 was .873."""
_MOST_CHANNELS = 9  # of a kernel, as in MiniRocket for several channels
PENALTIES = tuple(10.0 ** (power / 2) for power in range(-2, 11))
"""Of the ridge, per mean variance of a feature."""

Values = Float[Tensor, "B T C"]
Inside = Bool[Tensor, "B T"]
Part = tuple[Tensor, Tensor, Tensor]
"""Features [N, F], classes [N] from 0, and folds [N] of some samples."""


class RandomKernels(nn.Module):
    """Scores of classes for whole series, or for their steps."""

    def __init__(self, channels: int, steps: int, classes: int, per_step: bool):
        """Starts with thresholds and weights of zero.

        Args:
            channels: of a window.
            steps: of a window; dilations reach that far.
            classes: number of classes.
            per_step: score each step.
        """
        super().__init__()
        self.per_step = per_step
        furthest = max(1, min(steps, 2 * _AROUND if per_step else steps) // (TAPS - 1))
        self.dilations = [2**power for power in range(furthest.bit_length())]
        features = _STEP_FEATURES if per_step else _FEATURES
        self.thresholds_each = max(1, features // (KERNELS * len(self.dilations)))
        self.kernels = nn.Buffer(_kernels(channels, len(self.dilations)))
        shape = (len(self.dilations), KERNELS, self.thresholds_each)
        self.thresholds = nn.Buffer(torch.zeros(shape))
        """[D, K, P]"""
        self.loc = nn.Buffer(torch.zeros(self.thresholds.numel()))
        """[F] mean of each feature."""
        self.weights = nn.Buffer(torch.zeros(self.thresholds.numel(), classes))
        """[F, G]"""
        self.bias = nn.Buffer(torch.zeros(classes))

    def forward(self, values: Values, inside: Inside) -> Float[Tensor, "B *T G"]:
        """Returns a score per class, about 1 for the likely one and 0 for others; [B, T, G] of steps.

        Args:
            values: standardised; 0 where missing.
            inside: True from the first to the last step of the series.
        """
        return (self.features(values, inside) - self.loc) @ self.weights + self.bias

    def features(self, values: Values, inside: Inside) -> Float[Tensor, "B *T F"]:
        """Returns the share of steps inside the series at which each result exceeds each threshold."""
        real = inside[:, None].float()  # [B, 1, T]
        steps = _around(real) if self.per_step else real.sum(dim=-1, keepdim=True)
        shares = []
        for number, thresholds in enumerate(self.thresholds):
            result = self._convolved(values, number)[:, :, None]  # [B, K, 1, T]
            above = result > thresholds[None, :, :, None]  # [B, K, P, T]
            above = above.flatten(1, 2) * real
            count = _around(above) if self.per_step else above.sum(dim=-1, keepdim=True)
            shares.append(count / steps.clamp(min=1 / _AROUND))
        features = torch.cat(shares, dim=1).transpose(1, 2)  # [B, T or 1, F]
        return features if self.per_step else features[:, 0]

    def choose_thresholds(self, values: Values, inside: Inside) -> None:
        """Sets the thresholds to quantiles of the results on training series, each at a level of its own."""
        golden = (1 + 5**0.5) / 2
        count = self.thresholds_each
        # A low-discrepancy sequence: neighbouring kernels have other levels.
        levels = torch.arange(1, KERNELS * count + 1, dtype=torch.float64) * golden % 1
        levels = levels.unflatten(0, (KERNELS, count))  # [K, P]
        for number in range(len(self.dilations)):
            results = self._convolved(values, number).transpose(0, 1).flatten(1)  # [K, B·T]
            rising = results[:, inside.flatten()].sort(dim=1).values
            last = rising.shape[1] - 1
            index = (levels * last).long()
            # Between two results: rounding moves none of them across.
            after = rising.gather(1, (index + 1).clamp(max=last))
            self.thresholds[number] = (rising.gather(1, index) + after) / 2

    def solve_series(
        self, features: Float[Tensor, "N F"], code: Int[Tensor, " N"]
    ) -> Float[Tensor, "N G"]:
        """Sets the weights by a ridge; returns the scores of each series without itself.

        The penalty is the one with the smallest error of these scores. With X the features less their mean
        and the eigenvectors of products of series, X·Xᵀ = U·S·Uᵀ, all penalties λ have one solution:

            H = U·(S / (S + λ))·Uᵀ + 1/N        what the truth is multiplied by: its diagonal is the leverage
            error without a series = error / (1 − leverage)        (Allen's PRESS, 1974)
            W = Xᵀ·U·(S + λ)⁻¹·Uᵀ·Y

        Args:
            features: of the training series.
            code: class of each, from 0.
        """
        truth = F.one_hot(code, len(self.bias)).double()  # [N, G]
        loc, bias = features.double().mean(dim=0), truth.mean(dim=0)
        x, y = features.double() - loc, truth - bias  # [N, F], [N, G]
        unit = x.square().sum() / x.shape[1]  # of penalties: the mean variance of a feature, times N
        # There are more features than series: [N, N] is small beside [F, F].
        eigenvalues, vectors = torch.linalg.eigh(x @ x.T)
        eigenvalues = eigenvalues.clamp(min=0)  # below 0 by rounding
        rotated = vectors.T @ y  # [N, G]
        candidates = []
        for penalty in PENALTIES:
            shrinkage = eigenvalues / (eigenvalues + penalty * unit)  # [N]
            leverage = vectors.square() @ shrinkage + 1 / len(code)
            error = y - vectors @ (shrinkage[:, None] * rotated)
            held_out = truth - error / (1 - leverage.clamp(max=1 - 1e-6)[:, None])
            loss = float((truth - held_out).square().mean())
            candidates.append((loss, penalty, held_out))
        _, penalty, scores = min(candidates, key=lambda candidate: candidate[0])
        weights = x.T @ (vectors @ (rotated / (eigenvalues + penalty * unit)[:, None]))
        self._keep(loc, weights, bias)
        return scores.float()

    def solve_folds(self, parts: Callable[[], Iterator[Part]], folds: int) -> Float[Tensor, "N G"]:
        """Sets the weights by a ridge; returns the scores of samples without their fold.

        Args:
            parts: yields all training samples, the same at every call; called twice. Those of fold −1
                train in all folds and count for no score.
            folds: number of folds.
        """
        size, classes = self.loc.shape[0] + 1, len(self.bias)  # a constant is the last feature
        # Σ x·xᵀ and Σ x·yᵀ of each fold; index −1 is fold −1.
        products = torch.zeros((folds + 1, size, size), dtype=torch.float64)
        targets = torch.zeros((folds + 1, size, classes), dtype=torch.float64)
        for features, code, fold in parts():
            rows = F.pad(features.double(), (0, 1), value=1.0)
            truth = F.one_hot(code, classes).double()
            for number in fold.unique().tolist():
                x = rows[fold == number]
                products[number] += x.T @ x
                targets[number] += x.T @ truth[fold == number]
        # From now on without each fold, and last of all classes.
        products[-1] = products.sum(dim=0)
        targets[-1] = targets.sum(dim=0)
        products[:-1] = products[-1] - products[:-1]
        targets[:-1] = targets[-1] - targets[:-1]
        maps = [_ridges(*sums) for sums in zip(products, targets, strict=True)]
        scores = []
        errors = torch.zeros(len(PENALTIES), dtype=torch.float64)
        for features, code, fold in parts():
            rows = F.pad(features.double(), (0, 1), value=1.0)
            held_out = torch.zeros((len(PENALTIES), len(code), classes), dtype=torch.float64)
            for number in fold.unique().tolist():
                held_out[:, fold == number] = rows[fold == number] @ maps[number]
            error = (held_out - F.one_hot(code, classes))[:, fold >= 0]  # [penalty, N, G]
            errors += error.square().sum(dim=(1, 2))
            scores.append(held_out.float())
        best = int(errors.argmin())
        weights = maps[-1][best]  # [F + 1, G], solved on all classes
        self._keep(torch.zeros(size - 1), weights[:-1], weights[-1])
        return torch.cat([part[best] for part in scores])

    def _keep(self, loc: Tensor, weights: Tensor, bias: Tensor) -> None:
        self.loc.copy_(loc)
        self.weights.copy_(weights)
        self.bias.copy_(bias)

    def _convolved(self, values: Tensor, number: int) -> Float[Tensor, "B K T"]:
        """Returns the results of all kernels at one dilation; beyond the ends are zeros."""
        dilation = self.dilations[number]
        padded = F.pad(values.transpose(1, 2), (dilation * (TAPS // 2),) * 2)
        return F.conv1d(padded, self.kernels[number], dilation=dilation)


def _around(rows: Float[Tensor, "B X T"]) -> Float[Tensor, "B X T"]:
    """Returns the mean over the steps around each; beyond the ends are zeros."""
    return F.avg_pool1d(rows, _AROUND, stride=1, padding=_AROUND // 2)


def _ridges(products: Float[Tensor, "F F"], targets: Float[Tensor, "F G"]) -> Float[Tensor, "P F G"]:
    """Returns the weights at each penalty; the last feature is a constant without one."""
    # Σ x² − (Σ x)²/n, the last feature being 1 in all n rows.
    count, totals = products[-1, -1], products[-1, :-1]
    variance = products.diagonal()[:-1] - totals.square() / count
    unit = variance.mean().clamp(min=1e-12)
    penalised = torch.ones(len(products), dtype=torch.float64)
    penalised[-1] = 0.0
    weights = []
    for penalty in PENALTIES:
        # A hundredth of those of whole series, with which macro F1 was .77, not .875.
        ridge = torch.diag(1e-2 * penalty * unit * penalised)
        weights.append(torch.linalg.solve(products + ridge, targets))
    return torch.stack(weights)


def _kernels(channels: int, dilations: int) -> Float[Tensor, "D K C 9"]:
    """Returns the kernels at each dilation, each over some channels of its own."""
    taps = np.full((KERNELS + 1, TAPS), -1.0, np.float32)
    for number, chosen in enumerate(itertools.combinations(range(TAPS), 3)):
        taps[number, chosen] = 2.0
    taps[KERNELS] = 0.0  # of channels that a kernel leaves out
    generator = np.random.default_rng(0)  # the same kernels for all tables
    most = min(channels, _MOST_CHANNELS)
    rows = np.full((dilations * KERNELS, channels), KERNELS)  # the row of `taps` of each channel
    for number, row in enumerate(rows):
        # The number of channels is uniform on a logarithmic scale.
        size = int((most + 1) ** generator.random())
        row[generator.permutation(channels)[:size]] = number % KERNELS
    # A lookup, no arithmetic: on the meta device, which counts parameters, that loads torch's compiler.
    kernels = torch.tensor(taps).index_select(0, torch.tensor(rows).flatten())
    return kernels.view(dilations, KERNELS, channels, TAPS)
