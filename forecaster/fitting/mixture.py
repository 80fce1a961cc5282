"""How much each part of a forecast counts: a network beside its experts, and each network of an ensemble.

Weights are chosen by the pinball loss of the validation windows in scaled units. A smaller network weight
(more of the experts alone) is kept where a larger one gains next to nothing, or less than chance may: `least_loss`.

Axes: B batch · H lead · C channel · Q quantile level · N observed cell · M member · S network weight ·
G stretch of a series' time · W window.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from forecaster.fitting.distributed import DistributedContext, broadcast_from_rank_zero
from forecaster.model.heads import pinball
from forecaster.model.network import Network
from forecaster.windows.index import Int64, WindowIndex
from forecaster.windows.split import Split
from forecaster.windows.store import WindowStore
from forecaster.windows.streams import WindowSequence

NETWORK_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
_GAIN = 0.002  # of the loss; less is not worth more of the part that may have memorised
_CAUTION = 0.5  # standard errors that a change from the first choice costs
_CHANNEL_GAIN = 0.01  # of the loss, for a weight of one channel alone
_CHANNEL_ERRORS = 2.0  # standard errors, for the same
_MOST_NUMBERS = 1 << 21  # quantiles of a member at hand; more windows would choose the same
_BATCH = 256
_ROUNDS = 100
_RATE = 0.5


def choose_network_weights(
    networks: Sequence[Network], store: WindowStore, split: Split, distributed: DistributedContext
) -> None:
    """Puts into each network how much of its forecast is its own; the rest is that of the experts."""
    for network in networks:
        if network.experts is None:
            continue
        weights = torch.zeros_like(network.network_weight)
        if len(network.experts.names) > 1 and len(split.validation_windows):
            chosen = _network_weights(network, store, split) if distributed.is_main else []
            weights = torch.tensor(broadcast_from_rank_zero(chosen, distributed))
        network.network_weight.copy_(weights)


def choose_ensemble_weights(
    networks: Sequence[Network], store: WindowStore, split: Split, distributed: DistributedContext
) -> list[float]:
    """Returns weights of the members, half-way between the best and equal ones."""
    count = len(networks)
    if count == 1 or not len(split.validation_windows):
        return [1 / count] * count
    chosen = _ensemble_weights(networks, store, split) if distributed.is_main else []
    return broadcast_from_rank_zero(chosen, distributed)


def _ensemble_weights(networks: Sequence[Network], store: WindowStore, split: Split) -> list[float]:
    forecasts = []
    for network in networks:
        batches = _scored(network, store, split)
        target, quantiles, _ = map(torch.cat, zip(*batches, strict=True))
        observed = ~target.isnan()
        forecasts.append(quantiles[observed])
    levels = torch.tensor(networks[0].config.quantile_levels)
    best = best_weights(torch.stack(forecasts), target[observed], levels)
    return [float(weight) for weight in (best + 1 / len(networks)) / 2]


def best_weights(
    quantiles: Float[Tensor, "M N Q"], target: Float[Tensor, " N"], levels: Float[Tensor, " Q"]
) -> Float[Tensor, " M"]:
    """Returns the weights, summing to 1, whose mean of quantiles has the least pinball loss.

    Source: Kivinen and Warmuth, "Exponentiated gradient versus gradient descent" (1997).
    """
    logits = torch.zeros(len(quantiles), requires_grad=True)
    best = torch.softmax(logits.detach(), dim=0)
    least = math.inf
    for _ in range(_ROUNDS):
        weights = torch.softmax(logits, dim=0)
        mean = torch.tensordot(weights, quantiles, dims=1)  # [N, Q]
        loss = pinball(mean, target, levels).mean()
        if loss.item() < least:
            best = weights.detach()
            least = loss.item()
        (gradient,) = torch.autograd.grad(loss, weights)
        # Relative to the loss, so that the unit of the data does not matter.
        step = _RATE * gradient / max(least, 1e-12)
        logits = (logits.detach() - step).requires_grad_()
    return best


def _network_weights(network: Network, store: WindowStore, split: Split) -> list[float]:
    """One weight for all channels, but where another is better in a channel by twice the standard error."""
    numbers = validation_numbers(network, split)
    stretch = torch.from_numpy(stretches(split.validation, numbers, store.horizon))  # [W]
    levels = torch.tensor(network.config.quantile_levels)
    losses = losses_by_weight(stretch, network.shape.channels)
    of_experts = _scored(network, store, split, weight=0.0)
    of_network = _scored(network, store, split, weight=1.0)
    batches = zip(stretch.split(_BATCH), of_experts, of_network, strict=True)
    for stretch_of_window, (target, experts, code), (_, full, _) in batches:
        add_losses(losses, (stretch_of_window[:, None], code - 1), target, experts, full, levels)
    return [NETWORK_WEIGHTS[number] for number in chosen_numbers(losses)]


def losses_by_weight(stretch: Int[Tensor, " W"], channels: int) -> Float[Tensor, "S G C"]:
    """Returns zeros to add the losses of windows of these stretches to."""
    count = int(stretch.max()) + 1
    return torch.zeros(len(NETWORK_WEIGHTS), count, channels, dtype=torch.float64)


def add_losses(
    losses: Float[Tensor, "S G C"],
    place: tuple[Int[Tensor, "B 1"], Int[Tensor, "B C"]],
    target: Float[Tensor, "B H C"],
    experts: Float[Tensor, "B H C Q"],
    full: Float[Tensor, "B H C Q"],
    levels: Float[Tensor, " Q"],
) -> None:
    """Adds the pinball losses of a batch, in place, with each weight of the network in the forecast.

    `place`: stretch and channel, from 0; `experts`, `full`: quantiles at weights 0 and 1, scaled units.
    """
    for of_weight, weight in zip(losses, NETWORK_WEIGHTS, strict=True):
        loss = pinball(torch.lerp(experts, full, weight), target, levels)  # [B, H, C]
        loss = loss.masked_fill(target.isnan(), 0.0).sum(dim=1).double()
        of_weight.index_put_(torch.broadcast_tensors(*place), loss, accumulate=True)


def chosen_numbers(losses: Float[Tensor, "S G C"]) -> list[int]:
    """Returns which of `NETWORK_WEIGHTS` is chosen for all channels together, then for each."""
    common = least_loss(losses.sum(dim=2))
    if losses.shape[2] == 1:
        return [common, common]
    return [common] + [_channel_weight(one, common) for one in losses.unbind(dim=2)]


def may_count(split: Split, horizon: int) -> bool:
    """Returns whether a network may get a weight: of one stretch none does."""
    found = stretches(split.validation, split.validation_windows, horizon)
    return len(found) > 0 and int(found.max()) > 0


def _channel_weight(losses: Float[Tensor, "S G"], common: int) -> int:
    """The weight of least loss of a channel, where that is clearly less than the common one's."""
    best = int(losses.sum(dim=1).argmin())
    gain = losses[common] - losses[best]
    chance = math.inf
    if len(gain) > 1:
        chance = float(_CHANNEL_ERRORS * gain.std() * len(gain) ** 0.5)
    least = max(chance, _CHANNEL_GAIN * float(losses[best].sum()))
    return best if gain.sum() > least else common


def least_loss(losses: Float[Tensor, "S G"]) -> int:
    """Returns the choice of least loss, where leaving the first one costs half a standard error of the change:

        cost_s = Σ_g L_sg + ½·√G·std_g(L_sg − L_0g)

    The first choice whose cost is within 0.2 % of the least. Stretches of time are independent but for their
    borders; a single one is no evidence, and keeps the first choice.
    """
    count = losses.shape[1]
    if count == 1:
        return 0
    chance = (losses - losses[0]).std(dim=1) * count**0.5
    cost = losses.sum(dim=1) + _CAUTION * chance
    is_close = cost <= (1 + _GAIN) * cost.min()
    return int(is_close.int().argmax())


def stretches(index: WindowIndex, numbers: Int64, horizon: int) -> Int64:
    """Returns [W] which stretch of a series' time each window falls into, counted from 0.

    A stretch has at least `horizon` cutoffs, where a series has.
    """
    series, _, cutoff = index.locate(numbers)
    names, series = np.unique(series, return_inverse=True)
    first = np.full(len(names), cutoff.max())
    last = np.zeros(len(names), np.int64)
    np.minimum.at(first, series, cutoff)
    np.maximum.at(last, series, cutoff)
    span = last - first + 1
    count = np.maximum(1, span // horizon)  # of each series
    before = np.cumsum(count) - count  # stretches of the series before
    within = (cutoff - first[series]) * count[series] // span[series]  # [W]
    return np.unique(before[series] + within, return_inverse=True)[1]


def validation_numbers(network: Network, split: Split) -> Int64:
    """Returns the numbers of the validation windows, an even draw of them where there are many."""
    config = network.config
    shape = network.shape
    windows = split.validation_windows
    channels = shape.channels if config.channel_attention else 1
    most = max(1, _MOST_NUMBERS // (shape.horizon * channels * len(config.quantile_levels)))
    return windows[:: -(-len(windows) // most)]


@torch.no_grad()
def _scored(
    network: Network, store: WindowStore, split: Split, weight: float | None = None
) -> Iterator[tuple[Float[Tensor, "B H C"], Float[Tensor, "B H C Q"], Int[Tensor, "B C"]]]:
    """Yields truth, quantiles and channels of validation windows in scaled units.

    `weight` is put into the network before each batch; None = its own.
    """
    numbers = validation_numbers(network, split)
    for batch in WindowSequence(store, split.validation, numbers, _BATCH):
        if weight is not None:
            network.network_weight.fill_(weight)
        scale = network.scale(batch.inputs)
        target = scale.apply(batch.target)
        quantiles = scale.apply(network(batch.inputs))
        yield target, quantiles, batch.inputs.channel


def mean_weight(network: Network) -> float:
    """Returns the mean weight of a network over its channels; 1 without experts."""
    return 1.0 if network.experts is None else float(network.network_weight[1:].mean())


def experts_alone(networks: Sequence[Network]) -> bool:
    """Returns whether no network adds anything to the experts."""
    return all(network.network_weights()[1] == 0 for network in networks)
