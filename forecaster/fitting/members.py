"""The networks of a fit, trained one after the other.

    first pass    member 0, member-01, member-02, …    early stopping by the validation windows
    second pass   refit-00, refit-01, …                all rows, as many steps as were best

Member k is the network that a fit of its own with seed + k would train. Lightning is loaded where one is
trained.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from forecaster.config import Plan
from forecaster.errors import number_of
from forecaster.fitting.context import TrainingContext
from forecaster.fitting.distributed import broadcast_from_rank_zero
from forecaster.fitting.experts.pool import solve_experts
from forecaster.fitting.experts.tuning import parameters_of, put, tuned_maps
from forecaster.fitting.mixture import experts_alone, mean_weight, stretches, validation_numbers
from forecaster.fitting.moments import learn_scales
from forecaster.fitting.warm_start import started_shape, take_weights
from forecaster.forecast.artifact import Artifact
from forecaster.model.experts import Experts
from forecaster.model.network import Network
from forecaster.model.transfer import merge
from forecaster.panel.panel import Panel
from forecaster.windows.cleaning import training_panel
from forecaster.windows.effects import Effects
from forecaster.windows.split import Split, split_panel
from forecaster.windows.store import WindowStore, training_store

if TYPE_CHECKING:
    from forecaster.model.learner import Learner

_ENOUGH = 0.25  # of the steps; a budget for fewer is a warning

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
    refit_steps: int
    """That lead to the kept weights: without those taken back before the decay."""
    curves: Curves
    """Losses and rates by step."""
    ended: bool
    """Whether a callback has ended it."""
    why: str = ""
    """It has ended by its losses."""


class Trainings:
    """All trainings of one fit."""

    def __init__(
        self,
        panel: Panel,
        effects: Effects | None,
        plan: Plan,
        split: Split,
        context: TrainingContext,
        start: Artifact | None,
    ):
        self._begun = time.monotonic()
        self._plan, self._start = plan, start
        self._context = replace(context, starts_trained=start is not None)
        self.take(panel, effects, split.split)
        self._announced = False
        self._solved: tuple[Split, Experts] | None = None
        self._maps: Sequence[torch.Tensor] | None = None
        """Of attention over experts, tuned by the first pass."""
        self.tuning_steps = 0
        """That they were tuned for; 0 = as shipped, or as the start had them."""

    def take(self, panel: Panel, effects: Effects | None, end: int) -> None:
        """Trains from now on on what effects, and outliers up to a time, leave of a panel; windows stay."""
        self.panel = training_panel(panel, self._plan, end, effects)
        self.store: WindowStore = training_store(self.panel, self._plan, effects)
        self._context = replace(self._context, effects=effects)

    def settled(self, plan: Plan, split: Split) -> Plan:
        """Returns the plan with as many steps as the time budget allows on this machine."""
        context, fit = self._context, plan.fit
        if fit.budget_seconds is None or not trains_network(plan, split):
            return plan
        from forecaster.fitting.budget import MEASURED_STEPS, Pace, within_budget
        from forecaster.fitting.train import train

        pace = Pace()
        short = plan.with_fit(steps=MEASURED_STEPS, by_evidence=False)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            learner, validated = self._learner(short, split, "")
            watched = replace(context, logger=None, callbacks=(pace,), checkpoints=None)
            train(learner, self.store, validated, short, watched)
        left = max(0.0, fit.budget_seconds - (time.monotonic() - self._begun))
        trainings = fit.ensemble_size * (2 if fit.refit and len(split.validation_windows) else 1)
        bounded = broadcast_from_rank_zero(
            within_budget(fit, pace, left / trainings), context.distributed
        )
        share = bounded.steps / fit.steps
        steps = f"{bounded.steps:,} of {fit.steps:,} steps"
        if fit.by_evidence:
            steps = f"at most {bounded.steps:,} steps"
        note = ", all of them" if share >= 1 and not fit.by_evidence else ""
        if share < _ENOUGH:
            every = trainings * (fit.steps * pace.step + 8 * pace.validation)
            note = f": too few to learn much; all of them take about {math.ceil(every / 60)} min"
        context.reporter.notice(
            f"budget {fit.budget_seconds:,.0f} s: a step takes {1e3 * pace.step:,.1f} ms; "
            f"{number_of(trainings, 'training')} of {steps}{note}"
        )
        context.reporter.budget(bounded)
        return plan.model_copy(update={"fit": bounded})

    def members(self, plan: Plan, split: Split) -> list[Trained]:
        """Returns the networks of the first pass; there may be none to train."""
        trains, start = trains_network(plan, split), self._start
        count = plan.fit.ensemble_size
        if not trains:
            count = 1 if start is None else len(start.ensemble.networks)
        fit = self._trained if trains else self._untrained
        trained: list[Trained] = []
        for number in range(count):
            name = f"member-{number:02d}" if number else ""
            trained.append(fit(name, plan, split, number))
            if trained[-1].ended:
                break
        return trained

    def refitted(self, plan: Plan, before: Sequence[Trained]) -> list[Trained]:
        """Returns the networks of the second pass; at network weight 0 only experts are solved."""
        split = split_panel(self.panel, plan.with_fit(validation=None))
        trained = []
        for number, member in enumerate(before):
            name = f"refit-{number:02d}"
            own = plan.with_fit(steps=member.refit_steps, by_evidence=False)
            before_refit = member.network
            fit = self._untrained if experts_alone([before_refit]) else self._trained
            trained.append(fit(name, own, split, number))
            if before_refit.experts is not None:
                trained[-1].network.network_weight.copy_(before_refit.network_weight)
        return trained

    def solve_again(self, plan: Plan, networks: Sequence[Network]) -> None:
        """Solves the experts of networks on all rows, in place; scalers and weights stay."""
        split = split_panel(self.panel, plan.with_fit(validation=None))
        with self._context.reporter.stage("solving the experts on all rows"):
            for network in networks:
                solve_experts(network, self.panel, plan, split, self.store)
                _forget_held_out(network)

    def network(self, plan: Plan, split: Split, number: int) -> Network:
        """Returns the network of a member before training, its experts solved."""
        panel, start = self.panel, self._start
        torch.manual_seed(plan.fit.seed)
        network = Network(plan.model, started_shape(panel, plan.horizon, start))
        learn_scales(network, panel, split.train_end)
        if start is not None:
            networks = start.ensemble.networks
            parts = take_weights(network, panel, plan, start, networks[number % len(networks)])
            if not self._announced:
                self._context.reporter.warm_start(panel, split, start, parts)
            self._announced = True
        if network.experts is None:
            return network
        if self._solved is None or self._solved[0] is not split:  # all members have the same experts
            with self._context.reporter.stage("solving the experts"):
                solve_experts(network, panel, plan, split, self.store)
            self._tune(network, plan, split)
            self._solved = split, network.experts
        network.experts = copy.deepcopy(self._solved[1])
        return network

    def _tune(self, network: Network, plan: Plan, split: Split) -> None:
        """Puts tuned maps into attention over experts; a second pass has those of the first."""
        assert network.experts is not None
        attention, distributed = network.experts.attention, self._context.distributed
        if self._maps is None:
            start = self._start
            before = None if start is None else start.ensemble.networks[0].experts
            if before is not None:
                put(parameters_of(before.attention), attention)
            with self._context.reporter.stage("tuning attention over experts"):
                found = 0, parameters_of(attention)
                if distributed.is_main and self._context.tunes:
                    found = tuned_maps(network, self.store, split, plan.fit.seed)
                self.tuning_steps, self._maps = broadcast_from_rank_zero(found, distributed)
        put(self._maps, attention)

    def _learner(
        self, plan: Plan, split: Split, name: str, number: int = 0
    ) -> tuple[Learner[Network], Split]:
        """A learner, and the split whose windows it validates."""
        from forecaster.fitting.mixture_learner import MixtureLearner
        from forecaster.model.learner import Learner

        network, context = self.network(plan, split, number), self._context
        own = network, plan.fit, self.panel.series_names, name, context.bf16, context.compiled
        if network.experts is None or not len(split.validation_windows):
            return Learner(*own), split
        split = replace(split, validation_windows=validation_numbers(network, split))
        stretch = stretches(split.validation, split.validation_windows, self.store.horizon)
        return MixtureLearner(*own, stretch=torch.from_numpy(stretch)), split

    def _untrained(self, name: str, plan: Plan, split: Split, number: int) -> Trained:
        plan = of_member(plan, number)
        network = self.network(plan, split, number).requires_grad_(False).eval()
        _forget_held_out(network)
        return Trained(name, network, plan.fit.seed, 0, 0, 0, curves={}, ended=False)

    def _trained(self, name: str, plan: Plan, split: Split, number: int) -> Trained:
        from forecaster.fitting.train import train

        plan = of_member(plan, number)
        learner, validated = self._learner(plan, split, name, number)
        best = train(learner, self.store, validated, plan, self._context)
        network = learner.average
        merge(network)
        _forget_held_out(network)
        return Trained(
            name=name,
            network=network,
            seed=plan.fit.seed,
            steps=learner.global_step,
            best_step=best.step,
            refit_steps=best.taken,
            curves=learner.curves,
            ended=learner.ended and not best.over,
            why=best.why,
        )


def _forget_held_out(network: Network) -> None:
    """Drops the linear maps that only training windows are forecast by."""
    if network.experts is not None and network.experts.linear is not None:
        network.experts.linear.held_out = ()
        if network.experts.arx is not None:
            network.experts.arx.held_out = None


def trains_network(plan: Plan, split: Split) -> bool:
    """Returns whether a network is trained: beside several experts only in some steps that windows validate.

    Unvalidated it was no safe half of the forecast: on 18 monthly rows with horizon 12 the error was 1.4 to
    1.7 times that of seasonal naive in three of six tables.
    """
    experts = plan.model.pool.experts
    validated = plan.fit.steps > 0 and len(split.validation_windows) > 0
    return not experts or (len(experts) > 1 and validated)


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
        "ended": first.why,
        "curves": curves_of((member.name, member.curves) for member in members),
        "members": rows,
    }


def curves_of(trained: Iterable[tuple[str, Curves]]) -> dict[str, list[list[float]]]:
    """Returns the curves of named trainings; those of the first training have their bare names."""
    return {
        f"{training}/{name}" if training else name: [list(point) for point in curve]
        for training, curves in trained
        for name, curve in curves.items()
    }
