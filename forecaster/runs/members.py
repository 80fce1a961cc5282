"""The networks of a fit, one training after the other.

What comes in: a panel, a config and the windows of a training. What goes out: networks with the weights
to keep, and what is told of how they came about. Promised: member k is the network that a fit of its
own with seed + k would train; each training has checkpoints of its own, and one that is finished is
passed over by a fit that goes on; a watcher that ends a training ends the fit.

    first pass    member 0, member-01, member-02, …      what validation watches
    second pass   refit-00, refit-01, …                  all rows, as many steps as were best
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from jaxtyping import Float
from torch import Tensor

from forecaster.config import Config, FitConfig, ModelPlan
from forecaster.model.heads import pinball
from forecaster.model.learner import Learner
from forecaster.model.network import Network
from forecaster.model.transfer import merge
from forecaster.panel.panel import Panel
from forecaster.runs.distributed import DistributedContext, Training, broadcast_from_rank_zero
from forecaster.runs.linear import solve_linear
from forecaster.runs.scales import learn_scales
from forecaster.runs.train import TrainingContext, train
from forecaster.runs.transfer import Start, started_shape, take_weights
from forecaster.windows.batch import Batch
from forecaster.windows.datamodule import WindowSequence
from forecaster.windows.index import Int64, WindowIndex
from forecaster.windows.split import Split, split_panel
from forecaster.windows.store import WindowStore, training_store

STEPS = 20
_WARM = 5  # of them are not counted: caches fill, kernels are chosen
_VALIDATING = 1 / 3  # of the time, at most


@dataclass
class Pace(pl.Callback):
    """Watches a short training, and says how long its parts take."""

    step: float = 0.0
    """Seconds of a training step."""
    validation: float = 0.0
    """Seconds of all watched windows."""
    _at: dict[str, float] = field(default_factory=dict)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any, **kwargs: Any) -> None:
        """Times the steps after the first few."""
        if trainer.global_step == _WARM:
            self._at["step"] = time.monotonic()
        if trainer.global_step == STEPS:
            self.step = (time.monotonic() - self._at["step"]) / (STEPS - _WARM)

    def on_validation_start(self, *args: Any) -> None:
        """Times the validation."""
        self._at["validation"] = time.monotonic()

    def on_validation_end(self, *args: Any) -> None:
        """Times the validation."""
        self.validation = time.monotonic() - self._at["validation"]


def measured_pace(config: Config, run: Callable[[Config, Pace], None]) -> Pace:
    """Returns how long the parts of a training take.

    Args:
        config: of the training.
        run: trains something that is thrown away, watched.
    """
    short = config.fit.model_copy(
        update={"steps": STEPS, "validate_every": STEPS, "patience": None, "checkpoint_every": None}
    )
    pace = Pace()
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        run(config.model_copy(update={"fit": short}), pace)
    return pace


def within_budget(fit: FitConfig, pace: Pace, seconds: float) -> FitConfig:
    """Returns the settings of a training with as many steps as fit into its time, and no budget.

    Validations stay as many as they were, unless they took more than a third of the time.

    Args:
        fit: as asked for.
        pace: of its parts.
        seconds: for this training.
    """
    validations = math.ceil(fit.steps / fit.validate_every)
    steps, every = fit.steps, fit.validate_every
    if steps * pace.step + validations * pace.validation > seconds:
        if pace.validation:
            validations = max(1, min(validations, int(_VALIDATING * seconds / pace.validation)))
        left = seconds - validations * pace.validation
        steps = max(1, min(steps, int(left / pace.step)))
        every = math.ceil(steps / validations)
    return fit.model_copy(update={"steps": steps, "validate_every": every, "budget_seconds": None})


SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
_GAIN = 0.002  # of the loss; less is not worth more of the part that may have learned by heart
_UNSEEN = 0.5  # share where nothing is validated: the errors of the two differ, so their mean is safe
_MOST_NUMBERS = 1 << 21  # quantiles of a member at hand; more windows would choose the same
_BATCH = 256
_ROUNDS, _RATE = 100, 0.5


def choose_shares(
    networks: Sequence[Network], store: WindowStore, split: Split, distributed: DistributedContext
) -> None:
    """Puts into each network how much of its forecast is attention's, where it has a linear part.

    Args:
        networks: trained.
        store, split: of the panel.
        distributed: of this process; the first one decides for all that train together.
    """
    for network in networks:
        if network.linear is None:
            continue
        share = _UNSEEN
        if len(split.validation_windows):
            share = broadcast_from_rank_zero(
                _share(network, store, split) if distributed.is_main else share, distributed
            )
        network.network_weight.fill_(share)


def choose_weights(
    networks: Sequence[Network], store: WindowStore, split: Split, distributed: DistributedContext
) -> list[float]:
    """Returns how much each of some networks counts.

    Args:
        networks: trained, their shares chosen.
        store, split: of the panel.
        distributed: of this process; the first one decides for all that train together.
    """
    count = len(networks)
    if count == 1 or not len(split.validation_windows):
        return [1 / count] * count
    return broadcast_from_rank_zero(
        _weights(networks, store, split) if distributed.is_main else [], distributed
    )


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
    return split.validation_windows[:: -(-len(split.validation_windows) // most)]


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


Hand = Callable[[Training], None]
"""Hands a training to the processes that train along."""


@dataclass(frozen=True)
class Trained:
    """One network, and how it came about."""

    name: str
    """Of the training; empty: the first one."""
    network: Network
    """With the weights to keep."""
    seed: int
    """Of its first weights, its dropout, and the order of its windows."""
    steps: int
    """Taken."""
    best_step: int
    """After which the kept weights were validated; `steps` where nothing was."""
    curves: dict[str, list[tuple[int, float]]]
    """Losses and rates by step."""
    ended: bool
    """Whether a watcher has ended it."""


class Trainings:
    """All trainings of one fit."""

    def __init__(
        self,
        panel: Panel,
        config: Config,
        context: TrainingContext,
        start: Start | None,
        hand: Hand,
    ):
        """Takes what the trainings have in common.

        Args:
            panel: the table.
            config: says how windows are cut out of it.
            context: what they run on, and who watches.
            start: whose weights come first; None = random ones.
            hand: given each of them before it begins.
        """
        self._begun = time.monotonic()
        self.store: WindowStore = training_store(panel, config)
        self._panel, self._around, self._start, self._hand = panel, context, start, hand
        self._solved: tuple[Split, dict[str, Tensor]] | None = None

    def settled(self, config: Config, split: Split) -> Config:
        """Returns the config with as many steps as the time budget allows on this machine."""
        if config.fit.budget_seconds is None:
            return config
        config = self._bounded(config, split)
        self._around.settled(config.fit)
        return config

    def _bounded(self, config: Config, split: Split) -> Config:
        """Returns the config with as many steps as all trainings together have time for."""
        asked, budget = config.fit, config.fit.budget_seconds
        assert budget is not None

        def run(short: Config, pace: Pace) -> None:
            learner = Learner(self.network(short, split), short.fit, self._panel.labels)
            self._hand(Training(learner, split, short, None))
            train(
                learner,
                self.store,
                split,
                short,
                TrainingContext(None, (pace,), self._around.distributed),
            )

        pace = measured_pace(of_member(config, 0), run)
        spent = time.monotonic() - self._begun
        trainings = asked.members * (2 if asked.refit and len(split.validation_windows) else 1)
        fit = within_budget(asked, pace, max(0.0, budget - spent) / trainings)
        fit = broadcast_from_rank_zero(fit, self._around.distributed)
        self._around.say(
            f"budget {budget:,.0f} s: a step takes {1e3 * pace.step:,.1f} ms, "
            + (f"{trainings} trainings take {fit.steps:,} " if trainings > 1 else f"{fit.steps:,} ")
            + (f"of {asked.steps:,} steps" if fit.steps < asked.steps else "steps, all of them")
        )
        return config.model_copy(update={"fit": fit})

    def members(self, config: Config, split: Split) -> list[Trained]:
        """Returns the networks that validation watches.

        Args:
            config: settled.
            split: which windows train and which are watched.
        """
        trained: list[Trained] = []
        for number in range(config.fit.members):
            name = f"member-{number:02d}" if number else ""
            trained.append(self._trained(name, of_member(config, number), split))
            if trained[-1].ended:  # nobody waits for the others
                break
        return trained

    def refitted(self, config: Config, before: list[Trained]) -> list[Trained]:
        """Returns the same networks trained on all rows, each for as many steps as were best for it.

        Nobody asks the attention of a network whose share is 0: its linear maps alone are solved.

        Args:
            config: settled.
            before: what validation has seen.
        """
        unwatched = config.fit.model_copy(update={"validation": None})
        split = split_panel(self._panel, config.model_copy(update={"fit": unwatched}))
        trained = []
        for number, member in enumerate(before):
            own = of_member(config, number)
            fit = own.fit.model_copy(update={"steps": member.best_step})
            own = own.model_copy(update={"fit": fit})
            trained.append(self._again(f"refit-{number:02d}", own, split, member.network))
        return trained

    def _again(self, name: str, config: Config, split: Split, before: Network) -> Trained:
        if before.linear is None:
            return self._trained(name, config, split)
        if float(before.network_weight) == 0:
            network = self.network(config, split).requires_grad_(False).eval()
            again = Trained(name, network, config.fit.seed, 0, 0, curves={}, ended=False)
        else:
            again = self._trained(name, config, split)
        again.network.network_weight.copy_(before.network_weight)
        return again

    def network(self, config: Config, split: Split) -> Network:
        """Returns a network about to be trained, its linear maps solved over the windows that train.

        Args:
            config: of one member.
            split: of its training.
        """
        panel, start = self._panel, self._start
        parent = start.artifact if start else None
        assert config.horizon is not None
        torch.manual_seed(config.fit.seed)
        network = Network(ModelPlan.of(config.model), started_shape(panel, config.horizon, parent))
        learn_scales(network, panel, split.train_end)
        if start is not None:
            take_weights(network, panel, config, start)
            self._start = replace(start, say=lambda parts: None)  # said once
        self._solve(network, config, split)
        return network

    def _solve(self, network: Network, config: Config, split: Split) -> None:
        """Puts the solution of the linear maps in: members differ in attention, not in them."""
        if network.linear is None:
            return
        if self._solved is not None and self._solved[0] is split:
            network.linear.load_state_dict(self._solved[1])
            return
        solve_linear(network, self._panel, config, split.train)
        maps = {name: value.clone() for name, value in network.linear.state_dict().items()}
        self._solved = split, maps

    def _trained(self, name: str, config: Config, split: Split) -> Trained:
        learner = Learner(self.network(config, split), config.fit, self._panel.labels, name)
        files = self._around.checkpoints
        around = replace(self._around, checkpoints=files and files.within(name))
        self._hand(Training(learner, split, config, name))
        best = train(learner, self.store, split, config, around)
        merge(learner.average)
        return Trained(
            name=name,
            network=learner.average,
            seed=config.fit.seed,
            steps=learner.global_step,
            best_step=best.step if best.weights is not None else learner.global_step,
            curves=learner.curves,
            ended=learner.ended and not best.out_of_patience,
        )


def of_member(config: Config, number: int) -> Config:
    """Returns the config of one member: a seed and an attention length of its own."""
    fit, model = config.fit, config.model
    lengths = fit.member_lengths
    length = lengths[number % len(lengths)] if lengths else model.attention_length
    return config.model_copy(
        update={
            "fit": fit.model_copy(update={"seed": (fit.seed + number) % (1 << 63)}),
            "model": model.model_copy(update={"attention_length": length}),
        }
    )


def found_by(members: Sequence[Trained], weights: Sequence[float]) -> dict[str, Any]:
    """Returns what metrics.json tells of the members; steps and best step are those of the first."""
    told = [
        {
            "seed": member.seed,
            "attention_length": member.network.config.attention_length,
            "steps": member.steps,
            "best_step": member.best_step,
            "share": 1.0 if member.network.linear is None else float(member.network.network_weight),
            "weight": weight,
        }
        for member, weight in zip(members, weights, strict=True)
    ]
    first = members[0]
    return {
        "steps": first.steps,
        "best_step": first.best_step,
        "curves": curves_of(members),
        "members": told,
    }


def curves_of(members: Sequence[Trained]) -> dict[str, list[list[float]]]:
    """Returns the curves of trainings by name; those of the first training have their bare names."""
    return {
        f"{member.name}/{name}" if member.name else name: [list(point) for point in curve]
        for member in members
        for name, curve in member.curves.items()
    }
