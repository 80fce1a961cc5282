"""How much each part of a forecast counts, by what validation has seen.

What comes in: trained networks, and the windows that early stopping has watched. What goes out: an
ensemble of them. Promised: shares and weights are chosen by the pinball loss in scaled units; a smaller
share of attention is kept where a larger one gains next to nothing; weights are not negative, sum to 1,
and lie half-way between the best ones and equal ones.

Axes: N cell (a lead of a channel of a window) · M member · Q quantile level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from forecaster.model.heads import pinball
from forecaster.model.network import Network
from forecaster.runs.training.devices import Place, of_the_first
from forecaster.windows.batch import Batch
from forecaster.windows.datamodule import WindowSequence
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
        network.share.fill_(share)


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
        target, quantiles = zip(*_scored(network, store, split), strict=True)
        said.append(torch.cat(quantiles))
    levels = torch.tensor(networks[0].config.quantile_levels)
    best = best_weights(torch.stack(said), torch.cat(target), levels)
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
    """Returns the smallest share whose loss is next to the least."""
    losses = torch.zeros(len(SHARES), dtype=torch.float64)
    levels = torch.tensor(network.config.quantile_levels)
    parts = zip(
        _scored(network, store, split, share=0.0),
        _scored(network, store, split, share=1.0),
        strict=True,
    )
    for (target, straight), (_, attention) in parts:
        for place, share in enumerate(SHARES):
            losses[place] += pinball(torch.lerp(straight, attention, share), target, levels).sum()
    enough = losses <= (1 + _GAIN) * losses.min()
    return SHARES[int(enough.int().argmax())]


def _scored(
    network: Network, store: WindowStore, split: Split, share: float | None = None
) -> Iterator[tuple[Float[Tensor, " N"], Float[Tensor, "N Q"]]]:
    """Yields truth and quantiles of observed cells of watched windows, scaled units.

    Args:
        network: trained.
        store, split: of the panel.
        share: of attention; None = the network's own.
    """
    shape, levels = network.shape, network.config.quantile_levels
    channels = shape.channels if network.config.channel_attention else 1
    most = max(1, _MOST_NUMBERS // (shape.horizon * channels * len(levels)))
    numbers = split.held[:: -(-len(split.held) // most)]
    for batch in WindowSequence(store, split.validation, numbers, _BATCH):
        yield _cells(network, batch, share)


@torch.no_grad()
def _cells(network: Network, batch: Batch, share: float | None) -> tuple[Tensor, Tensor]:
    inputs = batch.inputs
    before = None
    if share is not None:
        before = float(network.share)
        network.share.fill_(share)
    quantiles = network(inputs)
    if before is not None:
        network.share.fill_(before)
    loc, scale = network.scaler(inputs.context, inputs.observed, inputs.channel)
    observed = ~batch.target.isnan()
    truth = (batch.target - loc[:, None]) / scale[:, None]
    scaled = (quantiles - loc[:, None, :, None]) / scale[:, None, :, None]
    return truth[observed], scaled[observed]
