"""Random convolution kernels with a ridge: labels of series or steps in closed form.

Fixed kernels of nine taps run over the channels at several dilations. A feature is the share of steps, of
the series or around a step, at which the result exceeds a threshold. Thresholds are quantiles of training
series, weights a ridge.

Sources: Dempster, Petitjean and Webb, "ROCKET" (2020); Dempster, Schmidt and Webb, "MiniRocket" (2021).

Axes: B window · T step · C channel · K kernel · D dilation · P threshold · F feature · G class · N label.
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
"""Choices of three of nine taps, which weigh 2; the others −1."""
_FEATURES, _STEP_FEATURES = 4_000, 900
_AROUND = 15
"""Steps whose share is the feature of the one in their middle."""
_MOST_CHANNELS = 9
PENALTIES = tuple(10.0 ** (power / 2) for power in range(-2, 11))
"""Of the ridge, per mean variance of a feature."""

Values = Float[Tensor, "B T C"]
Inside = Bool[Tensor, "B T"]
Part = tuple[Tensor, Tensor, Tensor]
"""Features [N, F], classes [N] from 0, and folds [N] of some labels."""


class RandomKernels(nn.Module):
    """Scores of classes for whole series, or for their steps."""

    def __init__(self, channels: int, steps: int, classes: int, per_step: bool):
        """Starts with thresholds and weights of zero.

        Args:
            channels: of a window.
            steps: of a window; dilations reach that far.
            classes: number of labels.
            per_step: score each step.
        """
        super().__init__()
        self.per_step = per_step
        furthest = max(1, min(steps, 2 * _AROUND if per_step else steps) // (TAPS - 1))
        self.dilations = [2**power for power in range(furthest.bit_length())]
        wanted = _STEP_FEATURES if per_step else _FEATURES
        self.thresholds_each = max(1, wanted // (KERNELS * len(self.dilations)))
        self.kernels = nn.Buffer(_kernels(channels, len(self.dilations)))
        shape = (len(self.dilations), KERNELS, self.thresholds_each)
        self.thresholds = nn.Buffer(torch.zeros(shape))
        """[D, K, P]"""
        self.loc = nn.Buffer(torch.zeros(self.thresholds.numel()))
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
        real = inside[:, None].float()
        steps = _around(real) if self.per_step else real.sum(dim=-1, keepdim=True)
        found = []
        for place in range(len(self.dilations)):
            result = self._convolved(values, place)[:, :, None]  # [B, K, 1, T]
            above = (result > self.thresholds[place][None, :, :, None]).flatten(1, 2) * real
            share = _around(above) if self.per_step else above.sum(dim=-1, keepdim=True)
            found.append(share / steps.clamp(min=1 / _AROUND))
        shares = torch.cat(found, dim=1).transpose(1, 2)
        return shares if self.per_step else shares[:, 0]

    def choose_thresholds(self, values: Values, inside: Inside) -> None:
        """Sets the thresholds to quantiles of the results on training series, each at a level of its own."""
        golden = (1 + 5**0.5) / 2
        count = self.thresholds_each
        for place in range(len(self.dilations)):
            result = self._convolved(values, place).transpose(0, 1).flatten(1)[:, inside.flatten()]
            # A low-discrepancy sequence: neighbouring kernels have other levels.
            numbers = torch.arange(1, KERNELS * count + 1, dtype=torch.float64) * golden % 1
            at = (numbers.unflatten(0, (KERNELS, count)) * (result.shape[1] - 1)).long()
            rising = result.sort(dim=1).values
            # Between two results: rounding moves none of them across.
            after = rising.gather(1, (at + 1).clamp(max=result.shape[1] - 1))
            self.thresholds[place] = (rising.gather(1, at) + after) / 2

    def solve_series(
        self, features: Float[Tensor, "N F"], code: Int[Tensor, " N"]
    ) -> Float[Tensor, "N G"]:
        """Sets the weights by a ridge; returns the scores of each series without itself.

        The penalty is the one with the smallest error of these scores. Scores without a series follow
        from those with it: error / (1 − leverage).

        Args:
            features: of the training series.
            code: class of each, from 0.
        """
        truth = F.one_hot(code, len(self.bias)).double()
        loc, bias = features.double().mean(dim=0), truth.mean(dim=0)
        centred, apart = features.double() - loc, truth - bias
        unit = centred.square().sum() / centred.shape[1]
        # There are more features than series: products of series are few, and solve all penalties at once.
        squares, left = torch.linalg.eigh(centred @ centred.T)
        squares, turned = squares.clamp(min=0), left.T @ apart
        found = []
        for penalty in PENALTIES:
            shrunk = squares / (squares + penalty * unit)
            leverage = (left.square() @ shrunk + 1 / len(code)).clamp(max=1 - 1e-6)
            error = apart - left @ (shrunk[:, None] * turned)
            alone = truth - error / (1 - leverage[:, None])
            found.append((float((truth - alone).square().mean()), penalty, alone))
        _, penalty, scores = min(found, key=lambda one: one[0])
        weights = centred.T @ (left @ (turned / (squares + penalty * unit)[:, None]))
        self._keep(loc, weights, bias)
        return scores.float()

    def solve_folds(self, parts: Callable[[], Iterator[Part]], folds: int) -> Float[Tensor, "N G"]:
        """Sets the weights by a ridge; returns the scores of labels without their fold.

        Args:
            parts: yields all training labels, the same at every call; called twice. Those of fold −1
                train in all folds and count for no score.
            folds: number of folds.
        """
        size, classes = self.loc.shape[0] + 1, len(self.bias)
        products = torch.zeros((folds + 1, size, size), dtype=torch.float64)  # the last one: fold −1
        targets = torch.zeros((folds + 1, size, classes), dtype=torch.float64)
        for features, code, fold in parts():
            rows = F.pad(features.double(), (0, 1), value=1.0)
            truth = F.one_hot(code, classes).double()
            for number in fold.unique().tolist():
                own = rows[fold == number]
                products[number] += own.T @ own
                targets[number] += own.T @ truth[fold == number]
        products[-1], targets[-1] = products.sum(dim=0), targets.sum(dim=0)
        products[:-1], targets[:-1] = products[-1] - products[:-1], targets[-1] - targets[:-1]
        maps = [_ridges(one, other) for one, other in zip(products, targets, strict=True)]
        scores, errors = [], torch.zeros(len(PENALTIES), dtype=torch.float64)
        for features, code, fold in parts():
            rows = F.pad(features.double(), (0, 1), value=1.0)
            held_out = torch.zeros((len(PENALTIES), len(code), classes), dtype=torch.float64)
            for number in fold.unique().tolist():
                held_out[:, fold == number] = rows[fold == number] @ maps[number]
            apart = (held_out - F.one_hot(code, classes))[:, fold >= 0]
            errors += apart.square().sum(dim=(1, 2))
            scores.append(held_out.float())
        best = int(errors.argmin())
        self._keep(torch.zeros(size - 1), maps[-1][best, :-1], maps[-1][best, -1])
        return torch.cat([part[best] for part in scores])

    def _keep(self, loc: Tensor, weights: Tensor, bias: Tensor) -> None:
        self.loc.copy_(loc)
        self.weights.copy_(weights)
        self.bias.copy_(bias)

    def _convolved(self, values: Tensor, place: int) -> Float[Tensor, "B K T"]:
        dilation = self.dilations[place]
        padded = F.pad(values.transpose(1, 2), (dilation * (TAPS // 2),) * 2)
        return F.conv1d(padded, self.kernels[place], dilation=dilation)


def _around(rows: Float[Tensor, "B X T"]) -> Float[Tensor, "B X T"]:
    """Returns the mean over the steps around each; beyond the ends are zeros."""
    return F.avg_pool1d(rows, _AROUND, stride=1, padding=_AROUND // 2)


def _ridges(products: Float[Tensor, "F F"], targets: Float[Tensor, "F G"]) -> Float[Tensor, "P F G"]:
    """Returns the weights at each penalty; the last feature is a constant without one."""
    variance = products.diagonal()[:-1] - products[-1, :-1].square() / products[-1, -1]
    unit = variance.mean().clamp(min=1e-12)
    penalised = torch.ones(len(products), dtype=torch.float64).index_fill(0, torch.tensor(-1), 0.0)
    return torch.stack(
        [
            torch.linalg.solve(products + torch.diag(1e-2 * penalty * unit * penalised), targets)
            for penalty in PENALTIES
        ]
    )


def _kernels(channels: int, dilations: int) -> Float[Tensor, "D K C 9"]:
    """Returns the kernels at each dilation, each over some channels of its own."""
    taps = np.full((KERNELS + 1, TAPS), -1.0, np.float32)
    for number, chosen in enumerate(itertools.combinations(range(TAPS), 3)):
        taps[number, chosen] = 2.0
    taps[KERNELS] = 0.0  # of channels that a kernel leaves out
    generator, most = np.random.default_rng(0), min(channels, _MOST_CHANNELS)
    rows = np.full((dilations * KERNELS, channels), KERNELS)
    for number, row in enumerate(rows):
        # The number of channels is uniform on a logarithmic scale.
        size = int((most + 1) ** generator.random())
        row[generator.permutation(channels)[:size]] = number % KERNELS
    # A lookup, no arithmetic: on the meta device, which counts parameters, that loads torch's compiler.
    found = torch.tensor(taps).index_select(0, torch.tensor(rows).flatten())
    return found.view(dilations, KERNELS, channels, TAPS)
