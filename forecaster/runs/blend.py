"""How much each part of a forecast counts, by what validation has seen.

What comes in: trained networks, and the windows that early stopping has watched. What goes out: an
ensemble of them. Promised: shares and weights are chosen by the pinball loss in scaled units; a smaller
share of attention is kept where a larger one gains next to nothing, or no more than chance would;
weights are not negative, sum to 1, and lie half-way between the best ones and equal ones.

Axes: B batch · H lead · C channel · Q quantile level · N cell that is observed · M member · S share ·
G stretch of a series' time · W window.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from forecaster.model.heads import pinball
from forecaster.model.network import Network
from forecaster.runs.training.devices import Place, of_the_first
from forecaster.windows.batch import Batch
from forecaster.windows.datamodule import WindowSequence
from forecaster.windows.index import Int64, WindowIndex
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore

SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_GAIN = 0.002  # of the loss; less is not worth more of the part that may have learned by heart
_UNSEEN = 0.5  # share where nothing is validated: the errors of the two differ, so their mean is safe
_MOST_NUMBERS = 1 << 21  # quantiles of a member at hand; more windows would choose the same
_BATCH = 256
_ROUNDS, _RATE = 100, 0.5


def choose_shares(networks: Sequence[Network], store: WindowStore, split: Split, place: Place) -> None:
    """Puts into each network how much of its forecast is attention's, where it has a linear part.

    Args:
        networks: trained.
        store, split: of the panel.
        place: of this process; the first one decides for all that train together.
    """
    for network in networks:
        if network.linear is None:
            continue
        share = _UNSEEN
        if len(split.held):
            share = of_the_first(_share(network, store, split) if place.leads else share, place)
        network.network_weight.fill_(share)


def choose_weights(
    networks: Sequence[Network], store: WindowStore, split: Split, place: Place
) -> list[float]:
    """Returns how much each of some networks counts.

    Args:
        networks: trained, their shares chosen.
        store, split: of the panel.
        place: of this process; the first one decides for all that train together.
    """
    count = len(networks)
    if count == 1 or not len(split.held):
        return [1 / count] * count
    return of_the_first(_weights(networks, store, split) if place.leads else [], place)


def _weights(networks: Sequence[Network], store: WindowStore, split: Split) -> list[float]:
    """Returns weights half-way between the best and equal ones."""
    said = []
    for network in networks:
        target, quantiles = map(torch.cat, zip(*_scored(network, store, split), strict=True))
        observed = ~target.isnan()
        said.append(quantiles[observed])
    levels = torch.tensor(networks[0].config.quantile_levels)
    best = best_weights(torch.stack(said), target[observed], levels)
    return [float(weight) for weight in (best + 1 / len(networks)) / 2]


def best_weights(
    quantiles: Float[Tensor, "M N Q"], target: Float[Tensor, " N"], levels: Float[Tensor, " Q"]
) -> Float[Tensor, " M"]:
    """Returns the weights whose mean of quantiles has the least pinball loss, summing to 1.

    Source: Kivinen and Warmuth, "Exponentiated gradient versus gradient descent" (1997).

    Args:
        quantiles: of each member.
        target: truth, in the same units; none is missing.
        levels: of the quantiles.
    """
    score = torch.zeros(len(quantiles), requires_grad=True)
    best, least = torch.softmax(score.detach(), dim=0), torch.inf
    for _ in range(_ROUNDS):
        weights = torch.softmax(score, dim=0)
        loss = pinball(torch.tensordot(weights, quantiles, dims=1), target, levels).mean()
        if (found := float(loss.detach())) < least:
            best, least = weights.detach(), found
        (slope,) = torch.autograd.grad(loss, weights)
        # Relative to the loss, so that the unit of the data does not matter.
        score = (score.detach() - _RATE * slope / max(least, 1e-12)).requires_grad_()
    return best


def _share(network: Network, store: WindowStore, split: Split) -> float:
    """Returns the smallest share whose loss is next to the least, or differs from it by chance."""
    stretch = torch.from_numpy(stretches(split.validation, _watched(network, split), store.horizon))
    losses = torch.zeros(len(SHARES), int(stretch.max()) + 1, dtype=torch.float64)
    levels = torch.tensor(network.config.quantile_levels)
    parts = zip(
        stretch.split(_BATCH),
        _scored(network, store, split, share=0.0),
        _scored(network, store, split, share=1.0),
        strict=True,
    )
    for own, (target, straight), (_, attention) in parts:
        for place, share in enumerate(SHARES):
            cells = pinball(torch.lerp(straight, attention, share), target, levels)
            # Where there is no truth there is no loss.
            cells = cells.masked_fill(target.isnan(), 0.0)
            losses[place].index_add_(0, own, cells.sum(dim=(1, 2)).double())
    return SHARES[smallest(losses)]


def smallest(losses: Float[Tensor, "S G"]) -> int:
    """Returns the first share whose loss is within 0.2 %, or a standard error, of the least.

    The error is of the difference, over stretches that are independent but for their borders; a single
    one is no evidence, and takes the first share. Source: the one-standard-error rule of Breiman,
    Friedman, Olshen and Stone, "Classification and regression trees" (1984).

    Args:
        losses: summed over each stretch.
    """
    least = losses.sum(dim=1).min()
    beyond = losses - losses[losses.sum(dim=1).argmin()]
    count = losses.shape[1]
    chance = beyond.std(dim=1) * count**0.5 if count > 1 else torch.full_like(beyond[:, 0], torch.inf)
    enough = beyond.sum(dim=1) <= torch.maximum(_GAIN * least, chance)
    return int(enough.int().argmax())


def stretches(index: WindowIndex, numbers: Int64, horizon: int) -> Int64:
    """Returns [W] which stretch of a series' time each window falls into, counted from 0.

    Args:
        index: of all windows.
        numbers: of W windows, at least one.
        horizon: steps; a stretch has at least as many cutoffs, where a series has.
    """
    series, _, cutoff = index.locate(numbers)
    _, own = np.unique(series, return_inverse=True)
    first, last = np.full(own.max() + 1, cutoff.max()), np.zeros(own.max() + 1, np.int64)
    np.minimum.at(first, own, cutoff)
    np.maximum.at(last, own, cutoff)
    span = last - first + 1
    count = np.maximum(1, span // horizon)
    part = (cutoff - first[own]) * count[own] // span[own]
    found: Int64 = np.unique((np.cumsum(count) - count)[own] + part, return_inverse=True)[1]
    return found


def _watched(network: Network, split: Split) -> Int64:
    """Returns the numbers of the watched windows, an even draw of them where there are many."""
    shape, levels = network.shape, network.config.quantile_levels
    channels = shape.channels if network.config.channel_attention else 1
    most = max(1, _MOST_NUMBERS // (shape.horizon * channels * len(levels)))
    return split.held[:: -(-len(split.held) // most)]


def _scored(
    network: Network, store: WindowStore, split: Split, share: float | None = None
) -> Iterator[tuple[Float[Tensor, "B H C"], Float[Tensor, "B H C Q"]]]:
    """Yields truth, NaN where there is none, and quantiles of watched windows, scaled units.

    Args:
        network: trained.
        store, split: of the panel.
        share: of attention; None = the network's own.
    """
    for batch in WindowSequence(store, split.validation, _watched(network, split), _BATCH):
        yield _cells(network, batch, share)


@torch.no_grad()
def _cells(network: Network, batch: Batch, share: float | None) -> tuple[Tensor, Tensor]:
    inputs = batch.inputs
    before = None
    if share is not None:
        before = float(network.network_weight)
        network.network_weight.fill_(share)
    quantiles = network(inputs)
    if before is not None:
        network.network_weight.fill_(before)
    loc, scale = network.scaler(inputs.context, inputs.observed, inputs.channel)
    truth = (batch.target - loc[:, None]) / scale[:, None]
    return truth, (quantiles - loc[:, None, :, None]) / scale[:, None, :, None]
