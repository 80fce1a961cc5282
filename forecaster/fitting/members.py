"""The networks of a fit: trained one after the other, then weighed by validation.

    first pass    member 0, member-01, member-02, …    early stopping by the validation windows
    second pass   refit-00, refit-01, …                all rows, as many steps as were best

Member k is the network that a fit of its own with seed + k would train. Weights are chosen by the
pinball loss of the validation windows in scaled units. A smaller network weight (more of the experts
alone) is kept where a larger one gains next to nothing, or no more than chance would.

Axes: B batch · H lead · C channel · Q quantile level · N observed cell · M member · S network weight ·
G stretch of a series' time · W window.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from jaxtyping import Float, Int
from torch import Tensor

from forecaster.config import FitPlan, Plan
from forecaster.errors import number_of
from forecaster.fitting.distributed import DistributedContext, broadcast_from_rank_zero
from forecaster.fitting.experts.pool import solve_experts
from forecaster.fitting.moments import learn_scales
from forecaster.fitting.train import TrainingContext, train
from forecaster.fitting.warm_start import started_shape, take_weights
from forecaster.forecast.artifact import Artifact
from forecaster.model.experts import Experts
from forecaster.model.heads import pinball
from forecaster.model.learner import Learner
from forecaster.model.network import Network
from forecaster.model.transfer import merge
from forecaster.panel.panel import Panel
from forecaster.windows.datamodule import WindowSequence
from forecaster.windows.index import Int64, WindowIndex
from forecaster.windows.split import Split, split_panel
from forecaster.windows.store import WindowStore, training_store

NETWORK_WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)
_GAIN = 0.002  # of the loss; less is not worth more of the part that may have memorised
_OWN_GAIN, _CLEAR = 0.01, 2.0  # of the loss, and in standard errors: for a weight of one channel alone
_MOST_NUMBERS = 1 << 21  # quantiles of a member at hand; more windows would choose the same
_BATCH = 256
_ROUNDS, _RATE = 100, 0.5
_ENOUGH = 0.25  # of the steps; a budget for fewer is a warning
MEASURED_STEPS, _WARM = 20, 5  # the first few are not counted: caches fill, kernels are chosen


Curves = Mapping[str, Sequence[tuple[int, float]]]
"""Losses and rates by name: step and value."""


@dataclass(frozen=True)
class Trained:
    """One network, and how it came about."""

    name: str
    """Of the training; empty: the first one."""
    network: Network
    seed: int
    steps: int
    """Taken."""
    best_step: int
    """After which the kept weights were validated; `steps` where nothing was."""
    curves: Curves
    """Losses and rates by step."""
    ended: bool
    """Whether a callback has ended it."""


class Trainings:
    """All trainings of one fit."""

    def __init__(self, panel: Panel, plan: Plan, context: TrainingContext, start: Artifact | None):
        self._begun = time.monotonic()
        self.store: WindowStore = training_store(panel, plan)
        self._panel, self._context, self._start = panel, context, start
        self._announced = False
        self._solved: tuple[Split, Experts] | None = None

    def settled(self, plan: Plan, split: Split) -> Plan:
        """Returns the plan with as many steps as the time budget allows on this machine."""
        context, fit = self._context, plan.fit
        if fit.budget_seconds is None or not trains_network(plan, split):
            return plan
        pace, short = Pace(), plan.with_fit(steps=MEASURED_STEPS, patience=None)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            learner = self._learner(short, split, "")
            watched = replace(context, logger=None, callbacks=(pace,), checkpoints=None)
            train(learner, self.store, split, short, watched)
        left = max(0.0, fit.budget_seconds - (time.monotonic() - self._begun))
        trainings = fit.ensemble_size * (2 if fit.refit and len(split.validation_windows) else 1)
        bounded = broadcast_from_rank_zero(
            within_budget(fit, pace, left / trainings), context.distributed
        )
        share = bounded.steps / fit.steps
        note = "" if share < 1 else ", all of them"
        if share < _ENOUGH:
            every = trainings * (fit.steps * pace.step + 8 * pace.validation)
            note = f": too few to learn much; all of them take about {math.ceil(every / 60)} min"
        context.reporter.notice(
            f"budget {fit.budget_seconds:,.0f} s: a step takes {1e3 * pace.step:,.1f} ms; "
            f"{number_of(trainings, 'training')} of {bounded.steps:,} of {fit.steps:,} steps{note}"
        )
        context.reporter.budget(bounded)
        return plan.model_copy(update={"fit": bounded})

    def members(self, plan: Plan, split: Split) -> list[Trained]:
        """Returns the networks of the first pass; there may be none to train."""
        if not trains_network(plan, split):
            return [self._untrained("", plan, split)]
        trained: list[Trained] = []
        for number in range(plan.fit.ensemble_size):
            name = f"member-{number:02d}" if number else ""
            trained.append(self._trained(name, of_member(plan, number), split))
            if trained[-1].ended:
                break
        return trained

    def refitted(self, plan: Plan, before: Sequence[Trained]) -> list[Trained]:
        """Returns the networks of the second pass; at network weight 0 only experts are solved."""
        split = split_panel(self._panel, plan.with_fit(validation=None))
        trained = []
        for number, member in enumerate(before):
            name = f"refit-{number:02d}"
            own, before_refit = of_member(plan, number).with_fit(steps=member.best_step), member.network
            fit = self._untrained if experts_alone([before_refit]) else self._trained
            trained.append(fit(name, own, split))
            if before_refit.experts is not None:
                trained[-1].network.network_weight.copy_(before_refit.network_weight)
        return trained

    def solve_again(self, plan: Plan, networks: Sequence[Network]) -> None:
        """Solves the experts of networks on all rows, in place; scalers and weights stay."""
        split = split_panel(self._panel, plan.with_fit(validation=None))
        with self._context.reporter.stage("solving the experts on all rows"):
            for network in networks:
                solve_experts(network, self._panel, plan, split, self.store)
                _forget_held_out(network)

    def network(self, plan: Plan, split: Split) -> Network:
        """Returns the network of a member before training, its experts solved."""
        panel, start = self._panel, self._start
        torch.manual_seed(plan.fit.seed)
        network = Network(plan.model, started_shape(panel, plan.horizon, start))
        learn_scales(network, panel, split.train_end)
        if start is not None:
            parts = take_weights(network, panel, plan, start)
            if not self._announced:
                self._context.reporter.warm_start(panel, split, start, parts)
            self._announced = True
        if network.experts is None:
            return network
        if self._solved is None or self._solved[0] is not split:  # all members have the same experts
            with self._context.reporter.stage("solving the experts"):
                solve_experts(network, panel, plan, split, self.store)
            self._solved = split, network.experts
        network.experts = copy.deepcopy(self._solved[1])
        return network

    def _learner(self, plan: Plan, split: Split, name: str) -> Learner[Network]:
        network, context = self.network(plan, split), self._context
        return Learner(
            network, plan.fit, self._panel.labels, name, bf16=context.bf16, compiled=context.compiled
        )

    def _untrained(self, name: str, plan: Plan, split: Split) -> Trained:
        network = self.network(plan, split).requires_grad_(False).eval()
        _forget_held_out(network)
        return Trained(name, network, plan.fit.seed, 0, 0, curves={}, ended=False)

    def _trained(self, name: str, plan: Plan, split: Split) -> Trained:
        learner = self._learner(plan, split, name)
        best = train(learner, self.store, split, plan, self._context)
        network = learner.average
        merge(network)
        _forget_held_out(network)
        return Trained(
            name=name,
            network=network,
            seed=plan.fit.seed,
            steps=learner.global_step,
            best_step=best.step,
            curves=learner.curves,
            ended=learner.ended and not best.out_of_patience,
        )


def _forget_held_out(network: Network) -> None:
    """Drops the linear maps that only training windows are forecast by."""
    if network.experts is not None and network.experts.linear is not None:
        network.experts.linear.held_out = ()
        if network.experts.arx is not None:
            network.experts.arx.held_out = None


def trains_network(plan: Plan, split: Split) -> bool:
    """Returns whether a network is trained: beside several experts only where windows validate it.

    Unvalidated it was no safe half of the forecast: on 18 monthly rows with horizon 12 the error was 1.4 to
    1.7 times that of seasonal naive in three of six tables.
    """
    experts = plan.model.experts
    return not experts or (len(experts) > 1 and len(split.validation_windows) > 0)


def experts_alone(networks: Sequence[Network]) -> bool:
    """Returns whether no network adds anything to the experts."""
    return all(own.network_weights()[1] == 0 for own in networks)


def of_member(plan: Plan, number: int) -> Plan:
    """Returns the plan of one member: it has a seed of its own."""
    return plan.with_fit(seed=(plan.fit.seed + number) % (1 << 63))


def member_metrics(members: Sequence[Trained], weights: Sequence[float]) -> dict[str, Any]:
    """Returns what metrics.json holds of the members; steps and best step are those of the first."""
    rows = [
        {
            "seed": member.seed,
            "steps": member.steps,
            "best_step": member.best_step,
            "network_weight": mean_weight(member.network),
            "weight": weight,
        }
        for member, weight in zip(members, weights, strict=True)
    ]
    first = members[0]
    return {
        "steps": first.steps,
        "best_step": first.best_step,
        "curves": curves_of((member.name, member.curves) for member in members),
        "members": rows,
    }


def mean_weight(network: Network) -> float:
    """Returns the mean weight of a network over its channels; 1 without experts."""
    return 1.0 if network.experts is None else float(network.network_weight[1:].mean())


def curves_of(trained: Iterable[tuple[str, Curves]]) -> dict[str, list[list[float]]]:
    """Returns the curves of named trainings; those of the first training have their bare names."""
    return {
        f"{training}/{name}" if training else name: [list(point) for point in curve]
        for training, curves in trained
        for name, curve in curves.items()
    }


# Budget


@dataclass
class Pace(pl.Callback):
    """Measures a short training."""

    step: float = 0.0
    """Seconds of a training step."""
    validation: float = 0.0
    """Seconds of one validation."""
    _at: dict[str, float] = field(default_factory=dict)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        """Times the steps after the first few, without the validations between them."""
        if trainer.global_step == _WARM:
            self._at["steps"], self._at["validating"] = time.monotonic(), 0.0
        if trainer.global_step == MEASURED_STEPS:
            taken = time.monotonic() - self._at["steps"] - self._at["validating"]
            self.step = taken / (MEASURED_STEPS - _WARM)

    def on_validation_start(self, *args: Any) -> None:
        """Starts the clock of a validation."""
        self._at["validation"] = time.monotonic()

    def on_validation_end(self, *args: Any) -> None:
        """Keeps the time of the last validation."""
        self.validation = time.monotonic() - self._at["validation"]
        self._at["validating"] = self._at.get("validating", 0.0) + self.validation


def within_budget(fit: FitPlan, pace: Pace, seconds: float) -> FitPlan:
    """Returns the training with as many steps as fit into its seconds, and no budget."""
    steps = max(1, min(fit.steps, int(seconds / pace.step)))
    while steps > 1 and steps * pace.step + steps // max(1, steps // 8) * pace.validation > seconds:
        steps -= 1
    return fit.model_copy(update={"steps": steps, "budget_seconds": None})


# Weights


def choose_network_weights(
    networks: Sequence[Network], store: WindowStore, split: Split, distributed: DistributedContext
) -> None:
    """Puts into each network how much of its forecast is its own; the rest is that of the experts."""
    for network in networks:
        if network.experts is None:
            continue
        weights = torch.zeros_like(network.network_weight)
        if len(network.experts.names) > 1 and len(split.validation_windows):
            found = _network_weights(network, store, split) if distributed.is_main else []
            weights = torch.tensor(broadcast_from_rank_zero(found, distributed))
        network.network_weight.copy_(weights)


def choose_ensemble_weights(
    networks: Sequence[Network], store: WindowStore, split: Split, distributed: DistributedContext
) -> list[float]:
    """Returns weights of the members, half-way between the best and equal ones."""
    count = len(networks)
    if count == 1 or not len(split.validation_windows):
        return [1 / count] * count
    found = _ensemble_weights(networks, store, split) if distributed.is_main else []
    return broadcast_from_rank_zero(found, distributed)


def _ensemble_weights(networks: Sequence[Network], store: WindowStore, split: Split) -> list[float]:
    forecasts = []
    for network in networks:
        target, quantiles, _ = map(torch.cat, zip(*_scored(network, store, split), strict=True))
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


def _network_weights(network: Network, store: WindowStore, split: Split) -> list[float]:
    """One weight for all channels, but where another is better in a channel by twice the standard error."""
    numbers = _validation_numbers(network, split)
    stretch = torch.from_numpy(stretches(split.validation, numbers, store.horizon))
    count, channels = int(stretch.max()) + 1, network.shape.channels
    losses = torch.zeros(len(NETWORK_WEIGHTS), count * channels, dtype=torch.float64)
    levels = torch.tensor(network.config.quantile_levels)
    scored = (_scored(network, store, split, weight) for weight in (0.0, 1.0))
    parts = zip(stretch.split(_BATCH), *scored, strict=True)
    for own, (target, alone, code), (_, network_own, _) in parts:
        at = (own[:, None] * channels + code - 1).flatten()
        for number, weight in enumerate(NETWORK_WEIGHTS):
            cells = pinball(torch.lerp(alone, network_own, weight), target, levels)
            cells = cells.masked_fill(target.isnan(), 0.0)
            losses[number].index_add_(0, at, cells.sum(dim=1).flatten().double())
    parted = losses.unflatten(1, (count, channels))
    chosen = smallest(parted.sum(dim=2))
    each = [chosen] if channels == 1 else [_better(own, chosen) for own in parted.unbind(dim=2)]
    return [NETWORK_WEIGHTS[number] for number in (chosen, *each)]


def _better(losses: Float[Tensor, "S G"], chosen: int) -> int:
    """The weight of least loss, where that is clearly less than the chosen one's."""
    best = int(losses.sum(dim=1).argmin())
    gain = losses[chosen] - losses[best]
    chance = _CLEAR * gain.std() * len(gain) ** 0.5 if len(gain) > 1 else torch.inf
    return best if gain.sum() > max(float(chance), _OWN_GAIN * float(losses[best].sum())) else chosen


def smallest(losses: Float[Tensor, "S G"]) -> int:
    """Returns the first weight whose loss is within 0.2 %, or a standard error, of the least.

    The error is of the difference, over stretches that are independent but for their borders; a single
    stretch is no evidence, and takes the first weight. Source: the one-standard-error rule of Breiman,
    Friedman, Olshen and Stone, "Classification and regression trees" (1984).
    """
    least = losses.sum(dim=1).min()
    beyond = losses - losses[losses.sum(dim=1).argmin()]
    count = losses.shape[1]
    chance = beyond.std(dim=1) * count**0.5 if count > 1 else torch.full_like(beyond[:, 0], torch.inf)
    enough = beyond.sum(dim=1) <= torch.maximum(_GAIN * least, chance)
    return int(enough.int().argmax())


def stretches(index: WindowIndex, numbers: Int64, horizon: int) -> Int64:
    """Returns [W] which stretch of a series' time each window falls into, counted from 0.

    A stretch has at least `horizon` cutoffs, where a series has.
    """
    series, _, cutoff = index.locate(numbers)
    _, own = np.unique(series, return_inverse=True)
    first, last = np.full(own.max() + 1, cutoff.max()), np.zeros(own.max() + 1, np.int64)
    np.minimum.at(first, own, cutoff)
    np.maximum.at(last, own, cutoff)
    span = last - first + 1
    count = np.maximum(1, span // horizon)
    part = (cutoff - first[own]) * count[own] // span[own]
    return np.unique((np.cumsum(count) - count)[own] + part, return_inverse=True)[1]


def _validation_numbers(network: Network, split: Split) -> Int64:
    """Numbers of the validation windows, an even draw of them where there are many."""
    shape, levels = network.shape, network.config.quantile_levels
    channels = shape.channels if network.config.channel_attention else 1
    most = max(1, _MOST_NUMBERS // (shape.horizon * channels * len(levels)))
    return split.validation_windows[:: -(-len(split.validation_windows) // most)]


@torch.no_grad()
def _scored(
    network: Network, store: WindowStore, split: Split, weight: float | None = None
) -> Iterator[tuple[Float[Tensor, "B H C"], Float[Tensor, "B H C Q"], Int[Tensor, "B C"]]]:
    """Yields truth, quantiles and channels of validation windows in scaled units.

    `weight` is put into the network before each batch; None = its own.
    """
    numbers = _validation_numbers(network, split)
    for batch in WindowSequence(store, split.validation, numbers, _BATCH):
        if weight is not None:
            network.network_weight.fill_(weight)
        scale = network.scale(batch.inputs)
        quantiles = network(batch.inputs)
        yield scale.apply(batch.target), scale.apply(quantiles), batch.inputs.channel
